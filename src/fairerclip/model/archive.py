"""Saved models: folders of a file of tensors, ``fairerclip.json``, and a card; see docs/reference/format.md.

All kinds of models are written, read and checked here, and `fairerclip.model.kinds` names the module that turns a kind
of model into `Contents` and back. There is no pickle anywhere: the files hold numbers and JSON, and reading them runs
no code. Digests detect damage; they do not prove who wrote the file.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save as save_tensors

from fairerclip import __version__
from fairerclip._util.checks import check_choice
from fairerclip._util.files import atomic_file, check_folder, output_folder
from fairerclip.data.io.strict_json import strict_loads
from fairerclip.data.io.tensors import DTYPES, Tensor
from fairerclip.errors import FairerClipError, ModelFileError, OutputExistsError, ParameterError
from fairerclip.model.contents import (
    CARD,
    FORMAT,
    MANIFEST,
    TENSOR_FILE,
    TENSOR_FILES,
    TENSORS,
    Check,
    Contents,
    Manifest,
    Tensors,
)
from fairerclip.model.details import ModelDetails
from fairerclip.model.folder_files import (
    MAX_MANIFEST_BYTES,
    Hashed,
    canonical,
    check_digest,
    digest,
    read_manifest,
    read_tensors,
)
from fairerclip.model.kinds import contents_of, home_of
from fairerclip.model.saved_card import card

VERSION = 7
PRECISIONS = ("full", "float16")
HALF_ERROR = 1e-3
"""Largest error of a tensor in float16, as a share of its norm; other tensors keep their type."""
TRIES = 20
"""How often a folder is read again that is replaced during reading."""
KEYS = (
    *("format", "format_version", "kind", "versions", "parameters", "classes", "n_features_in"),
    *("feature_names_in", "state", "diagnostics", "details", "tensors", "tensor_bytes"),
)
"""Keys of a manifest before its own digest, in the order in which they are written."""
PACKAGES = ("numpy", "scipy", "scikit-learn")
VERSIONS = ("fairerclip", "python", *PACKAGES)
TENSOR_KEYS = {"dtype", "used_as", "shape", "sha256"}
STORED_AS = {"F64": ("F64",), "F32": ("F32",), "F16": ("F32", "F64")}
"""Types of stored tensors, with those that they may be used as."""


def load(path: str | Path, *, mapped: bool = False) -> Any:
    """Read any model that `save` wrote: a `FairerCLIP`, an `EmbeddingMitigator` or a baseline; runs no code from it.

    Parameters
    ----------
    path : str or Path
        The folder. Nothing is fetched from elsewhere.
    mapped : bool
        Map the weights read-only from their file, after their digests are checked, so that processes that
        load the same folder share them in memory. Answers are the same bit for bit. A folder that `save` replaces
        meanwhile is another file, so that answers do not change; do not write into a mapped file in place.

    Raises
    ------
    ModelFileError
        The folder is damaged, of a later version, or no model; its ``reason`` says which.
    """
    return load_as(Path(path), object, mapped=mapped)


def load_as(path: Path, cls: type, *, mapped: bool = False) -> Any:
    """Read a model that must be of a class, or of a subclass of it."""

    def check(found: Contents, names: Collection[str]) -> None:
        _class_for(found.kind, cls, path)
        found.check(path)
        with _refusing(path, found.kind):
            home_of(found.kind).check_names(path, found, names)

    contents = read(path, check, mapped=mapped)
    model = _built(_class_for(contents.kind, cls, path), path, contents)
    if contents.feature_names_in is not None:
        vars(model)["feature_names_in_"] = np.array(contents.feature_names_in, dtype=object)
    model.details_ = contents.details
    return model


def _class_for(kind: str, cls: type, path: Path) -> type:
    """Return the class of a kind of model, which must be ``cls`` or a subclass of it."""
    found: type = home_of(kind).class_of(kind)
    if issubclass(found, cls):
        return found
    if issubclass(cls, found):  # a subclass of somebody else may read the files of its base class
        return cls
    raise ModelFileError(
        f"{path} holds a {kind}, not a {cls.__name__}; fairerclip.load reads any model"
    ).because("kind")


def _built(cls: type, path: Path, contents: Contents) -> Any:
    """Return the model of contents, after all checks."""
    contents.check(path)
    with _refusing(path, contents.kind):
        return home_of(contents.kind).build(cls, path, contents)


@contextmanager
def _refusing(path: Path, kind: str) -> Iterator[None]:
    """Turn the errors of values that describe no model, as those of a forged file with valid digests, into one."""
    try:
        yield
    except ModelFileError as error:
        raise error.because(error.reason or "mismatch") from None
    except MemoryError:
        raise _no_memory(path) from None
    except (FairerClipError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        message = " ".join(str(error).split())
        raise ModelFileError(f"{path} does not describe a {kind}: {message:.400}").because(
            "mismatch"
        ) from None


def _no_memory(path: Path) -> ModelFileError:
    return ModelFileError(f"{path}: its tensors do not fit into the memory of this machine").because(
        "too-large"
    )


# Writing --------------------------------------------------------------------------------------------


def check_output(path: Path, kind: str, *, overwrite: bool) -> None:
    """Raise before the work if the path cannot be written, or holds something else than a model of this kind."""
    check_folder(path, overwrite)
    _check_replaced(path, kind, overwrite=overwrite)


def _check_replaced(path: Path, kind: str, *, overwrite: bool) -> None:
    """Raise if the path exists and is no model of a kind, or of a baseline for a baseline.

    `save` may replace a model of the same kind, a damaged one, and an empty folder; all else is left alone.
    """
    if not os.path.lexists(path) or not overwrite:
        return  # without overwrite, an existing path is refused elsewhere
    files = [path / name for name in (MANIFEST, *TENSOR_FILES, CARD)]
    plain = path.is_dir() and not path.is_symlink() and not any(file.is_symlink() for file in files)
    if not plain or not (files[0].is_file() or _is_empty(path)):
        raise _foreign(path)
    try:
        values = read_manifest(files[0])[1]
    except ModelFileError:
        return  # nothing, or a model that is damaged
    if values.get("format") != FORMAT:
        raise _foreign(path)
    held = str(values.get("kind"))
    try:
        same = home_of(held) is home_of(kind)
    except ModelFileError:
        raise OutputExistsError(
            f"{path} exists and holds a {held!r:.60}, which this version of fairerclip does not know; it is left alone"
        ) from None
    if not same:
        raise OutputExistsError(f"{path} exists and holds a {held}, not a {kind}; it is left alone")


def _foreign(path: Path) -> OutputExistsError:
    return OutputExistsError(f"{path} exists and is not a fairerclip model; it is left alone")


def _is_empty(path: Path) -> bool:
    """Return whether a folder has no files but hidden ones, as a new clone of a repository does."""
    return all(name.startswith(".") for name in os.listdir(path))


def save(
    model: Any,
    path: Path,
    *,
    overwrite: bool = False,
    precision: str = "full",
    details: ModelDetails | None = None,
) -> Path:
    """Write a fitted model as a folder, atomically; the parameters are those of `SavedModel.save`."""
    check_choice("precision", precision, PRECISIONS)
    if not (details is None or isinstance(details, ModelDetails)):
        raise ParameterError(f"details must be ModelDetails or None; got {type(details).__name__}")
    contents = contents_of(model)
    _check_replaced(path, contents.kind, overwrite=overwrite)
    if details is not None:
        contents = replace(contents, details=details)
    stored = {name: _stored(array, precision) for name, array in contents.tensors.items()}
    blob = save_tensors(stored)
    manifest = _manifest(contents, stored, len(blob))
    name = _free_tensor_file(path)
    if name != TENSORS:
        manifest[TENSOR_FILE] = name
    raw = canonical({**manifest, "manifest_sha256": digest(manifest)})
    _check_readable(
        path, raw, {name: stored[name].astype(a.dtype, copy=False) for name, a in contents.tensors.items()}
    )
    text = card(contents, dict(manifest["versions"]), sum(array.nbytes for array in stored.values()))
    # Until the manifest, which names the tensors, is replaced, the folder holds the old model. A folder without one
    # gets it first, so that a model of which only a part is written is known as ours.
    files = {name: blob, MANIFEST: raw} if (path / MANIFEST).is_file() else {MANIFEST: raw, name: blob}
    files[CARD] = text.encode()
    with output_folder(path, overwrite=overwrite) as folder:
        for file, content in files.items():
            with atomic_file(folder / file, overwrite=True) as handle:
                handle.write(content)
        for old in {*TENSOR_FILES} - {name}:
            # Windows keeps a file that a program has mapped; the next save removes it.
            with suppress(OSError):
                (folder / old).unlink()
    return path


def _free_tensor_file(path: Path) -> str:
    """Return the name of the file of tensors that the model of a folder, if there is one, does not use."""
    if not (path / MANIFEST).is_file():
        return TENSORS
    try:
        held = read_manifest(path / MANIFEST)[1].get(TENSOR_FILE, TENSORS)
    except ModelFileError:  # it is damaged
        held = TENSORS
    return next(name for name in TENSOR_FILES if name != held)


def _check_readable(path: Path, raw: bytes, tensors: Tensors) -> None:
    """Raise if the model that is to be written could not be loaded, because it was changed after the fit."""
    try:
        manifest = strict_loads(raw, str(path / MANIFEST), ModelFileError, limit=MAX_MANIFEST_BYTES)
        contents = _contents(manifest, tensors)
        _built(home_of(contents.kind).class_of(contents.kind), path, contents)
    except ModelFileError as error:
        raise ModelFileError(
            f"this model could not be loaded again, so nothing is written; was it changed after the fit? {error}"
        ).because(error.reason or "mismatch") from None


def fingerprint(contents: Contents, entries: Sequence[str]) -> str:
    """Return a SHA-256 over some entries of contents and all tensors; a saved and loaded copy has the same one."""
    tensors = {name: _described(array, array) for name, array in sorted(contents.tensors.items())}
    values = {name: getattr(contents, name) for name in entries}
    return hashlib.sha256(canonical({**values, "tensors": tensors})).hexdigest()


def _manifest(contents: Contents, stored: Tensors, size: int) -> Manifest:
    values = {
        **{name: getattr(contents, name) for name in KEYS if hasattr(contents, name)},
        "format": FORMAT,
        "format_version": VERSION,
        "versions": versions(),
        "details": contents.details.to_dict(),
        "tensors": {name: _described(stored[name], contents.tensors[name]) for name in sorted(stored)},
        "tensor_bytes": size,
    }
    return {key: values[key] for key in KEYS}


def versions() -> dict[str, str]:
    """Return the versions of the package, of Python and of the libraries that compute."""
    return {
        "fairerclip": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


def _stored(array: NDArray[Any], precision: str) -> NDArray[Any]:
    """Return an array as it is written: in float16 if that is asked for, and close enough to it."""
    array = np.ascontiguousarray(array)
    if precision != "float16" or array.ndim < 2 or not array.size:
        return array
    with np.errstate(over="ignore"):
        half = array.astype(np.float16)
    error = np.linalg.norm(half.astype(array.dtype) - array)
    return half if np.isfinite(error) and error <= HALF_ERROR * np.linalg.norm(array) else array


def _described(stored: NDArray[Any], used: NDArray[Any]) -> Manifest:
    return {
        "dtype": _name(stored),
        "used_as": _name(used),
        "shape": list(stored.shape),
        "sha256": hashlib.sha256(stored.tobytes()).hexdigest(),
    }


def _name(array: NDArray[Any]) -> str:
    return {"float16": "F16", "float32": "F32", "float64": "F64"}[array.dtype.name]


# Reading --------------------------------------------------------------------------------------------


def read(path: Path, check: Check, *, mapped: bool = False) -> Contents:
    """Read manifest and tensors of the same write, even if another process replaces the folder meanwhile.

    ``check`` is called with the contents and the names of the tensors before any of these is read.
    """
    for _ in range(TRIES - 1):
        before = _seen(path)
        try:
            return _read(path, check, mapped)
        except ModelFileError:
            if _seen(path) == before:
                raise
    return _read(path, check, mapped)


def _seen(path: Path) -> list[tuple[int, ...] | None]:
    """Return values that differ between two writes of the folder."""
    return [_identity(path / name) for name in (".", MANIFEST, *TENSOR_FILES)]


def _identity(file: Path) -> tuple[int, ...] | None:
    try:
        found = file.lstat()
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _read(path: Path, check: Check, mapped: bool) -> Contents:
    try:
        if not path.is_dir():
            raise ModelFileError(
                f"{path} is not a model folder; expected one that save() wrote. Models of the Hugging Face Hub are not "
                "fetched: huggingface_hub.snapshot_download(REPO, local_dir=FOLDER) does that"
            ).because("not-a-folder")
        if not os.path.lexists(path / MANIFEST):
            raise ModelFileError(
                f"{path} is not a model folder: {MANIFEST} is missing; expected a folder that save() wrote"
            ).because("missing-file")
        return _read_files(path, check, mapped)
    except MemoryError:
        raise _no_memory(path) from None
    except (OSError, ValueError) as error:
        if isinstance(error, ModelFileError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise ModelFileError(f"{path} cannot be read: {reason}").because("unreadable") from None


def _read_files(path: Path, check: Check, mapped: bool) -> Contents:
    file = path / MANIFEST
    raw, manifest = read_manifest(file)
    if manifest.get("format") != FORMAT:
        raise ModelFileError(f"{file} does not describe a fairerclip model").because("format")
    found = manifest.get("format_version")
    if type(found) is not int or found != VERSION:
        raise ModelFileError(
            f"{path} has format version {found!r:.40}; this version of fairerclip reads version {VERSION}"
        ).because("version")
    odd = sorted((set(manifest) - {TENSOR_FILE}) ^ {*KEYS, "manifest_sha256"})
    if odd:
        raise ModelFileError(f"{file} has missing or unknown keys: {odd[:5]!r:.200}").because("unknown-field")
    check_digest(file, raw, manifest)
    if not isinstance(manifest["kind"], str):
        raise ModelFileError(f"{file}: expected the name of a class as kind").because("kind")
    _check_versions(file, manifest["versions"])
    name = manifest.get(TENSOR_FILE, TENSORS)
    if name not in TENSOR_FILES:
        raise ModelFileError(
            f"{file}: expected {TENSOR_FILE} to be one of {TENSOR_FILES}, got {name!r:.80}"
        ).because("value")
    entries, size = manifest["tensors"], manifest["tensor_bytes"]
    if type(size) is not int:
        raise ModelFileError(f"{file}: expected tensor_bytes, got {size!r:.40}").because("value")
    _check_entries(file, entries)
    contents = _contents(manifest, {})

    def hashes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str], _: int) -> list[Hashed]:
        _compare(path / name, tensors, metadata, entries)
        check(contents, tensors.keys())
        return [
            Hashed(f"tensor {name!r:.60}", t.offset, t.offset + _bytes(t), entries[name]["sha256"])
            for name, t in tensors.items()
        ]

    tensors = read_tensors(path / name, size, hashes, mapped=mapped)
    used = {
        name: array.astype(DTYPES[entries[name]["used_as"]], copy=False) for name, array in tensors.items()
    }
    return replace(contents, tensors=used)


def _contents(manifest: Manifest, tensors: Tensors) -> Contents:
    """Return the contents of a manifest."""
    values = {name: manifest[name] for name in KEYS if name in Contents.__dataclass_fields__}
    return Contents(**{**values, "details": ModelDetails.from_dict(manifest["details"]), "tensors": tensors})


def _check_versions(file: Path, found: Any) -> None:
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise ModelFileError(f"{file}: expected versions of packages, as text").because("value")
    odd = sorted(set(found) ^ set(VERSIONS))
    if odd:
        raise ModelFileError(f"{file}: versions of {odd[:5]!r:.200} are missing or unknown").because(
            "unknown-field"
        )


def _check_entries(file: Path, entries: Any) -> None:
    """Raise if the tensors of a manifest are not described as expected."""
    if not isinstance(entries, dict):
        raise ModelFileError(f"{file}: expected a description of each tensor").because("value")
    for name, entry in entries.items():
        odd = sorted(set(entry) ^ TENSOR_KEYS) if isinstance(entry, dict) else ["?"]
        if odd:
            raise ModelFileError(
                f"{file}: {odd[:5]!r:.200} of tensor {name!r:.60} are missing or unknown"
            ).because("unknown-field")
        kind = entry["dtype"]
        if kind not in [*STORED_AS] or entry["used_as"] not in STORED_AS[kind]:
            raise ModelFileError(
                f"{file}: tensor {name!r:.60} is stored as {kind!r:.20} and used as {entry['used_as']!r:.20}; expected "
                "F64, F32, or F16 used as one of them"
            ).because("dtype")


def _compare(
    file: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], entries: Mapping[str, Any]
) -> None:
    """Raise if the header of the tensors does not describe what the manifest does."""
    if metadata:
        raise ModelFileError(f"{file}: expected no metadata, got {sorted(metadata)[:3]!r:.200}").because(
            "unknown-field"
        )
    unknown, missing = sorted(set(tensors) - set(entries)), sorted(set(entries) - set(tensors))
    if unknown:
        raise ModelFileError(f"{file} has unknown tensors {unknown[:3]!r:.200}").because("unknown-tensor")
    if missing:
        raise ModelFileError(f"{file} lacks the tensors {missing[:3]!r:.200}").because("missing-tensor")
    for name, tensor in tensors.items():
        entry = entries[name]
        if tensor.kind != entry["dtype"]:
            raise ModelFileError(
                f"{file}: tensor {name!r:.60} is {tensor.kind}, its manifest says {entry['dtype']}"
            ).because("dtype")
        if list(tensor.shape) != entry["shape"] or any(type(n) is not int for n in entry["shape"]):
            raise ModelFileError(
                f"{file}: tensor {name!r:.60} has shape {list(tensor.shape)}, its manifest says {entry['shape']!r:.80}"
            ).because("shape")


def _bytes(tensor: Tensor) -> int:
    return tensor.count * np.dtype(DTYPES[tensor.kind]).itemsize
