"""The RBF kernel, and features from its values at landmarks, shared by Nyström and exact features."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from fairerclip._util.arrays import Placed, beside, empty, has_float64, is_tensor, namespace, to_numpy
from fairerclip.errors import ModelFileError, NonFiniteError, ParameterError
from fairerclip.features.bandwidth import parse_bandwidth, squared_distances
from fairerclip.features.feature_map import (
    Array,
    Float64,
    as_rows,
    as_training_rows,
    stored_array,
    stored_scalar,
)

_RANK = 1e-12
"""Eigenvalues of K_mm up to this share of the largest count as zero."""

_BLOCK = 2**21
"""Number of kernel values computed at a time (16 MB)."""


def rbf_kernel(X: Any, Y: Any, bandwidth: float) -> Float64:
    """Return k(x_i, y_j) = exp(−‖x_i − y_j‖² / 2σ²) in float64, for rows of any dtype.

    Time O(n m p), memory O(n m + (n + m) p).

    Parameters
    ----------
    X : array-like or tensor of shape (n, p)
        Rows.
    Y : array-like or tensor of shape (m, p)
        At least one row; a tensor on the same device if X is one.
    bandwidth : float
        σ > 0.

    Returns
    -------
    array of shape (n, m)
        Kernel values in [0, 1], float64.

    Notes
    -----
    Distances come from one float64 matrix product of rows centred on the mean of Y. In float32 the distance
    between nearly identical rows would be cancellation error only.

    Examples
    --------
    >>> rbf_kernel([[0.0]], [[0.0], [2.0]], bandwidth=1.0).round(3)
    array([[1.   , 0.135]])
    """
    Y = as_training_rows(Y)
    X = as_rows(X, Y.shape[1])
    sigma, times_median = parse_bandwidth(bandwidth)
    if times_median:
        raise ParameterError(
            f"bandwidth must be a number here, got {bandwidth!r}; use resolve_bandwidth first"
        )
    xp = namespace(X)
    centre = xp.mean(Y, axis=0, dtype=xp.float64)
    # Divide before squaring: σ² may underflow although rows divided by σ are ordinary numbers.
    unit = math.sqrt(2.0) * sigma
    K: Float64 = squared_distances((X - centre) / unit, (Y - centre) / unit)
    xp.negative(K, out=K)
    xp.exp(K, out=K)
    return K


@dataclass(frozen=True, eq=False)
class LandmarkFeatures:
    """Features φ(x) = k(x, landmarks) V Λ^(−1/2) with K_mm = V Λ Vᵀ; see docs/math.md#features.

    Abstract: `NystroemFeatures` and `ExactFeatures` choose the landmarks. Time O(n m (p + D)),
    memory that of the output and 32 MB.

    Parameters
    ----------
    landmarks : array of shape (m, p)
        Distinct rows.
    projection : array of shape (m, D)
        V Λ^(−1/2) over the D ≤ m eigenvalues above 1e-12 of the largest, in falling order.
    bandwidth : float
        σ of the kernel.
    """

    landmarks: Float64
    projection: Float64
    bandwidth: float

    @classmethod
    def from_landmarks(cls, landmarks: Array, bandwidth: float) -> Self:
        """Factor the kernel matrix of the landmarks (m, p): time O(m³), memory O(m²)."""
        landmarks = np.ascontiguousarray(landmarks, dtype=np.float64)
        if not np.isfinite(landmarks).all():
            raise NonFiniteError("X holds NaN or infinity among the landmarks; remove those rows")
        K = rbf_kernel(landmarks, landmarks, bandwidth)  # (m, m)
        np.fill_diagonal(K, 1.0)
        eigenvalues, V = np.linalg.eigh(K)
        kept = np.flatnonzero(eigenvalues > _RANK * eigenvalues[-1])[::-1]
        V = V[:, kept]
        # The sign of an eigenvector is arbitrary, and LAPACK builds differ in it.
        peak = V[np.abs(V).argmax(axis=0), np.arange(kept.size)]
        projection = np.ascontiguousarray(V * (np.sign(peak) / np.sqrt(eigenvalues[kept])))
        return cls(landmarks, projection, bandwidth)

    @property
    def n_features_in(self) -> int:
        """Width p of the rows."""
        return int(self.landmarks.shape[1])

    @property
    def n_features(self) -> int:
        """Number of features D, the numerical rank of K_mm."""
        return int(self.projection.shape[1])

    def transform(self, X: Any) -> Array:
        """Return Φ (n, D) of the rows X (n, p), float32 for float16 and float32 rows.

        Computed in float64 blocks for every dtype: Λ^(−1/2) spans up to six orders of magnitude, and would
        raise the rounding errors of float32 kernel values to the size of the features. So the features of a tensor
        on a device without float64 are computed on the CPU.
        """
        X = as_rows(X, self.n_features_in)
        if is_tensor(X) and not has_float64(X):
            moved: Array = beside(X, self.transform(to_numpy(X)))
            return moved
        landmarks, projection = self._placed.beside(empty(X, (0,), np.float64))
        Phi: Array = empty(X, (X.shape[0], self.n_features), X.dtype)
        step = max(1, _BLOCK // self.landmarks.shape[0])
        for start in range(0, X.shape[0], step):
            block = slice(start, start + step)
            Phi[block] = rbf_kernel(X[block], landmarks, self.bandwidth) @ projection
        return Phi

    @cached_property
    def _placed(self) -> Placed:
        return Placed(self.landmarks, self.projection)

    def to_arrays(self) -> dict[str, Array]:
        """Return the landmarks, V Λ^(−1/2) and σ."""
        return {
            "landmarks": self.landmarks,
            "projection": self.projection,
            "bandwidth": np.array(self.bandwidth),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self:
        """Return the map that `to_arrays` was called on."""
        landmarks, projection = stored_array(arrays, "landmarks", 2), stored_array(arrays, "projection", 2)
        if landmarks.shape[0] != projection.shape[0]:
            raise ModelFileError(
                f"the saved feature map has {landmarks.shape[0]} landmarks but a projection of shape "
                f"{projection.shape}"
            )
        bandwidth, _ = parse_bandwidth(stored_scalar(arrays, "bandwidth"))
        return cls(landmarks, projection, bandwidth)


def distinct_rows(X: Array, order: Iterable[int], limit: int) -> list[int]:
    """Return the first `limit` row numbers in `order` whose rows differ from all earlier ones.

    Time O(n p) at most, and O(limit · p) if few rows repeat; memory O(limit · p).
    """
    first: dict[bytes, int] = {}
    for i in order:
        first.setdefault((X[i] + 0.0).tobytes(), int(i))  # −0.0 + 0.0 = 0.0: equal numbers, equal bytes
        if len(first) == limit:
            break
    return list(first.values())
