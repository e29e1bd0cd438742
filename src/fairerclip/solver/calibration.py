"""Probabilities from scores: one temperature, so that the order of classes never changes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

F64 = NDArray[np.float64]


def softmax(logits: F64) -> F64:
    """Row-wise softmax (n, c)."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def fit_temperature(scores: F64, y: NDArray[np.int64], weight: F64) -> float:
    """The factor β > 0 for which softmax(β·scores) gives the labels the largest likelihood.

    The likelihood is concave in β; β is kept within four decades of the scores' own scale, so that
    separable training rows do not send it to infinity.
    """
    spread = float(np.std(scores)) or 1.0
    w = weight / weight.sum()

    def loss(log_beta: float) -> float:
        logits = scores * (np.exp(log_beta) / spread)
        top = logits.max(axis=1)
        log_total = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
        return float(w @ (log_total - logits[np.arange(len(y)), y]))

    best = minimize_scalar(loss, bounds=(np.log(1e-2), np.log(1e2)), method="bounded")
    return float(np.exp(best.x) / spread)
