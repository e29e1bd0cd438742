"""Other methods with the `fit` and `predict` of `FairerCLIP`, for comparison; see docs/explanation/baselines.md.

Each class has in ``needs`` what it must be given and the paper it is from. Names are imported when first used.
"""

from fairerclip._util.lazy import lazy

BASELINES = {
    "AFR": "afr",
    "Adapter": "adapter",
    "ContrastiveAdapter": "contrastive_adapter",
    "DFR": "dfr",
    "JTT": "jtt",
    "LEACE": "leace",
    "LinearProbe": "linear_probe",
    "OrthCali": "orth_cali",
    "OrthProj": "orth_proj",
    "PPA": "ppa",
    "WiSE": "wise",
    "ZeroShot": "zero_shot",
}
"""Class → module of this package; a saved model can only name one of these classes."""

_HOMES = {**BASELINES, "Baseline": "baseline", "load_baseline": "file", "save_baseline": "file"}

__all__ = ["BASELINES", *_HOMES]  # noqa: PLE0604 - kept in one place
__getattr__, __dir__ = lazy(__name__, _HOMES)
