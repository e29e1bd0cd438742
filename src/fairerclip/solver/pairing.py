"""Quantities that each side takes from the other: class means for the alignment term, rotation, zero point."""

from __future__ import annotations

import numpy as np

from fairerclip._util.types import F64, Ints
from fairerclip.features import FourierFeatures
from fairerclip.solver.problem import Sides
from fairerclip.solver.sides import SideSolution

ALIGNMENT_FEATURES = 256
"""Number of random features of the RBF alignment kernel; its input has r dimensions, so few are enough."""


def image_features(sides: Sides, image: SideSolution, y: Ints, alignment: str, seed: int) -> F64:
    """Return the class means (c, ·) of Z_I, or of its RBF features, for the alignment term of the text side."""
    if alignment == "linear" and y is sides.y:
        return image.class_means
    Z = sides.image_rows @ image.coefficients
    values = Z if alignment == "linear" else _rbf_features(Z, sides.weight, seed)
    onehot = np.zeros((len(y), sides.prompts.n_classes))
    onehot[np.arange(len(y)), y] = sides.weight
    share = onehot.sum(axis=0)[:, None]
    sums = onehot.T @ values
    return np.asarray(np.divide(sums, share, out=np.zeros_like(sums), where=share > 0))


def text_features(sides: Sides, text: SideSolution, alignment: str, seed: int) -> F64:
    """Return the class means (c, ·) of Z_T, or of its RBF features, for the alignment term of the image side."""
    Z = sides.text_rows @ text.coefficients
    if alignment == "rbf":
        Z = _rbf_features(Z, sides.prompts.share.T @ sides.text.table.class_share, seed)
    return sides.prompts.share @ Z


def _rbf_features(Z: F64, weight: F64, seed: int) -> F64:
    # Drawn anew for each Z because its median bandwidth changes; the seed keeps it deterministic.
    phi = FourierFeatures.fit(
        Z, n_features=ALIGNMENT_FEATURES, bandwidth="median", sample_weight=weight, random_state=seed
    )
    return np.asarray(phi.transform(Z), dtype=np.float64)


def procrustes(source: F64, target: F64, weight: F64) -> F64:
    """Return the orthogonal Q (r_s, r_t) that maximises Σ w ⟨source Q, target⟩; docs/math.md#procrustes.

    An encoder is determined only up to an orthogonal matrix, which changes no term of the objective. Q fixes
    the sign of a single component and the basis of several.
    """
    u, _, vt = np.linalg.svd((source * weight[:, None]).T @ target, full_matrices=False)
    return np.asarray(u @ vt)


def zero_points(
    sides: Sides, image: SideSolution, text: SideSolution, rotation: F64, vectors: F64, zero: str
) -> tuple[F64, F64]:
    """Return the points (r,) from which the angles of both sides are measured; docs/math.md#zero."""
    present = sides.image.table.class_share > 0
    if zero == "balanced":
        return image.class_means[present].mean(axis=0), vectors[present].mean(axis=0)
    if zero == "mean":
        return np.zeros(vectors.shape[1]), np.zeros(vectors.shape[1])
    # "none": Z is centred on the mean of the features, so the origin of the features is at minus that mean.
    image_mean = sides.image.mean @ (sides.image.reduced.basis @ image.coefficients)
    text_mean = sides.text.mean @ (sides.text.reduced.basis @ text.coefficients)
    return -image_mean, -(text_mean @ rotation)
