"""Conjugate gradients for large n·D²: C is applied to vectors and never formed from all rows."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy import linalg

from fairerclip._util.types import F64, Floats
from fairerclip.errors import NotDefiniteError
from fairerclip.solver.lowrank import RANK_TOLERANCE, CholeskyFactor, Reduced
from fairerclip.solver.rows import FeatureRows

SAMPLED_ROWS_PER_FEATURE = 2
"""Sampled rows of the preconditioner per feature; 2 give about ten iterations at γ ≈ 3e-5."""
MAX_STEPS = 200
CHECK_EVERY = 10
"""Steps after which the residual is computed from its definition, because its updates collect rounding errors."""


class CovarianceProduct:
    """Accumulator of a pass: Φᵀ W Z (D, k) and the sum of W Z (k,), with Z = Φ V − mean·V.

    Parameters
    ----------
    V : array of shape (D, k)
        Columns to multiply with, in the precision of the features.
    mean_V : array of shape (k,)
        Product of the mean with V.
    """

    def __init__(self, V: Floats, mean_V: F64) -> None:
        self._V, self._mean_V = V, mean_V
        self.product, self.total = np.zeros(V.shape), np.zeros(V.shape[1])

    def __getstate__(self) -> dict[str, Any]:
        # What is merged are the sums; the columns are those of all parts.
        return {**self.__dict__, "_V": self._V[:, :0], "_mean_V": self._mean_V[:0]}

    def add(self, Phi: Floats, weight: F64) -> None:
        """Add rows: features Phi (b, D) and weight (b,). O(b·D·k) time."""
        wZ = weight[:, None] * (Phi @ self._V - self._mean_V)  # (b, k)
        self.product += Phi.T @ wZ.astype(Phi.dtype)
        self.total += wZ.sum(axis=0)

    def merge(self, other: CovarianceProduct) -> None:
        """Add the sums of other rows."""
        self.product += other.product
        self.total += other.total


class ConjugateGradientFactor:
    """Solve linear systems with C = Φ_cᵀWΦ_c + γI by passes over the rows.

    Preconditioned by the Cholesky factor of the same matrix on 2D sampled rows. Each step is one
    pass, O(n·D·K); a reduction to 1e-6 takes about ten. Differs from ``scipy.sparse.linalg.cg`` in
    that (1) all right-hand sides share each pass and (2) the true residual is recomputed every ten
    steps. See docs/math.md#cg.
    """

    def __init__(
        self,
        rows: FeatureRows,
        weight: F64,
        mean: F64,
        gamma: float,
        random_state: np.random.RandomState,
        *,
        tolerance: float | None = None,
    ) -> None:
        self._rows, self._mean, self._gamma = rows, mean, gamma
        self._weight = weight / weight.sum()
        # float32 features do not have the digits for a smaller residual.
        self._tolerance = tolerance or (1e-6 if rows.dtype == np.float32 else 1e-12)
        self._preconditioner = self._sampled(random_state)
        self.steps = 0

    @property
    def condition(self) -> float:
        """Estimated condition number of C on the sampled rows, since C of all rows is never formed."""
        return self._preconditioner.condition

    def _sampled(self, random_state: np.random.RandomState) -> CholeskyFactor:
        positive = np.flatnonzero(self._weight > 0)
        size = min(len(positive), SAMPLED_ROWS_PER_FEATURE * self._rows.n_features)
        chosen = np.sort(random_state.choice(positive, size=size, replace=False))
        Phi = self._rows.take(chosen) - self._mean.astype(self._rows.dtype)
        w = self._weight[chosen] / self._weight[chosen].sum()
        Phi *= np.sqrt(w)[:, None].astype(Phi.dtype)
        return CholeskyFactor((Phi.T @ Phi).astype(np.float64), self._gamma)

    def apply(self, V: F64) -> F64:
        """Return C V (D, k), in one pass over the rows."""
        start = partial(CovarianceProduct, V.astype(self._rows.dtype), self._mean @ V)
        found = self._rows.sum(start, [self._weight])
        return self._gamma * V + found.product - np.outer(self._mean, found.total)

    def solve(self, M: F64) -> F64:
        """Return C⁻¹ M (D, K) by preconditioned conjugate gradients on all columns at once."""
        scale = np.linalg.norm(M, axis=0)
        wanted = self._tolerance * np.where(scale > 0, scale, 1.0)
        X = np.zeros_like(M)
        residual = M.copy()
        Y = self._preconditioner.solve(residual)
        direction = Y.copy()
        rho = np.einsum("ij,ij->j", residual, Y)
        for step in range(1, MAX_STEPS + 1):
            CD = self.apply(direction)
            curvature = np.einsum("ij,ij->j", direction, CD)
            alpha = np.divide(rho, curvature, out=np.zeros_like(rho), where=curvature > 0)
            X += alpha * direction
            residual = M - self.apply(X) if step % CHECK_EVERY == 0 else residual - alpha * CD
            self.steps = step
            if np.all(np.linalg.norm(residual, axis=0) <= wanted):
                return X
            Y = self._preconditioner.solve(residual)
            rho_next = np.einsum("ij,ij->j", residual, Y)
            direction = Y + np.divide(rho_next, rho, out=np.zeros_like(rho), where=rho > 0) * direction
            rho = rho_next
        worst = float(np.max(np.linalg.norm(residual, axis=0) / np.where(scale > 0, scale, 1.0)))
        raise NotDefiniteError(
            f"conjugate gradients did not converge in {MAX_STEPS} steps (relative residual {worst:.1e}, "
            f"wanted {self._tolerance:.0e}); raise gamma or use solver='cholesky'"
        )

    def reduce(self, cross: F64) -> Reduced:
        """Return the same E and R as the Cholesky factor, from an SVD of A C⁻¹cross with AᵀA = C.

        A = [√W Φ_c; √γ I] and G = C⁻¹cross. A G has n + D rows, so its SVD is taken through a QR, which does
        not square the condition number; docs/math.md#cg.
        """
        G = self.solve(cross)  # (D, K)
        rows = self._rows.project(self._mean, G) * np.sqrt(self._weight)[:, None]
        triangle = np.linalg.qr(np.concatenate([rows, np.sqrt(self._gamma) * G]), mode="r")
        _, S, Vt = linalg.svd(triangle, full_matrices=False)
        # G is accurate only to the tolerance of the iteration; directions below it are noise.
        keep = S > max(RANK_TOLERANCE, 10 * self._tolerance) * S[0] if S[0] > 0 else S > 0
        basis = G @ (Vt[keep].T / S[keep])
        return Reduced(basis=basis, coordinates=basis.T @ cross)
