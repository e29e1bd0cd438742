"""Two predictions on the same rows: what changed, with paired intervals; see docs/math.md#paired.

The rows are the same, so what they have in common cancels: the interval of a change is narrower than the difference
of two intervals. Everything follows from the counts J (|S|, c, c, c) of rows by sensitive value, class, prediction
before and prediction after.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.metrics._inputs import FloatArray, Names
from fairerclip.metrics.cells import confusion_counts
from fairerclip.metrics.figures import (
    Rates,
    positive_class,
    positive_classes,
    positive_code,
    signed_weights,
)
from fairerclip.metrics.groups import (
    GroupReport,
    assemble,
    check_confidence,
    read_labels,
    tabulate,
    train_counts,
)
from fairerclip.metrics.intervals import clopper_pearson, per_side
from fairerclip.metrics.names import FIGURES


@dataclass(frozen=True)
class Change:
    """A figure before and after, and the interval of after − before."""

    name: str
    before: float
    after: float
    difference: float
    low: float
    high: float


@dataclass(frozen=True)
class GroupChange:
    """The accuracy of one group before and after, and the interval of after − before.

    ``clear`` says whether the change is beyond doubt, for all groups together: of 28 groups that did not change, one
    or two have an interval of their own that leaves out 0.
    """

    y: Any
    s: Any
    name: str
    n: int
    small: bool
    before: float
    after: float
    difference: float
    low: float
    high: float
    clear: bool


@dataclass(frozen=True)
class PairedReport:
    """Two predictions on the same rows; made by `paired_report`.

    Attributes
    ----------
    before, after : GroupReport
        Each on its own.
    changes : tuple of Change
        After − before, of every figure that both have.
    groups : tuple of GroupChange
        After − before, of every group's accuracy.
    """

    before: GroupReport
    after: GroupReport
    changes: tuple[Change, ...]
    groups: tuple[GroupChange, ...]

    def change(self, name: str) -> Change:
        """The change of one figure by name."""
        return next(change for change in self.changes if change.name == name)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready copy."""
        changes = [
            {
                "figure": c.name,
                "label": FIGURES[c.name].label,
                "better": FIGURES[c.name].better,
                **{k: v for k, v in vars(c).items() if k != "name"},
            }
            for c in self.changes
        ]
        plain_groups = self.before.as_dict()["groups"]
        labels = [{"y": group["y"], "s": group["s"]} for group in plain_groups]
        return {
            "before": self.before.as_dict(),
            "after": self.after.as_dict(),
            "changes": changes,
            "group_changes": [{**vars(g), **label} for g, label in zip(self.groups, labels, strict=True)],
        }


def paired_report(
    y_true: Any,
    y_before: Any,
    y_after: Any,
    sensitive_features: Any,
    *,
    train_groups: Mapping[Any, int] | None = None,
    class_names: Names | None = None,
    sensitive_names: Names | None = None,
    positive: Hashable | None = None,
    missing: Any = None,
    confidence: float = 0.95,
) -> PairedReport:
    """Group reports of two predictions on the same rows, and paired intervals of all changes.

    O(n log n) time. The parameters are those of `fairerclip.metrics.group_report`, with two predictions.

    Examples
    --------
    >>> y, s = [0, 1] * 60, ["a", "a", "b", "b"] * 30
    >>> before, after = [0, 1, 0, 0] * 30, [0, 1, 0, 1] * 30
    >>> change = paired_report(y, before, after, s).change("worst_group")
    >>> change.before, change.after, change.low > 0.5
    (0.0, 1.0, True)
    """
    check_confidence(confidence)
    given = {
        "y_true": y_true,
        "sensitive_features": sensitive_features,
        "y_before": y_before,
        "y_after": y_after,
    }
    arrays, dropped = read_labels(given, missing)
    table, codes = tabulate(arrays, train_groups or {}, class_names, sensitive_names)
    shape = {"n_classes": len(table.classes), "n_sensitive": len(table.sensitive)}
    J = confusion_counts(*codes, **shape)
    positive = positive_class(table.classes, positive)
    before = assemble(table, train_groups, positive, confidence, dropped)
    after = assemble(replace(table, N=J.sum(axis=2)), train_groups, positive, confidence, dropped)
    train = train_counts(table.classes, table.sensitive, train_groups)
    intervals = paired_from_counts(J, confidence, positive_code(table.classes, positive), train)
    changes = []
    for name, (low, high) in intervals.items():
        first, second = getattr(before, name), getattr(after, name)
        changes.append(Change(name, first, second, second - first, low, high))
    order = list(FIGURES)
    changes.sort(key=lambda change: order.index(change.name))
    return PairedReport(before, after, tuple(changes), _group_changes(_Pair(J, confidence), before, after))


