"""Files of a fitted baseline: a folder with ``arrays.safetensors`` and ``model.json``.

Only classes in `BASELINES` can be loaded; see `fairerclip.model.archive` for the other checks of such a folder.
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
from fairerclip.model.parameters import check_offsets

FIRST_WITH_STEPS = 3
"""First file version with a cap in steps; earlier versions capped training in seconds, which have no equivalent."""
ARRAYS, MANIFEST = "arrays.safetensors", "model.json"
PARAMETER = "parameter:"
"""Prefix of the names of arrays that are parameters and not fitted."""
ARCHIVE = Archive(
    noun="baseline",
    format="fairerclip-baseline",
    version=5,
    first=1,
    tensors=ARRAYS,
    manifest=MANIFEST,
    dtypes=("float32", "float64"),
    keys=(
        *("format", "format_version", "fairerclip_version", "baseline", "parameters", "classes"),
        *("n_features_in", "feature_names_in", "diagnostics", "normalize", "offsets"),
        *("tensor_bytes", "sha256"),
    ),
    added={2: frozenset({"normalize"}), 4: frozenset({"tensor_bytes"}), 5: frozenset({"offsets"})},
)
B = TypeVar("B", bound=Baseline)


def save_baseline(model: Baseline, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a fitted baseline to a folder, completely or not at all.

    Parameters
    ----------
    model : Baseline
        A fitted model of a class in `BASELINES`.
    path : str or Path
        The folder; it is created with its parents.
    overwrite : bool
        Replace an existing baseline; any other file or folder is left alone.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ModelFileError
        If the class is not in `BASELINES`, or a label or parameter is not a number, string or boolean.
    OutputExistsError
        If the path exists.
    """
    path, name = Path(path), type(model).__name__
    if name not in BASELINES or _class(name) is not type(model):
        raise ModelFileError(f"{name} is none of the baselines that can be saved: {', '.join(BASELINES)}")
    check_is_fitted(model, model.fitted)
    parameters, arrays = _parameters(model)
    for attribute in model.fitted:
        arrays[attribute] = np.ascontiguousarray(getattr(model, attribute))
    more = {"baseline": name, "normalize": model.normalize_, "offsets": model.offsets_.tolist()}
    return ARCHIVE.save(model, path, parameters, arrays, overwrite=overwrite, **more)


def load_baseline(path: str | Path, cls: type[B] = Baseline) -> B:
    """Read and check a fitted baseline of class ``cls`` from a folder written by `save_baseline`.

    Raises
    ------
    ModelFileError
        If the folder is damaged, of another version or class, or not a baseline.
    """
    return ARCHIVE.load(Path(path), partial(_build, cls))


def _class(name: str) -> Any:
    return getattr(import_module(f"fairerclip.baselines.{BASELINES[name]}"), name)


# Parameters -----------------------------------------------------------------------------------------


def _parameters(model: Baseline) -> tuple[dict[str, Any], Tensors]:
    """Return the parameters for JSON, and those that are arrays, which JSON names as {"array": name}."""
    plain: dict[str, Any] = {}
    arrays: Tensors = {}
    for name, value in model.get_params(deep=False).items():
        label = f"parameter {name}"
        if callable(value) or (name == "random_state" and not isinstance(value, (int, np.integer))):
            plain[name] = None  # neither a callback nor a generator's state is part of the model
        elif isinstance(value, Mapping):
            inner = {str(k): None if callable(v) else plain_value(v, label) for k, v in value.items()}
            plain[name] = {"mapping": inner}
        elif np.ndim(value) > 1:
            arrays[PARAMETER + name] = np.ascontiguousarray(value, dtype=np.float64)
            plain[name] = {"array": PARAMETER + name}
        elif np.ndim(value) == 1:
            plain[name] = [plain_value(v, label) for v in value]
        else:
            plain[name] = plain_value(value, label)
    return plain, arrays


def _given(value: Any, arrays: Tensors) -> Any:
    """Return a stored parameter as the constructor takes it; sequences become tuples."""
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
    manifest = {"normalize": False, "offsets": None, **manifest}  # as in files that lack them
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
    model.offsets_ = check_offsets(manifest["offsets"], len(model.classes_))
    for attribute, array in arrays.items():
        setattr(model, attribute, array if array.ndim else array.item())
    if manifest["diagnostics"] is not None:
        model.diagnostics_ = manifest["diagnostics"]
    scores = np.asarray(model.scores(np.eye(1, model.n_features_in_)))
    if scores.shape != (1, len(model.classes_)) or not np.isfinite(scores).all():
        raise ModelFileError(f"{path / ARRAYS}: the arrays do not fit together")
    return model


def _without_seconds(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of an older file without the cap in seconds of the model or its recipe."""
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
