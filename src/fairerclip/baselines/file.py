"""A fitted baseline as a folder: ``arrays.safetensors`` and ``model.json``.

There is no pickle anywhere: the folder holds numbers and JSON, the class is looked up among our own, and loading it
runs no code from it. Digests are evidence of damage, not of who wrote the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors
from sklearn.utils.validation import check_is_fitted

from fairerclip import __version__
from fairerclip.baselines import BASELINES
from fairerclip.baselines.base import Baseline
from fairerclip.data.strict_json import strict_loads
from fairerclip.errors import FairerClipError, ModelFileError, OutputExistsError
from fairerclip.persist.model_file import MAX_TENSOR_BYTES, plain_value, read_bytes, write_folder

FORMAT, FORMAT_VERSION, FIRST_VERSION = "fairerclip-baseline", 3, 1
FIRST_WITH_STEPS = 3
"""Until then training by gradient was capped in seconds, which say nothing of steps."""
ARRAYS, MANIFEST = "arrays.safetensors", "model.json"
MAX_MANIFEST_BYTES = 1 << 20
PARAMETER = "parameter:"
"""Begins the name of an array that is a parameter and not a result."""
KEYS = {
    "format",
    "format_version",
    "fairerclip_version",
    "baseline",
    "parameters",
    "classes",
    "n_features_in",
    "feature_names_in",
    "diagnostics",
    "normalize",
    "sha256",
    "manifest_sha256",
}
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
    _check_path(path, overwrite)
    parameters, arrays = _parameters(model)
    for attribute in model.fitted:
        arrays[attribute] = np.ascontiguousarray(getattr(model, attribute))
    blob, names = save_tensors(arrays), getattr(model, "feature_names_in_", None)
    manifest = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "fairerclip_version": __version__,
        "baseline": name,
        "parameters": parameters,
        "classes": [plain_value(label, "a class label") for label in model.classes_.tolist()],
        "n_features_in": model.n_features_in_,
        "feature_names_in": None if names is None else [str(n) for n in names],
        "diagnostics": getattr(model, "diagnostics_", None),
        "normalize": model.normalize_,
        "sha256": hashlib.sha256(blob).hexdigest(),
    }
    manifest["manifest_sha256"] = _digest(manifest)
    write_folder(path, {ARRAYS: blob, MANIFEST: _canonical(manifest)})
    return path


def load_baseline(path: str | Path, cls: type[B] = Baseline) -> B:
    """Read and check a folder that `save_baseline` wrote: a fitted baseline of class ``cls``.

    Raises
    ------
    ModelFileError
        The folder is damaged, of another version, of another class, or no baseline.
    """
    path = Path(path)
    if not path.is_dir():
        raise ModelFileError(f"{path} is not a model folder; expected a folder that save() wrote")
    manifest = _read_manifest(path)
    blob = read_bytes(path / ARRAYS, MAX_TENSOR_BYTES)
    if hashlib.sha256(blob).hexdigest() != manifest["sha256"]:
        raise ModelFileError(f"{path / ARRAYS} does not match its digest: the file is damaged or was changed")
    name = manifest["baseline"]
    if not isinstance(name, str) or name not in BASELINES:
        raise ModelFileError(f"{path / MANIFEST} names {name!r}, which is none of {', '.join(BASELINES)}")
    kind = _class(name)
    if not issubclass(kind, cls):
        raise ModelFileError(f"{path} holds a {name}, not a {cls.__name__}; use load_baseline for any")
    try:
        model: B = _assemble(path, manifest, _read_arrays(path, blob), kind)
    except ModelFileError:
        raise
    except (FairerClipError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        # A forged file, digests and all.
        raise ModelFileError(f"{path} does not describe a {name}: {_one_line(error)}") from None
    return model


def _class(name: str) -> Any:
    return getattr(import_module(f"fairerclip.baselines.{BASELINES[name]}"), name)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _check_path(path: Path, overwrite: bool) -> None:
    if path.exists() and not overwrite:
        raise OutputExistsError(f"{path} exists; choose another name or pass overwrite=True (--overwrite)")
    if path.exists() and not ((path / MANIFEST).is_file() and (path / ARRAYS).is_file()):
        raise OutputExistsError(f"{path} exists and is not a fairerclip baseline; it is left alone")


# Parameters -----------------------------------------------------------------------------------------


def _parameters(model: Baseline) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Parameters for JSON, and those that are arrays; JSON has {"array": name} in their place."""
    plain: dict[str, Any] = {}
    arrays: dict[str, NDArray[Any]] = {}
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


