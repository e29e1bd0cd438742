"""Estimates with their intervals, and intervals of proportions and of weighted sums; see docs/math.md#intervals."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from fairerclip.metrics.label_codes import FloatArray


def finite_or_none(value: float | None) -> float | None:
    """Return ``value`` as a float that JSON can hold: None for NaN and infinity."""
    return float(value) if value is not None and isfinite(value) else None


@dataclass(frozen=True)
class Estimate:
    """A value and its interval; an end is infinite or NaN if the rows do not bound it.

    Examples
    --------
    >>> Estimate(float("-inf"), float("-inf"), 0.2).as_dict()
    {'value': None, 'low': None, 'high': 0.2}
    """

    value: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float | None]:
        """Return a JSON-ready copy; values that are not finite become None."""
        return {name: finite_or_none(value) for name, value in vars(self).items()}


@dataclass(frozen=True)
class PairedEstimate:
    """A value before and after, and the paired interval of after minus before.

    Examples
    --------
    >>> PairedEstimate(0.5, 0.25, -0.25, -0.5, 0.0).as_dict()["difference"]
    -0.25
    """

    before: float
    after: float
    difference: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float | None]:
        """Return a JSON-ready copy; values that are not finite become None."""
        return {name: finite_or_none(value) for name, value in vars(self).items()}


def clopper_pearson(correct: Any, n: Any, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Compute the exact binomial interval of each of ``correct`` out of ``n`` > 0, arrays of one shape; O(1) each.

    An effective size and its count may be real numbers.

    Examples
    --------
    >>> low, high = clopper_pearson([0, 5], [10, 10], 0.95)
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.0, 0.187], [0.308, 0.813])
    """
    k, m, tail = np.asarray(correct), np.asarray(n), (1 - confidence) / 2
    low = np.where(k == 0, 0.0, betaincinv(np.where(k == 0, 1, k), m - k + 1, tail))
    high = np.where(k == m, 1.0, betaincinv(k + 1, np.where(k == m, 1, m - k), 1 - tail))
    return low, high


def mover(weights: ArrayLike, k: ArrayLike, n: ArrayLike, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Compute the interval of Σ_j w_j·p_j for independent proportions p_j estimated by k_j/n_j; O(size) time.

    The squared distances from each estimate to its limit add up (Zou and Donner 2008). The limits are exact
    (Clopper-Pearson). Wilson's limits, which with weights (1, −1) give Newcombe's interval of a difference (1998,
    method 10), are far from their level near 0 and 1 at the high confidence that simultaneous intervals need.

    Parameters
    ----------
    weights : array of shape (…, m)
        The weights w_j.
    k, n : array of shape (m,) or (…, m)
        Numerators and denominators. Proportions of weight zero may have n = 0.
    confidence : float
        Confidence of the interval.

    Returns
    -------
    low, high : array of shape (…)
        Ends of the interval.

    Examples
    --------
    >>> low, high = mover([1, -1], [56, 48], [70, 80], 0.95)
    >>> round(float(low), 3), round(float(high), 3)
    (0.044, 0.344)
    """
    w, n = np.asarray(weights, dtype=np.float64), np.maximum(np.asarray(n), 1)
    p = np.asarray(k) / n
    low, high = clopper_pearson(k, n, confidence)
    toward_low, toward_high = p - low, high - p
    estimate = (w * p).sum(axis=-1)
    below = np.where(w > 0, toward_low, toward_high) * w
    above = np.where(w > 0, toward_high, toward_low) * w
    return estimate - np.sqrt((below**2).sum(axis=-1)), estimate + np.sqrt((above**2).sum(axis=-1))


def per_side(confidence: float, m: int) -> float:
    """Return the confidence of each two-sided interval for m of them to hold together on one side (Bonferroni)."""
    return 1 - (1 - confidence) / max(m, 1)
