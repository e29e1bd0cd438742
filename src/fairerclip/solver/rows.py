"""Features of the training rows, computed in blocks and cached if they fit in memory."""

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
"""Share of the free memory that cached features may take."""
CACHE_FALLBACK_BYTES = 1 << 30
"""Bytes that cached features may take on systems that do not report their free memory."""


def cache_budget() -> int:
    """Return the number of bytes that cached features may take on this machine now."""
    try:
        return int(CACHE_SHARE * os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return CACHE_FALLBACK_BYTES


class FeatureRows:
    """Features Φ(X) of the rows of X, computed in blocks; the whole n×D matrix need not be in memory.

    Whether blocks are cached changes the time of later passes and never the result.

    Parameters
    ----------
    features : FeatureMap
        The fitted feature map.
    X : array of shape (n, p)
        An array, a memory map, or any object with ``shape`` that returns rows for a slice.
    rows : int array of shape (m,) or None
        Sorted numbers of the rows to use; None for all.
    dtype : str
        Working precision.
    block_rows : int
        Rows per block.
    budget : int or None
        Bytes that cached features may take; None for `cache_budget`.
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
        """Number of features D."""
        return self.features.n_features

    def blocks(self) -> Iterator[tuple[slice, Floats]]:
        """Yield pairs (slice of rows, Φ of those rows) in order. Blocks must not be written to."""
        for start in range(0, self.n_rows, self._block_rows):
            block = slice(start, min(start + self._block_rows, self.n_rows))
            yield block, self._block(block)

    def take(self, rows: NDArray[np.int64]) -> Floats:
        """Return Φ (m, D) of the given training rows."""
        return self.raw(rows if self._rows is None else self._rows[rows])

    def raw(self, rows: NDArray[np.int64]) -> Floats:
        """Return Φ (m, D) of rows given by their number in X, training rows or not."""
        return self.features.transform(np.asarray(self._X[rows], dtype=self.dtype))

    def project(self, mean: F64, basis: F64) -> F64:
        """Return (Φ − mean) @ basis (n, q) for every training row, in one pass."""
        basis_cast = basis.astype(self.dtype)
        out = np.empty((self.n_rows, basis.shape[1]))
        for block, Phi in self.blocks():
            out[block] = Phi @ basis_cast
        out -= mean @ basis
        return out

    def project_some(self, places: NDArray[np.int64], mean: F64, basis: F64) -> F64:
        """Return (Φ − mean) @ basis (m, q) of some training rows, by their places in rising order."""
        basis_cast = basis.astype(self.dtype)
        out = np.empty((len(places), basis.shape[1]))
        for start in range(0, self.n_rows, self._block_rows):
            block = slice(start, min(start + self._block_rows, self.n_rows))
            first, stop = np.searchsorted(places, [block.start, block.stop])
            if first < stop:
                out[first:stop] = self._block(block)[places[first:stop] - block.start] @ basis_cast
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
