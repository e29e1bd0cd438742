"""The map of embeddings into their own space, under which any query depends less on S; docs/math.md#same-space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, solve_triangular

from fairerclip._util.types import F64
from fairerclip.errors import NotDefiniteError, ShapeError
from fairerclip.solver.moments import MomentResult

RANK_TOLERANCE = 1e-7
"""Share of the largest variance, or singular value, below which a direction of the labels is rounding error."""


@dataclass(frozen=True, eq=False)
class LowRankMap:
    """The map ``x − (φ(x) − mean)·right·left`` with mean (D,), right (D, k) and left (k, p)."""

    mean: F64
    right: F64
    left: F64


@dataclass(frozen=True, eq=False)
class SameSpace:
    """A factored problem, from which the map of every strength follows by a k×k solve.

    Attributes
    ----------
    mean : array of shape (D,)
        Mean of the features.
    half : array of shape (D, k)
        P = R⁻¹M for C + γI = R Rᵀ, where M has the covariances of the features with the whitened labels.
    factor : array of shape (D, D)
        R, lower triangular.
    cross : array of shape (p, k)
        Covariances of the embeddings with the whitened labels.
    blocks : tuple of slice
        Columns of each sensitive attribute.
    """

    mean: F64
    half: F64
    factor: F64
    cross: F64
    blocks: tuple[slice, ...]

    def at(self, strengths: Sequence[float]) -> LowRankMap:
        """Return the map of one strength per attribute: 0 leaves rows unchanged, 1 is τ → ∞; docs/math.md#same-space.

        O(D²·k + D·k²) time.
        """
        scale, rest = self._scales(strengths)
        used = scale > 0
        right = np.zeros((len(self.mean), self.half.shape[1]))
        if used.any():
            P = self.half[:, used] * scale[used]
            # (PᵀP + Δ)⁻¹Pᵀ from the singular values of [P; Δ^½], which does not square the condition number.
            U, s, Vt = np.linalg.svd(np.vstack([P, np.diag(np.sqrt(rest[used]))]), full_matrices=False)
            kept = s > RANK_TOLERANCE * s[0]
            inverse = Vt[kept].T / s[kept] @ U[: len(P), kept].T  # (k', D)
            solved = solve_triangular(self.factor, inverse.T, lower=True, trans="T")
            right[:, used] = solved * scale[used]
        return LowRankMap(self.mean, right, np.ascontiguousarray(self.cross.T))

    def remaining(self, strengths: Sequence[float]) -> list[float]:
        """Return the share of Dep(x, S), Eq. (2), that is left on the rows of the fit, for each attribute."""
        solved = self.at(strengths)
        readable = self.factor @ self.half  # Cov(φ, L) (D, k)
        after = self.cross - (readable.T @ solved.right @ solved.left).T
        shares = []
        for block in self.blocks:
            before = float(np.sum(self.cross[:, block] ** 2))
            shares.append(float(np.sum(after[:, block] ** 2)) / before if before > RANK_TOLERANCE**2 else 0.0)
        return shares

    def _scales(self, strengths: Sequence[float]) -> tuple[F64, F64]:
        """Return √(strength/ρ) and 1 − strength for each column; ρ is the squared spectral norm of its attribute.

        With P scaled by the first, Δ = 1/τ becomes the second, and no attribute is small beside another one. The first
        is 0 where nothing is to be done: singular values of P are at most 1, so that tiny ones are rounding error.
        """
        if len(strengths) != len(self.blocks):
            raise ShapeError(
                f"one strength per attribute is needed: expected {len(self.blocks)}, got {len(strengths)}"
            )
        scale, rest = np.zeros(self.half.shape[1]), np.zeros(self.half.shape[1])
        for block, strength in zip(self.blocks, strengths, strict=True):
            readable = self.half[:, block]
            norm = float(np.linalg.norm(readable, 2)) if readable.size else 0.0
            if norm > RANK_TOLERANCE:
                scale[block] = np.sqrt(strength) / norm
                rest[block] = 1 - strength
        return scale, rest


def factor_same_space(
    moments: MomentResult, width: int, sizes: Sequence[int], gamma: float, *, linear: bool
) -> SameSpace:
    """Factor the problem of docs/math.md#same-space from the moments of rows [x, ψ(x), L].

    Parameters
    ----------
    moments : MomentResult
        Moments of the rows [x (p), ψ(x), L (K)]; there may be no ψ.
    width : int
        Width p of the embeddings.
    sizes : sequence of int
        Number of columns of L of each attribute; they sum to K.
    gamma : float
        Ridge γ > 0 on the change of the function.
    linear : bool
        Whether the features are φ(x) = [x, ψ(x)], or ψ(x) alone.
    """
    C = moments.covariance
    K = int(sum(sizes))
    if C is None or C.shape[0] < width + K:
        raise ShapeError(f"moments of at least {width + K} columns are needed")
    first = C.shape[0] - K
    phi = slice(0 if linear else width, first)
    whiteners, blocks, start, found = [], [], 0, 0
    for size in sizes:
        columns = slice(first + start, first + start + size)
        whitener = _whitener(C[columns, columns])
        whiteners.append((columns, whitener))
        blocks.append(slice(found, found + whitener.shape[1]))
        start, found = start + size, found + whitener.shape[1]
    M = np.hstack([np.zeros((phi.stop - phi.start, 0)), *(C[phi, columns] @ V for columns, V in whiteners)])
    cross = np.hstack([np.zeros((width, 0)), *(C[:width, columns] @ V for columns, V in whiteners)])
    regularised = C[phi, phi] + gamma * np.eye(phi.stop - phi.start)
    try:
        R = np.tril(cho_factor(regularised, lower=True)[0])
    except LinAlgError:
        raise NotDefiniteError(
            f"the covariance of the features with γ = {gamma:g} is not positive definite: raise gamma"
        ) from None
    return SameSpace(moments.mean[phi], solve_triangular(R, M, lower=True), R, cross, tuple(blocks))


def _whitener(covariance: F64) -> F64:
    """Return V (K, k) with VᵀΣV = I, without the directions that do not vary."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    kept = values > RANK_TOLERANCE * max(float(values.max(initial=0.0)), np.finfo(np.float64).tiny)
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]))
