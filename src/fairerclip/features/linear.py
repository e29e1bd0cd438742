"""Features of the linear kernel, scaled to a mean squared length of one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fairerclip._util.arrays import row_squares, to_numpy
from fairerclip.errors import ModelFileError, NonFiniteError
from fairerclip.features.feature_map import (
    Array,
    as_rows,
    as_training_rows,
    as_weights,
    stored_scalar,
)


@dataclass(frozen=True, eq=False)
class LinearFeatures:
    """Features φ(x) = x / scale, with mean ‖φ(x)‖² = 1 on the training rows; see docs/math.md#features.

    So γ has the same meaning at every scale of the embeddings, and the same as with RBF features, which
    also have ‖φ(x)‖² ≈ 1. Time and memory O(n p).

    Parameters
    ----------
    scale : float
        Square root of the weighted mean of ‖x‖²; 1 if all rows are zero.
    n_features_in : int
        Width p of the rows.

    Examples
    --------
    >>> phi = LinearFeatures.fit([[3.0, 4.0], [5.0, 0.0]])
    >>> phi.transform([[3.0, 4.0]])
    array([[0.6, 0.8]])
    """

    kernel: ClassVar[str] = "linear"

    scale: float
    n_features_in: int

    @classmethod
    def fit(cls, X: ArrayLike, *, sample_weight: ArrayLike | None = None) -> LinearFeatures:
        """Compute the scale from the rows X (n, p): time O(n p), summed in float64."""
        X = as_training_rows(X)
        w = as_weights(sample_weight, X.shape[0])
        rows = w > 0
        squares = to_numpy(row_squares(X)).astype(np.float64)[rows]  # (n',)
        if not np.isfinite(squares).all():
            raise NonFiniteError("X holds NaN, infinity or numbers too large to square; remove those rows")
        scale = math.sqrt(squares @ w[rows] / w.sum())
        return cls(scale or 1.0, X.shape[1])

    @property
    def n_features(self) -> int:
        """Number of features D = p."""
        return self.n_features_in

    def transform(self, X: Any) -> Array:
        """Return Φ (n, p) of the rows X (n, p), a new array in the precision of X (float32 for float16)."""
        Phi: Array = as_rows(X, self.n_features_in) / self.scale
        return Phi

    def to_arrays(self) -> dict[str, Array]:
        """Return the scale and the width."""
        return {"scale": np.array(self.scale), "n_features_in": np.array(float(self.n_features_in))}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> LinearFeatures:
        """Return the map that `to_arrays` was called on."""
        width = stored_scalar(arrays, "n_features_in")
        if not width.is_integer():
            raise ModelFileError(f"the saved feature map has n_features_in = {width}, not a whole number")
        return cls(stored_scalar(arrays, "scale"), int(width))
