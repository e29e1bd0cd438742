"""Import of optional libraries, with an error that says what to install."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fairerclip.errors import MissingExtraError


def require(module: str, extra: str, purpose: str) -> Any:
    """Import and return an optional module; raise `MissingExtraError` with the extra to install if it is absent."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f'{purpose} needs {module.partition(".")[0]}, which is not installed: pip install "fairerclip[{extra}]" '
            f"({error})"
        ) from None
