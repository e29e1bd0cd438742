"""Top k rows of a ranking, in the gallery and in galleries resampled from its rows.

A gallery is sorted once per query. A resampled gallery is a weight per row; its top k is found by adding up
the weights in that order, so no replicate is sorted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.checks import check_choice
from fairerclip._util.clean_text import quoted
from fairerclip.errors import ParameterError, ShapeError
from fairerclip.features.feature_map import RandomState, Rng, as_rng
from fairerclip.metrics.label_codes import FloatArray, IntArray

TIES = ("expected", "score", "random")
"""Treatments of rows of equal score; see `fairerclip.metrics.max_skew`."""

BLOCK = 2**21
"""Number of weights held at a time (16 MB)."""


@dataclass(frozen=True, eq=False)
class TopRows:
    """Rows (n,) by falling score, and the ends (m,) of blocks of rows with equal rank.

    A cut inside a block takes the same share of each of its rows, the expectation over random orders.
    """

    order: IntArray
    ends: IntArray

    @classmethod
    def of(cls, scores: FloatArray, ties: str, rng: Rng | None = None) -> TopRows:
        """Sort ``scores`` (n,); ``rng`` shuffles equal scores if ties are "random". O(n log n) time."""
        n = scores.size
        if ties == "random" and rng is not None:
            shuffle = rng.permutation(n)
            order = shuffle[np.argsort(-scores[shuffle], kind="stable")]
        else:
            order = np.argsort(-scores, kind="stable")
        if ties != "expected":
            return cls(order, np.arange(1, n + 1))
        return cls(order, np.append(np.flatnonzero(np.diff(scores[order])) + 1, n))

    @property
    def tied(self) -> bool:
        """Whether a block holds more than one row."""
        return self.ends.size < self.order.size

    def prefix_counts(self, members: FloatArray, cuts: IntArray) -> FloatArray:
        """Sum ``members`` (n, g) over the first ``cuts`` (m,) rows, in rising order: (m, g). O(n·g) time."""
        ends = self.ends[: int(np.searchsorted(self.ends, cuts[-1])) + 1]
        totals = np.cumsum(members[self.order[: ends[-1]]], axis=0)[ends - 1]
        if not self.tied:
            return np.asarray(totals[cuts - 1], dtype=np.float64)
        knots = np.append(0, ends)
        return np.stack([np.interp(cuts, knots, np.append(0, total)) for total in totals.T], axis=1)

    def among(self, kept: NDArray[np.bool_]) -> TopRows:
        """Return the ranking of the rows where ``kept`` (n,) is True, with their original numbers."""
        kept_in_order = kept[self.order]
        if not self.tied:
            order = self.order[kept_in_order]
            return TopRows(order, np.arange(1, order.size + 1))
        ends = np.cumsum(kept_in_order, dtype=np.intp)[self.ends - 1]
        return TopRows(self.order[kept_in_order], ends[np.diff(ends, prepend=0) > 0])

    def renumbered(self, rows: IntArray) -> TopRows:
        """Return the ranking of ``rows`` (m,), given in rising order and renumbered 0 … m − 1."""
        places = np.full(self.order.size, -1)
        places[rows] = np.arange(rows.size)
        inner = self.among(places >= 0)
        return TopRows(places[inner.order], inner.ends)

    def mid_ranks(self, weights: FloatArray) -> FloatArray:
        """Return the middle rank (b, n) of the block of each row, if rows count ``weights`` (b, n) times."""
        total = np.cumsum(weights[:, self.order], axis=1)[:, self.ends - 1]
        middle = (total + np.concatenate([np.zeros((len(total), 1)), total[:, :-1]], axis=1)) / 2
        block = np.empty(self.order.size, dtype=np.intp)
        block[self.order] = np.repeat(np.arange(self.ends.size), np.diff(self.ends, prepend=0))
        return np.asarray(middle[:, block])

    def shown(self, k: int) -> FloatArray:
        """Return the share (n,) of each row that is among the first k: 1 or 0, or between in the block at the cut."""
        shown = np.zeros(self.order.size)
        last = int(np.searchsorted(self.ends, k))
        start = int(self.ends[last - 1]) if last else 0
        end = int(self.ends[last])
        shown[self.order[:start]] = 1.0
        shown[self.order[start:end]] = (k - start) / (end - start)
        return shown

    def resampled(self, weights: FloatArray, k: int) -> tuple[IntArray, FloatArray]:
        """Return the rows (c,) that reach the top k in any of b galleries, and their weight (b, c) in it.

        ``weights`` (b, n) are counts that sum to n.
        """
        candidates = self._reach(weights, k)
        rows = self.order[: self.ends[candidates - 1]]
        shown = weights[:, rows]
        above = np.cumsum(shown, axis=1)
        if self.tied:
            ends = self.ends[:candidates]
            sizes = np.diff(ends, prepend=0)
            total = above[:, ends - 1]
            held = np.diff(total, prepend=0.0, axis=1)
            share = np.clip(np.divide(k - total + held, held, out=np.zeros_like(held), where=held > 0), 0, 1)
            return rows, shown * np.repeat(share, sizes, axis=1)
        np.subtract(k, above, out=above)
        above += shown  # what the rows before leave of k
        return rows, np.clip(above, 0.0, shown)

    def _reach(self, weights: FloatArray, k: int) -> int:
        """Return a number of blocks from the top that hold at least k rows in every gallery."""
        m = self.ends.size
        guess = int(np.searchsorted(self.ends, k + 6 * k**0.5 + 20)) + 1
        while guess < m:
            if (weights[:, self.order[: self.ends[guess - 1]]].sum(axis=1) >= k).all():
                return guess
            guess *= 2
        return m


def rankings(table: FloatArray, ties: str, random_state: RandomState) -> list[TopRows]:
    """Return the ranking of each column of ``table`` (n, q)."""
    check_choice("ties", ties, TIES)
    rng = as_rng(random_state) if ties == "random" else None
    return [TopRows.of(column, ties, rng) for column in table.T]


def default_cut(n: int) -> int:
    """Return the default cut k of n rows: 1000, or a quarter of fewer than 4000 rows."""
    return max(1, min(1000, n // 4))


def checked_cut(k: Any, n: int) -> int:
    """Return ``k`` as an integer between 1 and n; None means n."""
    if n == 0:
        raise ShapeError("expected at least one row to rank, got scores with 0 rows")
    if k is None:
        return n
    try:
        cut = index(k)
    except TypeError:
        raise ParameterError(f"k must be a whole number; got {quoted(k, 60)}") from None
    if not 1 <= cut <= n:
        raise ParameterError(f"k must lie between 1 and the number of rows n={n}; got {cut}")
    return cut


def as_generator(random_state: RandomState) -> np.random.Generator:
    """Return a numpy Generator that is determined by ``random_state``."""
    rng = as_rng(random_state)
    return rng if isinstance(rng, np.random.Generator) else np.random.default_rng(rng.randint(2**31, size=4))


def row_weights(n: int, n_replicates: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Yield how often each of n rows is drawn, in blocks of replicates (b, n); each replicate sums to n."""
    step = max(1, BLOCK // n)
    for start in range(0, n_replicates, step):
        b = min(step, n_replicates - start)
        drawn = rng.integers(n, size=(b, n)) + n * np.arange(b)[:, None]
        yield np.bincount(drawn.ravel(), minlength=b * n).reshape(b, n).astype(np.float64)


def resampled_counts(
    ranked: Sequence[TopRows],
    members: Sequence[FloatArray],
    k: int,
    n_replicates: int,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Count members in the top k of each ranking, and in all rows, of galleries resampled by rows.

    ``members`` has an array (n, g) per ranking. All rankings use the same galleries. Both results have shape
    (B, q, g). O(B·(n + q·(c·g + n·g))) time for c rows near the top.
    """
    n, width = members[0].shape
    top = np.empty((n_replicates, len(ranked), width))
    total = np.empty_like(top)
    start = 0
    for weights in row_weights(n, n_replicates, rng):
        block = slice(start, start + len(weights))
        known: dict[int, FloatArray] = {}
        for q, (ranking, member) in enumerate(zip(ranked, members, strict=True)):
            rows, shown = ranking.resampled(weights, k)
            top[block, q] = shown @ member[rows]
            if id(member) not in known:
                known[id(member)] = weights @ member
            total[block, q] = known[id(member)]
        start += len(weights)
    return top, total
