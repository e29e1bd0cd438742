"""Functions that fit or restore a feature map by the name of its kernel."""

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
"""Values of `kernel` that `make_features` accepts."""


def make_features(
    kernel: str,
    X: ArrayLike,
    *,
    n_features: int,
    bandwidth: float | str,
    sample_weight: ArrayLike | None = None,
    random_state: RandomState = None,
    single: bool = False,
) -> FeatureMap:
    """Fit the feature map of a kernel on rows X (n, p); see docs/math.md#features.

    Time O(p D) for "rbf", O(p² D) for "orthogonal", O(D³) for "nystroem", O(m³) for "exact" with m distinct
    rows, and O(n p) for "linear"; a median bandwidth adds its own time.

    Parameters
    ----------
    kernel : {"rbf", "orthogonal", "nystroem", "exact", "linear"}
        The first four approximate the RBF kernel exp(−d² / 2σ²): by random Fourier features, by the same
        with orthogonal frequencies, by kernel values at landmarks, or exactly on the training rows.
    X : array-like of shape (n, p)
        Rows.
    n_features : int
        Number of features D. Ignored by "exact", whose D is the rank of its kernel matrix, and by
        "linear", whose D is p.
    bandwidth : float or str
        See `resolve_bandwidth`; "linear" ignores it.
    sample_weight : array-like of shape (n,), optional
        Row weights, used for the median bandwidth and the scale of "linear". Rows of weight zero are
        never landmarks.
    random_state : None, int, RandomState or Generator
        The same seed gives the same map for every dtype of X.
    single : bool
        Keep the frequencies of "rbf" and "orthogonal" in float32.

    Returns
    -------
    FeatureMap
        A frozen object with ``transform``, ``n_features`` and ``to_arrays``.

    Examples
    --------
    >>> phi = make_features("rbf", [[0.0], [1.0]], n_features=8, bandwidth="median", random_state=0)
    >>> phi.transform([[0.5]]).shape
    (1, 8)
    """
    if kernel not in KERNELS:
        raise _unknown_kernel(kernel)
    # Checked for every kernel, so that a loop over kernels fails at its start and not half-way.
    check_n_features(n_features)
    parse_bandwidth(bandwidth)
    return _fit(kernel, X, n_features, bandwidth, sample_weight, random_state, single=single)


def features_from_arrays(kernel: str, arrays: Mapping[str, Array]) -> FeatureMap:
    """Restore a feature map from its kernel and the arrays of its ``to_arrays``; time O(size of the arrays).

    Parameters
    ----------
    kernel : str
        ``FeatureMap.kernel`` of the saved map.
    arrays : mapping of str to ndarray
        Float64 arrays; frequencies may be of float32. A single number may be an array of one element.

    Returns
    -------
    FeatureMap
        A map whose transforms equal those of the saved map bit for bit.

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


def array_names(kernel: str) -> tuple[str, ...]:
    """Return the names of the arrays that the map of a kernel has in ``to_arrays``."""
    match kernel:
        case "rbf" | "orthogonal":
            return ("omega", "offset", "bandwidth")
        case "nystroem" | "exact":
            return ("landmarks", "projection", "bandwidth")
        case "linear":
            return ("scale", "n_features_in")
    raise _unknown_kernel(kernel)


def _fit(
    kernel: str,
    X: ArrayLike,
    D: int,
    bandwidth: float | str,
    w: ArrayLike | None,
    random_state: RandomState,
    *,
    single: bool,
) -> FeatureMap:
    match kernel:
        case "rbf" | "orthogonal":
            return FourierFeatures.fit(
                X,
                n_features=D,
                bandwidth=bandwidth,
                orthogonal=kernel == "orthogonal",
                single=single,
                sample_weight=w,
                random_state=random_state,
            )
        case "nystroem":
            return NystroemFeatures.fit(
                X, n_features=D, bandwidth=bandwidth, sample_weight=w, random_state=random_state
            )
        case "exact":
            return ExactFeatures.fit(X, bandwidth=bandwidth, sample_weight=w, random_state=random_state)
        case "linear":
            return LinearFeatures.fit(X, sample_weight=w)
    raise _unknown_kernel(kernel)


def _unknown_kernel(kernel: object) -> ParameterError:
    return ParameterError(f"kernel must be one of {', '.join(map(repr, KERNELS))}, got {kernel!r:.60}")
