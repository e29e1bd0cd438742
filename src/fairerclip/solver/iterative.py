"""Conjugate gradients for large n·D²: C is applied to vectors and never formed from all rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from fairerclip._util.types import F64
from fairerclip.errors import ToleranceError
from fairerclip.solver.covariance_product import covariance_product
from fairerclip.solver.lowrank import RANK_TOLERANCE, Reduced
from fairerclip.solver.preconditioner import SampledPreconditioner, sampled_rows
from fairerclip.solver.rows import DEFAULT_PASSES, FeatureRows, PassOptions

TOLERANCES = {"float32": 3e-6, "float64": 1e-12}
"""Relative residual of each column, by precision of the features, which have no digits for a smaller one."""
MAX_STEPS = 200
SLOW = 0.5
"""A true residual that falls by less than this factor between two checks shows that rounding errors have taken over."""
QR_ROWS = 4096
"""Rows of one QR decomposition."""
REUSED_SPREAD = 1e-3
"""Projected rows follow by a change of basis if singular values are no smaller than this share of the largest."""


@dataclass(frozen=True)
class Solved:
    """Columns X (D, k) and C X (D, k), as multiplied in a pass over the rows."""

    X: F64
    CX: F64


@dataclass(frozen=True)
class FirstReduction:
    """First result of `ConjugateGradientFactor.reduce`, which a path over τ asks for again and again."""

    cross: F64
    reduced: Reduced
    steps: int
    residual: float | None


@dataclass
class Descent:
    """Conjugate gradients on the independent columns of a residual, after some number of steps.

    All arrays are in the order of C, which decides the last digits of products.
    """

    start: F64
    """(D, K) solutions that the residual is of."""
    turn: F64
    """(j, K) with residual = R @ turn."""
    X: F64
    """(D, j) change of the solutions, in the coordinates of the independent columns."""
    R: F64
    """(D, j) residual."""
    previous: F64
    """(D, j) residual one step before."""
    direction: F64
    """(D, j)"""
    rho: F64
    """(j,) products of the residuals with their preconditioned ones."""
    steps: int
    """Number of steps of the solve so far."""
    worst: float | None
    """True residual of ``start``, computed in float64; None before the first one."""

    @classmethod
    def of(cls, start: F64, R: F64, cut: float, *, steps: int = 0, worst: float | None = None) -> Descent:
        """Begin with solutions (D, K) and their residual (D, K), of which parts below ``cut`` are left."""
        # Columns of labels are collinear: one-hot classes have a constant sum. Only independent ones need products.
        U, S, Vt = linalg.svd(R, full_matrices=False, check_finite=False)
        keep = S > cut
        R = np.ascontiguousarray(U[:, keep] * S[keep])
        zero = np.zeros_like(R)
        return cls(
            start=np.ascontiguousarray(start),
            turn=np.ascontiguousarray(Vt[keep]),
            X=zero,
            R=R,
            previous=R,
            direction=zero,
            rho=np.ones(R.shape[1]),
            steps=steps,
            worst=worst,
        )

    @property
    def columns(self) -> F64:
        """(D, K) solutions now."""
        return np.asarray(self.start + self.X @ self.turn)

    @property
    def residual(self) -> float:
        """Largest length of a column of the residual, as it was updated."""
        return float(np.linalg.norm(self.R @ self.turn, axis=0).max(initial=0.0))

    def step(self, apply: Callable[[F64], F64], precondition: Callable[[F64], F64]) -> None:
        """Take one step, with functions for products with C and with an approximate inverse of it."""
        Y = precondition(self.R)
        # The form of Polak and Ribière, which allows for rounding errors of the preconditioner.
        turn = np.einsum("ij,ij->j", self.R - self.previous, Y)
        factor = np.divide(turn, self.rho, out=np.zeros_like(turn), where=self.rho > 0)
        self.direction = np.ascontiguousarray(Y + factor * self.direction)
        self.rho = np.einsum("ij,ij->j", self.R, Y)
        CD = apply(self.direction)
        curvature = np.einsum("ij,ij->j", self.direction, CD)
        alpha = np.divide(self.rho, curvature, out=np.zeros_like(curvature), where=curvature > 0)
        self.X = self.X + alpha * self.direction
        self.previous, self.R = self.R, np.ascontiguousarray(self.R - alpha * CD)
        self.steps += 1


class ConjugateGradientFactor:
    """Solve linear systems with C = Φ_cᵀWΦ_c + γI by passes over the rows.

    Preconditioned by a Cholesky factor of the same matrix on sampled rows. Each step is one pass, O(n·D·K).
    Differs from ``scipy.sparse.linalg.cg`` in that (1) all right-hand sides share each pass, (2) a solution is
    returned only if its residual, computed anew from its definition, is within the tolerance, and (3) each solve
    starts from the best combination of the first solutions: of the first ones, and not of the latest, because then the
    result does not depend on what was solved in between. See docs/math.md#cg.

    Parameters
    ----------
    rows : FeatureRows
        Features of n rows.
    weight : array of shape (n,)
        Non-negative row weights.
    mean : array of shape (D,)
        Weighted mean of the features.
    gamma : float
        Ridge.
    random_state : RandomState
        Draws the rows of the preconditioner.
    tolerance : float or None
        Relative residual of each right-hand side; None for one that the precision of the features allows.
    how : PassOptions
        Progress of passes over the rows.
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
        how: PassOptions = DEFAULT_PASSES,
    ) -> None:
        self._rows, self._mean, self._gamma, self._how = rows, mean, gamma, how
        self._weight = weight / weight.sum()
        self.tolerance: float = tolerance or TOLERANCES[rows.dtype.name]
        sample, complete = sampled_rows(rows, self._weight, mean, random_state)
        self._preconditioner = SampledPreconditioner(sample, gamma, complete=complete)
        self._near: Solved | None = None
        self._solved_once = False
        self._first: FirstReduction | None = None
        self.steps = 0
        self.relative_residual: float | None = None

    def at(self, gamma: float) -> ConjugateGradientFactor:
        """Return the factor of another γ, which shares the sampled rows and starts from solutions of this one."""
        other = object.__new__(ConjugateGradientFactor)
        other.__dict__.update(self.__dict__)
        other._gamma = gamma
        other._preconditioner = self._preconditioner.at(gamma)
        if self._near is not None:
            X, CX = self._near.X, self._near.CX
            other._near = Solved(X, CX + (gamma - self._gamma) * X)
        other._first, other._solved_once = None, False
        other.steps, other.relative_residual = 0, None
        return other

    @property
    def condition(self) -> float:
        """Bound of the condition number of C, from the sampled rows, since C of all rows is never formed."""
        return self._preconditioner.condition

    def apply(self, V: F64) -> F64:
        """Return C V (D, k), in one pass over the rows."""
        return self._product(V)[0]

    def _product(self, V: F64, *, precise: bool = False, projects: bool = False) -> tuple[F64, F64 | None]:
        dtype = np.float64 if precise else None
        product, projected = covariance_product(
            *(self._rows, self._weight, self._mean, V),
            dtype=dtype,
            projects=projects,
            progress=self._how.progress,
        )
        return product + self._gamma * V, projected

    def solve(self, M: F64) -> F64:
        """Return C⁻¹ M (D, K) by preconditioned conjugate gradients on all columns at once."""
        return self._solve(M)[0]

    def _solve(self, M: F64, *, projects: bool = False) -> tuple[F64, F64 | None]:
        """Return C⁻¹ M (D, K) and, if wanted, the projected rows Φ_c C⁻¹ M (n, K)."""
        size = np.linalg.norm(M, axis=0)
        unit = M / np.where(size > 0, size, 1.0)
        cut = 0.1 * self.tolerance
        X, CX = _best_combination(self._near, unit)
        state = Descent.of(X, unit - CX, cut)
        while True:
            while state.steps < MAX_STEPS and state.residual > 0.5 * self.tolerance:
                state.step(self.apply, self._preconditioner.solve)
            X = state.columns
            X[:, size == 0] = 0.0
            CX, projected = self._product(X, precise=state.worst is not None, projects=projects)
            worst = float(np.linalg.norm(unit - CX, axis=0).max(initial=0.0))
            if worst <= self.tolerance:
                break
            if state.steps >= MAX_STEPS or (state.worst is not None and not worst <= SLOW * state.worst):
                raise ToleranceError(
                    f"conjugate gradients did not converge in {state.steps} steps (relative residual {worst:.1e}, "
                    f"wanted {self.tolerance:.0e}); raise gamma or use solver='cholesky'"
                )
            # Single precision does not suffice where γ is small: residuals are computed in double from here on.
            state = Descent.of(X, unit - CX, cut, steps=state.steps, worst=worst)
        if not self._solved_once:
            self._near, self._solved_once = Solved(X, CX), True
        self.steps, self.relative_residual = state.steps, worst
        if projected is not None:
            projected *= size
        return X * size, projected

    def reduce(self, cross: F64) -> Reduced:
        """Return the same E and R as the Cholesky factor, from an SVD of A C⁻¹cross with AᵀA = C.

        A = [√W Φ_c; √γ I] and G = C⁻¹cross. A G has n + D rows, so its SVD is taken through a QR of blocks, which
        does not square the condition number; docs/math.md#cg.
        """
        if self._first is not None and np.array_equal(cross, self._first.cross):
            self.steps, self.relative_residual = self._first.steps, self._first.residual
            return self._first.reduced
        G, projected = self._solve(cross, projects=True)  # (D, K)
        if projected is None:
            raise AssertionError("the rows were to be projected")
        triangle = _triangle(np.sqrt(self._gamma) * G, projected, self._weight)
        _, S, Vt = linalg.svd(triangle, full_matrices=False)
        # G is accurate only to the tolerance of the iteration; directions below it are noise.
        keep = S > max(RANK_TOLERANCE, 10 * self.tolerance) * S[0] if S[0] > 0 else S > 0
        turn = Vt[keep].T / S[keep]
        basis = G @ turn
        reusable = bool(keep.any()) and S[keep][-1] > REUSED_SPREAD * S[0]
        reduced = Reduced(basis, basis.T @ cross, projected @ turn if reusable else None)
        if self._first is None:
            self._first = FirstReduction(cross, reduced, self.steps, self.relative_residual)
        return reduced


