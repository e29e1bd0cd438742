"""A fitted baseline as a folder: ``arrays.safetensors`` and ``model.json``.

The class is looked up among our own; see `fairerclip.model.archive` for what else such a folder promises.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fairerclip.baselines import BASELINES
from fairerclip.baselines.baseline import Baseline
from fairerclip.errors import ModelFileError
from fairerclip.model.archive import Archive, Manifest, Tensors, class_array, plain_value

FIRST_WITH_STEPS = 3
"""Until then training by gradient was capped in seconds, which say nothing of steps."""
ARRAYS, MANIFEST = "arrays.safetensors", "model.json"
PARAMETER = "parameter:"
"""Begins the name of an array that is a parameter and not a result."""
ARCHIVE = Archive(
    noun="baseline",
    format="fairerclip-baseline",
    version=4,
    first=1,
    tensors=ARRAYS,
    manifest=MANIFEST,
    dtypes=("float32", "float64"),
    keys=(
        *("format", "format_version", "fairerclip_version", "baseline", "parameters", "classes"),
        *("n_features_in", "feature_names_in", "diagnostics", "normalize", "tensor_bytes", "sha256"),
    ),
    added={2: frozenset({"normalize"}), 4: frozenset({"tensor_bytes"})},
)
B = TypeVar("B", bound=Baseline)


def save_baseline(model: Baseline, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a fitted baseline; the folder appears whole or not at all.

    Parameters
    ----------
    model : one of `BASELINES`, fitted.
    path : a folder, made with its parents.
    overwrite : replace a baseline that is there; anything else is left alone.

    Raises
    ------
    ModelFileError
        The class is not one of ours, or a label or parameter is neither number, string nor boolean.
    OutputExistsError
        The path is taken.
    """
    path, name = Path(path), type(model).__name__
    if name not in BASELINES or _class(name) is not type(model):
        raise ModelFileError(f"{name} is none of the baselines that can be saved: {', '.join(BASELINES)}")
    check_is_fitted(model, model.fitted)
    parameters, arrays = _parameters(model)
    for attribute in model.fitted:
        arrays[attribute] = np.ascontiguousarray(getattr(model, attribute))
    return ARCHIVE.save(
        model, path, parameters, arrays, overwrite=overwrite, baseline=name, normalize=model.normalize_
    )


def load_baseline(path: str | Path, cls: type[B] = Baseline) -> B:
    """Read and check a folder that `save_baseline` wrote: a fitted baseline of class ``cls``.

    Raises
    ------
    ModelFileError
        The folder is damaged, of another version, of another class, or no baseline.
    """
    return ARCHIVE.load(Path(path), partial(_build, cls))


def _class(name: str) -> Any:
    return getattr(import_module(f"fairerclip.baselines.{BASELINES[name]}"), name)


# Parameters -----------------------------------------------------------------------------------------


def _parameters(model: Baseline) -> tuple[dict[str, Any], Tensors]:
    """Parameters for JSON, and those that are arrays; JSON has {"array": name} in their place."""
    plain: dict[str, Any] = {}
    arrays: Tensors = {}
    for name, value in model.get_params(deep=False).items():
        what = f"parameter {name}"
        if callable(value) or (name == "random_state" and not isinstance(value, (int, np.integer))):
            plain[name] = None  # neither a callback nor a generator's state is part of the model
        elif isinstance(value, Mapping):
            inner = {str(k): None if callable(v) else plain_value(v, what) for k, v in value.items()}
            plain[name] = {"mapping": inner}
        elif np.ndim(value) > 1:
            arrays[PARAMETER + name] = np.ascontiguousarray(value, dtype=np.float64)
            plain[name] = {"array": PARAMETER + name}
        elif np.ndim(value) == 1:
            plain[name] = [plain_value(v, what) for v in value]
        else:
            plain[name] = plain_value(value, what)
    return plain, arrays


def _given(value: Any, arrays: Tensors) -> Any:
    """A parameter as the constructor takes it; sequences come back as tuples."""
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dict):
        ((kind, content),) = value.items()
        if kind == "mapping" and isinstance(content, dict):
            return content
        if kind == "array" and str(content).startswith(PARAMETER):
            return arrays.pop(content)
        raise ModelFileError(f"a parameter is written as {kind!r}")
    return value


# Reading --------------------------------------------------------------------------------------------


def _build(cls: type[B], path: Path, manifest: Manifest, arrays: Tensors) -> B:
    manifest = {"normalize": False, **manifest}  # version 1 took rows as they came
    name, parameters = manifest["baseline"], manifest["parameters"]
    ARCHIVE.refuse(path, {"normalize": isinstance(manifest["normalize"], bool)})
    if not isinstance(name, str) or name not in BASELINES:
        raise ModelFileError(f"{path / MANIFEST} names {name!r}, which is none of {', '.join(BASELINES)}")
    kind = _class(name)
    if not issubclass(kind, cls):
        raise ModelFileError(f"{path} holds a {name}, not a {cls.__name__}; use load_baseline for any")
    if manifest["format_version"] < FIRST_WITH_STEPS:
        parameters = {**kind.added, **_without_seconds(parameters)}
    given = {parameter: _given(value, arrays) for parameter, value in parameters.items()}
    model: B = ARCHIVE.make(path, kind, given)
    if set(arrays) != set(kind.fitted):
        odd = sorted(set(arrays) ^ set(kind.fitted))
        raise ModelFileError(f"{path / ARRAYS} has missing or unknown arrays: {odd[:5]}")
    model.classes_, model.n_features_in_ = class_array(manifest["classes"]), manifest["n_features_in"]
    model.normalize_ = manifest["normalize"]
    _check_shapes(path, arrays, kind, {"p": model.n_features_in_, "c": len(model.classes_)})
    for attribute, array in arrays.items():
        setattr(model, attribute, array if array.ndim else array.item())
    if manifest["diagnostics"] is not None:
        model.diagnostics_ = manifest["diagnostics"]
    scores = np.asarray(model.scores(np.eye(1, model.n_features_in_)))
    if scores.shape != (1, len(model.classes_)) or not np.isfinite(scores).all():
        raise ModelFileError(f"{path / ARRAYS}: the arrays do not fit together")
    return model


def _without_seconds(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters of an older file, without the cap in seconds that the model or its recipe had."""
    kept = {name: value for name, value in parameters.items() if name != "max_seconds"}
    recipe = kept.get("recipe")
    if isinstance(recipe, dict) and isinstance(recipe.get("mapping"), dict):
        inner = {name: value for name, value in recipe["mapping"].items() if name != "max_seconds"}
        kept["recipe"] = {"mapping": inner}
    return kept


def _check_shapes(path: Path, arrays: Tensors, kind: Any, sizes: dict[str, int]) -> None:
    for name, letters in kind.shapes.items():
        shape = arrays[name].shape
        fits = len(shape) == len(letters) and all(
            sizes.setdefault(letter, size) == size for letter, size in zip(letters, shape, strict=True)
        )
        if not fits:
            known = ", ".join(f"{letter}={sizes[letter]}" for letter in letters if letter in sizes)
            raise ModelFileError(
                f"{path / ARRAYS}: {name} has shape {shape}, expected ({', '.join(letters)}) with {known}"
            )
