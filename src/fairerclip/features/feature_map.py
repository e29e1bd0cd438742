"""Protocol of the feature maps, and the checks of arguments and saved arrays that they share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairerclip._util.arrays import SINGLE, cast, is_tensor, type_name
from fairerclip._util.checks import check_count
from fairerclip.errors import ModelFileError, ParameterError, ShapeError

Array: TypeAlias = NDArray[Any]
Float64: TypeAlias = NDArray[np.float64]
Rng: TypeAlias = np.random.RandomState | np.random.Generator
RandomState: TypeAlias = int | Rng | None

MAX_FEATURES = 32_768
"""Largest number of features; their covariance matrix takes 8 GiB."""
MAX_MAP_BYTES = 8 << 30
"""Largest size of the frequencies of a map, in bytes."""


class FeatureMap(Protocol):
    """A fitted map φ with φ(x)·φ(x') ≈ k(x, x'); see docs/math.md#features.

    A map is frozen. Its `kernel` and `to_arrays` are all that is needed to save it.
    """

    @property
    def kernel(self) -> str:
        """Name of the kernel, as in `KERNELS`."""

    @property
    def n_features_in(self) -> int:
        """Width p of the rows that the map takes."""

    @property
    def n_features(self) -> int:
        """Number D of features per row that the map returns."""

    def transform(self, X: Any) -> Array:
        """Return Φ (n, D) of the rows X (n, p): float32 for float16 and float32 rows, float64 otherwise.

        Φ of a tensor is a tensor on the same device; anything else gives an array.
        """

    def to_arrays(self) -> dict[str, Array]:
        """Return what `features_from_arrays` needs, as float64 arrays, or float32 for frequencies kept in it."""


def as_rows(X: Any, width: int | None = None) -> Array:
    """Return X as a float32 (from float16 or float32) or float64 matrix, without a copy if it is one already.

    A tensor stays a tensor.
    """
    X = X if is_tensor(X) else np.asarray(X)
    expected = "p ≥ 1" if width is None else str(width)
    if X.ndim != 2 or X.shape[1] == 0 or (width is not None and X.shape[1] != width):
        raise ShapeError(f"expected rows X of shape (n, {expected}), got shape {tuple(X.shape)}")
    rows: Array = cast(X, np.float32 if type_name(X.dtype) in SINGLE else np.float64)
    return rows


def as_training_rows(X: Any) -> Array:
    """Return `as_rows(X)`, and raise if it has no rows."""
    rows = as_rows(X)
    if rows.shape[0] == 0:
        raise ShapeError(
            f"expected at least one row to fit a feature map on, got X of shape {tuple(rows.shape)}"
        )
    return rows


def as_weights(sample_weight: ArrayLike | None, n: int) -> Float64:
    """Return weights (n,) scaled to a largest one of 1, so that products cannot underflow; ones for None."""
    if sample_weight is None:
        return np.ones(n)
    w = np.asarray(sample_weight, dtype=np.float64)
    if w.shape != (n,):
        raise ShapeError(f"expected sample_weight of shape ({n},), one per row of X, got shape {w.shape}")
    if not (np.isfinite(w).all() and (w >= 0).all() and (w > 0).any()):
        raise ParameterError("sample_weight must be finite and ≥ 0, with at least one value > 0")
    scaled: Float64 = w / w.max()
    return scaled


def as_rng(random_state: RandomState) -> Rng:
    """Return a random generator: a numpy Generator as it is, anything else by `sklearn.utils.check_random_state`."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    from sklearn.utils import check_random_state

    try:
        rng: np.random.RandomState = check_random_state(random_state)
    except ValueError as error:
        raise ParameterError(
            "random_state must be None, an integer in [0, 2**32), a numpy RandomState or a numpy Generator, "
            f"got {random_state!r}"
        ) from error
    return rng


def check_n_features(n_features: int) -> int:
    """Return the number of features D as an int, and raise unless 1 ≤ D ≤ 32,768."""
    check_count("n_features", n_features, MAX_FEATURES)
    return int(n_features)


def check_map_bytes(n_features: int, width: int) -> None:
    """Raise if the frequencies (`width`, `n_features`) would take more than 8 GiB."""
    if 8 * n_features * width > MAX_MAP_BYTES:
        raise ParameterError(
            f"{n_features:,} features of rows {width:,} wide would take {8 * n_features * width:,} bytes, more than "
            f"{MAX_MAP_BYTES:,}: lower n_features"
        )


def stored_array(
    arrays: Mapping[str, Array], name: str, ndim: int | None = None, *, single: bool = False
) -> Array:
    """Return one array of a saved map, contiguous so that BLAS sums in the same order as before saving.

    It must be of float64; with ``single`` it may be of float32, too.
    """
    if name not in arrays:
        raise ModelFileError(f"the saved feature map has no array {name!r}; it has {sorted(arrays)}")
    array = np.asarray(arrays[name])
    wrong_axes = ndim is not None and array.ndim != ndim
    wrong_type = array.dtype != np.float64 and not (single and array.dtype == np.float32)
    if wrong_axes or array.size == 0 or wrong_type or not np.isfinite(array).all():
        axes = "" if ndim is None else f" with {ndim} axes"
        raise ModelFileError(
            f"array {name!r} of the saved feature map must be a finite float64 array{axes}, "
            f"got {array.dtype} of shape {array.shape}"
        )
    return np.ascontiguousarray(array)


def stored_scalar(arrays: Mapping[str, Array], name: str) -> float:
    """Return one positive number of a saved map, from an array with 0 dimensions or with 1 element."""
    value = stored_array(arrays, name).ravel()
    if value.size != 1 or value[0] <= 0:
        raise ModelFileError(
            f"array {name!r} of the saved feature map must be one number > 0, got {value.size}: {value[:3]}"
        )
    return float(value[0])
