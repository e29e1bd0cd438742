"""Two predictions on the same rows: what changed, with paired intervals; see docs/math.md#paired.

The rows are the same, so what they have in common cancels: the interval of a change is narrower than the difference
of two intervals. Everything follows from the counts of rows by sensitive value, class, prediction before and
prediction after.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.checks import check_confidence
from fairerclip.metrics.groups.group_figures import (
    Rates,
    positive_class,
    positive_classes,
    positive_code,
    signed_weights,
)
from fairerclip.metrics.groups.group_report import (
    GroupReport,
    assemble,
    read_labels,
    tabulate,
    train_counts,
)
from fairerclip.metrics.intervals import clopper_pearson, per_side
from fairerclip.metrics.label_codes import FloatArray, Names
from fairerclip.metrics.names import FIGURES

Ints = NDArray[np.int64]

BLOCK_CELLS = 1024
"""Cells whose part in every rate is held at a time."""
BLOCK_SUMS = 256
"""Sums of rates after that are compared with all before at a time."""


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
    """Two predictions on the same rows; made by `paired_report`."""

    before: GroupReport
    after: GroupReport
    """Each on its own."""
    changes: tuple[Change, ...]
    """After − before, of every figure that both have."""
    groups: tuple[GroupChange, ...]
    """After − before, of every group's accuracy."""

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
    counts = PairCounts.of(codes, len(table.classes), len(table.sensitive))
    positive = positive_class(table.classes, positive)
    before = assemble(table, train_groups, positive, confidence, dropped)
    after = assemble(replace(table, N=counts.confusion(1)), train_groups, positive, confidence, dropped)
    train = train_counts(table.classes, table.sensitive, train_groups)
    intervals = paired_from_counts(counts, confidence, positive_code(table.classes, positive), train)
    changes = []
    for name, (low, high) in intervals.items():
        first, second = getattr(before, name), getattr(after, name)
        changes.append(Change(name, first, second, second - first, low, high))
    order = list(FIGURES)
    changes.sort(key=lambda change: order.index(change.name))
    return PairedReport(
        before, after, tuple(changes), _group_changes(_Pair(counts, confidence), before, after)
    )


def paired_from_counts(
    counts: PairCounts, confidence: float, positive: int | None = None, train: FloatArray | None = None
) -> dict[str, tuple[float, float]]:
    """Interval of after − before of every figure.

    O(m·(m·cells + K²)) time and O(m·(m + K)) memory for m = c·|S| rates and K differences that a figure is the
    largest of. ``positive`` and ``train`` as in `fairerclip.metrics.groups.group_figures.evaluate`.
    """
    return dict(_figure_intervals(counts, confidence, positive, train))


@dataclass(frozen=True, eq=False)
class PairCounts:
    """Rows by sensitive value, class, prediction before and prediction after: the cells that occur, and their rows.

    There are |S|·c³ cells and at most n that occur, so memory is O(n) for any number of classes.
    """

    s: Ints
    """(cells,)"""
    y: Ints
    predictions: tuple[Ints, Ints]
    """Before and after."""
    rows: FloatArray
    n_classes: int
    n_sensitive: int

    @classmethod
    def of(cls, codes: Sequence[NDArray[Any]], n_classes: int, n_sensitive: int) -> PairCounts:
        """Count rows with codes y, s, before and after, (n,) each."""
        cells, rows = np.unique(np.column_stack(codes), axis=0, return_counts=True)
        y, s, before, after = cells.T
        return cls(s, y, (before, after), rows.astype(np.float64), n_classes, n_sensitive)

    def pooled(self) -> PairCounts:
        """All rows as one cell, by right and wrong before and after: two classes, the second without rows."""
        right = [(prediction != self.y).astype(np.int64) for prediction in self.predictions]
        none = np.zeros(len(self.y), dtype=np.int64)
        return PairCounts(none, none, (right[0], right[1]), self.rows, 2, 1)

    def confusion(self, stage: int) -> NDArray[np.int64]:
        """Rows by sensitive value, class and prediction: (|S|, c, c)."""
        N = np.zeros((self.n_sensitive, self.n_classes, self.n_classes), dtype=np.int64)
        np.add.at(N, (self.s, self.y, self.predictions[stage]), self.rows.astype(np.int64))
        return N


