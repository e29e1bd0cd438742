"""A fitted model as a folder: ``model.safetensors`` (arrays) and ``fairerclip.json`` (everything else).

There is no pickle anywhere: a model file holds numbers and JSON, and loading it runs no code. Digests
are evidence of damage, not of who wrote the file.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from fairerclip import __version__
from fairerclip.errors import ModelFileError, OutputExistsError
from fairerclip.features import features_from_arrays

if TYPE_CHECKING:
    from fairerclip.model import FairerCLIP

FORMAT, FORMAT_VERSION = "fairerclip-model", 2
TENSORS, MANIFEST = "model.safetensors", "fairerclip.json"
MAX_MANIFEST_BYTES = 1 << 20
MAX_TENSOR_BYTES = 8 << 30
MAX_TENSORS = 64

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
)
MANIFEST_KEYS = {
    "format",
    "format_version",
    "fairerclip_version",
    "parameters",
    "classes",
    "n_features_in",
    "feature_names_in",
    "n_iter",
    "temperature",
    "features",
    "text_features",
    "diagnostics",
    "sha256",
    "manifest_sha256",
}
M = TypeVar("M", bound="FairerCLIP")


def plain_value(value: Any, what: str) -> Any:
    """A JSON value for a label or parameter; anything that JSON cannot give back is an error."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ModelFileError(
        f"{what} is {type(value).__name__} {value!r}; a model file holds numbers, strings and booleans only: "
        "relabel before fitting"
    )


def _parameters(model: FairerCLIP) -> dict[str, Any]:
    params: dict[str, Any] = {}
    for name, value in model.get_params(deep=False).items():
        if name == "class_weight" and isinstance(value, Mapping):
            params[name] = [
                [plain_value(k, "class_weight"), plain_value(v, "class_weight")] for k, v in value.items()
            ]
        elif name == "random_state" and not isinstance(value, (int, np.integer, type(None))):
            params[name] = None  # a generator's state is not part of the model
        elif name == "offsets" and value is not None:
            params[name] = [plain_value(v, "offsets") for v in value]
        elif name == "sensitive_shifts" and value is not None:
            params[name] = [[plain_value(v, "sensitive_shifts") for v in row] for row in value]
        else:
            params[name] = plain_value(value, f"parameter {name}")
    return params


def check_model_path(path: Path, *, overwrite: bool) -> None:
    """Refuse a path that is taken, unless it holds a model that may be replaced."""
    if path.exists() and not overwrite:
        raise OutputExistsError(f"{path} exists; choose another name or pass overwrite=True (--overwrite)")
    if path.exists() and not (path.is_dir() and (path / MANIFEST).is_file()):
        raise OutputExistsError(f"{path} exists and is not a fairerclip model; it is left alone")


def write_model(model: FairerCLIP, path: Path, *, overwrite: bool) -> Path:
    """Write a fitted model; the folder appears whole or not at all."""
    check_model_path(path, overwrite=overwrite)
    tensors = {name: np.ascontiguousarray(getattr(model, name), dtype=np.float64) for name in ARRAYS}
    for prefix in ("features", "text_features"):
        for name, array in getattr(model, f"{prefix}_").to_arrays().items():
            tensors[f"{prefix}.{name}"] = np.ascontiguousarray(array)
    blob = save_tensors(tensors)
    names = getattr(model, "feature_names_in_", None)
    manifest = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "fairerclip_version": __version__,
        "parameters": _parameters(model),
        "classes": [plain_value(c, "a class label") for c in model.classes_.tolist()],
        "n_features_in": model.n_features_in_,
        "feature_names_in": None if names is None else [str(n) for n in names],
        "n_iter": model.n_iter_,
        "temperature": model.temperature_,
        "features": model.features_.kernel,
        "text_features": model.text_features_.kernel,
        "diagnostics": model.diagnostics_,
        "sha256": hashlib.sha256(blob).hexdigest(),
    }
    manifest["manifest_sha256"] = _digest(manifest)
    write_folder(path, {TENSORS: blob, MANIFEST: _canonical(manifest)})
    return path


def _canonical(manifest: dict[str, Any]) -> bytes:
    """The one way in which a manifest is written, so that no byte of it can change unnoticed."""
    return json.dumps(manifest, indent=2).encode()


