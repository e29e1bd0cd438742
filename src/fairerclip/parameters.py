"""The estimator's parameters: their ranges in one place, and the published presets."""

from __future__ import annotations

import copy
import numbers
import warnings
from collections.abc import Mapping
from typing import Any

from fairerclip.errors import IdleParameterWarning, ParameterError
from fairerclip.features import KERNELS

CHOICES: dict[str, tuple[str, ...]] = {
    "kernel": KERNELS,
    "alignment": ("linear", "rbf"),
    "criterion": ("marginal", "conditional"),
    "scaling": ("spectral", "paper"),
    "solver": ("auto", "cholesky", "cg"),
    "dtype": ("float32", "float64"),
    "decision": ("target", "prompts"),
    "decision_zero": ("balanced", "mean", "none"),
    "sensitive_terms": ("each", "intersection"),
    "sensitive_kind": ("auto", "categorical", "continuous"),
}
MOST_FEATURES = 1_000_000
"""A square matrix of so many float64 has 8 TB."""
STRENGTHS = ("tau", "tau_z", "tau_text", "tau_z_text")
FOLLOWING = ("tau_text", "tau_z_text")
"""Strengths that may be None: as strong as on the image side."""


def check_offsets(offsets: Any, n_classes: int) -> tuple[float, ...] | None:
    """The offsets as one finite number per class, or None."""
    if offsets is None:
        return None
    try:
        values = () if isinstance(offsets, str) else tuple(float(value) for value in offsets)
    except (TypeError, ValueError):
        values = ()
    if len(values) != n_classes or not all(abs(value) < float("inf") for value in values):
        raise ParameterError(
            f"offsets must be {n_classes} finite numbers, one per class in the order of classes_; got {offsets!r}"
        )
    return values


def check_shifts(shifts: Any, n_classes: int, n_values: int) -> tuple[tuple[float, ...], ...] | None:
    """The sensitive shifts as finite numbers, one per class and sensitive value, or None."""
    if shifts is None:
        return None
    try:
        rows = tuple(tuple(float(value) for value in row) for row in shifts)
    except (TypeError, ValueError):
        rows = ()
    fits = len(rows) == n_classes and all(len(row) == n_values for row in rows)
    if not fits or not all(abs(value) < float("inf") for row in rows for value in row):
        raise ParameterError(
            f"sensitive_shifts must be {n_classes} rows of {n_values} finite numbers, one per class and sensitive "
            f"value; got {shifts!r:.200}"
        )
    return rows


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_strength(name: str, value: Any, scaling: str) -> None:
    """Refuse a strength outside [0, 1) for scaling="spectral", below 0 for scaling="paper"."""
    if not _is_number(value) or not 0 <= value < float("inf") or (scaling == "spectral" and value >= 1):
        span = "[0, 1)" if scaling == "spectral" else "[0, ∞)"
        raise ParameterError(f"{name} must be a number in {span} with scaling={scaling!r}; got {value!r}")


def check_parameters(params: Mapping[str, Any]) -> None:
    """Refuse the first parameter that is out of range, saying what is accepted."""
    for name, accepted in CHOICES.items():
        if params[name] not in accepted:
            raise ParameterError(
                f"{name} must be one of {', '.join(map(repr, accepted))}; got {params[name]!r}"
            )
    for name in STRENGTHS:
        if params[name] is None and name in FOLLOWING:
            continue
        check_strength(name, params[name], params["scaling"])
    share = params["zero_shot"]
    if share is not None and (not _is_number(share) or not 0 <= share <= 1):
        raise ParameterError(f"zero_shot must be a number in [0, 1] or None; got {share!r}")
    for name in ("refine", "orthogonal", "normalize"):
        if not isinstance(params[name], bool):
            raise ParameterError(f"{name} must be True or False; got {params[name]!r}")
    for name in ("gamma", "gamma_text"):
        if not _is_number(params[name]) or not 0 < params[name] < float("inf"):
            raise ParameterError(f"{name} must be a positive number; got {params[name]!r}")
    for name in ("n_features", "max_iter", "n_components"):
        value = params[name]
        if name == "n_components" and value is None:
            continue
        if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 1:
            raise ParameterError(f"{name} must be a positive integer; got {value!r}")
    if params["n_features"] > MOST_FEATURES:
        raise ParameterError(f"n_features must be at most {MOST_FEATURES:,}; got {params['n_features']}")
    if params["decision"] == "target" and params["decision_zero"] != "balanced":
        warnings.warn(
            f"decision_zero={params['decision_zero']!r} has no effect with decision='target', whose boundaries follow "
            "from the target; it is for decision='prompts'",
            IdleParameterWarning,
            stacklevel=3,
        )