Kind = Literal["recall", "selection", "false"]
"""Rates of every class and sensitive value, (c·|S|,): recall, share predicted, the same among other classes' rows."""


class _Pair:
    """Rates of both predictions, their exact limits, and how far the two vary together.

    For the correlation alone every class and value with rows gets two more, half a row for each of right and wrong,
    before and after: where a group is always right it would not be defined. A wrong prediction is of any other class,
    and before and after are independent, so one cell with shares in place of predictions stands for all of them.
    """

    def __init__(self, counts: PairCounts, confidence: float) -> None:
        self.n_sensitive, self.n_classes = counts.n_sensitive, counts.n_classes
        self.confidence = confidence
        seen = np.unique(np.column_stack([counts.s, counts.y]), axis=0)
        more = np.full(len(seen), -1)
        self._s, self._y = np.concatenate([counts.s, seen[:, 0]]), np.concatenate([counts.y, seen[:, 1]])
        self._predictions = [np.concatenate([prediction, more]) for prediction in counts.predictions]
        self._counts = np.concatenate([counts.rows, np.zeros(len(seen))])
        self._smoothed = np.concatenate([counts.rows, np.full(len(seen), 2.0)])
        self._known: dict[tuple[Kind, ...], tuple[_Sums, _Sums, FloatArray]] = {}

    def _rates(self, kinds: tuple[Kind, ...], stage: int, cells: slice) -> tuple[FloatArray, FloatArray]:
        """Which of some cells count in each rate (m, b), as successes and in all."""
        tops, bottoms = zip(*(self._rate(kind, stage, cells) for kind in kinds), strict=True)
        return np.concatenate(tops), np.concatenate(bottoms)

    def _rate(self, kind: Kind, stage: int, cells: slice) -> tuple[FloatArray, FloatArray]:
        s, y, predicted = self._s[cells], self._y[cells], self._predictions[stage][cells]
        classes, values = np.divmod(np.arange(self.n_classes * self.n_sensitive)[:, None], self.n_sensitive)
        members = s == values
        own = y == classes
        if kind == "recall":
            members &= own
        elif kind == "false":
            members &= ~own
        drawn = np.where(own, 0.5, 0.5 / max(self.n_classes - 1, 1))
        taken = np.where(predicted < 0, drawn, predicted == classes)
        return members * taken, members.astype(np.float64)

    def _sums(self, kinds: tuple[Kind, ...]) -> tuple[_Sums, _Sums, FloatArray]:
        """Sums of the rates after and before, and the correlation (m, m) of each after with each before."""
        if kinds not in self._known:
            blocks = [slice(start, start + BLOCK_CELLS) for start in range(0, len(self._counts), BLOCK_CELLS)]
            sums = []
            for stage in (1, 0):
                total = np.zeros((4, len(kinds) * self.n_classes * self.n_sensitive))
                for cells in blocks:
                    top, bottom = self._rates(kinds, stage, cells)
                    for weight, at in ((self._counts[cells], 0), (self._smoothed[cells], 2)):
                        total[at] += top @ weight
                        total[at + 1] += bottom @ weight
                sums.append(_Sums(*total))
            shared = np.zeros((total.shape[1], total.shape[1]))
            for cells in blocks:
                after, before = (
                    one.influence(*self._rates(kinds, stage, cells))
                    for one, stage in zip(sums, (1, 0), strict=True)
                )
                shared += (after * self._smoothed[cells]) @ before.T
            self._known[kinds] = sums[0], sums[1], shared
        return self._known[kinds]

    def _toward(
        self, kinds: tuple[Kind, ...], weights: FloatArray, share: int
    ) -> tuple[FloatArray, FloatArray, list[tuple[FloatArray, FloatArray]], FloatArray]:
        """Sums of rates (k,) after and before; weighted distances (k, m) to the limits below and above; correlation.

        Distances to the rates' limits add up in squares, with what the two predictions have in common taken off
        (MOVER for dependent rates, Newcombe 1998).
        """
        level = per_side(self.confidence, share)
        after, before, shared = self._sums(kinds)
        (value_1, low_1, high_1), (value_0, low_0, high_0) = after.limits(level), before.limits(level)
        ends = []
        for toward_1, toward_0 in (
            ((value_1 - low_1, high_1 - value_1), (value_0 - low_0, high_0 - value_0)),
            ((high_1 - value_1, value_1 - low_1), (high_0 - value_0, value_0 - low_0)),
        ):
            ends.append(
                (
                    np.where(weights > 0, toward_1[0], toward_1[1]) * weights,
                    np.where(weights < 0, toward_0[0], toward_0[1]) * -weights,
                )
            )
        return weights @ value_1, weights @ value_0, ends, shared

    def matched(
        self, kinds: tuple[Kind, ...], weights: FloatArray, share: int
    ) -> tuple[FloatArray, FloatArray]:
        """Limits (k,) each of the change of each sum of rates, ``share`` of them holding together.

        Sums are given by weights (k, m).
        """
        after, before, ends, shared = self._toward(kinds, weights, share)
        distance = [_distance((a**2 + b**2 + 2 * (a @ shared) * b).sum(axis=1)) for a, b in ends]
        return after - before - distance[0], after - before + distance[1]

    def contrasts(
        self, kinds: tuple[Kind, ...], weights: FloatArray, share: int
    ) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield limits (b, k) of the i-th sum of rates after minus the j-th before, for block after block of i."""
        after, before, ends, shared = self._toward(kinds, weights, share)
        squares = [((a**2).sum(axis=1), (b**2).sum(axis=1)) for a, b in ends]
        for start in range(0, len(weights), BLOCK_SUMS):
            rows = slice(start, start + BLOCK_SUMS)
            centre = after[rows, None] - before
            distance = [
                _distance(x[rows, None] + y + 2 * (a[rows] @ shared) @ b.T)
                for (a, b), (x, y) in zip(ends, squares, strict=True)
            ]
            yield centre - distance[0], centre + distance[1]


@dataclass(frozen=True, eq=False)
class _Sums:
    """Rows (m,) behind rates: successes and all, as counted and smoothed."""

    hits: FloatArray
    rows: FloatArray
    smooth_hits: FloatArray
    smooth_rows: FloatArray

    def limits(self, level: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Rates (m,) and their exact limits."""
        k, n = np.rint(self.hits), np.maximum(np.rint(self.rows), 1.0)
        return np.asarray(k / n), *clopper_pearson(k, n, level)

    def influence(self, top: FloatArray, bottom: FloatArray) -> FloatArray:
        """How far a row of each cell moves each rate (m, b), in standard errors."""
        n = np.where(self.smooth_rows > 0, self.smooth_rows, 1.0)
        value = self.smooth_hits / n
        spread = np.sqrt(value * (1 - value) / n)
        return np.asarray((top - value[:, None] * bottom) / (n * np.where(spread > 0, spread, 1.0))[:, None])


