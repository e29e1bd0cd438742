"""Product of the covariance of all rows with a few columns, in one pass over the rows and without forming it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fairerclip._util.arrays import (
    Placed,
    accumulate,
    beside,
    cast,
    empty,
    has_float64,
    is_tensor,
    to_numpy,
    wide,
)
from fairerclip._util.types import F64, Floats
from fairerclip.data.row_pass import Progress
from fairerclip.solver.rows import FeatureRows

FEW_COLUMNS = 6
"""Up to this many columns, one column is multiplied at a time: a matrix product of BLAS copies all features first."""
CACHED_ROWS = 64
"""Rows that are multiplied at a time, so that the second product finds them in the processor's cache."""


def covariance_product(
    rows: FeatureRows,
    weight: F64,
    mean: F64,
    V: F64,
    *,
    dtype: Any = None,
    projects: bool = False,
    progress: Progress | None = None,
) -> tuple[F64, F64 | None]:
    """Return Φ_cᵀ W Φ_c V (D, k) and, if wanted, Φ_c V (n, k), in one pass over the rows. O(n·D·k) time.

    Parameters
    ----------
    rows : FeatureRows
        Features of n rows.
    weight : array of shape (n,)
        Row weights W with sum 1.
    mean : array of shape (D,)
        Φ_c = Φ − mean.
    V : array of shape (D, k)
        Columns to multiply with.
    dtype : dtype or None
        Precision of the products; None for that of the features.
    projects : bool
        Whether Φ_c V is wanted.
    progress : callable or None
        Called with the numbers of rows done and of all rows.
    """
    V_cast = V.astype(rows.dtype if dtype is None else dtype)
    found = rows.sum(partial(ProductSum, V_cast, mean @ V, projects), [weight], progress=progress)
    product = to_numpy(found.product) - np.outer(mean, found.total)
    return product, np.concatenate(found.projected) if projects else None


class ProductSum:
    """Accumulator of Φᵀ W Z (D, k), of the sum of W Z (k,) and, if wanted, of Z = Φ V − mean·V (n, k) itself."""

    def __init__(self, V: Floats, mean_V: F64, projects: bool) -> None:
        self._V, self._mean_V, self._projects = Placed(V), mean_V, projects
        self._dtype = V.dtype
        self.product: Any = np.zeros(V.shape)
        self.total = np.zeros(V.shape[1])
        self.projected: list[F64] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "product": to_numpy(self.product)}

    def add(self, Phi: Any, weight: F64) -> None:
        """Add a block of rows."""
        # Without float64 the precision of the features is all there is: the residual tells if it suffices.
        possible = not is_tensor(Phi) or has_float64(Phi)
        (V,) = self._V.beside(empty(Phi, (0,), self._dtype if possible else Phi.dtype))
        product, Z = block_product(Phi, weight, V, self._mean_V)
        self.product = accumulate(self.product, product)
        self.total += weight @ Z
        if self._projects:
            self.projected.append(Z)

    def merge(self, other: ProductSum) -> None:
        """Add what another accumulator has of later rows."""
        self.product = accumulate(self.product, other.product)
        self.total += other.total
        self.projected += other.projected


def block_product(Phi: Any, weight: F64, V: Any, mean_V: F64) -> tuple[Any, F64]:
    """Return Φᵀ W Z (D, k) and Z = Φ V − mean·V (b, k) of one block Φ (b, D), in the precision of V.

    Of a tensor Φ the first is a tensor, too.
    """
    if is_tensor(Phi):
        Phi = cast(Phi, V.dtype)
        Z = wide(Phi @ V) - beside(Phi, mean_V)
        return Phi.T @ cast(beside(Phi, weight[:, None]) * Z, V.dtype), to_numpy(Z).astype(
            np.float64, copy=False
        )
    if V.shape[1] > FEW_COLUMNS and V.dtype == Phi.dtype:
        Z = np.asarray(Phi @ V - mean_V)
        return Phi.T @ (weight[:, None] * Z).astype(V.dtype), Z
    Z = np.empty((len(Phi), V.shape[1]))
    sums = np.zeros((V.shape[1], V.shape[0]), dtype=V.dtype)
    columns = np.ascontiguousarray(V.T)
    for start in range(0, len(Phi), CACHED_ROWS):
        part = slice(start, start + CACHED_ROWS)
        few = Phi[part].astype(V.dtype, copy=False)
        for k, column in enumerate(columns):
            z = few @ column - mean_V[k]
            Z[part, k] = z
            sums[k] += (weight[part] * z).astype(V.dtype) @ few
    return sums.T, Z
