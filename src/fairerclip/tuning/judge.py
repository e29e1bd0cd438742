"""`Judge`: a posterior over the accuracy of each class × group (cell), from few rows.

The accuracy of a cell of eight rows has nine possible values, so it is estimated from margins instead. Margins of one
class differ between groups mostly by a shift: the shape of their distribution is estimated from the whole class, the
shift from the cell, with a normal posterior. The posterior is evaluated at fixed levels and not sampled, so that it
depends neither on random numbers nor on the order of rows, classes or groups. docs/math.md#judge derives it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from fairerclip._util.types import F64, Ints

PRIOR_ROWS = 4.0
"""Weight, in rows, of the class mean towards which the shift of a cell is shrunk."""
MIN_FREEDOM = 2
"""Rows of a class beyond one per cell that are needed to estimate its spread; with fewer, all margins are used."""
N_LEVELS = 64
"""Number of accuracies at which the posterior is evaluated; docs/math.md#judge has the effect of more levels."""
EDGES = np.arange(N_LEVELS + 1) / N_LEVELS
"""(levels + 1,) ends of equal parts of [0, 1], one per level: the mean over levels is an integral over [0, 1]."""
NO_DOUBT = 1e-100
"""Smallest standard deviation of a shift, to avoid a division by zero."""


@dataclass(frozen=True, eq=False)
class Judge:
    """Labelled rows on which the scores of models are judged.

    Parameters
    ----------
    y : array of shape (n,)
        Class codes.
    s : array of shape (n,)
        Group codes.
    n_classes, n_groups : int
        Number of classes and groups.
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
        """Return the judge of some of the rows, by a mask (n,)."""
        return Judge(self.y[rows], self.s[rows], self.n_classes, self.n_groups)

    def cells(self) -> list[Ints]:
        """Return the row numbers of every cell that has rows."""
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
        """Return the score of the true class minus the best other score, (…, n); positive where a row is right."""
        own = np.take_along_axis(scores, self.y[:, None].reshape((1,) * (scores.ndim - 2) + (-1, 1)), axis=-1)
        others = np.where(np.arange(self.n_classes) == self.y[:, None], -np.inf, scores)
        return np.asarray(own[..., 0] - others.max(axis=-1))

    def hits(self, scores: F64) -> Ints:
        """Return the number of rows (c, |S|) that scores (n, c) predict correctly."""
        right = np.bincount(self._cell[scores.argmax(axis=1) == self.y], minlength=self.counts.size)
        return right.reshape(self.counts.shape)

    def survival(self, margins: F64, shifts: F64 | None = None) -> F64:
        """Return the posterior probability that a cell's accuracy exceeds each level; NaN for a cell without rows.

        Margins (g, n) of g models give (g, b, c, |S|, levels). ``shifts`` (g, b, c) are added to the margins of each
        class, which moves the boundary between two classes. The mean over the levels is the expected accuracy of a
        cell; the mean over the levels of the product over cells is the expected accuracy of the worst cell.
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
        """Return mean and standard deviation (g, c, |S|) of the shift of every cell, from mean margins (g, c, |S|)."""
        there = self.counts > 0
        cells = np.maximum(there.sum(axis=1), 1)
        middle = np.where(there, means, 0.0).sum(axis=2) / cells  # cells of a class have equal weight
        weight = self.counts + PRIOR_ROWS
        shift = (self.counts * means + PRIOR_ROWS * middle[:, :, None]) / weight
        return shift, np.maximum(spread[:, :, None] / np.sqrt(weight), NO_DOUBT)

    def _spread(self, residuals: F64, margins: F64) -> F64:
        """Return the standard deviation (g, c) of the residuals (g, n) of each class."""
        out = np.zeros((len(residuals), self.n_classes))
        for y, rows in self._classes():
            out[:, y] = np.sqrt((residuals[:, rows] ** 2).mean(axis=1))
            if self.counts[y].sum() - (self.counts[y] > 0).sum() < MIN_FREEDOM:
                out[:, y] = np.maximum(
                    out[:, y], margins.std(axis=1)
                )  # a row that is its own mean has no residual
        return out

    def _shape(self, residuals: F64) -> F64:
        """Return the quantiles (g, c, levels) of the residuals (g, n) of each class, from the largest to the smallest.

        A share t of the class is right where the row of that rank is right. A level represents a part of [0, 1], and
        has the mean quantile of that part.
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
        """Return every class that has rows, with the slice of its rows in the order of the cells."""
        stops = np.cumsum(self.counts.sum(axis=1)).tolist()
        starts = [0, *stops[:-1]]
        return [(y, slice(i, j)) for y, (i, j) in enumerate(zip(starts, stops, strict=True)) if j > i]
