"""Report of accuracy per class and sensitive value, the worst group, and differences between groups.

The definitions are in `fairerclip.metrics.groups.group_figures`, the intervals in `fairerclip.metrics.groups.bounds`.
See docs/math.md#groups.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.checks import check_confidence
from fairerclip.errors import LabelError, ParameterError
from fairerclip.inputs.encode import sort_labels
from fairerclip.metrics.groups.bounds import Differences, group_intervals
from fairerclip.metrics.groups.cells import Counts, confusion_counts, resample
from fairerclip.metrics.groups.group_figures import Rates, evaluate, positive_class, positive_code
from fairerclip.metrics.groups.report_display import report_html
from fairerclip.metrics.intervals import clopper_pearson
from fairerclip.metrics.label_codes import (
    FloatArray,
    Names,
    as_labels,
    encode,
    is_missing,
    name_labels,
    recode,
    same_length,
)

SMALL_GROUP = 30
"""A group with fewer rows than this is flagged ``small``."""


@dataclass(frozen=True)
class GroupAccuracy:
    """Accuracy in one group, with its exact (Clopper-Pearson) binomial interval."""

    y: Any
    s: Any
    name: str
    n: int
    correct: int
    accuracy: float
    low: float
    high: float

    @property
    def small(self) -> bool:
        """Whether the group has fewer than 30 rows, too few to rank models by."""
        return self.n < SMALL_GROUP


@dataclass(frozen=True)
class RecallDifference:
    """Recall of one class for the sensitive value ``s`` minus that for ``reference``, with its interval."""

    y: Any
    s: Any
    reference: Any
    difference: float
    low: float
    high: float


@dataclass(frozen=True)
class GroupReport:
    """Accuracies of groups and differences between groups of one prediction; made by `group_report`.

    Attributes
    ----------
    n, dropped : int
        Rows counted, and rows left out because a label was missing.
    average : float
        Plain mean accuracy over rows.
    train_weighted_average : float or None
        Group accuracies weighted by the training group sizes; None if these are not given. Groups
        without test rows are left out. Published tables mix the two averages, so name the one you quote.
    groups : tuple of GroupAccuracy
        One entry per nonempty cell of class and sensitive value.
    worst : GroupAccuracy
        The group with the lowest accuracy. ``worst.low`` and ``worst.high`` are the interval of that group;
        ``intervals["worst_group"]`` is the interval of the lowest true accuracy of any group.
    gap : float
        ``average - worst.accuracy``.
    eod : float or None
        Equal-opportunity difference: the largest difference in recall between two sensitive values, on
        the positive class if there are two classes or one was named, else the largest over classes.
    eod_signed : float or None
        The same with its sign: recall of the later sensitive value minus that of the earlier one.
    eod_mean : float or None
        The mean over classes of the largest difference in recall.
    eod_mean_signed : float or None
        The mean over classes, and over pairs of sensitive values, of later minus earlier: differences of
        opposite sign cancel.
    equalized_odds_difference : float or None
        The largest difference in true or in false positive rate (largest over classes, one against rest).
    demographic_parity_difference : float or None
        The largest difference in selection rate (largest over classes).
    intervals : mapping from str to (low, high)
        Intervals of all figures above that are not None, and of ``worst_group``. Intervals of extremes (worst
        group, gap, largest differences) account for the choice of the most extreme one.
    differences : tuple of RecallDifference
        Each pair of sensitive values in each class, later minus earlier, each with its own interval.
    confusion : nested tuples of int of shape (|S|, c, c)
        Rows by sensitive value, class and predicted class; all figures above follow from it.
    empty : tuple of str
        Names of cells without rows, which are left out of all figures.
    classes, sensitive : tuple
        The labels, in the order of their codes.
    positive : label or None
        The class that ``eod`` is computed on; None if it is the largest over all classes.
    confidence : float
        Confidence of the intervals.
    train_groups : mapping from (y, s) to int, or None
        Training group sizes as given.

    Notes
    -----
    A difference is None if no two sensitive values can be compared. For two classes and no empty cell
    the last two differences equal those of fairlearn, which takes the rates of an empty cell as zero.
    """

    n: int
    dropped: int
    average: float
    train_weighted_average: float | None
    groups: tuple[GroupAccuracy, ...]
    worst: GroupAccuracy
    gap: float
    eod: float | None
    eod_signed: float | None
    eod_mean: float | None
    eod_mean_signed: float | None
    equalized_odds_difference: float | None
    demographic_parity_difference: float | None
    intervals: Mapping[str, tuple[float, float]]
    differences: tuple[RecallDifference, ...]
    confusion: tuple[tuple[tuple[int, ...], ...], ...]
    empty: tuple[str, ...]
    classes: tuple[Any, ...]
    sensitive: tuple[Any, ...]
    positive: Any
    confidence: float
    train_groups: Mapping[Any, int] | None = field(default=None, repr=False)
    _repr_html_ = report_html

    @property
    def worst_group(self) -> float:
        """``worst.accuracy``, under the name of its interval."""
        return self.worst.accuracy

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready copy: only dict, list, str, int, float, bool and None."""
        plain = {name: _plain(value) for name, value in vars(self).items() if name != "train_groups"}
        plain["groups"] = [_group_dict(group) for group in self.groups]
        plain["worst"] = _group_dict(self.worst)
        plain["differences"] = [_plain(vars(difference)) for difference in self.differences]
        return plain

    def bootstrap(self, n_replicates: int = 1000, random_state: Any = None) -> dict[str, FloatArray]:
        """Return replicates (n_replicates,) of every figure from resampled counts, NaN where it is not defined.

        Use them for standard errors and for quantities of your own. The cost does not depend on the number of rows.
        Percentiles of extremes (worst group, gap, largest differences) are *not* intervals, because the lowest of
        resampled rates is biased further down; use ``intervals`` for these.

        Examples
        --------
        >>> report = group_report([0, 1] * 50, [0, 1, 1, 1] * 25, ["a", "a", "b", "b"] * 25)
        >>> float(report.bootstrap(1000, random_state=0)["average"].std().round(2))
        0.04
        """
        replicates = resample(np.array(self.confusion), n_replicates, random_state)
        train = train_counts(self.classes, self.sensitive, self.train_groups)
        return evaluate(replicates, positive_code(self.classes, self.positive), train)

    def to_metric_frame(self, metrics: Any = None) -> Any:
        """Return the same predictions as a `fairlearn.metrics.MetricFrame` by sensitive value (extra ``fairlearn``).

        ``metrics`` are those of `MetricFrame`; the default is accuracy and count, and for two classes also selection
        rate and true and false positive rates. O(n) memory.
        """
        from fairerclip.metrics.groups.metric_frame import to_metric_frame

        return to_metric_frame(self, metrics)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


