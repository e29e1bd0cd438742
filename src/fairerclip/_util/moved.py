"""Modules that documentation of an earlier release taught under another name: they warn, and go with the next one."""

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

from fairerclip.errors import RenamedWarning


def moved(old: str, new: str, note: str = "") -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module that has moved: names come from the new one, with a warning.

    ``note`` is added to the warning: what else is different there.
    """

    def get(name: str) -> Any:
        if name.startswith("__"):  # what the import system and tools look for
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        found = getattr(import_module(new), name)
        message = f"{old} is called {new} now; it goes in the next release{note}"
        warnings.warn(message, RenamedWarning, stacklevel=2)
        return found

    return get
