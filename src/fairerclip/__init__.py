"""Measure and mitigate bias and spurious correlation in CLIP-like models.

Data flows one way through the package::

    data  →  labels  →  features  →  solver  →  model  →  path, metrics  →  cli

The names below are imported when first used, so that ``import fairerclip`` is instant.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "FairerCLIP": "fairerclip.model",
    "SoftValues": "fairerclip.labels",
    "TauPath": "fairerclip.path",
    "Task": "fairerclip.data",
    "load_task": "fairerclip.data",
}

__all__ = ["FairerCLIP", "SoftValues", "Task", "TauPath", "__version__", "load_task"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fairerclip' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
