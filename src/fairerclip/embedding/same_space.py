"""The map of embeddings into their own space, under which any query depends less on S; docs/math.md#same-space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, solve_triangular

from fairerclip._util.types import F64
from fairerclip.embedding.fitted_map import EmbeddingMap
from fairerclip.errors import NotDefiniteError, ShapeError
from fairerclip.solver.moments import MomentResult

RANK_TOLERANCE = 1e-7
"""Share of the largest variance, or singular value, below which a direction of the labels is rounding error."""


@dataclass(frozen=True, eq=False)
class SameSpace:
    """A factored problem, from which the map of every strength follows by a k×k solve.

    Attributes
    ----------
    mean : array of shape (p,)
        Mean of the embeddings.
    cross : array of shape (p, k)
        M, the covariances of the embeddings with the whitened labels.
    factor : array of shape (p, p)
        R, lower triangular, with C + γI = R Rᵀ for the covariance C of the embeddings.
    half : array of shape (p, k)
        P = R⁻¹M.
    blocks : tuple of slice
        Columns of each sensitive attribute.
    """

    mean: F64
    cross: F64
    factor: F64
    half: F64
    blocks: tuple[slice, ...]

    def at(self, strengths: Sequence[float]) -> EmbeddingMap:
        """Return the map of one strength per attribute: 0 leaves rows unchanged, 1 is τ → ∞; docs/math.md#same-space.

        O(p²·k + p·k²) time.
        """
        scale, rest = self._scales(strengths)
        used = scale > 0
        right = np.zeros((len(self.mean), self.half.shape[1]))
        if used.any():
            P = self.half[:, used] * scale[used]
            # (PᵀP + Δ)⁻¹Pᵀ from the singular values of [P; Δ^½], which does not square the condition number.
            U, s, Vt = np.linalg.svd(np.vstack([P, np.diag(np.sqrt(rest[used]))]), full_matrices=False)
            kept = s > RANK_TOLERANCE * s[0]
            inverse = Vt[kept].T / s[kept] @ U[: len(P), kept].T  # (k', p)
            solved = solve_triangular(self.factor, inverse.T, lower=True, trans="T")
            right[:, used] = solved * scale[used]
        return EmbeddingMap(self.mean, right, np.ascontiguousarray(self.cross.T))

    def remaining(self, strengths: Sequence[float]) -> list[float]:
        """Return the share of Dep(x, S), Eq. (2), that is left on the rows of the fit, for each attribute."""
        solved = self.at(strengths)
        after = self.cross - (self.cross.T @ solved.right @ solved.left).T
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


def factor_same_space(moments: MomentResult, sizes: Sequence[int], gamma: float) -> SameSpace:
    """Factor the problem of docs/math.md#same-space from the moments of rows [x, L]. O(p³) time.

    Parameters
    ----------
    moments : MomentResult
        Moments of the rows [x (p), L (K)].
    sizes : sequence of int
        Number of columns of L of each attribute; they sum to K.
    gamma : float
        Ridge γ > 0 on the change of the function.
    """
    C = moments.covariance
    K = int(sum(sizes))
    if C is None or C.shape[0] <= K:
        raise ShapeError(f"moments of more than {K} columns are needed")
    p = C.shape[0] - K
    cross, blocks, start, width = [np.zeros((p, 0))], [], p, 0
    for size in sizes:
        columns = slice(start, start + size)
        whitener = _whitener(C[columns, columns])
        cross.append(C[:p, columns] @ whitener)
        blocks.append(slice(width, width + whitener.shape[1]))
        start, width = start + size, width + whitener.shape[1]
    M = np.hstack(cross)
    try:
        R = np.tril(cho_factor(C[:p, :p] + gamma * np.eye(p), lower=True)[0])
    except LinAlgError:
        raise NotDefiniteError(
            f"the covariance of the embeddings with γ = {gamma:g} is not positive definite: raise gamma"
        ) from None
    return SameSpace(moments.mean[:p], M, R, solve_triangular(R, M, lower=True), tuple(blocks))


def _whitener(covariance: F64) -> F64:
    """Return V (K, k) with VᵀΣV = I, without the directions that do not vary."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    kept = values > RANK_TOLERANCE * max(float(values.max(initial=0.0)), np.finfo(np.float64).tiny)
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]))
