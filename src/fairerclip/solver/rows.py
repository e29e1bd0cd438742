"""The features of the training rows, block by block, kept in memory only where they fit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import F64, Floats
from fairerclip.data.embedding_rows import BLOCK_ROWS

if TYPE_CHECKING:
    from fairerclip.features import FeatureMap


CACHE_SHARE = 0.25
"""Share of the machine's free memory that kept features may take."""
CACHE_FALLBACK_BYTES = 1 << 30
"""What kept features may take where the free memory cannot be asked for."""


def cache_budget() -> int:
    """Bytes that kept features may take on this machine now."""
    try:
        return int(CACHE_SHARE * os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return CACHE_FALLBACK_BYTES


class FeatureRows:
    """Φ(X) for the rows of X, computed per block; the n×D matrix need not exist.

    Whether blocks are kept changes the time of later passes and never the result.

    Parameters
    ----------
    features : feature map.
    X : (n, p) array, memory map, or anything with ``shape`` that gives rows for a slice.
    rows : (m,) sorted row numbers to use, or None for all.
    dtype : working precision.
    """

    def __init__(
        self,
        features: FeatureMap,
        X: Any,
        *,
        rows: NDArray[np.int64] | None = None,
        dtype: str = "float32",
        block_rows: int = BLOCK_ROWS,
        budget: int | None = None,
    ) -> None:
        self.features = features
        self._X = X
        self._rows = rows
        self.dtype = np.dtype(dtype)
        self._block_rows = block_rows
        self.n_rows = int(X.shape[0]) if rows is None else len(rows)
        needed = self.n_rows * features.n_features * self.dtype.itemsize
        self.kept = needed <= (cache_budget() if budget is None else budget)
        self._cache: dict[int, Floats] = {}

    @property
    def n_features(self) -> int:
        """D."""
        return self.features.n_features

    def blocks(self) -> Iterator[tuple[slice, Floats]]:
        """Yield (which rows, Φ of those rows), in order. Blocks must not be written to."""
        for start in range(0, self.n_rows, self._block_rows):
            block = slice(start, min(start + self._block_rows, self.n_rows))
            yield block, self._block(block)

    def take(self, rows: NDArray[np.int64]) -> Floats:
        """Φ of the given rows (m, D)."""
        return self.raw(rows if self._rows is None else self._rows[rows])

    def raw(self, rows: NDArray[np.int64]) -> Floats:
        """Φ of rows of X by their number in X, whether they take part or not."""
        return self.features.transform(np.asarray(self._X[rows], dtype=self.dtype))

    def project(self, mean: F64, basis: F64) -> F64:
        """(Φ − mean) @ basis for every row: (n, q), in one pass."""
        small = basis.astype(self.dtype)
        out = np.empty((self.n_rows, basis.shape[1]))
        for block, Phi in self.blocks():
            out[block] = Phi @ small
        out -= mean @ basis
        return out

    def _block(self, block: slice) -> Floats:
        if block.start in self._cache:
            return self._cache[block.start]
        raw = self._X[block] if self._rows is None else self._X[self._rows[block]]
        Phi = self.features.transform(np.asarray(raw, dtype=self.dtype))
        if self.kept:
            self._cache[block.start] = Phi
        return Phi
