"""From two encoders to a class: the paper's cosine rule, with its zero made explicit."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    """From Z to classes: a score per class, affine in Z, and the paper's cosines beside it.

    The zero is the point from which angles are measured. ``"balanced"`` is the midpoint of the class
    means, ``"mean"`` the weighted mean of the training rows; for unbalanced classes the difference
    decides more than τ does, see docs/math.md#zero.
    """

    zero: F64
    """(r,)"""
    directions: F64
    """(c, r) unit vectors along z_T(class) − zero_T."""
    weights: F64
    """(c, r)"""
    constants: F64
    """(c,) scores = Z @ weights.T + constants."""

    @classmethod
    def of(cls, image_means: F64, text_means: F64, present: NDArray[np.bool_], kind: str) -> Decision:
        """argmax over classes of cos(z_I − zero, z_T(class) − zero_T): the paper's rule.

        Built from class means of both sides (c, r); classes without rows do not move the zero.
        """
        if kind == "balanced" and present.any():
            zero, text_zero = image_means[present].mean(axis=0), text_means[present].mean(axis=0)
        else:
            zero, text_zero = np.zeros(image_means.shape[1]), np.zeros(text_means.shape[1])
        directions = unit_rows(text_means - text_zero)
        directions[~present] *= 1 - 1e-7  # a class that no row has loses a tie against one that has rows
        return cls(zero=zero, directions=directions, weights=directions, constants=-directions @ zero)

    def by_target(
        self,
        image_means: F64,
        present: NDArray[np.bool_],
        zero_shot: float,
        predicted: tuple[F64, F64] | None,
    ) -> Decision:
        """The class whose target Z predicts to be largest; docs/math.md#decision.

        The labels' part is the nearest class mean (c, r), the zero-shot part the scores that Z predicts, (c, r) and
        constants (c,). A class that no row has is known by its prompt alone.
        """
        share = np.where(present, zero_shot, 1.0)[:, None] if predicted is not None else np.zeros((1, 1))
        c = max(int(present.sum()), 1)
        weights = (1 - share) * image_means / c
        constants = -(1 - share[:, 0]) * np.sum(image_means**2, axis=1) / (2 * c)
        if predicted is not None:
            weights = weights + share * predicted[0]
            constants = constants + share[:, 0] * predicted[1]
        return replace(self, weights=weights, constants=constants)

    def by_scores(self) -> Decision:
        """The same rule where Z has become the scores without their constants: (n, c) instead of (n, r)."""
        W = self.weights
        return Decision(W @ self.zero, unit_rows(self.directions @ W.T), np.eye(len(W)), self.constants)

    def moved(self, offsets: F64) -> Decision:
        """The same with offsets (c,) added to the scores."""
        return replace(self, constants=self.constants + offsets)

    def scores(self, Z: Floats) -> F64:
        """Scores of each class (n, c); the largest wins."""
        return np.asarray(Z @ self.weights.T + self.constants, dtype=np.float64)

    def cosines(self, Z: Floats) -> F64:
        """The paper's cosines (n, c), in [-1, 1]."""
        return unit_rows(np.asarray(Z - self.zero, dtype=np.float64)) @ self.directions.T
