"""Closed form of Theorem 2, reduced to k×k: one Cholesky factor of C serves every set of terms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy import linalg
from scipy.linalg import blas, lapack

from fairerclip._util.types import F64
from fairerclip.errors import NotDefiniteError

RANK_TOLERANCE = 1e-10
"""Singular values and eigenvalues below this share of the largest count as zero."""


@dataclass(frozen=True)
class Reduced:
    """The problem in the coordinates of a C-orthonormal basis of span(C⁻¹ cross)."""

    basis: F64
    """E (D, q) with EᵀCE = I."""
    coordinates: F64
    """R (q, K) = Eᵀ cross; every M_j = cross @ A_j has coordinates R @ A_j."""
    projected: F64 | None = None
    """(n, q) = Φ_c E of the training rows, if the reduction computed it on its way."""


@dataclass(frozen=True)
class Solution:
    """Eigenvectors with a positive eigenvalue, largest first: U = E @ coefficients."""

    coefficients: F64
    """a (q, r)."""
    eigenvalues: F64
    """(r,)"""
    n_positive: int
    """Number of positive eigenvalues, kept or not; r is at most this."""


class Factor(Protocol):
    """Interface of objects that solve linear systems with C = Φ_cᵀWΦ_c + γI."""

    steps: int
    """Iterations of the latest solve; 0 for a direct solver."""
    relative_residual: float | None
    """Largest relative residual of a column of the latest solve, from its definition; None for a direct solver."""

    @property
    def tolerance(self) -> float | None:
        """Relative residual that a solution may have; None for a direct solver."""
        ...

    @property
    def condition(self) -> float:
        """Estimated condition number of C."""
        ...

    def reduce(self, cross: F64) -> Reduced:
        """Reduce the generalized eigenproblem to the span of the label cross-moments (D, K)."""
        ...

    def apply(self, V: F64) -> F64:
        """Return C V (D, k)."""
        ...

    def at(self, gamma: float) -> Factor:
        """Return the factor of another γ, without a new sum over the rows."""
        ...


class CholeskyFactor:
    """Cholesky factor C = L Lᵀ. O(D³/3) time; it overwrites C, so the memory is D² float64 in all.

    The solution equals ``scipy.linalg.eigh(B, C)`` on the span of B.
    """

    steps = 0
    tolerance: float | None = None
    relative_residual: float | None = None

    def __init__(self, covariance: F64, gamma: float) -> None:
        # LAPACK reads and writes one triangle only. The other keeps C, so that `apply` can compute
        # residuals with C itself and not with its factor.
        C = np.asfortranarray(covariance.T)  # symmetric: a view when covariance is C-ordered
        self._diagonal, self._gamma = (
            C.diagonal().copy(),
            gamma,
        )  # the diagonal without γ, so that another γ finds all its digits
        C[np.diag_indices_from(C)] += gamma
        self._norm = float(lapack.dlange("1", C))
        factor, info = lapack.dpotrf(C, lower=1, overwrite_a=1, clean=0)
        if info != 0:
            raise NotDefiniteError(
                f"the regularised covariance ({len(C)}×{len(C)}) is not positive definite at gamma={gamma:g} "
                f"(pivot {info}); raise gamma or use dtype='float64'"
            )
        self._factor = factor

    def at(self, gamma: float) -> CholeskyFactor:
        """Return the factor of another γ, from the triangle that keeps C. O(D³/3) time."""
        covariance = np.triu(self._factor, 1)
        covariance += covariance.T
        covariance[np.diag_indices_from(covariance)] = self._diagonal
        return CholeskyFactor(covariance, gamma)

    @cached_property
    def condition(self) -> float:
        """Estimated condition number of C in the 1-norm, to three digits; infinity if it overflows.

        Further digits of the estimate mean nothing and depend on the memory address that LAPACK works at.
        """
        reciprocal, _ = lapack.dpocon(self._factor, self._norm, uplo="L")
        if not reciprocal > 0:
            return math.inf
        return to_digits(1 / float(reciprocal), 3)

    def reduce(self, cross: F64) -> Reduced:
        """Return E = L⁻ᵀQ and R = S Vᵀ from the SVD L⁻¹ cross = Q S Vᵀ. O(D²K) time.

        An eigendecomposition of crossᵀC⁻¹cross would square the condition number, and collinear columns
        are the normal case; docs/math.md#low-rank.
        """
        P = linalg.solve_triangular(self._factor, cross, lower=True, check_finite=False)
        Q, S, Vt = linalg.svd(P, full_matrices=False, check_finite=False)
        keep = S > RANK_TOLERANCE * S[0] if S.size and S[0] > 0 else np.zeros(S.shape, dtype=bool)
        basis = linalg.solve_triangular(self._factor, Q[:, keep], lower=True, trans="T", check_finite=False)
        return Reduced(basis=np.ascontiguousarray(basis), coordinates=S[keep, None] * Vt[keep])

    def solve(self, M: F64) -> F64:
        """Return C⁻¹ M (D, K)."""
        return np.asarray(linalg.cho_solve((self._factor, True), M, check_finite=False))

    def apply(self, V: F64) -> F64:
        """Return C V (D, k), from the triangle that still holds C."""
        upper: F64 = blas.dsymm(1.0, self._factor, np.asfortranarray(V), lower=0)
        return np.asarray(upper + (self._diagonal + self._gamma - self._factor.diagonal())[:, None] * V)


def to_digits(condition: float, digits: int) -> float:
    """Return a positive number with so many digits; infinity stays what it is."""
    return (
        round(condition, digits - 1 - math.floor(math.log10(condition)))
        if math.isfinite(condition)
        else math.inf
    )


def solve_reduced(T: F64, r: int) -> Solution:
    """Solve Eq. (8) of Dehdashtian et al. 2024 (arXiv:2403.15593), reduced to q×q; docs/math.md#low-rank.

    T (q, q) is the signed sum of the terms in reduced coordinates. Only eigenvectors with a positive eigenvalue
    are kept: the D×D problem has D − q further eigenvalues of zero, which are larger than the negative ones.
    """
    if T.shape[0] == 0:
        return Solution(np.zeros((0, 0)), np.zeros(0), 0)
    values, vectors = np.linalg.eigh((T + T.T) / 2)
    values, vectors = values[::-1], vectors[:, ::-1]
    n_positive = int(np.sum(values > RANK_TOLERANCE * max(abs(values[0]), abs(values[-1]))))
    kept = min(r, n_positive)
    return Solution(vectors[:, :kept], values[:kept], n_positive)
