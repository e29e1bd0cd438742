"""The D×D generalized eigenproblem as the paper states it: slow, obvious, the reference for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import linalg

from fairerclip._util.types import F64


def solve_dense(Phi: F64, weight: F64, terms: Sequence[tuple[float, F64]], gamma: float) -> tuple[F64, F64]:
    """Eq. (8): B u = λ C u with B and C formed and handed to ``scipy.linalg.eigh``. O(D³).

    Parameters
    ----------
    Phi : (n, D) features.
    weight : (n,) row weights.
    terms : pairs of a signed weight σ_j and a label factor L_j (n, k_j).
    gamma : ridge of C.

    Returns
    -------
    eigenvalues (D,) in falling order, and eigenvectors (D, D) with UᵀCU = I.
    """
    w = weight / weight.sum()
    centred = Phi - w @ Phi
    C = centred.T @ (w[:, None] * centred) + gamma * np.eye(Phi.shape[1])
    B = np.zeros_like(C)
    for sigma, L in terms:
        M = centred.T @ (w[:, None] * (L - w @ L))
        B += sigma * M @ M.T
    values, vectors = linalg.eigh((B + B.T) / 2, (C + C.T) / 2)
    return values[::-1], vectors[:, ::-1]
