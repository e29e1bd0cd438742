"""Probabilities from scores: one temperature, so that the order of classes never changes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

F64 = NDArray[np.float64]


def softmax(logits: F64) -> F64:
    """Row-wise softmax (n, c)."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def fit_temperature(scores: F64, y: NDArray[np.int64], weight: F64) -> float:
    """The factor β > 0 for which softmax(β·scores) gives the labels the largest likelihood.

    The likelihood is concave in β, so its derivative has one root at most; β is kept within two
    decades of the scores' own scale, so that separable training rows do not send it to infinity.
    """
    w = weight / weight.sum()
    spread = float(np.sqrt(w @ np.mean(scores**2, axis=1))) or 1.0
    own = scores[np.arange(len(y)), y]

    def slope(log_beta: float) -> float:
        p = softmax(scores * (np.exp(log_beta) / spread))
        return float(w @ ((p * scores).sum(axis=1) - own))

    low, high = np.log(1e-2), np.log(1e2)
    if slope(low) >= 0:
        return float(np.exp(low) / spread)
    if slope(high) <= 0:
        return float(np.exp(high) / spread)
    return float(np.exp(brentq(slope, low, high, xtol=1e-13)) / spread)
