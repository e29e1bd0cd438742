"""The bandwidth σ of k(x, x') = exp(−‖x − x'‖² / 2σ²)."""

from __future__ import annotations

import math
import numbers

import numpy as np
from numpy.typing import ArrayLike

from fairerclip._util.checks import as_number
from fairerclip.errors import NonFiniteError, ParameterError
from fairerclip.features.feature_map import Float64, RandomState, as_rng, as_training_rows, as_weights

SMALLEST_BANDWIDTH, LARGEST_BANDWIDTH = 1e-15, 1e15
"""Rows of the magnitudes that are taken, divided by a bandwidth between these, stay within float32."""
_ZERO = 1e-12
"""Squared distances up to this share of the largest are rounding noise between identical rows."""


def median_bandwidth(
    X: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    max_rows: int = 1000,
    random_state: RandomState = None,
) -> float:
    """σ = sqrt(median ‖x_i − x_j‖² / 2), so that k = exp(−d² / median d²); see docs/math.md#bandwidth.

    Time O(m² p) and memory O(m² + m p) with m = min(n, `max_rows`).

    Parameters
    ----------
    X : array-like, shape (n, p)
        Rows.
    sample_weight : array-like, shape (n,), optional
        Row weights. The pair (i, j) has the weight w_i w_j: a row of weight k is the same as k equal rows.
        Rows of weight zero take no part.
    max_rows : int
        With more rows than this, a random sample of so many is used.
    random_state : None, int, RandomState or Generator
        Draws the sample.

    Returns
    -------
    float
        σ > 0. It is 1.0 where all rows are identical (or there is one only): every distance is then
        zero, k = 1 for any σ, and 1.0 leaves the distance to a row that comes later in the units of X.

    Notes
    -----
    Zero distances are left out, or a few prompts repeated over many rows would give σ = 0. Those up to
    1e-12 of the largest count as zero. The median is the lower weighted median, the smallest d² that has
    at least half of the weight at or below it.

    Examples
    --------
    >>> round(median_bandwidth([[0.0], [0.0], [2.0]]) ** 2, 12)  # d² is 4 for each pair that counts
    2.0
    >>> median_bandwidth([[3.0, 4.0], [3.0, 4.0]])
    1.0
    """
    X = as_training_rows(X)
    w = as_weights(sample_weight, X.shape[0])
    if isinstance(max_rows, bool) or not isinstance(max_rows, numbers.Integral) or max_rows < 2:
        raise ParameterError(f"max_rows must be an integer ≥ 2, got {max_rows!r}")
    rows = np.flatnonzero(w)
    if rows.size > max_rows:
        rows = as_rng(random_state).permutation(rows)[:max_rows]
    sample = X[rows].astype(np.float64)
    if not np.isfinite(sample).all():
        raise NonFiniteError("X holds NaN or infinity: there is no median distance; remove those rows")
    # Identical rows become exact zeros, and cancellation below costs eps times the largest distance at most.
    sample -= sample[0].copy()
    unit = float(np.abs(sample).max())
    if unit == 0.0:
        return 1.0
    sample /= unit  # squares neither overflow nor underflow
    i, j = np.triu_indices(rows.size, k=1)
    d2 = squared_distances(sample, sample)[i, j]  # (m (m − 1) / 2,)
    keep = d2 > _ZERO * d2.max()
    pair_weight = w[rows[i[keep]]] * w[rows[j[keep]]]
    return unit * math.sqrt(_lower_weighted_median(d2[keep], pair_weight) / 2)


def resolve_bandwidth(
    bandwidth: float | str,
    X: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    random_state: RandomState = None,
) -> float:
    """σ from what a user may write: a number, ``"median"``, or a multiple of it such as ``"3*median"``.

    Time O(1) for a number, that of `median_bandwidth` otherwise.

    Parameters
    ----------
    bandwidth : float or str
        σ itself, or a rule. The factor of ``"3*median"`` multiplies σ, not σ².
    X : array-like, shape (n, p)
        Rows.
    sample_weight : array-like, shape (n,), optional
        Row weights.
    random_state : None, int, RandomState or Generator
        Passed on to `median_bandwidth`.

    Returns
    -------
    float
        σ > 0.

    Examples
    --------
    >>> X = [[0.0], [2.0]]
    >>> resolve_bandwidth(0.7, X)
    0.7
    >>> resolve_bandwidth("3*median", X) / resolve_bandwidth("median", X)
    3.0
    """
    value, times_median = parse_bandwidth(bandwidth)
    if not times_median:
        return value
    return value * median_bandwidth(X, sample_weight, random_state=random_state)


def parse_bandwidth(bandwidth: float | str) -> tuple[float, bool]:
    """Return a number, and whether the median rule multiplies it."""
    value: float | None = None
    if isinstance(bandwidth, str):
        factor, star, rule = bandwidth.replace(" ", "").rpartition("*")
        if rule == "median":
            value = _float_or_none(factor) if star else 1.0
    else:
        value = as_number(bandwidth)
    if value is None or not SMALLEST_BANDWIDTH <= value <= LARGEST_BANDWIDTH:
        raise ParameterError(
            f"bandwidth must be a number from {SMALLEST_BANDWIDTH:g} to {LARGEST_BANDWIDTH:g}, 'median', or such a "
            f"multiple of it as in '3*median' or '0.5*median', got {bandwidth!r:.200}"
        )
    return value, isinstance(bandwidth, str)


def squared_distances(X: Float64, Y: Float64) -> Float64:
    """‖x_i − y_j‖² (n, m) by one matrix product; the error is eps·(‖x‖² + ‖y‖²), so centre the rows first."""
    d2: Float64 = X @ Y.T
    d2 *= -2.0
    d2 += np.einsum("ij,ij->i", X, X)[:, None]
    d2 += np.einsum("ij,ij->i", Y, Y)
    return np.maximum(d2, 0.0, out=d2)


def _lower_weighted_median(values: Float64, weight: Float64) -> float:
    if np.all(weight == weight[0]):  # the usual case, without a sort
        middle = (len(values) - 1) // 2
        return float(np.partition(values, middle)[middle])
    order = np.argsort(values)
    below = np.cumsum(weight[order])
    # The slack keeps rounding in the sum from deciding where exactly half of the weight is reached.
    return float(values[order[np.searchsorted(below, 0.5 * below[-1] * (1 - 1e-12))]])


def _float_or_none(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
