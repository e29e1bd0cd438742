"""Approximate inverse of C from some of the rows, for conjugate gradients."""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import lapack

from fairerclip._util.types import F64, Floats, Ints
from fairerclip.solver.lowrank import to_digits
from fairerclip.solver.rows import FeatureRows

SAMPLED_SHARE, LEAST_SAMPLED = 0.5, 512
"""Sampled rows per feature, and the least number of them. More rows cost more than they save; docs/math.md#cg."""
POWER_STEPS = 12
"""Steps of the power method for the largest eigenvalue, of which two digits are reported."""


class SampledPreconditioner:
    """Approximate solutions of linear systems with C = Φ_cᵀWΦ_c + γI, from m sampled rows.

    The covariance of the sample has rank m at most, and its eigenvalues spread more than those of C. So the ridge is
    raised from γ to γ + tr/(D + m), with tr the total variance. The Gram matrix of the sample has min(m, D) rows and
    serves every γ. Work is done in the precision of the features: a preconditioner need not be exact.

    Parameters
    ----------
    sample : array of shape (m, D)
        Rows √w (φ − mean) of the sample, with weights w that make their sum of squares an estimate of the covariance.
    gamma : float
        Ridge γ of C.
    complete : bool
        Whether the sample has all rows. The ridge is not raised then, except above rounding errors.
    """

    def __init__(self, sample: Floats, gamma: float, *, complete: bool = False) -> None:
        self._sample, self._complete = sample, complete
        m, D = sample.shape
        self._by_rows = m < D
        self._gram: Floats = sample @ sample.T if self._by_rows else sample.T @ sample
        self._trace = float(np.trace(self._gram, dtype=np.float64))
        self._factor_for(gamma)

    def at(self, gamma: float) -> SampledPreconditioner:
        """Return the preconditioner of another γ, from the same Gram matrix."""
        other = object.__new__(SampledPreconditioner)
        other.__dict__.update(self.__dict__)
        other._factor_for(gamma)
        return other

    def _factor_for(self, gamma: float) -> None:
        m, D = self._sample.shape
        rounding = float(np.finfo(self._gram.dtype).eps) * max(self._trace, float(np.finfo(np.float32).tiny))
        ridge = max(gamma if self._complete else gamma + self._trace / (D + m), 100 * rounding)
        potrf = lapack.spotrf if self._gram.dtype == np.float32 else lapack.dpotrf
        while True:
            # Relative to the ridge, which may lie outside the range of float32.
            matrix = np.asfortranarray(
                np.divide(self._gram.T, ridge, dtype=np.float64), dtype=self._gram.dtype
            )
            matrix[np.diag_indices_from(matrix)] += 1
            factor, info = potrf(matrix, lower=1, overwrite_a=1, clean=0)
            if info == 0:
                break
            # Rounding of a Gram matrix grows with its size. A larger ridge costs steps and no accuracy.
            ridge *= 10
        self._gamma, self._ridge, self._factor = gamma, ridge, factor

    def solve(self, R: F64) -> F64:
        """Return an approximation of C⁻¹ R (D, k). O(min(m, D)·D·k) time."""
        potrs = lapack.spotrs if self._gram.dtype == np.float32 else lapack.dpotrs
        scale = np.abs(R).max(axis=0, initial=0.0)
        scale[scale == 0] = 1.0  # columns at one scale, since float32 has not the range of float64
        r = np.asfortranarray(R / scale, dtype=self._gram.dtype)
        if self._by_rows:
            inner, _ = potrs(self._factor, np.asfortranarray(self._sample @ r), lower=1)
            inner = np.divide(inner, self._ridge, dtype=np.float64).astype(r.dtype)
            Y = r - self._sample.T @ inner
        else:
            Y, _ = potrs(self._factor, r, lower=1)
        return np.asarray(Y * (scale / self._ridge), dtype=np.float64)

    @property
    def condition(self) -> float:
        """Bound (λ₁ + γ)/γ of the condition number of C, with λ₁ of the sample, to two digits."""
        v = np.ones(len(self._gram), dtype=self._gram.dtype)
        top = 0.0
        for _ in range(POWER_STEPS):
            v = self._gram @ v
            top = float(np.linalg.norm(v))
            if top == 0:
                break
            v /= top
        return to_digits(top / self._gamma + 1.0, 2)


def sample_size(n_features: int) -> int:
    """Return the number of rows to sample, of however many."""
    return max(LEAST_SAMPLED, math.ceil(SAMPLED_SHARE * n_features))


def sampled_rows(
    rows: FeatureRows, weight: F64, mean: F64, random_state: np.random.RandomState
) -> tuple[Floats, bool]:
    """Draw rows for a preconditioner; return √w (φ − mean) (m, D) of them, and whether these are all rows."""
    chosen, w = draw_rows(weight, sample_size(rows.n_features), random_state)
    sample = rows.take(chosen) - mean.astype(rows.dtype)
    sample *= np.sqrt(w)[:, None].astype(sample.dtype)
    return sample, len(chosen) == np.count_nonzero(weight)


def draw_rows(weight: F64, size: int, random_state: np.random.RandomState) -> tuple[Ints, F64]:
    """Draw about ``size`` rows with probabilities in proportion to their weights; return their numbers and new weights.

    Numbers rise. A row that would be drawn more than once is taken once, with its own weight. A weight divided by the
    probability of its row makes sums over the sample unbiased estimates of sums over all rows.
    """
    positive = np.flatnonzero(weight > 0)
    w = weight[positive]
    probability = np.ones(len(w))
    if len(w) > size:
        sure = np.zeros(len(w), dtype=bool)
        while True:
            share = (size - sure.sum()) / w[~sure].sum()
            probability = np.where(sure, 1.0, w * share)
            if not np.any(probability > 1.0):
                break
            sure |= probability >= 1.0
    # Systematic sampling: one random start, and a row wherever the running sum passes a whole number.
    passed = np.floor(np.cumsum(probability) + random_state.uniform())
    drawn = np.diff(passed, prepend=0.0) > 0 if len(w) > size else np.ones(len(w), dtype=bool)
    return positive[drawn], w[drawn] / probability[drawn]
