"""Nyström features of the RBF kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fairerclip._util.arrays import to_numpy
from fairerclip.features.bandwidth import parse_bandwidth, resolve_bandwidth
from fairerclip.features.feature_map import (
    RandomState,
    as_rng,
    as_training_rows,
    as_weights,
    check_n_features,
)
from fairerclip.features.landmarks import LandmarkFeatures, distinct_rows


@dataclass(frozen=True, eq=False)
class NystroemFeatures(LandmarkFeatures):
    """Nyström features: exact between landmarks, and K − ΦΦᵀ is positive semi-definite for all rows.

    At the same D they are closer to the kernel than `FourierFeatures` if its spectrum falls fast, and take
    longer to compute. Parameters, shapes and cost are those of `LandmarkFeatures`; see docs/math.md#features.

    References
    ----------
    Williams and Seeger, "Using the Nyström method to speed up kernel machines", 2001.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.RandomState(0).normal(size=(50, 3))
    >>> phi = NystroemFeatures.fit(X, n_features=50, random_state=0)  # every row: exact
    >>> from fairerclip.features import rbf_kernel
    >>> Phi = phi.transform(X)
    >>> bool(np.allclose(Phi @ Phi.T, rbf_kernel(X, X, phi.bandwidth)))
    True
    """

    kernel: ClassVar[str] = "nystroem"

    @classmethod
    def fit(
        cls,
        X: ArrayLike,
        *,
        n_features: int,
        bandwidth: float | str = "median",
        sample_weight: ArrayLike | None = None,
        random_state: RandomState = None,
    ) -> NystroemFeatures:
        """Draw `n_features` distinct rows of X (n, p) with positive weight as landmarks.

        If X has fewer distinct rows, all of them are landmarks and the map is exact on X. In this case, and if
        K_mm is numerically singular, D is smaller than `n_features`. Time O(m³ + m² p).
        """
        X = to_numpy(as_training_rows(X))
        m = check_n_features(n_features)
        parse_bandwidth(bandwidth)
        w = as_weights(sample_weight, X.shape[0])
        rng = as_rng(random_state)
        # Drawn before the bandwidth is computed: for one seed the landmarks are the same at every bandwidth.
        landmarks = distinct_rows(X, rng.permutation(np.flatnonzero(w)), limit=m)
        sigma = resolve_bandwidth(bandwidth, X, w, random_state=rng)
        return cls.from_landmarks(X[landmarks], sigma)
