"""Kernel feature maps: rows x → φ(x) with φ(x)·φ(x') ≈ k(x, x').

``make_features`` fits a map by the name of its kernel; ``features_from_arrays`` restores a saved map.
Importing this package imports numpy only.
"""

from fairerclip.features.bandwidth import median_bandwidth, resolve_bandwidth
from fairerclip.features.exact import ExactFeatures
from fairerclip.features.factory import KERNELS, array_names, features_from_arrays, make_features
from fairerclip.features.feature_map import FeatureMap
from fairerclip.features.fourier import FourierFeatures
from fairerclip.features.landmarks import rbf_kernel
from fairerclip.features.linear import LinearFeatures
from fairerclip.features.nystroem import NystroemFeatures

__all__ = [
    "KERNELS",
    "ExactFeatures",
    "FeatureMap",
    "FourierFeatures",
    "LinearFeatures",
    "NystroemFeatures",
    "array_names",
    "features_from_arrays",
    "make_features",
    "median_bandwidth",
    "rbf_kernel",
    "resolve_bandwidth",
]
