"""The bare arithmetic that times are compared with: nothing but products, cosines and one Cholesky decomposition."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

BLOCK = 8192
"""Rows of a block."""


@dataclass(frozen=True)
class BareFeatures:
    """Directions Ω (p, D) and phases b (D,) of random features cos(xΩ + b), in float32."""

    Omega: np.ndarray
    b: np.ndarray

    @classmethod
    def draw(cls, width: int, features: int, seed: int = 0) -> BareFeatures:
        """Draw random features."""
        rng = np.random.default_rng(seed)
        b = rng.uniform(0, 2 * np.pi, size=features)
        return cls(rng.standard_normal((width, features), dtype=np.float32), b.astype(np.float32))

    def product(self, X: np.ndarray) -> None:
        """Compute XΩ, block by block, and drop it."""
        for start in range(0, len(X), BLOCK):
            X[start : start + BLOCK] @ self.Omega

    def feature_pass(self, X: np.ndarray) -> None:
        """Compute cos(XΩ + b), block by block, and drop it."""
        for start in range(0, len(X), BLOCK):
            self._phi(X[start : start + BLOCK])

    def factor(self, X: np.ndarray, gamma: float) -> np.ndarray:
        """Compute features, ΦᵀΦ in float32 and a float64 Cholesky decomposition: the arithmetic that a fit needs."""
        Phi = self._phi(X)
        Phi *= np.float32(np.sqrt(2.0 / Phi.shape[1]))
        C = (Phi.T @ Phi).astype(np.float64) / len(X)
        C[np.diag_indices_from(C)] += gamma
        return linalg.cholesky(C, lower=True, overwrite_a=True, check_finite=False)

    def _phi(self, X: np.ndarray) -> np.ndarray:
        Phi = X @ self.Omega
        Phi += self.b
        return np.cos(Phi, out=Phi)
