"""Metrics of predictions, rankings and representations by group.

``groups`` has accuracies per class and sensitive value, ``retrieval`` the shares of groups at the top of a ranking,
and ``dependence`` the dependence of a representation on an attribute, with intervals and tests. Names are imported
when first used.
"""

from fairerclip._util.lazy import lazy

_HOMES = {
    "AucReport": "groups.auc",
    "DependenceResult": "dependence.dependence_intervals",
    "Estimate": "intervals",
    "FIGURES": "names",
    "GroupReport": "groups.group_report",
    "PairedEstimate": "intervals",
    "PairedReport": "groups.paired",
    "PermutationResult": "dependence.permutation",
    "RankingDrift": "retrieval.rank_quality",
    "RetrievalChanges": "retrieval.retrieval_report",
    "RetrievalReport": "retrieval.retrieval_report",
    "able": "retrieval.skew",
    "auc_report": "groups.auc",
    "average_precision": "retrieval.inside_groups",
    "bias_at_k": "retrieval.skew",
    "cell_accuracies": "groups.cells",
    "correlation_inside_groups": "retrieval.inside_groups",
    "dep": "dependence.measures",
    "dependence_interval": "dependence.dependence_intervals",
    "dependence_test": "dependence.dependence_intervals",
    "group_report": "groups.group_report",
    "hsic": "dependence.measures",
    "hsic_bound": "dependence.measures",
    "kcc": "dependence.measures",
    "kl_at_k": "retrieval.skew",
    "max_skew": "retrieval.skew",
    "min_skew": "retrieval.skew",
    "ndkl": "retrieval.skew",
    "paired_report": "groups.paired",
    "permutation_test": "dependence.permutation",
    "precision_at_k": "retrieval.rank_quality",
    "query_skews": "retrieval.query_skews",
    "ranking_drift": "retrieval.rank_quality",
    "recall_at_k": "retrieval.rank_quality",
    "resample": "groups.cells",
    "retrieval_changes": "retrieval.retrieval_report",
    "retrieval_report": "retrieval.retrieval_report",
    "seed_spread": "groups.seeds",
    "shrunken_worst_group": "groups.cells",
}

__all__ = [*_HOMES]  # noqa: PLE0604 - kept in one place, in order
__getattr__, __dir__ = lazy(__name__, _HOMES)