def _group_dict(group: GroupAccuracy) -> dict[str, Any]:
    return {**{name: _plain(value) for name, value in vars(group).items()}, "small": group.small}


@dataclass(frozen=True, eq=False)
class Table:
    """Counts N (|S|, c, c), the labels of both axes, and the names of the cells."""

    N: Counts
    classes: list[Any]
    sensitive: list[Any]
    names: list[list[str]]


def _same_kind(true: list[Any], predicted: list[Any]) -> None:
    """Raise if one has text labels and the other numbers: every prediction would silently count as wrong."""
    kinds = [{isinstance(label, str) for label in labels} for labels in (true, predicted)]
    if kinds[0].isdisjoint(kinds[1]):
        raise LabelError(
            f"y_true holds labels like {true[0]!r}, y_pred like {predicted[0]!r}; give both the same labels"
        )


def tabulate(
    arrays: Mapping[str, NDArray[Any]],
    train: Mapping[Any, int],
    class_names: Names | None,
    sensitive_names: Names | None,
) -> tuple[Table, list[NDArray[np.intp]]]:
    """Return counts of the first prediction, and codes of all arrays: y_true, sensitive_features, then predictions."""
    encoded = {name: encode(array, name) for name, array in arrays.items()}
    (y, ys), (a, ss), *predicted = encoded.values()
    for _, labels in predicted:
        _same_kind(ys, labels)
    known = sort_labels([*ys, *(v for _, labels in predicted for v in labels), *(key[0] for key in train)])
    classes, y_names = name_labels(known, class_names, "y")
    known = sort_labels([*ss, *(key[1] for key in train)])
    sensitive, s_names = name_labels(known, sensitive_names, "s")
    codes = [recode(y, ys, classes), recode(a, ss, sensitive)]
    codes += [recode(p, labels, classes) for p, labels in predicted]
    N = confusion_counts(*codes[:3], n_classes=len(classes), n_sensitive=len(sensitive))
    names = [[f"{first} × {second}" for second in s_names] for first in y_names]
    return Table(N, classes, sensitive, names), codes


def read_labels(given: Mapping[str, Any], missing: Any) -> tuple[dict[str, NDArray[Any]], int]:
    """Return the given arrays without rows whose label is missing, and the number of those rows."""
    arrays = {name: as_labels(values, name) for name, values in given.items()}
    total = same_length(**arrays)
    groups = arrays["sensitive_features"]
    if groups.dtype.kind == "f" and np.any(groups[np.isfinite(groups)] % 1):
        raise LabelError(
            "sensitive_features holds fractional numbers, but groups need categories; bin them first"
        )
    keep = ~(is_missing(arrays["y_true"], missing) | is_missing(groups, missing))
    if not keep.any():
        raise LabelError(
            f"expected at least one row with labels, got none in {total} rows; give y_true and sensitive_features"
        )
    return {name: array[keep] for name, array in arrays.items()}, total - int(keep.sum())


