"""Feature maps by the name of their kernel."""

from __future__ import annotations

from collections.abc import Mapping

from numpy.typing import ArrayLike

from fairerclip.errors import ParameterError
from fairerclip.features.bandwidth import parse_bandwidth
from fairerclip.features.exact import ExactFeatures
from fairerclip.features.feature_map import Array, FeatureMap, RandomState, check_n_features
from fairerclip.features.fourier import FourierFeatures
from fairerclip.features.linear import LinearFeatures
from fairerclip.features.nystroem import NystroemFeatures

KERNELS = ("rbf", "orthogonal", "nystroem", "exact", "linear")
"""What `make_features` takes as `kernel`."""


def make_features(
    kernel: str,
    X: ArrayLike,
    *,
    n_features: int,
    bandwidth: float | str,
    sample_weight: ArrayLike | None = None,
    random_state: RandomState = None,
) -> FeatureMap:
    """Fit the feature map of a kernel on rows X (n, p); see docs/math.md#features.

    Time O(p D) and that of the bandwidth for "rbf", O(p² D) for "orthogonal", O(D³) for "nystroem",
    O(m³) over the m distinct rows for "exact", O(n p) for "linear".

    Parameters
    ----------
    kernel : {"rbf", "orthogonal", "nystroem", "exact", "linear"}
        The first four are of one kernel, exp(−d² / 2σ²): random Fourier features, the same with
        orthogonal frequencies, kernel values at landmarks, its exact factor.
    X : array-like, shape (n, p)
        Rows.
    n_features : int
        D. "exact" has the rank of its kernel matrix instead and "linear" has p; both ignore it.
    bandwidth : float or str
        See `resolve_bandwidth`; "linear" ignores it.
    sample_weight : array-like, shape (n,), optional
        Row weights: for the median bandwidth, for the scale of "linear", and rows of weight zero
        are no landmarks.
    random_state : None, int, RandomState or Generator
        One seed gives one map, whatever the dtype of X.

    Returns
    -------
    FeatureMap
        Frozen, with ``transform``, ``n_features`` and ``to_arrays``.

    Examples
    --------
    >>> phi = make_features("rbf", [[0.0], [1.0]], n_features=8, bandwidth="median", random_state=0)
    >>> phi.transform([[0.5]]).shape
    (1, 8)
    """
    if kernel not in KERNELS:
        raise _unknown_kernel(kernel)
    # Checked for every kernel, so that a path over kernels does not fail half-way.
    check_n_features(n_features)
    parse_bandwidth(bandwidth)
    match kernel:
        case "rbf" | "orthogonal":
            return FourierFeatures.fit(
                X,
                n_features=n_features,
                bandwidth=bandwidth,
                orthogonal=kernel == "orthogonal",
                sample_weight=sample_weight,
                random_state=random_state,
            )
        case "nystroem":
            return NystroemFeatures.fit(
                X,
                n_features=n_features,
                bandwidth=bandwidth,
                sample_weight=sample_weight,
                random_state=random_state,
            )
        case "exact":
            return ExactFeatures.fit(
                X, bandwidth=bandwidth, sample_weight=sample_weight, random_state=random_state
            )
        case "linear":
            return LinearFeatures.fit(X, sample_weight=sample_weight)
    raise _unknown_kernel(kernel)


def features_from_arrays(kernel: str, arrays: Mapping[str, Array]) -> FeatureMap:
    """Bring back a feature map from its kernel and what its ``to_arrays`` gave; time O(size of the arrays).

    Parameters
    ----------
    kernel : str
        ``FeatureMap.kernel`` of the saved map.
    arrays : mapping of str to ndarray
        Float64 arrays; numbers may have become arrays of one element.

    Returns
    -------
    FeatureMap
        Its transforms are bit for bit those of the map that was saved.

    Examples
    --------
    >>> phi = make_features("linear", [[2.0]], n_features=1, bandwidth="median")
    >>> features_from_arrays(phi.kernel, phi.to_arrays()).transform([[3.0]])
    array([[1.5]])
    """
    match kernel:
        case "rbf" | "orthogonal":
            return FourierFeatures.from_arrays(kernel, arrays)
        case "nystroem":
            return NystroemFeatures.from_arrays(arrays)
        case "exact":
            return ExactFeatures.from_arrays(arrays)
        case "linear":
            return LinearFeatures.from_arrays(arrays)
    raise _unknown_kernel(kernel)


def _unknown_kernel(kernel: object) -> ParameterError:
    return ParameterError(f"kernel must be one of {', '.join(map(repr, KERNELS))}, got {kernel!r}")
