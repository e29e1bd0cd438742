"""Area under the ROC curve of class scores by sensitive value: the worst group and the gap; see docs/math.md#auc."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from fairerclip._util.checks import check_confidence
from fairerclip.errors import LabelError, ParameterError, ShapeError
from fairerclip.metrics.groups.bounds import Differences, lowest
from fairerclip.metrics.intervals import Estimate, clopper_pearson
from fairerclip.metrics.label_codes import (
    FloatArray,
    IntArray,
    Names,
    encode,
    matrix,
    name_labels,
    same_length,
)


@dataclass(frozen=True)
class GroupAuc:
    """AUC of one sensitive value, on n rows."""

    s: Any
    name: str
    n: int
    auc: Estimate

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready copy; the sensitive value is text."""
        return {"s": str(self.s), "name": self.name, "n": self.n, "auc": self.auc.as_dict()}


@dataclass(frozen=True)
class AucReport:
    """AUC of class scores in each group of a sensitive attribute; made by `auc_report`.

    Attributes
    ----------
    groups : tuple of GroupAuc
        One per sensitive value that has rows of every class.
    overall : Estimate
        AUC of all rows together, which also compares rows of different groups.
    worst : GroupAuc
        The group with the lowest AUC. ``worst.auc`` has the interval of that group.
    worst_auc : Estimate
        The lowest AUC, with the interval of the lowest true AUC of any group.
    auc_gap : Estimate or None
        Largest minus smallest AUC; None with one group only.
    classes : tuple
        The classes.
    positive : label or None
        The positive class of two; None for the mean over classes, each against the rest.
    left_out : tuple of str
        Names of sensitive values that lack rows of a class, so that their AUC is not defined.
    confidence : float
        Confidence of the intervals.
    """

    groups: tuple[GroupAuc, ...]
    overall: Estimate
    worst: GroupAuc
    worst_auc: Estimate
    auc_gap: Estimate | None
    classes: tuple[Any, ...]
    positive: Any
    left_out: tuple[str, ...]
    confidence: float

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready copy: labels are text, and ``worst`` is the name of the group."""
        return {
            "groups": [group.as_dict() for group in self.groups],
            "overall": self.overall.as_dict(),
            "worst": self.worst.name,
            "worst_auc": self.worst_auc.as_dict(),
            "auc_gap": None if self.auc_gap is None else self.auc_gap.as_dict(),
            "classes": [str(label) for label in self.classes],
            "positive": None if self.positive is None else str(self.positive),
            "left_out": list(self.left_out),
            "confidence": self.confidence,
        }


def auc_report(
    y_true: Any,
    scores: ArrayLike,
    sensitive_features: Any,
    *,
    positive: Hashable | None = None,
    classes: Sequence[Any] | None = None,
    sensitive_names: Names | None = None,
    confidence: float = 0.95,
) -> AucReport:
    """Report the AUC of class scores in every group, the worst group and the gap between groups.

    The AUC is the share of pairs of a positive and a negative row in which the positive row has the higher score; ties
    count one half. For several classes it is the mean over classes of the AUC of each against the rest. Intervals have
    DeLong's variance, with class sizes fixed. O(c·n log n) time, O(n·c) memory. See docs/math.md#auc.

    Parameters
    ----------
    y_true : label array of shape (n,)
        The classes.
    scores : array of shape (n,) for two classes, or (n, c)
        Scores of the positive class (of two prompts: the difference of the two similarities), or of each class.
    sensitive_features : label array of shape (n,) or (n, m)
        Several columns are intersected.
    positive : label, optional
        The positive class; needed for two classes, and only for two.
    classes : sequence of labels, optional
        The classes of the columns of ``scores`` (n, c); needed for more than two.
    sensitive_names : sequence or mapping, optional
        Names to print, as in `group_report`.
    confidence : float, default=0.95
        Confidence of the intervals.

    Returns
    -------
    AucReport
        The interval of the worst group accounts for the choice of the lowest, and that of the gap for the choice of
        the largest difference.

    Examples
    --------
    >>> y, s = [1, 0, 1, 0, 1, 0, 1, 0], list("aaaabbbb")
    >>> report = auc_report(y, [4, 1, 3, 2, 4, 3, 1, 2], s, positive=1)
    >>> [group.auc.value for group in report.groups], report.worst.name, report.auc_gap.value
    ([1.0, 0.5], 'b', 0.5)
    """
    check_confidence(confidence)
    y, labels = encode(y_true, "y_true")
    s, values = encode(sensitive_features, "sensitive_features")
    table = matrix(scores, "scores")  # (n, 1) or (n, c)
    if same_length(y_true=y, scores=table, sensitive_features=s) == 0:
        raise ShapeError("expected at least one row, got 0 rows")
    codes, columns = _positives(y, labels, table, np.ndim(scores), positive, classes)
    groups = _Groups(s, *_names(values, sensitive_names))
    return _report(groups, (y, labels), (codes, columns), positive, confidence)


@dataclass(frozen=True, eq=False)
class _Groups:
    """Sensitive value of each row as a code (n,), the values, and their names."""

    codes: IntArray
    values: list[Any]
    names: list[str]


def _report(
    sensitive: _Groups,
    classes: tuple[IntArray, list[Any]],
    scores: tuple[list[int], FloatArray],
    positive: Any,
    confidence: float,
) -> AucReport:
    """Build the report from codes and labels of the classes, and the positive class of each column of scores."""
    (y, labels), (codes, columns) = classes, scores
    rows = [np.flatnonzero(sensitive.codes == code) for code in range(len(sensitive.values))]
    defined = [code for code, kept in enumerate(rows) if _has_all(y[kept], len(labels))]
    if not defined:
        raise LabelError(
            f"no group has rows of all {len(labels)} classes, so that no AUC is defined; give more rows or fewer groups"
        )
    parts = (np.arange(len(y)), *(rows[code] for code in defined))
    found = [_mean_auc(y[kept], columns[kept], codes) for kept in parts]
    overall, *each = (_estimate(value, size, confidence) for value, size in found)
    groups = tuple(
        GroupAuc(sensitive.values[code], sensitive.names[code], len(rows[code]), auc)
        for code, auc in zip(defined, each, strict=True)
    )
    theta, size = np.array(found[1:]).T
    worst = min(groups, key=lambda group: group.auc.value)
    return AucReport(
        groups=groups,
        overall=overall,
        worst=worst,
        worst_auc=Estimate(worst.auc.value, *lowest(theta * size, size, confidence)),
        auc_gap=_gap(theta, size, confidence),
        classes=tuple(labels),
        positive=positive,
        left_out=tuple(name for code, name in enumerate(sensitive.names) if code not in defined),
        confidence=confidence,
    )


def _names(values: list[Any], given: Names | None) -> tuple[list[Any], list[str]]:
    """Return the sensitive values and their names; values of ``given`` without rows come after those with rows."""
    every, names = name_labels(values, given, "s")
    named = dict(zip(every, names, strict=True))
    order = [*values, *(value for value in every if value not in values)]
    return order, [named[value] for value in order]


def _positives(
    y: IntArray, labels: list[Any], table: FloatArray, ndim: int, positive: Any, classes: Sequence[Any] | None
) -> tuple[list[int], FloatArray]:
    """Return the code of the positive class of each column, and the columns; raise if they do not fit the classes."""
    if len(labels) < 2:
        raise LabelError(f"y_true must hold at least two classes for an AUC; got {labels} alone")
    if len(labels) == 2 and classes is None:
        if positive not in labels:
            raise ParameterError(f"name the positive class: positive= one of {labels}; got {positive!r}")
        if ndim != 1:
            raise ShapeError(
                f"scores of two classes must have shape (n,), higher for {positive!r}; got {table.shape}: give the "
                "difference of the two columns"
            )
        return [labels.index(positive)], table
    if positive is not None:
        raise ParameterError(
            f"positive= is for two classes, got {len(labels)}: leave it out for the mean of each class against the rest"
        )
    if classes is None:
        raise ParameterError(f"classes= must name the class of each column of scores; y_true holds {labels}")
    columns = list(classes)
    if sorted(map(str, columns)) != sorted(map(str, labels)) or any(label not in columns for label in labels):
        raise LabelError(f"classes must hold each class of y_true once; got {columns} for {labels}")
    if table.shape[1] != len(columns):
        raise ShapeError(
            f"scores must have a column for each of {len(columns)} classes; got {table.shape[1]}"
        )
    return [labels.index(label) for label in columns], table


def _has_all(y: IntArray, n_classes: int) -> bool:
    return bool((np.bincount(y, minlength=n_classes) > 0).all())


def _mean_auc(y: IntArray, columns: FloatArray, codes: Sequence[int]) -> tuple[float, float]:
    """Return the mean AUC over columns, and the size of a binomial with its variance.

    The placement of a row is the share of rows of the other side that it beats; its mean over either side is the AUC,
    and the variance of placements inside classes gives that of the AUC (DeLong et al. 1988).
    """
    influence = np.zeros(len(y))
    aucs, least = [], len(y)
    for code, score in zip(codes, columns.T, strict=True):
        inside = y == code
        m, rest = int(inside.sum()), int((~inside).sum())
        placement = _placements(score, inside)
        aucs.append(float(placement[inside].mean()))
        influence += np.where(inside, placement / m, placement / rest) / len(codes)
        least = min(least, m, rest)
    value = float(np.mean(aucs))
    return value, _size(value, influence, y, least)


def _placements(score: FloatArray, inside: NDArray[np.bool_]) -> FloatArray:
    """Return the share of the other side that is below a row inside, or above a row outside; ties count one half."""
    ranks = rankdata(score)
    below = np.empty(len(score))  # rows of the other side below each row
    for side in (inside, ~inside):
        below[side] = ranks[side] - rankdata(score[side])
    m, rest = int(inside.sum()), int((~inside).sum())
    return np.where(inside, below / rest, 1 - below / m)


def _size(value: float, influence: FloatArray, y: IntArray, least: int) -> float:
    """Return the size of a binomial with the variance of the AUC, at least the rows of the smallest side.

    An AUC of m against n rows is a mean over all matchings of min(m, n) independent pairs, so that its variance is at
    most value·(1 − value)/min(m, n). This is also the size if a class has one row, or if all placements are equal.
    """
    variance = 0.0
    for code in np.unique(y):
        part = influence[y == code]
        if len(part) < 2:
            return float(least)
        variance += len(part) * float(part.var(ddof=1))
    return max(value * (1 - value) / variance, float(least)) if variance > 1e-20 else float(least)


def _estimate(value: float, size: float, confidence: float) -> Estimate:
    low, high = clopper_pearson(value * size, size, confidence)
    return Estimate(value, float(low), float(high))


def _gap(theta: FloatArray, size: FloatArray, confidence: float) -> Estimate | None:
    ends = Differences((theta * size)[None], size[None]).largest(confidence)
    return None if ends is None else Estimate(float(theta.max() - theta.min()), *ends)
