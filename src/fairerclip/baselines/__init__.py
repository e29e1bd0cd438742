"""Other methods behind the `fit` and `predict` of `FairerCLIP`, to compare with; see docs/baselines.md.

Each says in ``needs`` what it must be given and whose it is. Names are imported when first used.
"""

from importlib import import_module
from typing import Any

BASELINES = {
    "Adapter": "adapter",
    "ContrastiveAdapter": "contrastive_adapter",
    "DFR": "dfr",
    "LEACE": "leace",
    "LinearProbe": "linear_probe",
    "OrthCali": "orth_cali",
    "OrthProj": "orth_proj",
    "WiSE": "wise",
    "ZeroShot": "zero_shot",
}
"""Class → module of this package: all that a saved model may name."""

_HOMES = {**BASELINES, "Baseline": "base", "load_baseline": "file", "save_baseline": "file"}

__all__ = ["BASELINES", *_HOMES]  # noqa: PLE0604 - kept in one place


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"fairerclip.baselines.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'fairerclip.baselines' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