def _distance(square: FloatArray) -> FloatArray:
    return np.sqrt(np.maximum(square, 0.0))


def _figure_intervals(
    counts: PairCounts, confidence: float, positive: int | None, train: FloatArray | None
) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield the interval of after − before for every figure that is defined."""
    pair, pooled = _Pair(counts, confidence), _Pair(counts.pooled(), confidence)
    rows = Rates.of(counts.confusion(0)).counts
    some = np.flatnonzero(rows.ravel() > 0)
    one = np.eye(rows.size)[some]  # each group's accuracy
    yield "average", _linear(pooled, np.array([[1.0, 0.0]]))
    # The change of a minimum is min_i max_j (after_i − before_j); docs/math.md#paired.
    yield "worst_group", _extreme(pair, ("recall",), one, len(some), lowest=True)
    if train is not None:
        weights = np.where(rows > 0, train, 0.0).ravel()[None]
        yield "train_weighted_average", _linear(pair, weights / weights.sum())
    yield "gap", _extreme(pair, ("recall",), rows.ravel() / rows.sum() - one, len(one))
    yield from _difference_intervals(pair, rows, positive)


def _difference_intervals(
    pair: _Pair, counts: NDArray[Any], positive: int | None
) -> Iterator[tuple[str, tuple[float, float]]]:
    c, S = counts.shape
    by_class = [_pairs(counts > 0, [k]) for k in range(c)]
    by_class = [weights for weights in by_class if len(weights)]
    if by_class:
        signed = (signed_weights(counts > 0) / len(by_class)).ravel()[None]
        yield "eod_mean_signed", _linear(pair, signed)
        ends = [_extreme(pair, ("recall",), w, len(by_class) * len(w)) for w in by_class]
        yield "eod_mean", (float(np.mean([e[0] for e in ends])), float(np.mean([e[1] for e in ends])))
    chosen = _pairs(counts > 0, positive_classes(c, positive))
    if len(chosen):
        yield "eod", _extreme(pair, ("recall",), chosen, len(chosen))
        if len(chosen) == 2:  # one pair in one class: later − earlier is the same contrast before and after
            yield "eod_signed", _linear(pair, chosen[:1])
    rows = np.broadcast_to(counts.sum(axis=0), counts.shape)
    parity = _pairs(rows > 0, [1] if c == 2 else list(range(c)))
    if len(parity):
        yield "demographic_parity_difference", _extreme(pair, ("selection",), parity, len(parity))
    odds = _pairs(counts > 0, list(range(c)))
    kinds: tuple[Kind, ...] = ("recall",)
    if c != 2:
        kinds = ("recall", "false")
        more = _pairs(rows - counts > 0, list(range(c)))
        odds = np.block(
            [
                [odds, np.zeros((len(odds), c * S))],
                [np.zeros((len(more), c * S)), more],
            ]
        )
    if len(odds):
        yield "equalized_odds_difference", _extreme(pair, kinds, odds, len(odds))


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


def _linear(pair: _Pair, weights: FloatArray) -> tuple[float, float]:
    """Interval of the change of one weighted sum (1, m) of recalls."""
    low, high = pair.matched(("recall",), weights, 1)
    return float(low[0]), float(high[0])


def _extreme(
    pair: _Pair, kinds: tuple[Kind, ...], weights: FloatArray, share: int, *, lowest: bool = False
) -> tuple[float, float]:
    """Interval of max_i after_i − max_j before_j = max_i min_j (after_i − before_j); docs/math.md#paired.

    Or of the ``lowest`` after minus the lowest before. It is cut to where the changes of single sums allow it to be:
    no extreme changes by more than what it is an extreme of. The limits that this takes are among those that hold
    together already.
    """
    inner, outer = (np.max, np.min) if lowest else (np.min, np.max)
    ends = [[inner(end, axis=1) for end in block] for block in pair.contrasts(kinds, weights, share)]
    least, most = outer(np.concatenate(ends, axis=1), axis=1)
    low, high = pair.matched(kinds, weights, share)
    return float(max(least, low.min())), float(min(most, high.max()))


def _group_changes(pair: _Pair, before: GroupReport, after: GroupReport) -> tuple[GroupChange, ...]:
    places = [
        before.classes.index(g.y) * pair.n_sensitive + before.sensitive.index(g.s) for g in before.groups
    ]
    weights = np.eye(pair.n_classes * pair.n_sensitive)[places]
    low, high = pair.matched(("recall",), weights, 1)
    least, most = pair.matched(("recall",), weights, len(places))
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
                float(low[g]),
                float(high[g]),
                bool(least[g] > 0 or most[g] < 0),
            )
        )
    return tuple(changes)
