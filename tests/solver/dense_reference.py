"""Reference solver for tests: the D×D generalized eigenproblem as the paper states it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import linalg

from fairerclip._util.types import F64


def solve_dense(Phi: F64, weight: F64, terms: Sequence[tuple[float, F64]], gamma: float) -> tuple[F64, F64]:
    """Solve Eq. (8), B u = λ C u, with B and C formed and passed to ``scipy.linalg.eigh``. O(D³).

    Parameters
    ----------
    Phi : array of shape (n, D)
        Features.
    weight : array of shape (n,)
        Row weights.
    terms : sequence of (float, array of shape (n, k_j))
        Signed weight σ_j and label factor L_j of each term.
    gamma : float
        Ridge of C.

    Returns
    -------
    eigenvalues : array of shape (D,)
        In falling order.
    eigenvectors : array of shape (D, D)
        In columns, with UᵀCU = I.
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
