"""From two encoders to a class: the paper's cosine rule, with its zero made explicit, and probabilities."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from fairerclip._util.types import F64, Floats
from fairerclip.data.embedding_rows import unit_rows

HOMOGENEOUS = 1e-9
"""Boundaries that a move of the origin leaves off by less than this, relative to their size, are held by it."""
SMALLEST_DIRECTION = 1e-6
"""Directions of the weights below this share of the largest hold no boundary."""
LARGEST_STEP = 1e3
"""A farther origin would cost single precision the differences between rows."""


@dataclass(frozen=True)
class Adjustment:
    """Corrections of the class scores that are learned on labelled rows after a fit."""

    offsets: F64
    """(c,) added to the class scores; zeros change nothing."""
    sensitive_shifts: F64 | None = None
    """(c, q) weights of the predicted sensitive values that are subtracted from each class score, or None."""


@dataclass(frozen=True)
class Decision:
    """From Z to classes: a score per class, affine in Z, and the paper's cosines beside it.

    The zero is the point from which angles are measured: the midpoint of the class means, the weighted mean of the
    training rows, or the origin of the features. The difference can decide more than τ does; see docs/math.md#zero.
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
        """argmax over classes of cos(z_I − zero, z_T(class) − zero_T): the paper's rule.

        Built from the class means of the text side (c, r) and the ``zeros`` of both sides (r,).
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
        return Decision(
            W @ self.zero,
            np.asarray(unit_rows(self.directions @ W.T), dtype=np.float64),
            np.eye(len(W)),
            self.constants,
        )

    def with_offsets(self, offsets: F64) -> Decision:
        """The same with offsets (c,) added to the scores."""
        return replace(self, constants=self.constants + offsets)

    def moved(self, step: F64) -> Decision:
        """The same rule for Z + step instead of Z; step (r,)."""
        return replace(self, zero=self.zero + step, constants=self.constants - self.weights @ step)

    def origin_step(self) -> F64 | None:
        """The step (r,) of the origin after which inner products with the weights alone decide as the scores do.

        Then the constants of all classes are equal. None where r is too small for that: c − 1 boundaries need c − 1
        dimensions.
        """
        c = len(self.constants)
        centre = np.eye(c) - 1 / c  # what all classes have in common decides nothing
        W, b = centre @ self.weights, centre @ self.constants
        step = np.linalg.lstsq(W, b, rcond=SMALLEST_DIRECTION)[0]
        if np.abs(step).max() > LARGEST_STEP:
            return None
        held = np.abs(W @ step - b).max() <= HOMOGENEOUS * max(float(np.abs(b).max()), float(np.abs(W).max()))
        return np.asarray(step) if held else None

    def with_constant_coordinate(self) -> Decision:
        """The same rule for Z with one more coordinate, which is 1 for every row and carries the constants."""
        column = np.zeros((len(self.constants), 1))
        return Decision(
            zero=np.append(self.zero, 1.0),
            directions=np.hstack([self.directions, column]),
            weights=np.hstack([self.weights, self.constants[:, None]]),
            constants=np.zeros(len(self.constants)),
        )

    def scores(self, Z: Floats) -> F64:
        """Scores of each class (n, c); the largest wins."""
        return np.asarray(Z @ self.weights.T + self.constants, dtype=np.float64)

    def cosines(self, Z: Floats) -> F64:
        """The paper's cosines (n, c), in [-1, 1]."""
        return np.asarray(unit_rows(np.asarray(Z - self.zero, dtype=np.float64)) @ self.directions.T)


def softmax(logits: F64) -> F64:
    """Row-wise softmax (n, c)."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def fit_temperature(scores: F64, y: NDArray[np.int64], weight: F64) -> float:
    """The factor β > 0 for which softmax(β·scores) gives the labels the largest likelihood.

    The likelihood is concave in β, so its derivative has one root at most; β is kept within two
    decades of the scores' own scale, so that separable training rows do not send it to infinity.
    """
    w = weight / weight.sum()
    spread = float(np.sqrt(w @ np.mean(scores**2, axis=1))) or 1.0
    own = scores[np.arange(len(y)), y]

    def slope(log_beta: float) -> float:
        p = softmax(scores * (np.exp(log_beta) / spread))
        return float(w @ ((p * scores).sum(axis=1) - own))

    low, high = np.log(1e-2), np.log(1e2)
    if slope(low) >= 0:
        return float(np.exp(low) / spread)
    if slope(high) <= 0:
        return float(np.exp(high) / spread)
    return float(np.exp(brentq(slope, low, high, xtol=1e-13)) / spread)