def _given(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
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


def _canonical(manifest: dict[str, Any]) -> bytes:
    """The one way in which a manifest is written, so that no byte of it can change unnoticed."""
    try:
        return json.dumps(manifest, indent=2, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"parameters and diagnostics must be finite numbers and text: {error}") from None


def _digest(manifest: dict[str, Any]) -> str:
    """SHA-256 of the canonical manifest without its own digest."""
    body = {key: value for key, value in manifest.items() if key != "manifest_sha256"}
    return hashlib.sha256(_canonical(body)).hexdigest()


def _read_manifest(path: Path) -> dict[str, Any]:
    raw = read_bytes(path / MANIFEST, MAX_MANIFEST_BYTES)
    where = str(path / MANIFEST)
    manifest = strict_loads(raw, where, ModelFileError, limit=MAX_MANIFEST_BYTES)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ModelFileError(f"{where} does not describe a fairerclip baseline")
    version = manifest.get("format_version")
    if type(version) is not int or not FIRST_VERSION <= version <= FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format version {version!r}; this version of fairerclip reads {FIRST_VERSION} to "
            f"{FORMAT_VERSION}"
        )
    keys = KEYS if version > FIRST_VERSION else KEYS - {"normalize"}
    if set(manifest) != keys:
        raise ModelFileError(f"{where} has missing or unknown keys: {sorted(set(manifest) ^ keys)[:5]}")
    if manifest["manifest_sha256"] != _digest(manifest) or raw != _canonical(manifest):
        raise ModelFileError(f"{where} does not match its digest: the file is damaged or was changed")
    return {"normalize": False, **manifest}  # version 1 took rows as they came


def _read_arrays(path: Path, blob: bytes) -> dict[str, NDArray[Any]]:
    where = str(path / ARRAYS)
    try:
        arrays: dict[str, NDArray[Any]] = load_tensors(blob)
    except (SafetensorError, KeyError) as error:  # KeyError: a type that numpy does not have
        raise ModelFileError(f"{where} is not a safetensors file: {_one_line(error)}") from None
    # safetensors takes a repeated name without a word and keeps the last.
    strict_loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")], where, ModelFileError)
    bad = [
        n for n, a in arrays.items() if a.dtype not in (np.float32, np.float64) or not np.isfinite(a).all()
    ]
    if bad:
        raise ModelFileError(f"{where}: {bad[:3]} are not finite arrays of float32 or float64")
    return arrays


def _assemble(path: Path, manifest: dict[str, Any], arrays: dict[str, NDArray[Any]], kind: Any) -> Any:
    parameters = manifest["parameters"]
    if manifest["format_version"] < FIRST_WITH_STEPS and isinstance(parameters, dict):
        parameters = {**kind.added, **_without_seconds(parameters)}
    if not isinstance(parameters, dict) or set(parameters) != set(kind._get_param_names()):
        raise ModelFileError(f"{path / MANIFEST}: parameters do not match this version of fairerclip")
    model = kind(**{name: _given(value, arrays) for name, value in parameters.items()})
    if set(arrays) != set(kind.fitted):
        odd = sorted(set(arrays) ^ set(kind.fitted))
        raise ModelFileError(f"{path / ARRAYS} has missing or unknown arrays: {odd[:5]}")
    _set_labels(path, manifest, model)
    _check_shapes(path, arrays, kind, {"p": model.n_features_in_, "c": len(model.classes_)})
    for name, array in arrays.items():
        setattr(model, name, array if array.ndim else array.item())
    if manifest["diagnostics"] is not None:
        model.diagnostics_ = manifest["diagnostics"]
    trial = np.eye(1, model.n_features_in_)
    scores = np.asarray(model.scores(trial))
    if scores.shape != (1, len(model.classes_)) or not np.isfinite(scores).all():
        raise ModelFileError(f"{path / ARRAYS}: the arrays do not fit together")
    if manifest["feature_names_in"] is not None:
        model.feature_names_in_ = np.array(manifest["feature_names_in"], dtype=object)
    return model


def _without_seconds(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters of an older file, without the cap in seconds that the model or its recipe had."""
    kept = {name: value for name, value in parameters.items() if name != "max_seconds"}
    recipe = kept.get("recipe")
    if isinstance(recipe, dict) and isinstance(recipe.get("mapping"), dict):
        inner = {name: value for name, value in recipe["mapping"].items() if name != "max_seconds"}
        kept["recipe"] = {"mapping": inner}
    return kept


def _set_labels(path: Path, manifest: dict[str, Any], model: Any) -> None:
    classes, width, names = (manifest[key] for key in ("classes", "n_features_in", "feature_names_in"))
    valid = {
        "classes": isinstance(classes, list)
        and all(isinstance(label, (bool, int, float, str)) for label in classes)
        and len(set(classes)) == len(classes) >= 2,
        "n_features_in": type(width) is int and width > 0,
        "feature_names_in": names is None
        or (isinstance(names, list) and len(names) == width and all(isinstance(n, str) for n in names)),
        "diagnostics": manifest["diagnostics"] is None or isinstance(manifest["diagnostics"], dict),
        "normalize": isinstance(manifest["normalize"], bool),
    }
    wrong = [name for name, fine in valid.items() if not fine]
    if wrong:
        raise ModelFileError(f"{path / MANIFEST}: {wrong} do not describe a model")
    model.classes_ = np.asarray(classes)
    if model.classes_.tolist() != classes:  # mixed types: numpy would turn them into strings
        model.classes_ = np.array(classes, dtype=object)
    model.n_features_in_, model.normalize_ = width, manifest["normalize"]


def _check_shapes(path: Path, arrays: dict[str, NDArray[Any]], kind: Any, sizes: dict[str, int]) -> None:
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
