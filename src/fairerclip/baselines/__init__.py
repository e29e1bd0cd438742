"""Other methods behind the `fit` and `predict` of `FairerCLIP`, to compare with; see docs/baselines.md.

Each says in ``needs`` what it must be given and whose it is. Names are imported when first used.
"""

from fairerclip._util.lazy import lazy

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

_HOMES = {**BASELINES, "Baseline": "baseline", "load_baseline": "file", "save_baseline": "file"}

__all__ = ["BASELINES", *_HOMES]  # noqa: PLE0604 - kept in one place
__getattr__, __dir__ = lazy(__name__, _HOMES)
