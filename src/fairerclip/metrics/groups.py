"""Accuracy per class and sensitive value, the worst group, and differences between groups.

One way of counting serves one prediction and a path of hundreds: `fairerclip.metrics.cells`.
See docs/math.md#groups.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.errors import LabelError, ParameterError
from fairerclip.labels import sort_labels
from fairerclip.metrics._inputs import (
    Names,
    as_labels,
    encode,
    is_missing,
    name_labels,
    recode,
    same_length,
)
from fairerclip.metrics.cells import Counts, cell_accuracies
from fairerclip.metrics.intervals import Pair, clopper_pearson, newcombe, widest

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
class GroupReport:
    """What a prediction does to each group; made by `group_report`.

    Attributes
    ----------
    n, dropped : int
        Rows counted, and rows left out because a label was missing.
    average : float
        Plain mean accuracy over rows.
    train_weighted_average : float or None
        Group accuracies weighted by the training group sizes; None where these are not known. Groups
        without test rows are left out of it. Published tables mix the two averages: name the one you quote.
    groups : tuple of GroupAccuracy
        One entry per nonempty cell of class and sensitive value.
    worst : GroupAccuracy
        The group of lowest accuracy. Its interval is that of its own binomial: it does not account for
        the group having been chosen as the lowest.
    gap : float
        ``average - worst.accuracy``.
    eod : float or None
        Equal-opportunity difference: the largest difference in recall between two sensitive values, on
        the positive class if there are two classes or one was named, else the largest over classes.
    eod_mean : float or None
        The mean over classes of the largest difference in recall.
    equalized_odds_difference : float or None
        The largest difference in true or in false positive rate (largest over classes, one against rest).
    demographic_parity_difference : float or None
        The largest difference in selection rate (largest over classes).
    intervals : mapping from str to (low, high)
        Of ``average`` (exact binomial), of ``gap`` and of the three differences above but the mean:
        Newcombe's interval of the *signed* difference of the two rates that attain it, which may reach
        below 0. As with ``worst``, it does not account for the pair having been chosen as the widest.
    empty : tuple of str
        Names of cells without rows, skipped everywhere above.
    classes, sensitive : tuple
        The labels, in the order of their codes.
    confidence : float
        Of the intervals.

    Notes
    -----
    A difference is None where no two sensitive values can be compared. For two classes and no empty cell
    the last two differences are those of fairlearn, which takes the rates of an empty cell to be zero.
    """

    n: int
    dropped: int
    average: float
    train_weighted_average: float | None
    groups: tuple[GroupAccuracy, ...]
    worst: GroupAccuracy
    gap: float
    eod: float | None
    eod_mean: float | None
    equalized_odds_difference: float | None
    demographic_parity_difference: float | None
    intervals: Mapping[str, tuple[float, float]]
    empty: tuple[str, ...]
    classes: tuple[Any, ...]
    sensitive: tuple[Any, ...]
    confidence: float

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready copy: only dict, list, str, int, float, bool and None."""
        plain = {name: _plain(value) for name, value in vars(self).items()}
        plain["groups"] = [_group_dict(group) for group in self.groups]
        plain["worst"] = _group_dict(self.worst)
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


def _group_dict(group: GroupAccuracy) -> dict[str, Any]:
    return {**{name: _plain(value) for name, value in vars(group).items()}, "small": group.small}


@dataclass(frozen=True)
class _Cells:
    """Counts per class and sensitive value, (c, |S|) each, with the labels of both axes and their names."""

    hits: Counts
    counts: Counts
    selected: Counts
    classes: list[Any]
    sensitive: list[Any]
    names: list[list[str]]

    def groups(self, confidence: float) -> list[GroupAccuracy]:
        cells = [(int(i), int(j)) for i, j in np.argwhere(self.counts)]
        low, high = clopper_pearson(self.hits, np.maximum(self.counts, 1), confidence)
        return [
            GroupAccuracy(
                y=self.classes[i],
                s=self.sensitive[j],
                name=self.names[i][j],
                n=int(self.counts[i, j]),
                correct=int(self.hits[i, j]),
                accuracy=float(self.hits[i, j] / self.counts[i, j]),
                low=float(low[i, j]),
                high=float(high[i, j]),
            )
            for i, j in cells
        ]

    def weighted_average(self, train: Mapping[Any, int]) -> float:
        weights = np.zeros(self.counts.shape)
        for (y, s), size in train.items():
            if not size >= 0:
                raise ParameterError(f"train_groups must hold counts of at least 0; got {size} for {(y, s)}")
            weights[self.classes.index(y), self.sensitive.index(s)] = size
        weights[self.counts == 0] = 0
        if not weights.any():
            raise LabelError(f"no group of train_groups has rows here: it names {list(train)}")
        return float((weights * self.hits / np.maximum(self.counts, 1)).sum() / weights.sum())


def _same_kind(true: list[Any], predicted: list[Any]) -> None:
    """Refuse text against numbers: every prediction would silently count as wrong."""
    kinds = [{isinstance(label, str) for label in labels} for labels in (true, predicted)]
    if kinds[0].isdisjoint(kinds[1]):
        raise LabelError(
            f"y_true holds labels like {true[0]!r}, y_pred like {predicted[0]!r}; give both the same labels"
        )


