"""Feature map that reproduces the RBF kernel exactly on the training rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fairerclip._util.arrays import to_numpy
from fairerclip.errors import ParameterError
from fairerclip.features.bandwidth import parse_bandwidth, resolve_bandwidth
from fairerclip.features.feature_map import RandomState, as_training_rows, as_weights
from fairerclip.features.landmarks import LandmarkFeatures, distinct_rows

MAX_DISTINCT_ROWS = 5000
"""Largest number of distinct rows; factoring more would take gigabytes of memory and minutes of time."""


@dataclass(frozen=True, eq=False)
class ExactFeatures(LandmarkFeatures):
    """Features with ΦΦᵀ = K on the training rows: every distinct row is a landmark.

    Functions in the span of these features are those of the representer theorem. The map has no random part.
    Parameters, shapes and cost are those of `LandmarkFeatures`; see docs/math.md#features.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [1.0]])
    >>> phi = ExactFeatures.fit(X, bandwidth=1.0)
    >>> phi.n_features  # two distinct rows
    2
    >>> Phi = phi.transform(X)
    >>> (Phi @ Phi.T).round(3)
    array([[1.   , 0.607, 0.607],
           [0.607, 1.   , 1.   ],
           [0.607, 1.   , 1.   ]])
    """

    kernel: ClassVar[str] = "exact"

    @classmethod
    def fit(
        cls,
        X: ArrayLike,
        *,
        bandwidth: float | str = "median",
        sample_weight: ArrayLike | None = None,
        random_state: RandomState = None,
    ) -> ExactFeatures:
        """Factor the kernel matrix of the distinct rows of X (n, p) that have a positive weight.

        `random_state` is used only to draw the rows of a median bandwidth. Time O(m³ + m² p), memory O(m²) for
        m ≤ 5000 distinct rows.
        """
        X = to_numpy(as_training_rows(X))
        parse_bandwidth(bandwidth)
        w = as_weights(sample_weight, X.shape[0])
        landmarks = distinct_rows(X, np.flatnonzero(w), limit=MAX_DISTINCT_ROWS + 1)
        if len(landmarks) > MAX_DISTINCT_ROWS:
            raise ParameterError(
                f"kernel 'exact' takes at most {MAX_DISTINCT_ROWS} distinct rows, and X of shape "
                f"{X.shape} has more; use kernel 'nystroem' or 'rbf'"
            )
        sigma = resolve_bandwidth(bandwidth, X, w, random_state=random_state)
        return cls.from_landmarks(X[landmarks], sigma)
