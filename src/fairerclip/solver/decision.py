"""From two encoders to a class: the paper's cosine rule, with its zero made explicit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
Floats = NDArray[np.floating]


def unit_rows(Z: F64) -> F64:
    """Rows scaled to length one; zero rows stay zero."""
    norms = np.linalg.norm(Z, axis=1, keepdims=True)
    return np.asarray(np.divide(Z, norms, out=np.zeros_like(Z), where=norms > 0))


@dataclass(frozen=True)
class Decision:
    """argmax over classes of cos(z_I − zero, z_T(class) − zero_T).

    The zero is the point from which angles are measured. ``"balanced"`` is the midpoint of the class
    means, ``"mean"`` the weighted mean of the training rows; for unbalanced classes the difference
    decides more than τ does, see docs/math.md#zero.
    """

    zero: F64
    """(r,)"""
    directions: F64
    """(c, r) unit vectors along z_T(class) − zero_T."""

    @classmethod
    def of(cls, image_means: F64, text_means: F64, present: NDArray[np.bool_], kind: str) -> Decision:
        """Build from class means of both sides (c, r); classes without rows do not move the zero."""
        if kind == "balanced" and present.any():
            zero, text_zero = image_means[present].mean(axis=0), text_means[present].mean(axis=0)
        else:
            zero, text_zero = np.zeros(image_means.shape[1]), np.zeros(text_means.shape[1])
        directions = unit_rows(text_means - text_zero)
        directions[~present] *= 1 - 1e-7  # a class that no row has loses a tie against one that has rows
        return cls(zero=zero, directions=directions)

    def scores(self, Z: Floats) -> F64:
        """Inner products with the class directions (n, c); their argmax is the cosine's argmax."""
        return np.asarray((Z - self.zero) @ self.directions.T, dtype=np.float64)

    def cosines(self, Z: Floats) -> F64:
        """The paper's cosines (n, c), in [-1, 1]."""
        return unit_rows(np.asarray(Z - self.zero, dtype=np.float64)) @ self.directions.T