def group_report(
    y_true: Any,
    y_pred: Any,
    sensitive_features: Any,
    *,
    train_groups: Mapping[Any, int] | None = None,
    class_names: Names | None = None,
    sensitive_names: Names | None = None,
    positive: Hashable | None = None,
    missing: Any = None,
    confidence: float = 0.95,
) -> GroupReport:
    """Report the accuracy in every cell of class and sensitive value, and the differences between cells.

    O(n log n) time, O(n + c·|S|) memory. See docs/math.md#groups.

    Parameters
    ----------
    y_true, y_pred : label array of shape (n,)
        Any hashable labels.
    sensitive_features : label array of shape (n,) or (n, m)
        Several columns are intersected; a label is then a tuple.
    train_groups : mapping from (y, s) to count, optional
        Sizes of the training groups, for `GroupReport.train_weighted_average`.
    class_names, sensitive_names : sequence or mapping, optional
        Names to print: a mapping from label to name, or a list in the order of the labels (for integer
        labels: of the labels 0, 1, 2 …, so that values without rows are reported as empty).
    positive : label, optional
        The class that ``eod`` is computed on. The default for two numeric classes is the larger one, and for two
        named classes the second in sorted order, with a `PositiveClassWarning`.
    missing : label, optional
        Rows where ``y_true`` or a sensitive value is this label are dropped and counted.
    confidence : float, default=0.95
        Confidence of the intervals.

    Returns
    -------
    GroupReport
        All figures with their intervals.

    Examples
    --------
    >>> y, p = ["cat", "cat", "dog", "dog"], ["cat", "dog", "dog", "dog"]
    >>> report = group_report(y, p, ["day", "night", "day", "night"], positive="cat")
    >>> report.average, report.worst.name, report.worst.accuracy, report.eod
    (0.75, 'cat × night', 0.0, 1.0)
    """
    check_confidence(confidence)
    given = {"y_true": y_true, "sensitive_features": sensitive_features, "y_pred": y_pred}
    arrays, dropped = read_labels(given, missing)
    table, _ = tabulate(arrays, train_groups or {}, class_names, sensitive_names)
    return assemble(table, train_groups, positive_class(table.classes, positive), confidence, dropped)


def train_counts(
    classes: Sequence[Any], sensitive: Sequence[Any], train_groups: Mapping[Any, int] | None
) -> FloatArray | None:
    """Return the training group sizes (c, |S|) in the order of the labels."""
    if train_groups is None:
        return None
    rows, columns = list(classes), list(sensitive)
    counts = np.zeros((len(rows), len(columns)))
    for (y, s), size in train_groups.items():
        if not size >= 0:
            raise ParameterError(f"train_groups must hold counts of at least 0; got {size} for {(y, s)}")
        counts[rows.index(y), columns.index(s)] = size
    return counts


def assemble(
    table: Table,
    train_groups: Mapping[Any, int] | None,
    positive: Any,
    confidence: float,
    dropped: int,
) -> GroupReport:
    """Build the report from counts; ``positive`` is the result of `positive_class`."""
    code = positive_code(table.classes, positive)
    train = train_counts(table.classes, table.sensitive, train_groups)
    rates = Rates.of(table.N)
    if train is not None and not train[rates.counts > 0].any():
        raise LabelError(f"no group of train_groups has rows here: it names {list(train_groups or {})}")
    values = {name: None if np.isnan(v) else float(v) for name, v in evaluate(table.N, code, train).items()}
    groups = _groups(table, rates, confidence)
    worst = min(groups, key=lambda group: group.accuracy)
    del values["worst_group"]  # `worst` has it
    return GroupReport(
        n=int(table.N.sum()),
        dropped=dropped,
        groups=groups,
        worst=worst,
        **values,  # type: ignore[arg-type]  # average and gap are never None: there are rows
        intervals=group_intervals(table.N, confidence, code, train),
        differences=_differences(table, rates, confidence),
        confusion=tuple(tuple(tuple(map(int, row)) for row in square) for square in table.N),
        empty=tuple(table.names[i][j] for i, j in np.argwhere(rates.counts == 0)),
        classes=tuple(table.classes),
        sensitive=tuple(table.sensitive),
        positive=positive,
        confidence=confidence,
        train_groups=train_groups,
    )


def _groups(table: Table, rates: Rates, confidence: float) -> tuple[GroupAccuracy, ...]:
    hits, counts = rates.recall
    low, high = clopper_pearson(hits, np.maximum(counts, 1), confidence)
    return tuple(
        GroupAccuracy(
            y=table.classes[i],
            s=table.sensitive[j],
            name=table.names[i][j],
            n=int(counts[i, j]),
            correct=int(hits[i, j]),
            accuracy=float(hits[i, j] / counts[i, j]),
            low=float(low[i, j]),
            high=float(high[i, j]),
        )
        for i, j in np.argwhere(counts).tolist()
    )


def _differences(table: Table, rates: Rates, confidence: float) -> tuple[RecallDifference, ...]:
    recall = Differences(*rates.recall)
    ends = zip(recall.pairs, recall.values(), *recall.limits(confidence), strict=True)
    return tuple(
        RecallDifference(
            table.classes[y],
            table.sensitive[second],
            table.sensitive[first],
            float(d),
            float(low),
            float(high),
        )
        for (y, first, second), d, low, high in ends
    )
