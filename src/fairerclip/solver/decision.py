"""Decision rule from the representation Z to a class: scores, cosines and the temperature of probabilities."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from fairerclip._util.types import F64, Floats, Ints
from fairerclip.data.embedding_rows import unit_rows

HOMOGENEOUS = 1e-9
"""Largest relative error of the class boundaries after a step of the origin that counts as exact."""
SMALLEST_DIRECTION = 1e-6
"""Singular values of the class weights below this share of the largest count as zero."""
LARGEST_STEP = 1e3
"""Longest step of the origin: a longer one would lose the differences between rows in single precision."""


@dataclass(frozen=True)
class Decision:
    """Rule from Z to classes: a score per class that is affine in Z, and the cosines of the paper.

    The zero is the point from which angles are measured: the mean of the class means, the weighted mean of the
    training rows, or the origin of the features. This choice can matter more than τ; see docs/math.md#zero.
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
    def of(cls, text_means: F64, present: NDArray[np.bool_], zeros: tuple[F64, F64]) -> Decision:
        """Build the paper's rule: argmax over classes of cos(z_I − zero, z_T(class) − zero_T).

        ``text_means`` (c, r) are the class means of the text side, ``zeros`` the zeros of both sides (r,).
        """
        zero, text_zero = zeros
        directions = np.asarray(unit_rows(text_means - text_zero), dtype=np.float64)
        directions[~present] *= 1 - 1e-7  # a class that no row has loses a tie against one that has rows
        return cls(zero=zero, directions=directions, weights=directions, constants=-directions @ zero)

    def by_target(
        self,
        image_means: F64,
        present: NDArray[np.bool_],
        zero_shot: float,
        predicted: tuple[F64, F64] | None,
    ) -> Decision:
        """Return the rule that takes the class with the largest predicted target; docs/math.md#decision.

        The part of the labels is the nearest class mean, from ``image_means`` (c, r). The part of the zero-shot scores
        is their prediction from Z, with the weights (c, r) and constants (c,) in ``predicted``. A class without
        rows has the second part only.
        """
        share = np.where(present, zero_shot, 1.0)[:, None] if predicted is not None else np.zeros((1, 1))
        c = max(int(present.sum()), 1)
        weights = (1 - share) * image_means / c
        constants = -(1 - share[:, 0]) * np.sum(image_means**2, axis=1) / (2 * c)
        if predicted is not None:
            weights = weights + share * predicted[0]
            constants = constants + share[:, 0] * predicted[1]
        return replace(self, weights=weights, constants=constants)

    def with_offsets(self, offsets: F64) -> Decision:
        """Return the rule with offsets (c,) added to the scores."""
        return replace(self, constants=self.constants + offsets)

    def moved(self, step: F64) -> Decision:
        """Return the same rule for Z + step in place of Z; step (r,)."""
        return replace(self, zero=self.zero + step, constants=self.constants - self.weights @ step)

    def origin_step(self) -> F64 | None:
        """Return the step (r,) of the origin that makes the constants of all classes equal, or None.

        After it, inner products with the weights alone decide as the scores do. None if r is too small, since c − 1
        boundaries need c − 1 dimensions, or if the step would be too long.
        """
        c = len(self.constants)
        centre = np.eye(c) - 1 / c  # what all classes share does not affect the decision
        W, b = centre @ self.weights, centre @ self.constants
        step = np.linalg.lstsq(W, b, rcond=SMALLEST_DIRECTION)[0]
        if np.abs(step).max() > LARGEST_STEP:
            return None
        exact = np.abs(W @ step - b).max() <= HOMOGENEOUS * max(
            float(np.abs(b).max()), float(np.abs(W).max())
        )
        return np.asarray(step) if exact else None

    def with_constant_coordinate(self) -> Decision:
        """Return the same rule for Z with one more coordinate, 1 for every row, whose weights are the constants."""
        column = np.zeros((len(self.constants), 1))
        return Decision(
            zero=np.append(self.zero, 1.0),
            directions=np.hstack([self.directions, column]),
            weights=np.hstack([self.weights, self.constants[:, None]]),
            constants=np.zeros(len(self.constants)),
        )

    def scores(self, Z: Floats) -> F64:
        """Return the class scores (n, c); the largest one decides."""
        return np.asarray(Z @ self.weights.T + self.constants, dtype=np.float64)

    def cosines(self, Z: Floats) -> F64:
        """Return the cosines (n, c) of the paper, in [-1, 1]."""
        return np.asarray(unit_rows(np.asarray(Z - self.zero, dtype=np.float64)) @ self.directions.T)


def softmax(logits: F64) -> F64:
    """Compute the softmax of each row (n, c)."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def fit_temperature(scores: F64, y: Ints, weight: F64) -> float:
    """Return the factor β > 0 that maximises the likelihood of the labels under softmax(β·scores).

    The log-likelihood is concave in β, so its derivative has at most one root. β times the root mean square
    of the scores is kept within [0.01, 100], so that separable training rows do not send it to infinity.
    """
    w = weight / weight.sum()
    spread = float(np.sqrt(w @ np.mean(scores**2, axis=1))) or 1.0
    label_score = scores[np.arange(len(y)), y]

    def slope(log_beta: float) -> float:
        p = softmax(scores * (np.exp(log_beta) / spread))
        return float(w @ ((p * scores).sum(axis=1) - label_score))

    low, high = np.log(1e-2), np.log(1e2)
    if slope(low) >= 0:
        return float(np.exp(low) / spread)
    if slope(high) <= 0:
        return float(np.exp(high) / spread)
    return float(np.exp(brentq(slope, low, high, xtol=1e-13)) / spread)
