"""How accurate each group is, judged from few rows: a posterior over cell accuracies instead of a raw share.

A cell of eight rows has nine possible accuracies. But every row has a margin, and margins of one class differ between
groups mostly by a shift: the shape is estimated from the whole class, the shift from the cell, and its doubt is normal.
The posterior is evaluated at fixed levels and not drawn from. So a judgement depends neither on random numbers nor on
the order of rows, classes or groups. docs/math.md#judge derives it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from fairerclip._util.types import F64, Ints

PRIOR_ROWS = 4.0
"""Rows' worth of the class by which a cell's shift is shrunk."""
MIN_FREEDOM = 2
"""Rows of a class beyond one per cell that it takes to see how its margins spread; below, all margins tell."""
N_LEVELS = 64
"""Accuracies at which the posterior is evaluated; see docs/math.md#judge for what more of them would change."""
EDGES = np.arange(N_LEVELS + 1) / N_LEVELS
"""(levels + 1,) ends of equal parts of [0, 1], one for each level: the mean over levels is the integral over [0, 1]."""
NO_DOUBT = 1e-100
"""Least standard deviation of a shift, so that one of 0 can be divided by."""


@dataclass(frozen=True, eq=False)
class Judge:
    """Labelled rows, and how to judge the scores of a model on them.

    Parameters
    ----------
    y : (n,) class codes.
    s : (n,) group codes.
    n_classes, n_groups : int
    """

    y: Ints
    s: Ints
    n_classes: int
    n_groups: int

    @cached_property
    def counts(self) -> Ints:
        """(c, |S|) rows of each cell."""
        size = self.n_classes * self.n_groups
        return np.bincount(self._cell, minlength=size).reshape(self.n_classes, self.n_groups)

    @cached_property
    def by_class(self) -> Judge:
        """The same rows with every class as one cell."""
        return Judge(self.y, np.zeros_like(self.s), self.n_classes, 1)

    def of(self, rows: NDArray[np.bool_]) -> Judge:
        """The same judge on some of the rows (n,)."""
        return Judge(self.y[rows], self.s[rows], self.n_classes, self.n_groups)

    def cells(self) -> list[Ints]:
        """Row numbers of every cell that has rows."""
        return np.split(self._by_cell, np.cumsum(self.counts[self.counts > 0])[:-1])

    @cached_property
    def _cell(self) -> Ints:
        """(n,) number of each row's cell."""
        return np.asarray(self.y * self.n_groups + self.s)

    @cached_property
    def _by_cell(self) -> Ints:
        """(n,) row numbers, those of a cell together, and so those of a class."""
        return self._cell.argsort(kind="stable")

    def margins(self, scores: F64) -> F64:
        """(…, n) score of the true class minus the best of the others (…, n, c): positive where a row is right."""
        own = np.take_along_axis(scores, self.y[:, None].reshape((1,) * (scores.ndim - 2) + (-1, 1)), axis=-1)
        others = np.where(np.arange(self.n_classes) == self.y[:, None], -np.inf, scores)
        return np.asarray(own[..., 0] - others.max(axis=-1))

    def hits(self, scores: F64) -> Ints:
        """(c, |S|) rows that are right by scores (n, c)."""
        right = np.bincount(self._cell[scores.argmax(axis=1) == self.y], minlength=self.counts.size)
        return right.reshape(self.counts.shape)

    def survival(self, margins: F64, shifts: F64 | None = None) -> F64:
        """Posterior probability that a cell's accuracy exceeds each level, (g, b, c, |S|, levels); NaN without rows.

        Margins (g, n) are those of g models. ``shifts`` (g, b, c) are added to the margins of each class: moving the
        boundary between two classes does that. The mean over the levels is the expected accuracy of a cell; the mean
        of the product over cells is the expected accuracy of the worst of them.
        O(g·n log n + g·b·c·|S|·levels) time.
        """
        g, there = len(margins), self.counts > 0
        margins = margins[:, self._by_cell]
        sizes = self.counts[there]
        found = np.add.reduceat(margins, np.cumsum(sizes) - sizes, axis=1) / sizes  # (g, cells)
        residuals = margins - np.repeat(found, sizes, axis=1)
        means = np.full((g, *there.shape), np.nan)
        means[:, there] = found
        shift, doubt = self._shifts(means, self._spread(residuals, margins))  # (g, c, |S|)
        z = (shift[..., None] + self._shape(residuals)[:, :, None, :]) / doubt[..., None]
        if shifts is None:
            return np.asarray(ndtr(z)[:, None])
        moved = shifts[:, :, :, None] / doubt[:, None]  # (g, b, c, |S|)
        return np.asarray(ndtr(z[:, None] + moved[..., None]))

    def _shifts(self, means: F64, spread: F64) -> tuple[F64, F64]:
        """Mean and standard deviation (g, c, |S|) of every cell's shift, from its mean margin (g, c, |S|)."""
        there = self.counts > 0
        cells = np.maximum(there.sum(axis=1), 1)
        middle = np.where(there, means, 0.0).sum(axis=2) / cells  # each cell of a class counts once
        weight = self.counts + PRIOR_ROWS
        shift = (self.counts * means + PRIOR_ROWS * middle[:, :, None]) / weight
        return shift, np.maximum(spread[:, :, None] / np.sqrt(weight), NO_DOUBT)

    def _spread(self, residuals: F64, margins: F64) -> F64:
        """(g, c) standard deviation of the residuals (g, n) of each class."""
        out = np.zeros((len(residuals), self.n_classes))
        for y, rows in self._classes():
            out[:, y] = np.sqrt((residuals[:, rows] ** 2).mean(axis=1))
            if self.counts[y].sum() - (self.counts[y] > 0).sum() < MIN_FREEDOM:
                out[:, y] = np.maximum(
                    out[:, y], margins.std(axis=1)
                )  # rows that are their own mean show no spread
        return out

    def _shape(self, residuals: F64) -> F64:
        """(g, c, levels) residual that a share t of a class's residuals (g, n) exceeds, t from 0 to 1.

        More than a share t of the class is right where the row of that rank is. A level stands for a part of [0, 1],
        and has the mean over it.
        """
        out = np.zeros((len(residuals), self.n_classes, N_LEVELS))
        for y, rows in self._classes():
            n = rows.stop - rows.start
            own = -np.sort(-residuals[:, rows], axis=1)
            whole = np.minimum((EDGES * n).astype(np.int64), n - 1)
            ends = own.cumsum(axis=1)[:, whole] + (EDGES * n - whole - 1) * own[:, whole]
            out[:, y] = np.diff(ends, axis=1) * N_LEVELS / n
        return out

    def _classes(self) -> list[tuple[int, slice]]:
        """Every class that has rows, and where they are in the order of the cells."""
        stops = np.cumsum(self.counts.sum(axis=1)).tolist()
        starts = [0, *stops[:-1]]
        return [(y, slice(i, j)) for y, (i, j) in enumerate(zip(starts, stops, strict=True)) if j > i]