def _digest(manifest: dict[str, Any]) -> str:
    """SHA-256 of the canonical manifest without its own digest."""
    body = {key: value for key, value in manifest.items() if key != "manifest_sha256"}
    return hashlib.sha256(_canonical(body)).hexdigest()


def write_folder(path: Path, files: dict[str, bytes]) -> None:
    """Write files into a folder that appears whole or not at all, in place of what is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.parent / f".{path.name}.{secrets.token_hex(6)}"
    fresh.mkdir()
    try:
        for name, content in files.items():
            with open(fresh / name, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        if path.exists():
            old = fresh.with_name(fresh.name + ".old")
            os.rename(path, old)
            try:
                os.rename(fresh, path)
            except OSError:
                os.rename(old, path)
                raise
            for other in old.iterdir():  # whatever else the user keeps beside the model stays
                if other.name not in files:
                    os.rename(other, path / other.name)
            shutil.rmtree(old)
        else:
            os.rename(fresh, path)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def read_bytes(path: Path, limit: int) -> bytes:
    """The content of a plain file of at most ``limit`` bytes."""
    if path.is_symlink() or not path.is_file():
        raise ModelFileError(f"{path} is missing or not a plain file; expected a folder that save() wrote")
    size = path.stat().st_size
    if size > limit:
        raise ModelFileError(f"{path} has {size} bytes, more than the limit of {limit}")
    return path.read_bytes()


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [k for k, _ in pairs]
    if len(set(keys)) != len(keys):
        raise ModelFileError(f"the model file repeats a key among {sorted(keys)[:5]}")
    return dict(pairs)


def _read_manifest(path: Path) -> dict[str, Any]:
    raw = read_bytes(path / MANIFEST, MAX_MANIFEST_BYTES)
    try:
        manifest = json.loads(raw, object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{path / MANIFEST} is not valid JSON: {type(error).__name__}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ModelFileError(f"{path / MANIFEST} does not describe a fairerclip model")
    if manifest.get("format_version") != FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format version {manifest.get('format_version')!r}; this version of fairerclip reads "
            f"{FORMAT_VERSION}"
        )
    if set(manifest) != MANIFEST_KEYS:
        odd = sorted(set(manifest) ^ MANIFEST_KEYS)
        raise ModelFileError(f"{path / MANIFEST} has missing or unknown keys: {odd[:5]}")
    if raw != _canonical(manifest) or manifest["manifest_sha256"] != _digest(manifest):
        raise ModelFileError(
            f"{path / MANIFEST} does not match its digest: the file is damaged or was changed"
        )
    return manifest


def read_model(path: Path, cls: type[M]) -> M:
    """Read and check a model folder, and give a fitted estimator of class ``cls``."""
    if not path.is_dir():
        raise ModelFileError(f"{path} is not a model folder; expected a folder that save() wrote")
    manifest = _read_manifest(path)
    blob = read_bytes(path / TENSORS, MAX_TENSOR_BYTES)
    if hashlib.sha256(blob).hexdigest() != manifest["sha256"]:
        raise ModelFileError(
            f"{path / TENSORS} does not match its digest: the file is damaged or was changed"
        )
    try:
        return _assemble(path, manifest, _read_tensors(path, blob), cls)
    except ModelFileError:
        raise
    except (KeyError, OverflowError, TypeError, ValueError) as error:  # a forged file, digests and all
        raise ModelFileError(f"{path} does not describe a model: {error}") from None


def _read_tensors(path: Path, blob: bytes) -> dict[str, NDArray[Any]]:
    try:
        tensors: dict[str, NDArray[Any]] = load_tensors(blob)
    except SafetensorError as error:
        raise ModelFileError(f"{path / TENSORS} is not a safetensors file: {error}") from None
    # safetensors takes a repeated name without a word and keeps the last.
    json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")], object_pairs_hook=_no_duplicates)
    if len(tensors) > MAX_TENSORS:
        raise ModelFileError(f"{path / TENSORS} holds {len(tensors)} tensors, more than {MAX_TENSORS}")
    return tensors


def _check_values(path: Path, manifest: dict[str, Any]) -> None:
    classes, temperature = manifest["classes"], manifest["temperature"]
    names = manifest["feature_names_in"]
    valid = {
        "classes": isinstance(classes, list)
        and all(isinstance(c, (bool, int, float, str)) for c in classes)
        and len(set(classes)) == len(classes) >= 2,
        "n_features_in": type(manifest["n_features_in"]) is int,
        "feature_names_in": names is None
        or (isinstance(names, list) and len(names) == manifest["n_features_in"]),
        "n_iter": type(manifest["n_iter"]) is int,
        "temperature": type(temperature) is float and 0 < temperature < math.inf,
        "diagnostics": isinstance(manifest["diagnostics"], dict),
    }
    wrong = [name for name, fine in valid.items() if not fine]
    if wrong:
        raise ModelFileError(f"{path / MANIFEST}: {wrong} do not describe a model")


def _assemble(path: Path, manifest: dict[str, Any], tensors: dict[str, NDArray[Any]], cls: type[M]) -> M:
    missing = [name for name in ARRAYS if name not in tensors]
    if missing:
        raise ModelFileError(f"{path / TENSORS} lacks {missing}")
    bad = [name for name, t in tensors.items() if t.dtype != np.float64 or not np.all(np.isfinite(t))]
    if bad:
        raise ModelFileError(f"{path / TENSORS}: {bad[:3]} are not finite float64 tensors")
    groups = ("features.", "text_features.")
    unknown = [name for name in tensors if name not in ARRAYS and not name.startswith(groups)]
    if unknown:
        raise ModelFileError(f"{path / TENSORS} has unknown tensors {unknown[:3]}")
    _check_values(path, manifest)
    params = manifest["parameters"]
    known = cls._get_param_names()
    if not isinstance(params, dict) or set(params) != set(known):
        raise ModelFileError(f"{path / MANIFEST}: parameters do not match this version of fairerclip")
    if isinstance(params["class_weight"], list):
        if not all(isinstance(pair, list) for pair in params["class_weight"]):
            raise ModelFileError(f"{path / MANIFEST}: class_weight must be a list of [class, share]")
        params["class_weight"] = dict(params["class_weight"])
    model = cls(**params)
    for name in ARRAYS:
        setattr(model, name, tensors[name])
    for prefix in ("features", "text_features"):
        arrays = {k.partition(".")[2]: v for k, v in tensors.items() if k.startswith(f"{prefix}.")}
        features = features_from_arrays(manifest[prefix], arrays)
        if set(arrays) != set(features.to_arrays()):
            raise ModelFileError(
                f"{path / TENSORS} has tensors that {prefix} does not know: {sorted(arrays)}"
            )
        setattr(model, f"{prefix}_", features)
    model.classes_ = np.asarray(manifest["classes"])
    if model.classes_.tolist() != manifest["classes"]:  # mixed types: numpy would turn them into strings
        model.classes_ = np.array(manifest["classes"], dtype=object)
    model.n_features_in_ = int(manifest["n_features_in"])
    if manifest["feature_names_in"] is not None:
        model.feature_names_in_ = np.array(manifest["feature_names_in"], dtype=object)
    model.n_iter_, model.temperature_ = int(manifest["n_iter"]), float(manifest["temperature"])
    model.objective_ = float(model.eigenvalues_.sum())
    model.diagnostics_ = manifest["diagnostics"]
    model.pseudo_labels_ = model.pseudo_sensitive_ = None  # labels of people stay out of the file
    _check_shapes(path, model)
    return model


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
    }
    wrong = [name for name, shape in expected.items() if getattr(model, name).shape != shape]
    sizes = (model.features_.n_features, model.features_.n_features_in, model.text_features_.n_features_in)
    # r of them; sensitive shifts widen the space to one dimension per class, which adds none.
    kept = model.eigenvalues_.size
    if model.eigenvalues_.ndim != 1 or not (kept == r or (r == c and 1 <= kept <= c)):
        wrong.append("eigenvalues_")
    if wrong or r < 1 or sizes != (D, model.n_features_in_, model.n_features_in_):
        raise ModelFileError(f"{path}: the tensors do not fit together ({wrong or sizes})")
