"""Conjugate gradients for large n·D²: C is applied to vectors and never formed from all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg

from fairerclip._util.arrays import Placed, accumulate, beside, cast, to_numpy
from fairerclip._util.types import F64
from fairerclip.errors import NotDefiniteError
from fairerclip.solver.lowrank import RANK_TOLERANCE, CholeskyFactor, Reduced
from fairerclip.solver.rows import FeatureRows

SAMPLED_ROWS_PER_FEATURE = 2
"""Sampled rows of the preconditioner per feature; 2 give about ten iterations at γ ≈ 3e-5."""
MAX_STEPS = 200
CHECK_EVERY = 10
"""Steps after which the residual is computed from its definition, because its updates collect rounding errors."""


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
        Phi = self._rows.take(chosen)
        Phi = Phi - beside(Phi, self._mean, Phi.dtype)
        w = self._weight[chosen] / self._weight[chosen].sum()
        Phi *= beside(Phi, np.sqrt(w)[:, None], Phi.dtype)
        return CholeskyFactor(to_numpy(Phi.T @ Phi).astype(np.float64), self._gamma)

    def apply(self, V: F64) -> F64:
        """Return C V (D, k), in one pass over the rows."""
        out: Any = self._gamma * V
        mean_V = self._mean @ V  # (k,)
        total = np.zeros(V.shape[1])
        V_cast = Placed(V.astype(self._rows.dtype))
        for block, Phi in self._rows.blocks():
            weight = beside(Phi, self._weight[block, None])
            (directions,) = V_cast.beside(Phi)
            wZ = weight * (Phi @ directions - beside(Phi, mean_V))  # (b, k)
            out = accumulate(out, Phi.T @ cast(wZ, Phi.dtype))
            total += to_numpy(wZ.sum(axis=0))
        out = to_numpy(out)
        out -= np.outer(self._mean, total)
        return np.asarray(out)

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
