"""Product of the covariance of all rows with a few columns, in one pass over the rows and without forming it."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairerclip._util.types import F64, Floats
from fairerclip.solver.rows import FeatureRows

FEW_COLUMNS = 6
"""Up to this many columns, one column is multiplied at a time: a matrix product of BLAS copies all features first."""
CACHED_ROWS = 64
"""Rows that are multiplied at a time, so that the second product finds them in the processor's cache."""


def covariance_product(
    rows: FeatureRows, weight: F64, mean: F64, V: F64, *, projected: F64 | None = None, dtype: Any = None
) -> F64:
    """Return Φ_cᵀ W Φ_c V (D, k), in one pass over the rows. O(n·D·k) time.

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
    projected : array of shape (n, k) or None
        If given, Φ_c V is written to it.
    dtype : dtype or None
        Precision of the products; None for that of the features.
    """
    out = np.zeros(V.shape)
    total = np.zeros(V.shape[1])
    V_cast, mean_V = V.astype(rows.dtype if dtype is None else dtype), mean @ V
    for block, Phi in rows.blocks():
        product, Z = block_product(Phi, weight[block], V_cast, mean_V)
        out += product
        total += weight[block] @ Z
        if projected is not None:
            projected[block] = Z
    out -= np.outer(mean, total)
    return out


def block_product(Phi: Floats, weight: F64, V: Floats, mean_V: F64) -> tuple[Floats, F64]:
    """Return Φᵀ W Z (D, k) and Z = Φ V − mean·V (b, k) of one block Φ (b, D), in the precision of V."""
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
