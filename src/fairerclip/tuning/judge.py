"""How accurate each group is, judged from few rows: a posterior over cell accuracies instead of a raw share.

A cell of eight rows has nine possible accuracies. But every row has a margin, and margins of one class differ between
groups mostly by a shift: the shape is estimated from the whole class, the shift from the cell, and what the cell does
not tell about its shift is drawn. docs/math.md#judge derives it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, qmc

F64 = NDArray[np.float64]
Ints = NDArray[np.int64]

PRIOR_ROWS = 4.0
"""Rows' worth of the class by which a cell's shift is shrunk."""
MIN_FREEDOM = 2
"""Rows of a class beyond one per cell that it takes to see how its margins spread; below, all margins tell."""
DRAWS = 32
"""Draws of the shifts; a power of two, as Sobol's sequence wants."""


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
        counts = np.zeros((self.n_classes, self.n_groups), dtype=np.int64)
        np.add.at(counts, (self.y, self.s), 1)
        return counts

    def of(self, rows: NDArray[np.bool_]) -> Judge:
        """The same judge on some of the rows (n,)."""
        return Judge(self.y[rows], self.s[rows], self.n_classes, self.n_groups)

    def cells(self) -> list[Ints]:
        """Row numbers of every cell that has rows."""
        return [rows for cells in self._rows for rows in cells if len(rows)]

    @cached_property
    def _rows(self) -> list[list[Ints]]:
        return [
            [np.flatnonzero((self.y == y) & (self.s == s)) for s in range(self.n_groups)]
            for y in range(self.n_classes)
        ]

    @cached_property
    def _sides(self) -> F64:
        """(n,) 1 for rows of the second of two classes, -1 for rows of the first."""
        return np.where(self.y == 1, 1.0, -1.0)

    @cached_property
    def _normals(self) -> F64:
        """(draws, cells) standard normals: the same for every model, so that models are compared on equal luck."""
        uniform = qmc.Sobol(self.counts.size, seed=0).random(DRAWS)
        return np.asarray(norm.ppf(np.clip(uniform, 1e-4, 1 - 1e-4)))

    def margins(self, scores: F64) -> F64:
        """(n,) score of the true class minus the best of the others: positive where the row is right."""
        if scores.shape[1] == 2:
            return np.asarray((scores[:, 1] - scores[:, 0]) * self._sides)
        rows = np.arange(len(self.y))
        others = scores.copy()
        others[rows, self.y] = -np.inf
        return np.asarray(scores[rows, self.y] - others.max(axis=1))

    def hits(self, scores: F64) -> Ints:
        """(c, |S|) rows that are right."""
        hits = np.zeros_like(self.counts)
        np.add.at(hits, (self.y, self.s), (scores.argmax(axis=1) == self.y).astype(np.int64))
        return hits

    def accuracies(self, margins: F64, shifts: F64 | None = None) -> F64:
        """Draws of every cell's accuracy, (b, draws, c, |S|), NaN for a cell without rows.

        ``shifts`` (b, c) are added to the margins of each class: an offset between two classes does that.
        """
        moved = np.zeros((1, self.n_classes)) if shifts is None else shifts
        out = np.full((len(moved), DRAWS, self.n_classes, self.n_groups), np.nan)
        for y, cells in enumerate(self._rows):
            found = {s: margins[rows] for s, rows in enumerate(cells) if len(rows)}
            if not found:
                continue
            means = {s: float(values.mean()) for s, values in found.items()}
            shape = np.sort(np.concatenate([values - means[s] for s, values in found.items()]))
            spread, middle = float(shape.std()), float(np.mean(list(means.values())))
            if len(shape) - len(found) < MIN_FREEDOM:  # rows that are their own mean show no spread
                spread = max(spread, float(margins.std()))
            for s, values in found.items():
                n = len(values)
                shift = (n * means[s] + PRIOR_ROWS * middle) / (n + PRIOR_ROWS)
                doubt = spread / np.sqrt(n + PRIOR_ROWS) * self._normals[:, y * self.n_groups + s]
                wrong = np.searchsorted(shape, -(shift + doubt[None, :] + moved[:, y, None]), side="right")
                out[:, :, y, s] = 1 - wrong / len(shape)
        return out