def paired_from_counts(
    J: NDArray[Any], confidence: float, positive: int | None = None, train: FloatArray | None = None
) -> dict[str, tuple[float, float]]:
    """Interval of after − before of every figure, from counts J (|S|, c, c, c).

    O(K²·cells) time for K differences that a figure is the largest of. ``positive`` and ``train`` as in
    `fairerclip.metrics.figures.evaluate`.
    """
    return dict(_figure_intervals(_Pair(J, confidence), J, positive, train))


@dataclass(frozen=True, eq=False)
class _Rate:
    """Rates (m,) as sums over the cells of J: numerators (m, cells) and denominators (m, cells) of 0 and 1."""

    top: FloatArray
    bottom: FloatArray

    def joined(self, other: _Rate) -> _Rate:
        return _Rate(np.concatenate([self.top, other.top]), np.concatenate([self.bottom, other.bottom]))


class _Pair:
    """Rates of both predictions, their exact limits, and how far the two vary together."""

    def __init__(self, J: NDArray[Any], confidence: float) -> None:
        self.n_sensitive, self.n_classes = J.shape[:2]
        self.confidence = confidence
        self._counts = J.ravel()
        self._smoothed = _smoothed(J).ravel()
        self._s, self._y, *predictions = (axis.ravel() for axis in np.indices(J.shape))
        self._predictions = predictions

    def recall(self, stage: int) -> _Rate:
        """Of class y for value s: (c·|S|,)."""
        cell = self._y * self.n_sensitive + self._s
        members = (cell == np.arange(self.n_classes * self.n_sensitive)[:, None]).astype(float)
        return _Rate(members * (self._predictions[stage] == self._y), members)

    def predicted(self, stage: int, *, others_only: bool) -> _Rate:
        """Selection, or among the rows of other classes false positive rates: (c·|S|,)."""
        classes, values = np.divmod(np.arange(self.n_classes * self.n_sensitive), self.n_sensitive)
        members = (self._s == values[:, None]).astype(float)
        if others_only:
            members *= self._y != classes[:, None]
        return _Rate(members * (self._predictions[stage] == classes[:, None]), members)

    def both(self, rate: Callable[[int], _Rate]) -> tuple[_Rate, _Rate]:
        """A kind of rate after and before."""
        return rate(1), rate(0)

    def contrasts(
        self, rates: tuple[_Rate, _Rate], weights: FloatArray, share: int
    ) -> tuple[FloatArray, FloatArray]:
        """Limits (i, j) of the i-th sum of rates after minus the j-th before, ``share`` of them holding together.

        Sums are given by weights (i, m). Distances to the rates' limits add up in squares, with what the two
        predictions have in common taken off (MOVER for dependent rates, Newcombe 1998).
        """
        level = per_side(self.confidence, share)
        (value_1, low_1, high_1), (value_0, low_0, high_0) = (self._limits(rate, level) for rate in rates)
        shared = self._correlation(*rates)
        centre = (weights @ value_1)[:, None] - weights @ value_0
        ends = []
        for toward_1, toward_0 in (
            ((value_1 - low_1, high_1 - value_1), (value_0 - low_0, high_0 - value_0)),
            ((high_1 - value_1, value_1 - low_1), (high_0 - value_0, value_0 - low_0)),
        ):
            after = np.where(weights > 0, toward_1[0], toward_1[1]) * weights
            before = np.where(weights < 0, toward_0[0], toward_0[1]) * -weights
            square = (after**2).sum(axis=1)[:, None] + (before**2).sum(axis=1) + 2 * after @ shared @ before.T
            ends.append(np.sqrt(np.maximum(square, 0.0)))
        return centre - ends[0], centre + ends[1]

    def _limits(self, rate: _Rate, level: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Rates (m,) and their exact limits."""
        k = np.rint(rate.top @ self._counts)
        n = np.maximum(np.rint(rate.bottom @ self._counts), 1.0)
        return np.asarray(k / n), *clopper_pearson(k, n, level)

    def _correlation(self, after: _Rate, before: _Rate) -> FloatArray:
        """Correlation (m, m) of each rate after with each before, from the influence of a row on them."""
        influence = []
        for rate in (after, before):
            n = rate.bottom @ self._smoothed
            n = np.where(n > 0, n, 1.0)
            value = rate.top @ self._smoothed / n
            rows = (rate.top - value[:, None] * rate.bottom) / n[:, None]
            sd = np.sqrt((rows**2) @ self._smoothed)
            influence.append(rows / np.where(sd > 0, sd, 1.0)[:, None])
        return np.asarray((influence[0] * self._smoothed) @ influence[1].T)


def _smoothed(J: NDArray[Any]) -> FloatArray:
    """Counts with two rows more in each cell (y, s), half a row for each of right and wrong, before and after.

    Where a group is always right, before and after, the correlation would not be defined.
    """
    c = J.shape[1]
    share = np.full((c, c), 0.5 / max(c - 1, 1))  # (class, prediction): half right, half wrong
    np.fill_diagonal(share, 0.5)
    seen = J.sum(axis=(2, 3), keepdims=True) > 0
    return np.asarray(np.where(seen, J + 2 * share[:, :, None] * share[:, None, :], 0.0))


def _figure_intervals(
    pair: _Pair, J: NDArray[Any], positive: int | None, train: FloatArray | None
) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield the interval of after − before for every figure that is defined."""
    counts = Rates.of(J.sum(axis=3)).counts
    some = np.flatnonzero(counts.ravel() > 0)
    one = np.eye(counts.size)[some]  # each group's accuracy
    recalls = pair.both(pair.recall)
    pooled = _Pair(_pooled(J), pair.confidence)
    yield "average", _linear(pooled, pooled.both(pooled.recall), np.array([[1.0, 0.0]]))
    # The change of a minimum is min_i max_j (after_i − before_j); docs/math.md#paired.
    low, high = pair.contrasts(recalls, one, len(some))
    yield "worst_group", _at_most_matched(low.max(axis=1).min(), high.max(axis=1).min(), low, high)
    if train is not None:
        weights = np.where(counts > 0, train, 0.0).ravel()[None]
        yield "train_weighted_average", _linear(pair, recalls, weights / weights.sum())
    yield "gap", _of_maxima(pair, recalls, counts.ravel() / counts.sum() - one)
    yield from _difference_intervals(pair, recalls, counts, positive)


def _pooled(J: NDArray[Any]) -> NDArray[Any]:
    """All rows as one cell, by right and wrong before and after: (1, 2, 2, 2), the second class without rows."""
    _, y, p, q = np.indices(J.shape)
    pooled = np.zeros((1, 2, 2, 2), dtype=J.dtype)
    np.add.at(pooled, (0, 0, (p != y).astype(int), (q != y).astype(int)), J)
    return pooled


def _difference_intervals(
    pair: _Pair, recalls: tuple[_Rate, _Rate], counts: NDArray[Any], positive: int | None
) -> Iterator[tuple[str, tuple[float, float]]]:
    c, S = counts.shape
    by_class = [_pairs(counts > 0, [k]) for k in range(c)]
    by_class = [weights for weights in by_class if len(weights)]
    if by_class:
        signed = (signed_weights(counts > 0) / len(by_class)).ravel()[None]
        yield "eod_mean_signed", _linear(pair, recalls, signed)
        ends = [_of_maxima(pair, recalls, weights, len(by_class)) for weights in by_class]
        yield "eod_mean", (float(np.mean([e[0] for e in ends])), float(np.mean([e[1] for e in ends])))
    chosen = _pairs(counts > 0, positive_classes(c, positive))
    if len(chosen):
        yield "eod", _of_maxima(pair, recalls, chosen)
        if len(chosen) == 2:  # one pair in one class: later − earlier is the same contrast before and after
            yield "eod_signed", _linear(pair, recalls, chosen[:1])
    rows = np.broadcast_to(counts.sum(axis=0), counts.shape)
    selection = pair.both(partial(pair.predicted, others_only=False))
    parity = _pairs(rows > 0, [1] if c == 2 else list(range(c)))
    if len(parity):
        yield "demographic_parity_difference", _of_maxima(pair, selection, parity)
    odds = _pairs(counts > 0, list(range(c)))
    if c != 2:
        false = pair.both(partial(pair.predicted, others_only=True))
        recalls = recalls[0].joined(false[0]), recalls[1].joined(false[1])
        more = _pairs(rows - counts > 0, list(range(c)))
        odds = np.block(
            [
                [odds, np.zeros((len(odds), c * S))],
                [np.zeros((len(more), c * S)), more],
            ]
        )
    if len(odds):
        yield "equalized_odds_difference", _of_maxima(pair, recalls, odds)


def _pairs(defined: NDArray[np.bool_], classes: list[int]) -> FloatArray:
    """Weights (pairs, c·|S|) of the difference of two values' rates, both ways, in some of the classes.

    The first of each two is later − earlier.
    """
    S = defined.shape[1]
    found = []
    for k in classes:
        for second, first in permutations(np.flatnonzero(defined[k])[::-1].tolist(), 2):
            row = np.zeros(defined.size)
            row[k * S + second], row[k * S + first] = 1.0, -1.0
            found.append(row)
    return np.array(found).reshape(len(found), defined.size)


def _linear(pair: _Pair, rates: tuple[_Rate, _Rate], weights: FloatArray) -> tuple[float, float]:
    """Interval of the change of one weighted sum of rates."""
    low, high = pair.contrasts(rates, weights, 1)
    return float(low[0, 0]), float(high[0, 0])


def _of_maxima(
    pair: _Pair, rates: tuple[_Rate, _Rate], weights: FloatArray, shared_by: int = 1
) -> tuple[float, float]:
    """Interval of max_i after_i − max_j before_j = max_i min_j (after_i − before_j); docs/math.md#paired."""
    low, high = pair.contrasts(rates, weights, shared_by * len(weights))
    return _at_most_matched(low.min(axis=1).max(), high.min(axis=1).max(), low, high)


def _at_most_matched(least: float, most: float, low: FloatArray, high: FloatArray) -> tuple[float, float]:
    """Cut an extreme's interval to where the changes of single sums, low and high on the diagonal, allow it to be.

    No extreme changes by more than what it is an extreme of. The limits that this takes are among those that hold
    together already; docs/math.md#paired.
    """
    return float(max(least, low.diagonal().min())), float(min(most, high.diagonal().max()))


def _group_changes(pair: _Pair, before: GroupReport, after: GroupReport) -> tuple[GroupChange, ...]:
    places = [
        before.classes.index(g.y) * pair.n_sensitive + before.sensitive.index(g.s) for g in before.groups
    ]
    weights = np.eye(pair.n_classes * pair.n_sensitive)[places]
    low, high = pair.contrasts(pair.both(pair.recall), weights, 1)
    least, most = pair.contrasts(pair.both(pair.recall), weights, len(places))
    changes = []
    for g, (first, second) in enumerate(zip(before.groups, after.groups, strict=True)):
        changes.append(
            GroupChange(
                first.y,
                first.s,
                first.name,
                first.n,
                first.small,
                first.accuracy,
                second.accuracy,
                second.accuracy - first.accuracy,
                float(low[g, g]),
                float(high[g, g]),
                bool(least[g, g] > 0 or most[g, g] < 0),
            )
        )
    return tuple(changes)
