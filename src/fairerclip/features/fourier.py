"""Random Fourier features of the RBF kernel, plain and orthogonal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fairerclip._util.arrays import Placed, namespace
from fairerclip.data.row_pass import cache_sized
from fairerclip.errors import ModelFileError
from fairerclip.features.bandwidth import parse_bandwidth, resolve_bandwidth
from fairerclip.features.feature_map import (
    Array,
    Float64,
    RandomState,
    Rng,
    as_rng,
    as_rows,
    as_training_rows,
    check_map_bytes,
    check_n_features,
    stored_array,
    stored_scalar,
)


@dataclass(frozen=True, eq=False)
class FourierFeatures:
    """Features φ(x) = sqrt(2/D) cos(xΩ + b), with E φ(x)·φ(x') = exp(−‖x − x'‖² / 2σ²); see docs/math.md#features.

    Time O(n p D); memory that of the output only. The error of a kernel value falls as 1/sqrt(D).

    Parameters
    ----------
    omega : array of shape (p, D)
        Frequencies Ω, one per column, each distributed as N(0, I/σ²); float64 or float32.
    offset : array of shape (D,)
        Phases b, uniform on [0, 2π).
    bandwidth : float
        σ; Ω is already divided by it.
    kernel : {"rbf", "orthogonal"}
        Independent frequencies, or frequencies that are orthogonal within blocks of p. Each frequency has
        the same distribution in both; orthogonal ones give kernel values of less variance.

    References
    ----------
    Rahimi and Recht, "Random features for large-scale kernel machines", 2007; Yu et al., "Orthogonal
    random features", 2016.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> phi = FourierFeatures.fit(X, n_features=4000, bandwidth=1.0, random_state=0)
    >>> Phi = phi.transform(X)
    >>> bool(abs(Phi[0] @ Phi[1] - np.exp(-1.0)) < 0.05)
    True
    """

    omega: Array
    offset: Float64
    bandwidth: float
    kernel: str = "rbf"

    @classmethod
    def fit(
        cls,
        X: ArrayLike,
        *,
        n_features: int,
        bandwidth: float | str = "median",
        orthogonal: bool = False,
        single: bool = False,
        sample_weight: ArrayLike | None = None,
        random_state: RandomState = None,
    ) -> FourierFeatures:
        """Draw Ω and b for rows as wide as those of X (n, p); values of X matter only for a median bandwidth.

        Ω is drawn before the bandwidth is computed. So for one seed, σΩ and b are the same at every bandwidth
        and for every X of this width, and features with ``orthogonal=False`` equal those of scikit-learn's
        ``RBFSampler``. ``single`` keeps Ω in float32, in which float32 rows use it anyway.
        Time O(p D), or O(p² D) if `orthogonal`.
        """
        X = as_training_rows(X)
        D = check_n_features(n_features)
        check_map_bytes(D, X.shape[1])
        parse_bandwidth(bandwidth)
        rng = as_rng(random_state)
        draw = _orthogonal_directions if orthogonal else _gaussian_directions
        omega = draw(X.shape[1], D, rng)  # (p, D)
        offset = rng.uniform(0.0, 2.0 * np.pi, size=D)  # (D,)
        sigma = resolve_bandwidth(bandwidth, X, sample_weight, random_state=rng)
        omega /= sigma
        omega = omega.astype(np.float32) if single else omega
        return cls(omega, offset, sigma, "orthogonal" if orthogonal else "rbf")

    @property
    def n_features_in(self) -> int:
        """Width p of the rows."""
        return int(self.omega.shape[0])

    @property
    def n_features(self) -> int:
        """Number of features D."""
        return int(self.omega.shape[1])

    def transform(self, X: Any) -> Array:
        """Return Φ (n, D) of the rows X (n, p), in the precision of X (float32 for float16)."""
        X = as_rows(X, self.n_features_in)
        xp, (omega, offset) = namespace(X), self._placed.beside(X)
        Phi: Array = X @ omega
        scale = math.sqrt(2.0 / self.n_features)
        for rows in cache_sized(Phi):
            part = Phi[rows]
            part += offset
            xp.cos(part, out=part)
            part *= scale
        return Phi

    @cached_property
    def _placed(self) -> Placed:
        return Placed(self.omega, self.offset)

    def to_arrays(self) -> dict[str, Array]:
        """Return Ω, b and σ."""
        return {"omega": self.omega, "offset": self.offset, "bandwidth": np.array(self.bandwidth)}

    @classmethod
    def from_arrays(cls, kernel: str, arrays: Mapping[str, Array]) -> FourierFeatures:
        """Return the map that `to_arrays` was called on."""
        omega, offset = stored_array(arrays, "omega", 2, single=True), stored_array(arrays, "offset", 1)
        if omega.shape[1] != offset.shape[0]:
            raise ModelFileError(
                f"the saved feature map has omega of shape {omega.shape} but offset of shape {offset.shape}"
            )
        return cls(omega, offset, stored_scalar(arrays, "bandwidth"), kernel)


def _gaussian_directions(p: int, D: int, rng: Rng) -> Float64:
    return rng.standard_normal(size=(p, D))


def _orthogonal_directions(p: int, D: int, rng: Rng) -> Float64:
    """Draw Gaussian columns (p, D) that are orthogonal within blocks of p (the last block may be narrower)."""
    omega = np.empty((p, D))
    for start in range(0, D, p):
        width = min(p, D - start)
        Q, R = np.linalg.qr(rng.standard_normal(size=(p, width)))
        # The signs of Q follow the convention of the QR routine; these make Q uniformly distributed.
        Q *= np.where(np.diag(R) < 0, -1.0, 1.0)
        omega[:, start : start + width] = Q * np.sqrt(rng.chisquare(p, size=width))
    return omega
