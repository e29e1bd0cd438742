"""Contents of the file of a fitted `FairerCLIP`; `fairerclip.model.archive` has the format that all models share."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fairerclip._util.checks import check_choice
from fairerclip._util.types import F64
from fairerclip.data.embedding_rows import RowSummary
from fairerclip.errors import ModelFileError
from fairerclip.features import FeatureMap, array_names, features_from_arrays
from fairerclip.model.contents import (
    MANIFEST,
    Contents,
    Manifest,
    are_labels,
    check_answers,
    check_dtypes,
    check_state,
    class_array,
    compare_names,
    make,
    plain_value,
    refuse,
)
from fairerclip.model.fitted import USED, FittedModel
from fairerclip.model.folder_files import MAX_MANIFEST_BYTES
from fairerclip.model.parameters import CRITERIA, check_offsets, check_parameters
from fairerclip.solver.alternation import Encoders
from fairerclip.solver.decision import Decision

if TYPE_CHECKING:
    from fairerclip.model.estimator import FairerCLIP

ARRAYS = (
    "components_",
    "mean_",
    "text_components_",
    "text_mean_",
    "zero_",
    "directions_",
    "score_weights_",
    "score_constants_",
    "eigenvalues_",
    "intercept_",
    "text_intercept_",
    "row_lengths",
    "row_mean",
)
OPTIONAL = ("prompts_",)
"""Arrays that a model fitted without prompts does not have."""
STATE = (
    *("n_iter", "n_rows", "prompt_classes", "seed", "temperature", "learned", "features", "text_features"),
)
SINGLE = ("features.omega",)
"""Tensors that may be of float32: the frequencies of a fit in float32."""
M = TypeVar("M", bound="FairerCLIP")


def _parameters(model: FairerCLIP) -> dict[str, Any]:
    """Return the parameters of a model as JSON: mappings from class to number become [class, number] pairs.

    Two of them say how new rows are answered. They are written as the fit had them, also if they were set since.
    """
    own = model.get_params(deep=False)
    own["normalize"] = model.fitted_.normalize
    own["decision"] = "target" if model.fitted_.weighs_classes else "prompts"
    params: dict[str, Any] = {}
    for name, value in own.items():
        if name in ("class_weight", "subsample") and isinstance(value, Mapping):
            params[name] = [[plain_value(k, name), plain_value(v, name)] for k, v in value.items()]
        elif name in ("class_weight", "subsample") and isinstance(value, list | tuple | np.ndarray):
            params[name] = [plain_value(share, name) for share in value]
        elif name == "random_state" and not isinstance(value, (int, np.integer, type(None))):
            params[name] = None  # a generator's state is not part of the model
        else:
            params[name] = plain_value(value, f"parameter {name}")
    return params


def _by_class(name: str, listed: list[Any], n_classes: int, path: Path) -> dict[Any, Any] | tuple[Any, ...]:
    """Return numbers by class from [class, number] pairs, or, for ``subsample``, in the order of the classes."""
    if all(isinstance(pair, list) for pair in listed):
        return dict(listed)
    numbers = all(isinstance(share, int | float) and not isinstance(share, bool) for share in listed)
    if name == "subsample" and numbers and len(listed) == n_classes:
        return tuple(listed)
    expected = "[class, share], or a share per class" if name == "subsample" else "[class, weight]"
    raise ModelFileError(f"{path / MANIFEST}: {name} must be a list of {expected}")


def check_class_names(names: Sequence[str]) -> None:
    """Raise if class names are too long for a manifest, which holds each of them several times."""
    room = MAX_MANIFEST_BYTES // 8
    size = len(json.dumps(list(names)))
    if size > room:
        raise ModelFileError(
            f"the names of the {len(names)} classes take {size:,} bytes, more than the {room:,} that a model file has "
            "room for: give shorter names"
        )


def contents(model: FairerCLIP) -> Contents:
    """Return what the folder of a fitted model holds."""
    check_is_fitted(model)
    tensors = {name: np.ascontiguousarray(value, dtype=np.float64) for name, value in _arrays(model).items()}
    for prefix in ("features", "text_features"):
        for name, array in getattr(model, f"{prefix}_").to_arrays().items():
            tensors[f"{prefix}.{name}"] = np.ascontiguousarray(array)
    state = {
        "n_iter": model.n_iter_,
        "n_rows": model.rows_.rows,
        "prompt_classes": None if model.prompt_classes_ is None else model.prompt_classes_.tolist(),
        "seed": model.seed_,
        "temperature": model.temperature_,
        "learned": {
            "offsets": model.offsets_.tolist(),
            **model.fitted_.used,
        },
        "features": model.features_.kernel,
        "text_features": model.text_features_.kernel,
    }
    return Contents.of(model, "FairerCLIP", _parameters(model), state, tensors)


def _arrays(model: FairerCLIP) -> dict[str, Any]:
    """Return the arrays of a model by name, without those of its feature maps."""
    rows = {"row_lengths": model.rows_.lengths, "row_mean": model.rows_.mean}
    arrays = {name: getattr(model, name) for name in ARRAYS if name not in rows} | rows
    return arrays if model.prompts_ is None else arrays | {"prompts_": model.prompts_}


def class_of(kind: str) -> type[FairerCLIP]:
    """Return the class."""
    from fairerclip.model.estimator import FairerCLIP

    return FairerCLIP


def _check_values(path: Path, contents: Contents) -> None:
    state = contents.state
    check_state(path, state, STATE)
    temperature, n_rows = state["temperature"], state["n_rows"]
    valid = {
        "classes": are_labels(contents.classes, fewest=2),
        "n_iter": type(state["n_iter"]) is int,
        "n_rows": type(n_rows) is int and n_rows > 0,
        "seed": type(state["seed"]) is int,
        "prompt_classes": _are_places(state["prompt_classes"], contents.classes),
        "temperature": type(temperature) is float and 0 < temperature < math.inf,
        "diagnostics": isinstance(contents.diagnostics, dict),
        "learned": isinstance(state["learned"], dict) and set(state["learned"]) == {"offsets", *USED},
    }
    refuse(path, valid)


def _are_places(places: Any, classes: Any) -> bool:
    """Return whether these are indices of classes, or None."""
    return places is None or (
        isinstance(places, list) and all(type(k) is int and 0 <= k < len(classes) for k in places)
    )


def build(cls: type[M], path: Path, saved: Contents) -> M:
    """Return the fitted model of a folder, after all checks."""
    state, tensors, params = saved.state, saved.tensors, dict(saved.parameters)
    check_names(path, saved, tensors)
    check_dtypes(path, tensors, SINGLE)
    for name in ("class_weight", "subsample"):
        if isinstance(params.get(name), list):
            params[name] = _by_class(name, params[name], len(saved.classes), path)
    model = make(path, cls, params)
    check_parameters(model.get_params(deep=False))
    model.fitted_ = _fitted_model(saved, model)
    model.n_features_in_ = saved.n_features_in
    model.n_iter_, model.seed_ = int(state["n_iter"]), state["seed"]
    model.diagnostics_ = saved.diagnostics or {}
    model.pseudo_labels_ = model.pseudo_sensitive_ = None  # labels of people stay out of the file
    _check_shapes(path, model)
    check_answers(path, lambda row: _answers(model.fitted_, row), saved.n_features_in)
    return model


def _answers(fitted: FittedModel, row: F64) -> list[Any]:
    """Return what a model computes of an image, and, if it takes any, of a prompt."""
    scores = fitted.scores(fitted.transform(row))
    texts = [] if fitted.weighs_classes else [fitted.transform_text(row)]
    return [scores, fitted.temperature * scores, *texts]


def check_names(path: Path, saved: Contents, names: Collection[str]) -> None:
    """Raise for an impossible state, and for missing or unknown tensors."""
    _check_values(path, saved)
    state = saved.state
    sides = ("features", "text_features")
    needed = {*ARRAYS, *(f"{side}.{name}" for side in sides for name in array_names(state[side]))}
    compare_names(path, names, needed, OPTIONAL if state["prompt_classes"] is not None else ())


def _fitted_model(saved: Contents, model: FairerCLIP) -> FittedModel:
    """Return the part that new rows need."""
    state, tensors = saved.state, saved.tensors
    places, learned = state["prompt_classes"], state["learned"]
    return FittedModel(
        classes=class_array(saved.classes),
        features=_features(saved, "features"),
        text_features=_features(saved, "text_features"),
        encoders=Encoders(
            mean=tensors["mean_"],
            components=tensors["components_"],
            intercept=tensors["intercept_"],
            text_mean=tensors["text_mean_"],
            text_components=tensors["text_components_"],
            text_intercept=tensors["text_intercept_"],
            decision=Decision(
                zero=tensors["zero_"],
                directions=tensors["directions_"],
                weights=tensors["score_weights_"],
                constants=tensors["score_constants_"],
            ),
            eigenvalues=tensors["eigenvalues_"],
        ),
        temperature=float(state["temperature"]),
        prompts=None if places is None else tensors["prompts_"],
        prompt_classes=None if places is None else np.array(places, dtype=np.int64),
        rows=RowSummary(state["n_rows"], tensors["row_lengths"], tensors["row_mean"]),
        normalize=model.normalize,
        weighs_classes=model.decision == "target",
        offsets=check_offsets(learned["offsets"], len(saved.classes)),
        used=_used(learned),
    )


def _used(learned: Manifest) -> dict[str, Any]:
    """Return the values of parameters that a fit used, checked, in the order in which they are written."""
    check_choice("criterion", learned["criterion"], CRITERIA)
    return {name: learned[name] if name == "criterion" else _number(name, learned[name]) for name in USED}


def _number(name: str, value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ModelFileError(f"{name} must be a number; got {value!r:.50}")
    return float(value)


def _features(saved: Contents, prefix: str) -> FeatureMap:
    arrays = {k.partition(".")[2]: v for k, v in saved.tensors.items() if k.startswith(f"{prefix}.")}
    return features_from_arrays(saved.state[prefix], arrays)


def _check_shapes(path: Path, model: FairerCLIP) -> None:
    D, r = model.components_.shape if model.components_.ndim == 2 else (-1, -1)
    c = len(model.classes_)
    expected = {
        "mean_": (D,),
        "text_components_": (model.text_features_.n_features, r),
        "text_mean_": (model.text_features_.n_features,),
        "zero_": (r,),
        "directions_": (c, r),
        "score_weights_": (c, r),
        "score_constants_": (c,),
        "intercept_": (r,),
        "text_intercept_": (r,),
    }
    if model.prompts_ is not None and model.prompt_classes_ is not None:
        expected["prompts_"] = (len(model.prompt_classes_), model.n_features_in_)
    wrong = [name for name, shape in expected.items() if getattr(model, name).shape != shape]
    sizes = (model.features_.n_features, model.features_.n_features_in, model.text_features_.n_features_in)
    seen = (model.rows_.lengths.shape, model.rows_.mean.shape)
    wrong += ["row_lengths, row_mean"] if seen != ((3,), (model.n_features_in_,)) else []
    # One for each of the r dimensions; a column of ones has none.
    kept = model.eigenvalues_.size
    if model.eigenvalues_.ndim != 1 or kept not in (r, r - 1) or kept < 1:
        wrong.append("eigenvalues_")
    if wrong or r < 1 or sizes != (D, model.n_features_in_, model.n_features_in_):
        raise ModelFileError(f"{path}: the tensors do not fit together ({wrong or sizes})")