# Published hyper-parameters. "paper" is the paper's implementation table (one τ for both sides, weights
# as printed, neither γ nor a seed given: ours stand); "released" is what the authors' released code runs with.
# Both decide by the prompts, take labels alone for the target, and know the median bandwidth only. The released code
# takes image rows as they come, and angles from the origin of the features. Shares of rows kept are in the order of
# the classes, of which the second is the positive one.
_PUBLISHED: dict[str, Any] = {
    "decision": "prompts",
    "zero_shot": 0.0,
    "orthogonal": False,
    "refine": True,
    "bandwidth": "median",
    "class_weight": None,
}
_PAPER: dict[str, Any] = {
    **_PUBLISHED,
    "scaling": "paper",
    "alignment": "linear",
    "tau_text": None,
    "tau_z_text": None,
    "gamma": 1e-4,
    "random_state": 0,
}
_RELEASED: dict[str, Any] = {
    **_PUBLISHED,
    "scaling": "spectral",
    "alignment": "rbf",
    "tau_text": 0.1,
    "tau_z_text": 0.1,
    "normalize": False,
    "decision_zero": "none",
    "random_state": 2,
}


def _paper(n_features: int, tau: float, tau_z: float, **more: Any) -> dict[str, Any]:
    return {**_PAPER, "n_features": n_features, "tau": tau, "tau_z": tau_z, **more}


def _released(
    n_features: int,
    gammas: tuple[float, float],
    taus: tuple[float, float],
    max_iter: int,
    **more: Any,
) -> dict[str, Any]:
    (gamma, gamma_text), (tau, tau_z) = gammas, taus
    return {
        **_RELEASED,
        "n_features": n_features,
        "gamma": gamma,
        "gamma_text": gamma_text,
        "tau": tau,
        "tau_z": tau_z,
        "max_iter": max_iter,
        **more,
    }


PAPER = "paper"
"""The preset that is of no dataset, and the source that it is from."""
# (dataset, source, backbone); None stands for every backbone.
PRESETS: dict[tuple[str, str, str | None], dict[str, Any]] = {
    # No dataset: the row of the paper's table that balances nothing and has the size that two of its four datasets
    # have, rather than a mean of rows that nobody ran.
    (PAPER, PAPER, None): _paper(3000, 0.7, 0.7),
    ("waterbirds", "paper", None): _paper(3000, 0.7, 0.7),
    ("celeba", "paper", None): _paper(8000, 0.8, 0.5, class_weight="subsample"),
    ("cheekbones", "paper", None): _paper(8000, 0.8, 0.5, class_weight="subsample"),
    ("fairface", "paper", None): _paper(3000, 0.8, 0.8),
    ("cfd", "paper", None): _paper(1000, 0.6, 0.3),
    ("waterbirds", "released", "ViT-L/14"): _released(3000, (3e-4, 2e-4), (0.7, 0.7), 2),
    ("waterbirds", "released", "RN50"): _released(3000, (6e-4, 1e-5), (0.7, 0.3), 4, class_weight=(0.9, 0.4)),
    ("celeba", "released", "ViT-L/14"): _released(
        4000, (3e-5, 3e-4), (0.7, 0.3), 3, class_weight="subsample:0.8"
    ),
    ("celeba", "released", "RN50"): _released(4000, (1e-4, 2e-4), (0.5, 0.25), 1, class_weight=(0.06, 1.0)),
    ("cheekbones", "released", "ViT-L/14"): _released(
        4000, (2e-5, 3e-4), (0.8, 0.7), 1, class_weight=(0.3, 0.3)
    ),
    ("cfd", "released", "ViT-L/14"): _released(
        1000, (4e-5, 2e-4), (0.6, 0.3), 2, tau_text=0.0, tau_z_text=0.0
    ),
}


def preset_name(dataset: str, source: str, backbone: str | None) -> str:
    """What a preset is called on the command line and in tables."""
    return PAPER if dataset == source == PAPER else "/".join(filter(None, (dataset, source, backbone)))


def preset(dataset: str, source: str, backbone: str | None) -> dict[str, Any]:
    """Parameters published for a dataset, or the paper's; an unknown combination is an error that lists all known."""
    for key in ((dataset, source, backbone), (dataset, source, None)):
        if key in PRESETS:
            return copy.deepcopy(PRESETS[key])
    known = ", ".join(preset_name(*key) for key in PRESETS)
    raise ParameterError(f"no preset {dataset}/{source}/{backbone}; there are: {known}")
