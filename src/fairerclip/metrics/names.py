"""Names of all figures, their number formats, and whether higher or lower is better.

The HTML page and its script, the terminal, Markdown, CSV, the model card, drawings and comparison tables take names
from here only. `Figure.label` is the name; `Figure.short` is for the head of a narrow column or an axis.
"""

from __future__ import annotations

from typing import NamedTuple

from fairerclip._util.numbers import Kind


class Figure(NamedTuple):
    """Names and number format of a figure.

    Attributes
    ----------
    label : str
        The name.
    short : str
        A shorter name.
    kind : Kind
        Number format of `fairerclip._util.numbers.measured`: "percent" for a share, "gap" or "points" for a difference.
    better : {"higher", "lower"} or None
        The better direction; None if 0 is best.
    """

    label: str
    short: str
    kind: Kind
    better: str | None

    @property
    def change_kind(self) -> Kind:
        """Number format of a change; for a change of shares the column head says that the unit is points."""
        return "signed" if self.kind in ("number", "fine") else "change"

    @property
    def column(self) -> str:
        """Head of a narrow column; it has the unit of a difference, while a share has its unit in the cells.

        Examples
        --------
        >>> FIGURES["eod"].column, FIGURES["worst_group"].column
        ('EOD, points', 'Worst group')
        """
        return self.short if self.column_kind == self.kind else f"{self.short}, points"

    @property
    def column_kind(self) -> Kind:
        """Number format of the cells of a narrow column."""
        return "bare" if self.kind == "gap" else self.kind

    @property
    def axis(self) -> str:
        """Label of an axis whose ticks are bare numbers."""
        unit = {"percent": ", %", "gap": ", points", "points": ", points"}.get(self.kind, "")
        return f"{self.label}{unit}"


FIGURES = {
    "average": Figure("Average accuracy", "Average", "percent", "higher"),
    "train_weighted_average": Figure(
        "Average accuracy, weighted by training groups", "Train-weighted", "percent", "higher"
    ),
    "worst_group": Figure("Worst-group accuracy", "Worst group", "percent", "higher"),
    "gap": Figure("Gap between average and worst group", "Gap", "gap", "lower"),
    "eod": Figure("Equal opportunity difference (EOD)", "EOD", "gap", "lower"),
    "eod_signed": Figure("EOD with its sign", "Signed EOD", "points", None),
    "eod_mean": Figure("EOD, mean over classes", "Mean EOD", "gap", "lower"),
    "eod_mean_signed": Figure("EOD with its sign, mean over classes", "Signed mean EOD", "points", None),
    "equalized_odds_difference": Figure("Equalized odds difference", "Equalized odds", "gap", "lower"),
    "demographic_parity_difference": Figure(
        "Demographic parity difference", "Demographic parity", "gap", "lower"
    ),
}
"""All group figures, in the order in which they are shown."""
RETRIEVAL = {
    "max_skew": Figure("MaxSkew", "MaxSkew", "number", "lower"),
    "min_skew": Figure("MinSkew", "MinSkew", "number", "higher"),
    "ndkl": Figure("NDKL", "NDKL", "number", "lower"),
    "kl": Figure("KL@k", "KL", "number", "lower"),
    "bias": Figure("Bias@k", "Bias@k", "number", None),
    "precision": Figure("Precision", "Precision", "percent", "higher"),
    "recall": Figure("Recall", "Recall", "percent", "higher"),
}
"""Figures of the top k of a ranking, in the order in which they are shown."""
AUC = {
    "overall": Figure("AUC of all rows", "AUC", "percent", "higher"),
    "worst_auc": Figure("Worst-group AUC", "Worst AUC", "percent", "higher"),
    "auc_gap": Figure("Gap of AUC between groups", "AUC gap", "gap", "lower"),
}
"""Figures of class scores, in the order in which they are shown."""
ABLE = Figure("ABLE", "ABLE", "percent", "higher")
"""Harmonic mean of an accuracy and of exp(−MaxSkew)."""
DRIFT = {
    "spearman": Figure("Rank correlation with zero-shot", "Rank correlation", "number", "higher"),
    "spearman_within": Figure(
        "Rank correlation with zero-shot inside groups", "Inside groups", "number", "higher"
    ),
    "overlap": Figure("Share of the top k that stays", "Top k kept", "percent", "higher"),
}
"""Figures of how far a ranking moved."""
DEPENDENCE = {
    "dep": Figure("Dep", "Dep", "fine", "lower"),
    "hsic": Figure("HSIC", "HSIC", "fine", "lower"),
    "kcc": Figure("KCC", "KCC", "fine", "lower"),
}
"""Measures of dependence."""
REPRESENTATION = {
    "hsic_y": Figure("HSIC with Y", "HSIC with Y", "fine", "higher"),
    "hsic_s": Figure("HSIC with S", "HSIC with S", "fine", "lower"),
    "kcc_y": Figure("KCC with Y", "KCC with Y", "fine", "higher"),
    "kcc_s": Figure("KCC with S", "KCC with S", "fine", "lower"),
}
"""Dependence of a representation on the class and on the sensitive attribute."""
PROBE = Figure("Balanced accuracy", "Balanced accuracy", "percent", "lower")
"""Accuracy of a probe that predicts the sensitive attribute."""
CHANCE = Figure("Chance", "Chance", "percent", None)
"""Accuracy that a probe reaches by guessing."""
PROBES = {"linear": "linear probe", "kernel": "kernel probe"}
"""Kinds of probe."""


def figure_of(name: str, label: str | None = None) -> Figure:
    """Return a group figure by its name in the results; a name that is not in `FIGURES` keeps the file's ``label``."""
    return FIGURES[name] if name in FIGURES else Figure(label or name, label or name, "percent", None)
