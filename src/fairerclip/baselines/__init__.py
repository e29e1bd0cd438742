"""Other methods with the `fit` and `predict` of `FairerCLIP`, for comparison; see docs/explanation/baselines.md.

Each class has in ``needs`` what it must be given and the paper it is from. Names are imported when first used.
"""

from fairerclip._util.lazy import lazy

BASELINES = {
    "AFR": "afr",
    "Adapter": "adapter",
    "BendVLM": "bend_vlm",
    "CLIPClip": "clip_clip",
    "ContrastiveAdapter": "contrastive_adapter",
    "DFR": "dfr",
    "DeAR": "dear",
    "JTT": "jtt",
    "LEACE": "leace",
    "LinearProbe": "linear_probe",
    "NeutralRepresentation": "neutral_representation",
    "OrthCali": "orth_cali",
    "OrthProj": "orth_proj",
    "PPA": "ppa",
    "PRISM": "prism",
    "PerceptionCLIP": "perception_clip",
    "PromptDebiasing": "prompt_debiasing",
    "RoboShot": "roboshot",
    "Rotation": "rotation",
    "SFID": "sfid",
    "SPD": "spd",
    "TIE": "tie",
    "WiSE": "wise",
    "ZeroShot": "zero_shot",
}
"""Class → module of this package; a saved model can only name one of these classes."""

_HOMES = {**BASELINES, "Baseline": "baseline", "load_baseline": "file", "save_baseline": "file"}

__all__ = ["BASELINES", *_HOMES]  # noqa: PLE0604 - kept in one place
__getattr__, __dir__ = lazy(__name__, _HOMES)
