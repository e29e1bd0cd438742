"""The best rows of each query, found block by block."""

from __future__ import annotations

import numpy as np

from fairerclip._util.types import F64, Floats, Ints


class BestRows:
    """The k rows with the largest score of each of m queries; of equal scores the earlier row is the better one.

    Parameters
    ----------
    queries, k : int
        Number m of queries, and number of rows to keep for each.

    Attributes
    ----------
    rows : list of m arrays of shape (≤ k,) of int
        Row numbers of each query, best first.
    scores : list of m arrays of shape (≤ k,)
        Their scores.

    Examples
    --------
    >>> best = BestRows(1, 2)
    >>> best.add(0, np.array([[0.1], [0.3]]))
    >>> best.add(2, np.array([[0.2], [0.3]]))
    >>> best.rows[0].tolist(), best.scores[0].tolist()
    ([1, 3], [0.3, 0.3])
    """

    def __init__(self, queries: int, k: int) -> None:
        self.k = k
        self.rows: list[Ints] = [np.empty(0, dtype=np.int64)] * queries
        self.scores: list[F64] = [np.empty(0)] * queries

    def add(self, start: int, scores: Floats) -> None:
        """Add the scores (b, m) of the rows from number ``start`` on; blocks come in the order of the rows."""
        for query, column in enumerate(scores.T):
            kept = self.scores[query]
            # A row that only equals the last one is later, so it is not better.
            candidates = np.flatnonzero(column > kept[-1]) if len(kept) == self.k else np.arange(len(column))
            if not len(candidates):
                continue
            values = np.concatenate([kept, column[candidates]])
            rows = np.concatenate([self.rows[query], start + candidates])
            order = np.argsort(-values, kind="stable")[: self.k]  # earlier rows stand first
            self.rows[query], self.scores[query] = rows[order], values[order]
