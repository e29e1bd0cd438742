"""Attribute Y or S with its kernel: delta for categories, RBF for quantities."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import helmert

from fairerclip._util.checks import check_choice
from fairerclip.errors import ShapeError
from fairerclip.features import rbf_kernel, resolve_bandwidth
from fairerclip.features.feature_map import RandomState
from fairerclip.metrics.label_codes import (
    FloatArray,
    as_labels,
    encode,
    matrix,
    refuse_missing,
    same_length,
)

BLOCK = 2**21
"""Number of kernel values computed at a time (16 MB)."""

_FACTOR_TOLERANCE = 1e-13
"""Largest share of the trace of K that its low-rank factor leaves out."""


def row_blocks(n: int) -> Iterator[slice]:
    """Return slices of rows such that a block of an n×n array has about `BLOCK` values."""
    step = max(1, BLOCK // n)
    return (slice(start, min(start + step, n)) for start in range(0, n, step))


def centred(X: FloatArray) -> FloatArray:
    """Return X (n, d) minus its column means."""
    return np.asarray(X - X.mean(axis=0))


def is_constant(X: NDArray[Any]) -> bool:
    """Return whether all rows of X (n, …) are equal."""
    return bool(np.equal(X, X[0]).all())


@dataclass(frozen=True, eq=False)
class KernelAttribute:
    """Codes (n,) of a categorical attribute, or rows (n, d) of a continuous one with their bandwidth."""

    rows: NDArray[Any]
    categorical: bool
    bandwidth: float = 1.0

    @classmethod
    def read(cls, given: Any, kind: str, name: str) -> KernelAttribute:
        """Read and check the values of a user; "auto" is continuous for floats that are not all integers."""
        check_choice("kind", kind, ("auto", "categorical", "continuous"))
        if kind == "auto":
            array = as_labels(given, name)
            refuse_missing(array, name)
            fractional = array.dtype.kind == "f" and bool((array != np.floor(array)).any())
            kind = "continuous" if fractional else "categorical"
        if kind == "continuous":
            return cls(matrix(given, name), categorical=False)
        return cls(encode(given, name)[0], categorical=True)

    def __len__(self) -> int:
        return len(self.rows)

    def resolved(self, bandwidth: float | str, random_state: RandomState) -> KernelAttribute:
        """Return a copy with the bandwidth as a number; `random_state` draws the rows of a median."""
        if self.categorical:
            return self
        return replace(self, bandwidth=resolve_bandwidth(bandwidth, self.rows, random_state=random_state))

    def among(self, chosen: NDArray[np.intp]) -> KernelAttribute:
        """Return the attribute of the chosen rows, without categories that none of them has."""
        rows = self.rows[chosen]
        return replace(self, rows=np.unique(rows, return_inverse=True)[1] if self.categorical else rows)

    def kernel(self, block: slice) -> FloatArray:
        """Return a block of rows (b, n) of the kernel matrix."""
        if self.categorical:
            return np.asarray(np.equal(self.rows[block, None], self.rows), dtype=np.float64)
        return rbf_kernel(self.rows[block], self.rows, self.bandwidth)

    def factor(self) -> FloatArray:
        """Return a centred F (n, k) with FFᵀ = HKH: k = c − 1 for c ≥ 2 categories, the numerical rank for RBF.

        O(n·c + c²) and O(n·k²) time.
        """
        if not self.categorical:
            return centred(_pivoted_cholesky(self.rows, self.bandwidth))
        # Centred one-hot rows sum to zero, so Helmert's contrasts represent them with one column fewer.
        contrasts = np.asarray(helmert(int(self.rows.max()) + 1), dtype=np.float64).T  # (c, c - 1)
        return centred(contrasts[self.rows])


def _pivoted_cholesky(X: FloatArray, bandwidth: float) -> FloatArray:
    """Return L (n, k) with LLᵀ = K up to a residual trace of 1e-13·n, without forming K.

    The RBF kernel of one quantity has a numerical rank of some tens for any n.
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
        L[:, rank] = column / np.sqrt(residual[pivot])
        residual = np.maximum(residual - L[:, rank] ** 2, 0.0)
        residual[pivot] = 0.0
        rank += 1
    return L[:, :rank]


def read_pair(X: Any, Y: Any, kind: str, names: tuple[str, str]) -> tuple[FloatArray, KernelAttribute]:
    """Read and check both arguments of a dependence measure: X (n, d) and an attribute of n ≥ 2 rows."""
    rows = matrix(X, names[0])
    attribute = KernelAttribute.read(Y, kind, names[1])
    n = same_length(**{names[0]: rows, names[1]: attribute})
    if n < 2:
        raise ShapeError(f"dependence needs at least 2 rows; got {n}")
    return rows, attribute


def trivial(rows: FloatArray, attribute: KernelAttribute) -> bool:
    """Return whether the rows or the attribute are constant, so that every measure is 0."""
    return is_constant(attribute.rows) or is_constant(rows)
