"""Confidence intervals for a proportion and for the difference of two; see docs/math.md#groups."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
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


def _wilson(k: float, n: float, z: float) -> tuple[float, float]:
    centre = (k + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * float(np.sqrt(k * (n - k) / n + z * z / 4))
    return centre - half, centre + half


def newcombe(k1: float, n1: float, k2: float, n2: float, confidence: float) -> tuple[float, float]:
    """Hybrid-score interval of k1/n1 − k2/n2 for independent samples (Newcombe 1998, method 10); O(1).

    Examples
    --------
    >>> [round(end, 4) for end in newcombe(56, 70, 48, 80, 0.95)]  # printed in Newcombe's Table II
    [0.0524, 0.3339]
    """
    z = float(ndtri((1 + confidence) / 2))
    (low1, high1), (low2, high2) = _wilson(k1, n1, z), _wilson(k2, n2, z)
    p1, p2 = k1 / n1, k2 / n2
    below = float(np.hypot(p1 - low1, high2 - p2))
    above = float(np.hypot(high1 - p1, p2 - low2))
    return p1 - p2 - below, p1 - p2 + above


class Pair(NamedTuple):
    """Two proportions k1/n1 ≥ k2/n2 whose difference is the largest."""

    k1: int
    n1: int
    k2: int
    n2: int

    @property
    def difference(self) -> float:
        """k1/n1 − k2/n2, at least 0."""
        return self.k1 / self.n1 - self.k2 / self.n2


def widest(numerator: NDArray[np.int64], denominator: NDArray[np.int64]) -> list[Pair]:
    """Per class, the sensitive values that differ most in rate; classes with fewer than two are left out.

    O(c·|S|) time; ``numerator`` and ``denominator`` are counts of shape (c, |S|).
    """
    pairs = []
    for k, n in zip(numerator, denominator, strict=True):
        defined = np.flatnonzero(n)
        if defined.size > 1:
            rate = k[defined] / n[defined]
            top, bottom = defined[rate.argmax()], defined[rate.argmin()]
            pairs.append(Pair(int(k[top]), int(n[top]), int(k[bottom]), int(n[bottom])))
    return pairs
