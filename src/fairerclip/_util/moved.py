"""Old module names of an earlier release: they still work with a warning, and are removed in the next release."""

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

from fairerclip.errors import RenamedWarning


def moved(old: str, new: str, note: str = "") -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module that has moved: it takes names from the new module and warns.

    ``note`` is added to the warning, to name further differences.
    """

    def get(name: str) -> Any:
        if name.startswith("__"):  # the import system and tools look for such names
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        value = getattr(import_module(new), name)
        message = f"{old} is called {new} now; the old name is removed in the next release{note}"
        warnings.warn(message, RenamedWarning, stacklevel=2)
        return value

    return get