def _triangle(G: F64, projected: F64, weight: F64) -> F64:
    """Return the triangular factor of [√γ G; √W Φ_c G], block by block."""
    R = np.linalg.qr(G, mode="r")
    for start in range(0, len(projected), QR_ROWS):
        part = slice(start, start + QR_ROWS)
        R = np.linalg.qr(np.concatenate([R, np.sqrt(weight[part])[:, None] * projected[part]]), mode="r")
    return np.asarray(R)


def _best_combination(near: Solved | None, M: F64) -> tuple[F64, F64]:
    """Return the X (D, K) in the span of solved columns that is nearest to C⁻¹M in the norm of C, and C X; no pass."""
    zero = np.zeros_like(M)
    if near is None or len(near.X) != len(M):
        return zero, zero
    length = np.sqrt(np.einsum("ij,ij->j", near.X, near.CX).clip(0.0))
    X, CX = (columns[:, length > 0] / length[length > 0] for columns in (near.X, near.CX))
    values, vectors = np.linalg.eigh((X.T @ CX + CX.T @ X) / 2)
    kept = values > 1e-6 * values.max(initial=0.0)  # C X has the digits of the features
    turn = vectors[:, kept] / np.sqrt(values[kept])
    coefficients = turn @ (turn.T @ (X.T @ M))
    X, CX = X @ coefficients, CX @ coefficients
    better = np.linalg.norm(M - CX, axis=0) < np.linalg.norm(M, axis=0)
    return np.where(better, X, zero), np.where(better, CX, zero)
