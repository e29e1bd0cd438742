"""Rates of two predictions on the same rows, with limits of the changes of weighted sums; see docs/math.md#paired."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fairerclip.metrics.intervals import clopper_pearson, per_side
from fairerclip.metrics.label_codes import FloatArray

Ints = NDArray[np.int64]

BLOCK_CELLS = 1024
"""Number of cells whose part in every rate is computed at a time."""
BLOCK_SUMS = 256
"""Number of sums of rates after that are compared with all sums before at a time."""

Kind = Literal["recall", "selection", "false"]
"""Kinds of rates (c·|S|,) of each class and sensitive value: recall, selection rate, false positive rate."""


@dataclass(frozen=True, eq=False)
class PairCounts:
    """Counts of rows by sensitive value, class, prediction before and prediction after, for the cells that occur.

    At most n of the |S|·c³ cells occur, so memory is O(n) for any number of classes.
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
        """Count rows by their codes y, s, before and after, each (n,)."""
        cells, rows = np.unique(np.column_stack(codes), axis=0, return_counts=True)
        y, s, before, after = cells.T
        return cls(s, y, (before, after), rows.astype(np.float64), n_classes, n_sensitive)

    def pooled(self) -> PairCounts:
        """Return counts of right and wrong before and after, with all rows in one class; class code 1 has no rows."""
        wrong = [(prediction != self.y).astype(np.int64) for prediction in self.predictions]
        zero = np.zeros(len(self.y), dtype=np.int64)
        return PairCounts(zero, zero, (wrong[0], wrong[1]), self.rows, 2, 1)

    def confusion(self, stage: int) -> NDArray[np.int64]:
        """Return counts (|S|, c, c) by sensitive value, class and the prediction before (stage 0) or after (1)."""
        N = np.zeros((self.n_sensitive, self.n_classes, self.n_classes), dtype=np.int64)
        np.add.at(N, (self.s, self.y, self.predictions[stage]), self.rows.astype(np.int64))
        return N


class PairedRates:
    """Rates of both predictions, their exact limits, and the correlations between before and after.

    For the correlation alone every class and sensitive value with rows gets two more rows, right or wrong with equal
    shares before and after: otherwise it would not be defined for a group that is always right. Wrong predictions are
    spread over the other classes, and before and after are independent, so one cell with shares in place of
    predictions (code −1) represents these rows.
    """

    def __init__(self, counts: PairCounts, confidence: float) -> None:
        self.n_sensitive, self.n_classes = counts.n_sensitive, counts.n_classes
        self.confidence = confidence
        pairs = np.unique(np.column_stack([counts.s, counts.y]), axis=0)  # (s, y) with rows
        smoothing = np.full(len(pairs), -1)
        self._s, self._y = np.concatenate([counts.s, pairs[:, 0]]), np.concatenate([counts.y, pairs[:, 1]])
        self._predictions = [np.concatenate([prediction, smoothing]) for prediction in counts.predictions]
        self._counts = np.concatenate([counts.rows, np.zeros(len(pairs))])
        self._smoothed = np.concatenate([counts.rows, np.full(len(pairs), 2.0)])
        self._known: dict[tuple[Kind, ...], tuple[_Sums, _Sums, FloatArray]] = {}

    def _rates(self, kinds: tuple[Kind, ...], stage: int, cells: slice) -> tuple[FloatArray, FloatArray]:
        """Return the shares (m, b) of some cells that count in each rate, as successes and in total."""
        tops, bottoms = zip(*(self._rate(kind, stage, cells) for kind in kinds), strict=True)
        return np.concatenate(tops), np.concatenate(bottoms)

    def _rate(self, kind: Kind, stage: int, cells: slice) -> tuple[FloatArray, FloatArray]:
        s, y, predicted = self._s[cells], self._y[cells], self._predictions[stage][cells]
        classes, values = np.divmod(np.arange(self.n_classes * self.n_sensitive)[:, None], self.n_sensitive)
        members = s == values
        same_class = y == classes
        if kind == "recall":
            members &= same_class
        elif kind == "false":
            members &= ~same_class
        smoothing = np.where(same_class, 0.5, 0.5 / max(self.n_classes - 1, 1))
        selected = np.where(predicted < 0, smoothing, predicted == classes)
        return members * selected, members.astype(np.float64)

    def _sums(self, kinds: tuple[Kind, ...]) -> tuple[_Sums, _Sums, FloatArray]:
        """Return the rates after and before, and the correlation (m, m) of each after with each before."""
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
                    rates.influence(*self._rates(kinds, stage, cells))
                    for rates, stage in zip(sums, (1, 0), strict=True)
                )
                shared += (after * self._smoothed[cells]) @ before.T
            self._known[kinds] = sums[0], sums[1], shared
        return self._known[kinds]

    def _toward(
        self, kinds: tuple[Kind, ...], weights: FloatArray, share: int
    ) -> tuple[FloatArray, FloatArray, list[tuple[FloatArray, FloatArray]], FloatArray]:
        """Return sums of rates (k,) after and before, weighted distances (k, m) to both limits, and the correlation.

        The squared distances to the limits of the rates add up, minus the part that both predictions share (MOVER
        for dependent rates, Newcombe 1998).
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
        """Return the limits low (k,) and high (k,) of the change of each sum of rates with weights (k, m).

        ``share`` such limits hold together.
        """
        after, before, ends, shared = self._toward(kinds, weights, share)
        distance = [_distance((a**2 + b**2 + 2 * (a @ shared) * b).sum(axis=1)) for a, b in ends]
        return after - before - distance[0], after - before + distance[1]

    def contrasts(
        self, kinds: tuple[Kind, ...], weights: FloatArray, share: int
    ) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield limits (b, k) of the i-th sum of rates after minus the j-th before, for blocks of i."""
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
    """Numerators and denominators (m,) of rates, as counted and smoothed."""

    hits: FloatArray
    rows: FloatArray
    smooth_hits: FloatArray
    smooth_rows: FloatArray

    def limits(self, level: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the rates (m,) and their exact limits."""
        k, n = np.rint(self.hits), np.maximum(np.rint(self.rows), 1.0)
        return np.asarray(k / n), *clopper_pearson(k, n, level)

    def influence(self, top: FloatArray, bottom: FloatArray) -> FloatArray:
        """Return how far a row of each cell moves each rate (m, b), in standard errors."""
        n = np.where(self.smooth_rows > 0, self.smooth_rows, 1.0)
        value = self.smooth_hits / n
        spread = np.sqrt(value * (1 - value) / n)
        return np.asarray((top - value[:, None] * bottom) / (n * np.where(spread > 0, spread, 1.0))[:, None])


def _distance(square: FloatArray) -> FloatArray:
    return np.sqrt(np.maximum(square, 0.0))