def _tabulate(
    arrays: Mapping[str, NDArray[Any]],
    train: Mapping[Any, int],
    class_names: Names | None,
    sensitive_names: Names | None,
) -> _Cells:
    (y, ys), (p, ps), (a, ss) = (encode(array, name) for name, array in arrays.items())
    _same_kind(ys, ps)
    known = sort_labels([*ys, *ps, *(key[0] for key in train)])
    classes, y_names = name_labels(known, class_names, "y")
    known = sort_labels([*ss, *(key[1] for key in train)])
    sensitive, s_names = name_labels(known, sensitive_names, "s")
    y, p, a = recode(y, ys, classes), recode(p, ps, classes), recode(a, ss, sensitive)
    shape = len(classes), len(sensitive)
    hits, counts = cell_accuracies(y, p, a, *shape)
    selected = cell_accuracies(p, p, a, *shape)[1]
    names = [[f"{first} × {second}" for second in s_names] for first in y_names]
    return _Cells(hits[0], counts, selected, classes, sensitive, names)


def _differences(cells: _Cells, positive: Hashable | None) -> dict[str, list[Pair]]:
    """Candidate pairs of each difference; the widest is the one reported."""
    hits, counts, selected, classes = cells.hits, cells.counts, cells.selected, cells.classes
    rows = np.broadcast_to(counts.sum(axis=0), counts.shape)
    recall = widest(hits, counts)
    if positive is not None and positive not in classes:
        raise LabelError(f"positive={positive!r} is none of the classes {classes}")
    chosen = recall
    if positive is not None or len(classes) == 2:
        row = [1 if positive is None else classes.index(positive)]
        chosen = widest(hits[row], counts[row])
    return {
        "eod": chosen,
        "eod_mean": recall,
        "equalized_odds_difference": recall + widest(selected - hits, rows - counts),
        "demographic_parity_difference": widest(selected, rows),
    }


def _gap_interval(correct: int, n: int, worst: GroupAccuracy, confidence: float) -> tuple[float, float]:
    """Interval of (1 − w)·(accuracy outside the worst group − inside), w its share: independent samples."""
    outside = n - worst.n
    if outside == 0:
        return 0.0, 0.0
    low, high = newcombe(correct - worst.correct, outside, worst.correct, worst.n, confidence)
    return low * outside / n, high * outside / n


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
    """Accuracy in every cell of class and sensitive value, and the differences between them.

    O(n log n) time, O(n + c·|S|) memory. See docs/math.md#groups.

    Parameters
    ----------
    y_true, y_pred : array of labels, shape (n,)
        Any hashable labels.
    sensitive_features : array of labels, shape (n,) or (n, m)
        Several columns are intersected; a label is then a tuple.
    train_groups : mapping from (y, s) to count, optional
        Sizes of the training groups, for `GroupReport.train_weighted_average`.
    class_names, sensitive_names : sequence or mapping, optional
        Names to print: a mapping from label to name, or a list in the order of the labels (for integer
        labels: of the labels 0, 1, 2 …, so that values without rows are reported as empty).
    positive : label, optional
        The class on which ``eod`` is taken; the second of two classes unless given.
    missing : label, optional
        Rows where ``y_true`` or a sensitive value is this label are dropped and counted.
    confidence : float, default=0.95
        Of the exact binomial intervals.

    Returns
    -------
    GroupReport

    Examples
    --------
    >>> y, p = ["cat", "cat", "dog", "dog"], ["cat", "dog", "dog", "dog"]
    >>> report = group_report(y, p, ["day", "night", "day", "night"])
    >>> report.average, report.worst.name, report.worst.accuracy, report.eod_mean
    (0.75, 'cat × night', 0.0, 0.5)
    """
    if not 0 < confidence < 1:
        raise ParameterError(f"confidence must lie between 0 and 1; got {confidence}")
    given = {"y_true": y_true, "y_pred": y_pred, "sensitive_features": sensitive_features}
    arrays = {name: as_labels(values, name) for name, values in given.items()}
    total = same_length(**arrays)
    groups = arrays["sensitive_features"]
    if groups.dtype.kind == "f" and np.any(groups[np.isfinite(groups)] % 1):
        raise LabelError(
            "sensitive_features holds fractional numbers: groups need categories; bin them first"
        )
    keep = ~(is_missing(arrays["y_true"], missing) | is_missing(arrays["sensitive_features"], missing))
    if not keep.any():
        raise LabelError(f"there is no row to report on: {total} rows came, all of them without labels")
    cells = _tabulate(
        {name: array[keep] for name, array in arrays.items()},
        train_groups or {},
        class_names,
        sensitive_names,
    )
    return _assemble(cells, train_groups, positive, confidence, dropped=total - int(keep.sum()))


def _assemble(
    cells: _Cells,
    train_groups: Mapping[Any, int] | None,
    positive: Hashable | None,
    confidence: float,
    dropped: int,
) -> GroupReport:
    n, correct = int(cells.counts.sum()), int(cells.hits.sum())
    groups = cells.groups(confidence)
    worst = min(groups, key=lambda group: group.accuracy)
    pairs = _differences(cells, positive)
    mean = [pair.difference for pair in pairs.pop("eod_mean")]
    found = {name: max(some, key=lambda pair: pair.difference, default=None) for name, some in pairs.items()}
    intervals = {name: newcombe(*pair, confidence) for name, pair in found.items() if pair}
    low, high = clopper_pearson(correct, n, confidence)
    intervals["average"] = float(low), float(high)
    intervals["gap"] = _gap_interval(correct, n, worst, confidence)
    return GroupReport(
        n=n,
        dropped=dropped,
        average=correct / n,
        train_weighted_average=None if train_groups is None else cells.weighted_average(train_groups),
        groups=tuple(groups),
        worst=worst,
        gap=correct / n - worst.accuracy,
        eod_mean=sum(mean) / len(mean) if mean else None,
        **{name: pair.difference if pair else None for name, pair in found.items()},
        intervals=intervals,
        empty=tuple(cells.names[i][j] for i, j in np.argwhere(cells.counts == 0)),
        classes=tuple(cells.classes),
        sensitive=tuple(cells.sensitive),
        confidence=confidence,
    )
