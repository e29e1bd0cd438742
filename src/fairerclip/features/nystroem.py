"""Nyström features of the RBF kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

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
    """Nyström features: exact among the landmarks, and an under-estimate of the kernel elsewhere.

    For one D they are closer to the kernel than `FourierFeatures` where its spectrum falls fast, and
    dearer to make. Parameters, shapes and cost are those of `LandmarkFeatures`; see docs/math.md#features.

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
        """Draw `n_features` distinct rows of X (n, p) as landmarks, among those of positive weight.

        Where X has fewer distinct rows, all of them are landmarks and the map is exact on X. D is smaller
        than `n_features` then, and where K_mm is singular in floating point. Time O(m³ + m² p).
        """
        X = as_training_rows(X)
        m = check_n_features(n_features)
        parse_bandwidth(bandwidth)
        w = as_weights(sample_weight, X.shape[0])
        rng = as_rng(random_state)
        # Drawn before the bandwidth is found: for one seed the landmarks are the same at every bandwidth.
        landmarks = distinct_rows(X, rng.permutation(np.flatnonzero(w)), limit=m)
        sigma = resolve_bandwidth(bandwidth, X, w, random_state=rng)
        return cls.from_landmarks(X[landmarks], sigma)
