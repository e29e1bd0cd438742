"""Measure and mitigate bias and spurious correlation in CLIP-like models.

Data pass through the subpackages in one direction::

    data, encoders  →  inputs  →  features  →  solver  →  model, tuning  →  experiment  →  auditing  →  report  →  cli

Public names are imported when they are first used, so that ``import fairerclip`` is fast.
"""

from fairerclip._util.lazy import lazy

__version__ = "0.1.0"

_HOMES = {
    "EmbeddingMitigator": "embedding.mitigator",
    "FairerCLIP": "model.estimator",
    "FairerCLIPSearch": "tuning.search",
    "SoftValues": "inputs.sensitive_columns",
    "Task": "data.task",
    "TauPath": "model.path",
    "audit": "report.audit_call",
    "check": "auditing.input_check",
    "distribute": "data.distribution",
    "load": "model.archive",
    "load_task": "data.task",
    "mitigate_store": "applying.mitigated_files",
    "wrap": "export.wrap_clip",
}

__all__ = [
    "EmbeddingMitigator",
    "FairerCLIP",
    "FairerCLIPSearch",
    "SoftValues",
    "Task",
    "TauPath",
    "__version__",
    "audit",
    "check",
    "distribute",
    "load",
    "load_task",
    "mitigate_store",
    "wrap",
]
__getattr__, _names = lazy(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*_names(), "__version__"])
