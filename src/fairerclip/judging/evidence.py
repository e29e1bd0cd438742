"""`Evidence`: labelled rows, and what they tell of the accuracy of each class × group (cell).

The accuracy of a cell of eight rows has nine possible values, and the group of a row may be a guess. So accuracies are
not counted but drawn from a posterior: rows get random weights (the Bayesian bootstrap), a row counts for each group
with the probability that it belongs to it, and a row near the boundary counts partly as right. The same weights are
used for all models, so that differences between models are known better than the accuracies themselves.
docs/math.md#evidence derives it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtr

from fairerclip._util.arrays import beside, is_tensor, row_squares, to_numpy, wide
from fairerclip._util.types import F64, Floats, Ints
from fairerclip.data.embedding_rows import READ_ROWS
from fairerclip.data.row_pass import is_remote, map_rows

DRAWS = 64
"""Draws of the posterior."""
PRIOR_ROWS = 4.0
"""Weight, in rows, of the average accuracy of a model towards which each of its cells is shrunk."""
SOFTNESS = 0.4
"""Width of the boundary in which a row is partly right, in standard deviations of the margins of its class."""
PRESENT = 0.5
"""Expected number of rows from which a cell counts as present."""
AT_ONCE = 1 << 24
"""Largest number of margins in memory at once."""


def row_keys(X: Any, rows: Ints | None = None) -> F64:
    """Return a key (n,) of each row that depends on its direction alone, not on its position or its length.

    Keys order rows where random numbers are dealt to them, so that the order of the rows does not matter. ``rows`` are
    the numbers of the rows to read; None for all. Rows are read in blocks.
    """
    direction = np.random.default_rng(0).normal(size=int(X.shape[1]))
    if is_remote(X):
        (found,) = map_rows(X if rows is None else X.taken(rows), _Keys(direction))
        return np.asarray(found)
    keys = np.empty(int(X.shape[0]) if rows is None else len(rows))
    for start in range(0, len(keys), READ_ROWS):
        block = slice(start, start + READ_ROWS)
        (keys[block],) = _Keys(direction)(X[block] if rows is None else X[rows[block]])
    return keys


class _Keys:
    """Function of blocks of rows: their keys."""

    def __init__(self, direction: F64) -> None:
        self._direction = direction

    def __call__(self, rows: Any) -> tuple[F64]:
        read = wide(rows)
        lengths = np.sqrt(to_numpy(row_squares(read)))
        # A matrix product would round equal rows differently, by their place in the block.
        if is_tensor(read):
            found = to_numpy((read * beside(read, self._direction)).sum(axis=1))
        else:
            found = np.einsum("ij,j->i", read, self._direction)
        return (found / np.where(lengths > 0, lengths, 1.0),)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Labelled rows on which models are compared.

    Parameters
    ----------
    y : array of shape (n,)
        Class codes.
    groups : array of shape (n, v)
        Probability that a row belongs to each group; one column of ones without groups.
    n_classes : int
        Number c of classes.
    keys : array of shape (n,)
        `row_keys`.
    """

    y: Ints
    groups: F64
    n_classes: int
    keys: F64

    @classmethod
    def of_codes(cls, y: Ints, s: Ints, n_classes: int, n_groups: int, keys: F64) -> Evidence:
        """Make the evidence of rows whose groups are known, by their codes (n,)."""
        return cls(y, np.eye(n_groups)[s], n_classes, keys)

    def at(self, rows: Ints) -> Evidence:
        """Return the evidence of some of the rows, by their numbers."""
        return Evidence(self.y[rows], self.groups[rows], self.n_classes, self.keys[rows])

    def joined(self, other: Evidence) -> Evidence:
        """Return the evidence of the rows of both; they have the same classes and groups."""
        return Evidence(
            np.concatenate([self.y, other.y]),
            np.concatenate([self.groups, other.groups]),
            self.n_classes,
            np.concatenate([self.keys, other.keys]),
        )

    @cached_property
    def by_class(self) -> Evidence:
        """The same rows with every class as one cell."""
        return Evidence(self.y, np.ones((len(self.y), 1)), self.n_classes, self.keys)

    @cached_property
    def counts(self) -> F64:
        """(c, v) expected number of rows of each cell."""
        out = np.zeros((self.n_classes, self.groups.shape[1]))
        np.add.at(out, self.y, self.groups)
        return out

    @property
    def present(self) -> Any:
        """(c, v) whether a cell has rows."""
        return self.counts >= PRESENT

    @cached_property
    def _order(self) -> Ints:
        """(n,) row numbers by class, rarest class first, then by key: the same for every order of rows and classes."""
        sizes = np.bincount(self.y, minlength=self.n_classes)
        sums = np.bincount(self.y, weights=self.keys, minlength=self.n_classes)
        return np.lexsort((self.keys, sums[self.y], sizes[self.y]))

    @cached_property
    def _draws(self) -> tuple[Floats, F64]:
        """Random weights of the rows (n, draws), and of the prior of each cell (c, v, draws)."""
        rng = np.random.default_rng(0)
        weights = np.empty((len(self.y), DRAWS), dtype=np.float32)
        weights[self._order] = rng.exponential(size=weights.shape).astype(np.float32)
        prior = np.empty((*self.counts.shape, DRAWS))
        # In the order of the sizes of the cells and of their keys, which other names of classes and groups do not
        # change; rounded, because sums depend on the order of the rows in their last digits.
        sums = np.zeros_like(self.counts)
        np.add.at(sums, self.y, self.groups * self.keys[:, None])
        smallest_first = np.lexsort((sums.ravel().round(9), self.counts.ravel().round(9)))
        prior.reshape(-1, DRAWS)[smallest_first] = rng.gamma(PRIOR_ROWS, size=(self.counts.size, DRAWS))
        return weights, prior

    def margins(self, scores: Floats) -> Floats:
        """Return the score of the true class minus the best other score, (…, n), from scores (…, n, c)."""
        if self.n_classes == 2:
            return np.asarray(
                (scores[..., 1] - scores[..., 0]) * np.where(self.y == 1, 1, -1).astype(scores.dtype)
            )
        own = np.take_along_axis(scores, self._index(scores.ndim), axis=-1)[..., 0]
        others = np.where(np.arange(self.n_classes) == self.y[:, None], -np.inf, scores)
        return np.asarray(own - others.max(axis=-1))

    def _index(self, axes: int) -> Ints:
        return self.y[:, None].reshape((1,) * (axes - 2) + (-1, 1))

    def hits(self, scores: Floats) -> tuple[F64, F64]:
        """Return expected numbers of right rows (…, c, v) and of rows (c, v) for scores (…, n, c)."""
        scores = np.asarray(scores)
        # Of equal scores the first wins.
        predicted = scores[..., 1] > scores[..., 0] if self.n_classes == 2 else scores.argmax(axis=-1)
        right = predicted == self.y  # (…, n)
        out = np.zeros((*right.shape[:-1], *self.counts.shape))
        for y in range(self.n_classes):
            rows = np.flatnonzero(self.y == y)
            out[..., y, :] = right[..., rows].astype(np.float64) @ self.groups[rows]
        return out, self.counts

    def rates(self, margins: Floats) -> F64:
        """Return the expected accuracy of each cell (b, c, v) for margins (b, n), shrunk as in `accuracies`.

        Rows are right or wrong. NaN for a cell without rows. O(b·n·v) time.
        """
        right = (margins > 0).astype(np.float64)
        average = right.mean(axis=1)[:, None]
        out = np.full((len(margins), *self.counts.shape), np.nan)
        for y in range(self.n_classes):
            rows = np.flatnonzero(self.y == y)
            hits = right[:, rows] @ self.groups[rows] + PRIOR_ROWS * average
            out[:, y] = np.where(self.present[y], hits / (self.counts[y] + PRIOR_ROWS), np.nan)
        return out

    def accuracies(self, margins: Floats) -> F64:
        """Draw the accuracy of each cell from its posterior: (g, c, v, draws) for the margins (g, n) of g models.

        NaN for a cell without rows. O(g·n·v·draws) time, in matrix products. These are in double precision, so that the
        result does not depend on how many models are judged at once.
        """
        weights, prior = self._draws
        out = np.full((len(margins), *self.counts.shape, DRAWS), np.nan, dtype=np.float32)
        right = self._right(margins)  # (g, n)
        average = right.mean(axis=1, dtype=np.float64)[:, None]
        for y, v in zip(*np.nonzero(self.present), strict=True):
            rows = np.flatnonzero((self.y == y) & (self.groups[:, v] > 0))
            W = weights[rows] * self.groups[rows, v][:, None]  # (rows, draws) float64
            total = W.sum(axis=0) + prior[y, v]
            out[:, y, v] = (right[:, rows].astype(np.float64) @ W + average * prior[y, v]) / total
        return out

    def _right(self, margins: Floats) -> Floats:
        """Return how far each row is right (g, n), from 0 to 1: a smooth step of its margin."""
        out = np.empty(margins.shape, dtype=np.float32)
        for y in range(self.n_classes):
            rows = np.flatnonzero(self.y == y)
            own = margins[:, rows]
            width = SOFTNESS * own.std(axis=1, keepdims=True) if len(rows) else own
            # Without any spread the sign of the margin decides.
            scaled = np.divide(
                own, width, out=np.where(own > 0, np.inf, -np.inf).astype(own.dtype), where=width > 0
            )
            out[:, rows] = ndtr(scaled)
        return out
