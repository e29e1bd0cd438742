"""Class scores of new rows at every point of a path, from one pass over the rows.

Points that were solved for the same labels share a reduced basis: the rows are projected onto it once, and the scores
of all points are products of small matrices. A point with labels of its own (refinement) has its own encoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import F64, Floats, Ints
from fairerclip.data.embedding_rows import check_rows, unit_rows
from fairerclip.features import FeatureMap
from fairerclip.solver.alternation import Encoders
from fairerclip.solver.problem import Sides

SCORES_AT_ONCE = 1 << 21
"""Largest number of class scores in memory at once: 16 MB."""


class CheckedOnRead:
    """View of rows X (n, p) as an encoder sees them, which checks each block when it is read.

    `check_rows` would need a pass of its own; here it is made only if a block has a row that is zero or not finite.

    Parameters
    ----------
    X : array, memory map or store of shape (n, p)
        Embeddings.
    normalize : bool
        Whether rows are scaled to unit length.
    """

    def __init__(self, X: Any, *, normalize: bool) -> None:
        self._X, self._normalize, self._checked = X, normalize, False
        self.shape = (int(X.shape[0]), int(X.shape[1]))

    def __getitem__(self, rows: slice) -> Floats:
        block = np.asarray(self._X[rows])
        if not self._checked and not (np.isfinite(block).all() and block.any(axis=1).all()):
            check_rows(self._X, "X", zero_is_error=False, depth=7)
            self._checked = True  # zero rows are warned of once
        return unit_rows(block) if self._normalize else block


@dataclass(frozen=True, eq=False)
class SharedPoints:
    """Points of one reduced basis: the scores of point i are ((Φ − mean) E) @ weights[i] + constants[i]."""

    places: Ints
    """(k,) numbers of the points."""
    basis: F64
    """E (D, q)"""
    offset: F64
    """(q,) mean @ E"""
    weights: F64
    """(k, q, c)"""
    constants: F64
    """(k, c)"""

    @classmethod
    def of(cls, sides: Sides, maps: Mapping[int, tuple[F64, F64]]) -> SharedPoints | None:
        """Return the points with the given weights (q, c) and constants (c,) by number; None if there are none."""
        if not maps:
            return None
        basis = sides.image.reduced.basis
        weights, constants = zip(*maps.values(), strict=True)
        return cls(np.array([*maps]), basis, sides.image.mean @ basis, np.array(weights), np.array(constants))


class ScoredBlock(NamedTuple):
    """Class scores of some rows at some points."""

    rows: slice
    """A block of rows, of which some may be left out."""
    points: Ints
    """(k,) numbers of the points."""
    scores: F64
    """(k, b, c)"""


@dataclass(frozen=True, eq=False)
class PathScores:
    """Functions from rows to class scores, of every point of a path that has a solution.

    Parameters
    ----------
    shared : SharedPoints or None
        Points that share their labels with the fit.
    alone : sequence of (int, Encoders)
        Numbers and encoders of the other points.
    """

    shared: SharedPoints | None
    alone: Sequence[tuple[int, Encoders]]

    def blocks(
        self, features: FeatureMap, X: Any, block_rows: int, kept: NDArray[np.bool_] | None = None
    ) -> Iterator[ScoredBlock]:
        """Yield the scores of rows X (n, p), a few rows and points at a time; each row is read once. O(n·D·p) time.

        ``kept`` (n,) tells the rows to score; None for all.
        """
        if self.shared is None and not self.alone:
            return
        for start in range(0, X.shape[0], block_rows):
            rows = slice(start, min(start + block_rows, X.shape[0]))
            block = X[rows] if kept is None else X[rows][kept[rows]]
            Phi = features.transform(np.asarray(block))
            if self.shared is not None:
                yield from self._shared_blocks(self.shared, Phi, rows)
            if self.alone:
                yield from self._alone_blocks(Phi, rows)

    def _shared_blocks(self, shared: SharedPoints, Phi: Floats, rows: slice) -> Iterator[ScoredBlock]:
        P = Phi @ shared.basis.astype(Phi.dtype) - shared.offset  # (b, q) float64
        each = max(1, SCORES_AT_ONCE // max(1, len(P) * shared.constants.shape[1]))
        for first in range(0, len(shared.places), each):
            part = slice(first, first + each)
            scores = P @ shared.weights[part]
            scores += shared.constants[part, None, :]
            yield ScoredBlock(rows, shared.places[part], scores)

    def _alone_blocks(self, Phi: Floats, rows: slice) -> Iterator[ScoredBlock]:
        U = np.concatenate([e.components for _, e in self.alone], axis=1)  # (D, Σr)
        offset = np.concatenate([e.offset for _, e in self.alone])
        stops = np.cumsum([e.components.shape[1] for _, e in self.alone])[:-1]
        parts = np.split(Phi @ U.astype(Phi.dtype) - offset, stops, axis=1)
        for (g, encoders), Z in zip(self.alone, parts, strict=True):
            yield ScoredBlock(rows, np.array([g]), encoders.decision.scores(Z)[None])


def predicted_codes(scores: F64) -> NDArray[np.integer]:
    """Return the number of the largest score (…,) of scores (…, c), the first of equal ones, as a small integer."""
    if scores.shape[-1] == 2:
        return np.asarray(scores[..., 1] > scores[..., 0], dtype=np.int8)
    return np.asarray(scores.argmax(axis=-1).astype(code_type(scores.shape[-1])))


def code_type(n_classes: int) -> np.dtype[Any]:
    """Return the smallest integer type that holds the codes of the classes, and -1."""
    return np.dtype(np.min_scalar_type(-max(1, n_classes)))


class CellHits:
    """Counts of correct predictions by point, class and group, summed over blocks of rows.

    Parameters
    ----------
    n_points, n_classes, n_groups : int
        Sizes of the counts.
    """

    def __init__(self, n_points: int, n_classes: int, n_groups: int) -> None:
        self.hits = np.zeros((n_points, n_classes, n_groups), dtype=np.int64)
        """(g, c, |S|) correct rows."""
        self.counts = np.zeros((n_classes, n_groups), dtype=np.int64)
        """(c, |S|) rows."""

    def count_rows(self, y: Ints, s: Ints) -> None:
        """Add rows with classes and groups (n,) to the counts of rows."""
        shape = self.counts.shape
        self.counts += np.bincount(y * shape[1] + s, minlength=shape[0] * shape[1]).reshape(shape)

    def add(self, block: ScoredBlock, y: Ints, s: Ints) -> None:
        """Add predictions of rows with classes and groups (b,) at some points. O(k·b·c) time."""
        right = predicted_codes(block.scores) == y.astype(code_type(self.counts.shape[0]))  # (k, b)
        cell = y * self.counts.shape[1] + s
        order = np.argsort(cell, kind="stable")
        own, first = np.unique(cell[order], return_index=True)
        # Rows of a cell side by side, so that one sum over runs of columns counts all cells of all points.
        found = np.add.reduceat(right[:, order], first, axis=1, dtype=np.int64)
        self.hits.reshape(len(self.hits), -1)[np.ix_(block.points, own)] += found
