"""An attribute Y or S with its kernel: delta for categories, RBF for quantities."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import helmert

from fairerclip.errors import ShapeError
from fairerclip.features import rbf_kernel, resolve_bandwidth
from fairerclip.features.base import RandomState
from fairerclip.metrics._inputs import (
    FloatArray,
    IntArray,
    as_labels,
    encode,
    matrix,
    one_of,
    refuse_missing,
    same_length,
)

BLOCK = 2**21
"""Kernel values held at a time (16 MB)."""

_FACTOR_TOLERANCE = 1e-13
"""Share of the trace of K that its low-rank factor may miss."""


def row_blocks(n: int) -> Iterator[slice]:
    """Slices of rows, such that a block of an n×n array has about `BLOCK` values."""
    step = max(1, BLOCK // n)
    return (slice(start, min(start + step, n)) for start in range(0, n, step))


def centred(X: FloatArray) -> FloatArray:
    """X (n, d) minus its column means."""
    return np.asarray(X - X.mean(axis=0))


def is_constant(X: FloatArray) -> bool:
    """Whether all rows of X (n, d) are equal."""
    return bool(np.equal(X, X[0]).all())


@dataclass(frozen=True, eq=False)
class Attribute:
    """Codes (n,) of a categorical attribute, or the rows (n, d) and bandwidth of a continuous one."""

    codes: IntArray | None = None
    values: FloatArray | None = None
    bandwidth: float = 1.0

    @classmethod
    def read(cls, given: Any, kind: str, name: str) -> Attribute:
        """Take what a user gave; "auto" is continuous for floats of which one is not an integer."""
        one_of(kind, ("auto", "categorical", "continuous"), "kind")
        if kind == "auto":
            array = as_labels(given, name)
            refuse_missing(array, name)
            fractional = array.dtype.kind == "f" and bool((array != np.floor(array)).any())
            kind = "continuous" if fractional else "categorical"
        if kind == "continuous":
            return cls(values=matrix(given, name))
        return cls(codes=encode(given, name)[0])

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def _rows(self) -> FloatArray | IntArray:
        rows = self.codes if self.values is None else self.values
        if rows is None:
            raise TypeError("an Attribute needs codes or values")
        return rows

    @property
    def constant(self) -> bool:
        """Whether it has one value only."""
        rows = self._rows
        return bool(np.equal(rows, rows[0]).all())

    def resolved(self, bandwidth: float | str, random_state: RandomState) -> Attribute:
        """Return a copy with its bandwidth found, drawing from `random_state` if it is a median."""
        if self.values is None:
            return self
        return replace(self, bandwidth=resolve_bandwidth(bandwidth, self.values, random_state=random_state))

    def kernel(self, rows: slice) -> FloatArray:
        """Rows of the kernel matrix, (b, n)."""
        if self.values is not None:
            return rbf_kernel(self.values[rows], self.values, self.bandwidth)
        codes = self._rows
        return np.equal(codes[rows, None], codes).astype(np.float64)

    def factor(self) -> FloatArray:
        """Centred F (n, k) with FFᵀ = HKH: k = c − 1 for c categories, the numerical rank for RBF.

        O(n·c²) and O(n·k²) time.
        """
        if self.values is not None:
            return centred(_pivoted_cholesky(self.values, self.bandwidth))
        codes = np.asarray(self._rows, dtype=np.intp)
        size = int(codes.max()) + 1
        if size == 1:
            return np.zeros((len(codes), 0))
        # Centred one-hot rows sum to zero: Helmert's contrasts hold them in one column fewer.
        contrasts = np.asarray(helmert(size), dtype=np.float64).T  # (c, c - 1)
        return centred(contrasts[codes])


def _pivoted_cholesky(X: FloatArray, bandwidth: float) -> FloatArray:
    """L (n, k) with LLᵀ = K up to a residual trace of 1e-13·n; K is never formed.

    The RBF kernel of one quantity has a numerical rank of some tens, whatever n.
    """
    n = len(X)
    residual = np.ones(n)
    L = np.empty((n, min(n, 32)))
    rank = 0
    while rank < n and residual.sum() > _FACTOR_TOLERANCE * n:
        if rank == L.shape[1]:
            L = np.concatenate([L, np.empty((n, min(rank, n - rank)))], axis=1)
        pivot = int(residual.argmax())
        column = rbf_kernel(X, X[[pivot]], bandwidth)[:, 0] - L[:, :rank] @ L[pivot, :rank]
        if not residual[pivot] > 0 or not column[pivot] > 0:
            break
        L[:, rank] = column / np.sqrt(column[pivot])
        residual = np.maximum(residual - L[:, rank] ** 2, 0.0)
        residual[pivot] = 0.0
        rank += 1
    return L[:, :rank]


def read_pair(X: Any, Y: Any, kind: str, names: tuple[str, str]) -> tuple[FloatArray, Attribute]:
    """Both arguments of a dependence measure, checked: X (n, d) and an attribute of n ≥ 2 rows."""
    rows = matrix(X, names[0])
    attribute = Attribute.read(Y, kind, names[1])
    n = same_length(**{names[0]: rows, names[1]: attribute})
    if n < 2:
        raise ShapeError(f"dependence needs at least 2 rows; got {n}")
    return rows, attribute
