"""Bandwidth σ of the RBF kernel k(x, x') = exp(−‖x − x'‖² / 2σ²): the median rule and the accepted values."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairerclip._util.arrays import namespace, to_numpy
from fairerclip._util.checks import as_number
from fairerclip.errors import NonFiniteError, ParameterError
from fairerclip.features.feature_map import Float64, RandomState, as_rng, as_training_rows, as_weights

SMALLEST_BANDWIDTH, LARGEST_BANDWIDTH = 1e-15, 1e15
"""Limits of the bandwidth: rows divided by it stay within the range of float32."""
_ZERO = 1e-12
"""Squared distances up to this share of the largest count as zero: rounding noise between identical rows."""


def median_bandwidth(
    X: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    max_rows: int = 1000,
    random_state: RandomState = None,
) -> float:
    """Return σ = sqrt(median ‖x_i − x_j‖² / 2), for which k = exp(−d² / median d²); see docs/math.md#bandwidth.

    Time O(m² p) and memory O(m² + m p) with m = min(n, `max_rows`).

    Parameters
    ----------
    X : array-like of shape (n, p)
        Rows.
    sample_weight : array-like of shape (n,), optional
        Row weights. The pair (i, j) has the weight w_i w_j, so a row of weight k counts as k equal rows.
        Rows of weight zero are left out.
    max_rows : int
        If there are more rows, a random sample of this size is used.
    random_state : None, int, RandomState or Generator
        Source of the random sample.

    Returns
    -------
    float
        σ > 0; 1.0 if all rows are identical, because k = 1 for any σ then.

    Notes
    -----
    Zero distances are left out; otherwise a few prompts repeated over many rows would give σ = 0. Squared
    distances up to 1e-12 of the largest count as zero. The median is the lower weighted median: the
    smallest d² that has at least half of the weight at or below it.

    Examples
    --------
    >>> round(median_bandwidth([[0.0], [0.0], [2.0]]) ** 2, 12)  # d² is 4 for each pair that counts
    2.0
    >>> median_bandwidth([[3.0, 4.0], [3.0, 4.0]])
    1.0
    """
    X = as_training_rows(X)
    w = as_weights(sample_weight, X.shape[0])
    rows = _draw_rows(w, max_rows, random_state)
    sample = to_numpy(X[rows]).astype(np.float64)
    if not np.isfinite(sample).all():
        raise NonFiniteError(
            "X holds NaN or infinity, so the median distance is not defined; remove those rows"
        )
    # Rows that are all identical become exact zeros; cancellation costs at most eps times the largest distance.
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
    """Return σ for a number, for ``"median"``, or for a multiple of it such as ``"3*median"``.

    Time O(1) for a number, otherwise as `median_bandwidth`.

    Parameters
    ----------
    bandwidth : float or str
        σ itself, or a rule. The factor of ``"3*median"`` multiplies σ, not σ².
    X : array-like of shape (n, p)
        Rows.
    sample_weight : array-like of shape (n,), optional
        Row weights.
    random_state : None, int, RandomState or Generator
        Passed to `median_bandwidth`.

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
    """Return the number in `bandwidth`, and whether it is a factor of the median bandwidth."""
    value: float | None = None
    if isinstance(bandwidth, str):
        factor, star, rule = bandwidth.replace(" ", "").rpartition("*")
        if rule == "median":
            value = _float_or_none(factor) if star else 1.0
    else:
        value = as_number(bandwidth)
    if value is None or not SMALLEST_BANDWIDTH <= value <= LARGEST_BANDWIDTH:
        raise ParameterError(
            f"bandwidth must be a number from {SMALLEST_BANDWIDTH:g} to {LARGEST_BANDWIDTH:g}, 'median', or a "
            f"multiple of it such as '3*median' or '0.5*median', got {bandwidth!r:.200}"
        )
    return value, isinstance(bandwidth, str)


def squared_distances(X: Any, Y: Any) -> Any:
    """Return ‖x_i − y_j‖² (n, m) by one matrix product; the error is eps·(‖x‖² + ‖y‖²), so centre the rows first."""
    xp = namespace(X)
    d2 = X @ Y.T
    d2 *= -2.0
    d2 += xp.einsum("ij,ij->i", X, X)[:, None]
    d2 += xp.einsum("ij,ij->i", Y, Y)
    return xp.clip(d2, 0.0, None, out=d2)


def _draw_rows(w: Float64, max_rows: int, random_state: RandomState) -> NDArray[np.intp]:
    """Return the numbers of the rows of positive weight, or a random sample of `max_rows` of them."""
    if isinstance(max_rows, bool) or not isinstance(max_rows, numbers.Integral) or max_rows < 2:
        raise ParameterError(f"max_rows must be an integer ≥ 2, got {max_rows!r}")
    rows = np.flatnonzero(w)
    if rows.size > max_rows:
        rows = as_rng(random_state).permutation(rows)[:max_rows]
    return rows


def _lower_weighted_median(values: Float64, weight: Float64) -> float:
    if np.all(weight == weight[0]):  # the usual case, without a sort
        middle = (len(values) - 1) // 2
        return float(np.partition(values, middle)[middle])
    order = np.argsort(values)
    below = np.cumsum(weight[order])
    # The factor 1 − 1e-12 keeps rounding of the sum from deciding a tie at exactly half of the weight.
    return float(values[order[np.searchsorted(below, 0.5 * below[-1] * (1 - 1e-12))]])


def _float_or_none(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
