"""Ranges of the estimator's parameters, and checks of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from fairerclip._util.checks import (
    LARGEST,
    as_bytes,
    as_number,
    check_choice,
    check_count,
    check_interval,
)
from fairerclip._util.types import F64
from fairerclip.errors import IdleParameterWarning, ParameterError
from fairerclip.features import KERNELS
from fairerclip.features.bandwidth import parse_bandwidth
from fairerclip.features.feature_map import check_n_features

CHOICES: dict[str, tuple[str, ...]] = {
    "kernel": KERNELS,
    "alignment": ("linear", "rbf"),
    "criterion": ("auto", "marginal", "conditional"),
    "scaling": ("spectral", "paper"),
    "solver": ("auto", "cholesky", "cg"),
    "dtype": ("float32", "float64"),
    "decision": ("target", "prompts"),
    "decision_zero": ("balanced", "mean", "none"),
    "sensitive_terms": ("each", "intersection"),
    "sensitive_kind": ("auto", "categorical", "continuous"),
}
CRITERIA = ("marginal", "conditional")
STRENGTHS = ("tau", "tau_z", "tau_text", "tau_z_text")
SMALLEST_RIDGE = 1e-30
"""The square of its inverse is finite."""
FREE = (
    *STRENGTHS,
    *("criterion", "scaling", "alignment", "zero_shot", "decision", "decision_zero"),
    *("max_iter", "refine"),
)
"""Parameters that can change after a fit without a new factorisation."""
UNORDERED = (str, Mapping, set, frozenset)
"""Types that are no sequences of numbers, although Python can iterate over them."""
FOLLOWING = ("tau_text", "tau_z_text")
"""Strengths that may be None, which means the value of the image side."""


def check_offsets(offsets: Any, n_classes: int) -> F64:
    """Return offsets of the class scores (c,), checked; zeros for None."""
    if offsets is None:
        return np.zeros(n_classes)
    try:
        values = () if isinstance(offsets, UNORDERED) else tuple(map(as_number, offsets))
    except (TypeError, ValueError):
        values = ()
    if len(values) != n_classes or not all(abs(value) <= LARGEST for value in values):
        raise ParameterError(
            f"offsets must be {n_classes} numbers (absolute value up to {LARGEST:g}), one per class in the order of "
            f"classes_; got {offsets!r:.200}"
        )
    return np.array(values, dtype=np.float64)


def check_strength(name: str, value: Any, scaling: str, others: str = "") -> None:
    """Raise for a strength outside [0, 1) for scaling="spectral", below 0 for scaling="paper".

    ``others`` are values besides numbers that the message names.
    """
    high, ends = (1, "[)") if scaling == "spectral" else (LARGEST, "[]")
    check_interval(name, value, 0, high, ends, where=f" with scaling={scaling!r}{others}")


def check_parameters(params: Mapping[str, Any]) -> None:
    """Raise for the first parameter that is out of range."""
    for name, accepted in CHOICES.items():
        check_choice(name, params[name], accepted)
    check_choice("class_offsets", params["class_offsets"], ("auto", None))
    for name in STRENGTHS:
        if (params[name] is None and name in FOLLOWING) or (name == "tau" and _is_auto(params[name])):
            continue
        check_strength(name, params[name], params["scaling"], " or 'auto'" if name == "tau" else "")
    for name, others in (("zero_shot", ", 'auto' or None"), ("guess_weight", " or 'auto'")):
        if not _is_auto(params[name]) and not (params[name] is None and name == "zero_shot"):
            check_interval(name, params[name], 0, 1, "[]", others)
    for name in ("refine", "orthogonal", "normalize"):
        check_choice(name, params[name], (True, False))
    for name in ("gamma", "gamma_text"):
        if not (name == "gamma" and _is_auto(params[name])):
            others = " or 'auto'" if name == "gamma" else ""
            check_interval(name, params[name], SMALLEST_RIDGE, LARGEST, "[]", others)
    parse_bandwidth(params["bandwidth"])
    check_n_features(params["n_features"])
    check_count("max_iter", params["max_iter"])
    as_bytes(params["memory_budget"])
    if params["n_components"] is not None:
        check_count("n_components", params["n_components"])


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def warn_of_idle(params: Mapping[str, Any]) -> None:
    """Warn of a parameter that has no effect beside the others."""
    if params["decision"] == "target" and params["decision_zero"] != "balanced":
        warnings.warn(
            f"decision_zero={params['decision_zero']!r} has no effect with decision='target', whose boundaries follow "
            "from the target; it is for decision='prompts'",
            IdleParameterWarning,
            stacklevel=3,
        )
