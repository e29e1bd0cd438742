"""What a prediction, a ranking or a representation does to groups.

``groups`` reports accuracies per class and sensitive value, ``cells`` counts them, ``retrieval`` measures
who is shown at the top of a ranking, ``dependence`` what a representation holds of an attribute, and
``permutation`` says whether that is more than chance. Names are imported when first used.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "DependenceResult": "dependence_intervals",
    "Estimate": "estimate",
    "FIGURES": "names",
    "GroupReport": "groups",
    "PairedEstimate": "estimate",
    "PairedReport": "paired",
    "PermutationResult": "permutation",
    "RankingDrift": "ranking",
    "RetrievalChanges": "retrieval_intervals",
    "RetrievalReport": "retrieval_intervals",
    "cell_accuracies": "cells",
    "dep": "dependence",
    "dependence_interval": "dependence_intervals",
    "dependence_test": "dependence_intervals",
    "group_report": "groups",
    "hsic": "dependence",
    "hsic_bound": "dependence",
    "kcc": "dependence",
    "max_skew": "retrieval",
    "min_skew": "retrieval",
    "ndkl": "retrieval",
    "paired_report": "paired",
    "permutation_test": "permutation",
    "precision_at_k": "ranking",
    "ranking_drift": "ranking",
    "recall_at_k": "ranking",
    "resample": "bootstrap",
    "retrieval_changes": "retrieval_intervals",
    "retrieval_report": "retrieval_intervals",
    "seed_spread": "seeds",
    "shrunken_worst_group": "cells",
}

__all__ = [*_HOMES]  # noqa: PLE0604 - kept in one place, in order


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"fairerclip.metrics.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'fairerclip.metrics' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
