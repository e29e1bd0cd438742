"""Confidence intervals for proportions and for sums and differences of them; see docs/math.md#intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, ndtri

from fairerclip.metrics._inputs import FloatArray


def clopper_pearson(correct: Any, n: Any, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Exact binomial interval of each of ``correct`` out of ``n`` > 0, arrays of one shape; O(1) each.

    Examples
    --------
    >>> low, high = clopper_pearson([0, 5], [10, 10], 0.95)
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.0, 0.187], [0.308, 0.813])
    """
    k, m, tail = np.asarray(correct), np.asarray(n), (1 - confidence) / 2
    low = np.where(k == 0, 0.0, betaincinv(np.maximum(k, 1), m - k + 1, tail))
    high = np.where(k == m, 1.0, betaincinv(k + 1, np.maximum(m - k, 1), 1 - tail))
    return low, high


def wilson(k: ArrayLike, n: ArrayLike, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Score interval of k/n, n > 0; arrays of one shape."""
    k, n = np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64)
    z = float(ndtri((1 + confidence) / 2))
    centre = (k + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * np.sqrt(k * (n - k) / n + z * z / 4)
    return centre - half, centre + half


def mover(weights: ArrayLike, k: ArrayLike, n: ArrayLike, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Interval of Σ_j w_j·p_j for independent proportions p_j estimated by k_j/n_j; O(size) time.

    The distances from each estimate to its Wilson limit add up in squares (Zou and Donner 2008), which for
    weights (1, −1) is Newcombe's interval of a difference (1998, method 10).

    Parameters
    ----------
    weights : array, shape (…, m)
    k, n : array, shape (m,) or (…, m)
        Proportions of weight zero may have n = 0.

    Examples
    --------
    >>> low, high = mover([1, -1], [56, 48], [70, 80], 0.95)  # printed in Newcombe's Table II
    >>> round(float(low), 4), round(float(high), 4)
    (0.0524, 0.3339)
    """
    w, n = np.asarray(weights, dtype=np.float64), np.maximum(np.asarray(n, dtype=np.float64), 1.0)
    p = np.asarray(k) / n
    low, high = wilson(k, n, confidence)
    toward_low, toward_high = p - low, high - p
    estimate = (w * p).sum(axis=-1)
    below = np.where(w > 0, toward_low, toward_high) * w
    above = np.where(w > 0, toward_high, toward_low) * w
    return estimate - np.sqrt((below**2).sum(axis=-1)), estimate + np.sqrt((above**2).sum(axis=-1))


def per_side(confidence: float, m: int) -> float:
    """Confidence of each two-sided interval such that m of them hold together on one side (Bonferroni)."""
    return 1 - (1 - confidence) / max(m, 1)
