"""Measure and mitigate bias and spurious correlation in CLIP-like models.

Data flow one way through the rooms of the package::

    data, encoders  →  inputs  →  features  →  solver  →  model, tuning  →  experiment  →  auditing  →  report  →  cli

The names below are imported when first used, so that ``import fairerclip`` is instant.
"""

from fairerclip._util.lazy import lazy

__version__ = "0.1.0"

_HOMES = {
    "FairerCLIP": "model.estimator",
    "FairerCLIPSearch": "tuning.search",
    "SoftValues": "inputs.sensitive_columns",
    "Task": "data.task",
    "TauPath": "model.path",
    "load": "model.archive",
    "load_task": "data.task",
}

__all__ = [
    "FairerCLIP",
    "FairerCLIPSearch",
    "SoftValues",
    "Task",
    "TauPath",
    "__version__",
    "load",
    "load_task",
]
__getattr__, _names = lazy(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*_names(), "__version__"])
