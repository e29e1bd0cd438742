"""Saved models: a folder with tensors (safetensors) and a manifest (JSON) that has their size and digest.

All kinds of models are written, read and checked here; a kind adds its own arrays and entries (`Archive`), and `KINDS`
names the class that reads each kind. There is no pickle anywhere: the files hold numbers and JSON, and reading them
runs no code. Sizes and headers are checked before anything is allocated. Digests detect damage; they do not prove who
wrote the file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save as save_tensors

from fairerclip import __version__
from fairerclip._util.files import check_folder, read_bounded, write_folder
from fairerclip.data.io.strict_json import strict_loads
from fairerclip.data.io.tensors import Tensor, tensors_of
from fairerclip.errors import FairerClipError, ModelFileError, OutputExistsError

MAX_MANIFEST_BYTES = 1 << 20
MAX_HEADER_BYTES = 1 << 20
MAX_TENSOR_BYTES = 8 << 30
MAX_TENSORS = 64
OF_THE_RUN = ("memory_budget",)
"""Parameters about the machine that a model was fitted on: files do not have them."""
TRIES = 20
"""How often a folder is read again that is replaced during reading."""
KINDS = {
    "fairerclip.json": ("fairerclip.model.estimator", "FairerCLIP"),
    "mitigator.json": ("fairerclip.embedding.mitigator", "EmbeddingMitigator"),
    "model.json": ("fairerclip.baselines.baseline", "Baseline"),
}
"""Name of the manifest → module and class whose ``load`` reads such a folder."""
Manifest = dict[str, Any]
Tensors = dict[str, NDArray[Any]]
M = TypeVar("M")


def load(path: str | Path) -> Any:
    """Read any model that `save` wrote: a `FairerCLIP`, an `EmbeddingMitigator` or a baseline; runs no code from it.

    Raises
    ------
    ModelFileError
        The folder is damaged, of a later version, or no model.
    """
    path = Path(path)
    for manifest, (module, name) in KINDS.items():
        if os.path.lexists(path / manifest):
            return getattr(import_module(module), name).load(path)
    raise ModelFileError(
        f"{path} is not a model folder; expected one that save() wrote, with {' or '.join(KINDS)}"
    )


def plain_value(value: Any, what: str) -> Any:
    """Return a label or parameter as a JSON value; raise if JSON cannot represent it."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ModelFileError(
        f"{what} is {type(value).__name__} {value!r}; a model file holds numbers, strings and booleans only: "
        "relabel before fitting"
    )


def class_array(classes: list[Any]) -> NDArray[Any]:
    """Return the class labels of a manifest as an array; objects where numpy would turn mixed types into strings."""
    array = np.asarray(classes)
    return array if array.tolist() == classes else np.array(classes, dtype=object)


@dataclass(frozen=True)
class Archive:
    """One kind of model folder.

    Attributes
    ----------
    noun : str
        Name of the content in messages.
    format : str
        Value of ``format`` in the manifest.
    version, first : int
        Format version that is written, and the oldest one that is read.
    tensors, manifest : str
        Names of the two files.
    dtypes : tuple of str
        Accepted types of the tensors.
    keys : tuple of str
        Keys of a manifest of the present version, in the order in which they are written.
    added : mapping from int to frozenset of str
        Keys that a version added.
    """

    noun: str
    format: str
    version: int
    first: int
    tensors: str
    manifest: str
    dtypes: tuple[str, ...]
    keys: tuple[str, ...]
    added: Mapping[int, frozenset[str]]

    def check(self, path: Path, *, overwrite: bool) -> None:
        """Raise before the work if the path cannot be written, or holds something else."""
        check_folder(path, overwrite)
        self._check_kind(path, overwrite)

    def _check_kind(self, path: Path, overwrite: bool) -> None:
        """Raise if the path exists and is not a folder of this kind with plain files."""
        if not os.path.lexists(path) or not overwrite:
            return  # without overwrite, an existing path is refused elsewhere
        files = [path / name for name in (self.manifest, self.tensors)]
        if not files[0].is_file() or path.is_symlink() or any(file.is_symlink() for file in files):
            raise OutputExistsError(f"{path} exists and is not a fairerclip {self.noun}; it is left alone")

    def save(
        self, model: Any, path: Path, parameters: Manifest, tensors: Tensors, *, overwrite: bool, **more: Any
    ) -> Path:
        """Write a fitted model as a folder, atomically.

        Parameters
        ----------
        model : estimator
            A fitted model.
        path : Path
            Folder to write; parents are created.
        parameters : dict
            Parameters of the model as JSON values.
        tensors : dict
            Arrays by name.
        overwrite : bool
            Replace an existing model of this kind; anything else is left alone.
        **more
            Further entries of the manifest.
        """
        self._check_kind(path, overwrite)
        blob = save_tensors(tensors)
        names = getattr(model, "feature_names_in_", None)
        manifest = {
            "format": self.format,
            "format_version": self.version,
            "fairerclip_version": __version__,
            "parameters": {name: v for name, v in parameters.items() if name not in OF_THE_RUN},
            "classes": [plain_value(label, "a class label") for label in _classes(model)],
            "n_features_in": model.n_features_in_,
            "feature_names_in": None if names is None else [str(name) for name in names],
            "diagnostics": getattr(model, "diagnostics_", None),
            **more,
            "tensor_bytes": len(blob),
            "sha256": hashlib.sha256(blob).hexdigest(),
        }
        manifest = {key: manifest[key] for key in self.keys}
        raw = _canonical({**manifest, "manifest_sha256": _digest(manifest)})
        # Nothing is written that cannot be read.
        strict_loads(raw, str(path / self.manifest), ModelFileError, limit=MAX_MANIFEST_BYTES)
        write_folder(path, {self.tensors: blob, self.manifest: raw}, overwrite=overwrite)
        return path

    def load(self, path: Path, build: Callable[[Path, Manifest, Tensors], M]) -> M:
        """Read a folder, check the entries that all kinds share, and ``build`` the model."""
        manifest, tensors = self.read(path)
        allowed = [np.dtype(name) for name in self.dtypes]
        bad = [name for name, t in tensors.items() if t.dtype not in allowed or not np.isfinite(t).all()]
        if bad:
            raise ModelFileError(
                f"{path / self.tensors}: {bad[:3]} are not finite arrays of {' or '.join(self.dtypes)}"
            )
        width, names = (manifest[key] for key in ("n_features_in", "feature_names_in"))
        valid = {
            "classes": "classes" not in self.keys or _are_classes(manifest["classes"]),
            "n_features_in": type(width) is int and width > 0,
            "feature_names_in": names is None
            or (isinstance(names, list) and len(names) == width and all(isinstance(n, str) for n in names)),
            "parameters": isinstance(manifest["parameters"], dict),
            "diagnostics": manifest["diagnostics"] is None or isinstance(manifest["diagnostics"], dict),
        }
        self.refuse(path, valid)
        try:
            model = build(path, manifest, tensors)
        except ModelFileError:
            raise
        except (FairerClipError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            # A forged file with valid digests.
            message = " ".join(str(error).split())
            raise ModelFileError(f"{path} does not describe a {self.noun}: {message}") from None
        if names is not None:
            vars(model)["feature_names_in_"] = np.array(names, dtype=object)
        return model

    def refuse(self, path: Path, valid: Mapping[str, bool]) -> None:
        """Raise if some entries of a manifest are not valid."""
        wrong = [name for name, fine in valid.items() if not fine]
        if wrong:
            raise ModelFileError(f"{path / self.manifest}: {wrong} do not describe a model")

    def make(self, path: Path, cls: type[M], parameters: Manifest) -> M:
        """Return an unfitted model with these parameters."""
        expected = set(cls._get_param_names()) - set(OF_THE_RUN)  # type: ignore[attr-defined]
        if set(parameters) != expected:
            raise ModelFileError(
                f"{path / self.manifest}: parameters do not match this version of fairerclip"
            )
        return cls(**parameters)

    def read(self, path: Path) -> tuple[Manifest, Tensors]:
        """Read manifest and tensors of the same write, even if another process replaces the folder meanwhile."""
        for _ in range(TRIES - 1):
            before = self._seen(path)
            try:
                return self._read(path)
            except ModelFileError:
                if self._seen(path) == before:
                    raise
        return self._read(path)

    def _seen(self, path: Path) -> list[tuple[int, ...] | None]:
        """Return values that differ between two writes of the folder."""
        return [_identity(file) for file in (path, path / self.manifest, path / self.tensors)]

    def _read(self, path: Path) -> tuple[Manifest, Tensors]:
        try:
            if not path.is_dir():
                raise ModelFileError(
                    f"{path} is not a {self.noun} folder; expected a folder that save() wrote"
                )
            manifest = self._read_manifest(path)
            return manifest, _read_tensors(path / self.tensors, manifest)
        except OSError as error:
            raise ModelFileError(f"{path} cannot be read: {error.strerror or error}") from None

    def _read_manifest(self, path: Path) -> Manifest:
        file = path / self.manifest
        _check_plain(file)
        raw = read_bounded(file, MAX_MANIFEST_BYTES, ModelFileError)
        manifest = strict_loads(raw, str(file), ModelFileError, limit=MAX_MANIFEST_BYTES)
        if not isinstance(manifest, dict) or manifest.get("format") != self.format:
            raise ModelFileError(f"{file} does not describe a fairerclip {self.noun}")
        version = manifest.get("format_version")
        if type(version) is not int or not self.first <= version <= self.version:
            raise ModelFileError(
                f"{path} has format version {version!r}; this version of fairerclip reads {self.first} to "
                f"{self.version}"
            )
        later = [names for since, names in self.added.items() if since > version]
        keys = {*self.keys, "manifest_sha256"}.difference(*later)
        if set(manifest) != keys:
            raise ModelFileError(f"{file} has missing or unknown keys: {sorted(set(manifest) ^ keys)[:5]}")
        if raw != _canonical(manifest) or manifest["manifest_sha256"] != _digest(manifest):
            raise ModelFileError(f"{file} does not match its digest: the file is damaged or was changed")
        return manifest


def _classes(model: Any) -> list[Any]:
    """Return the class labels of a model; a mitigator of embeddings has none."""
    return list(model.classes_.tolist()) if hasattr(model, "classes_") else []


def _are_classes(classes: Any) -> bool:
    """Return whether an entry of a manifest lists at least two different class labels."""
    return (
        isinstance(classes, list)
        and all(isinstance(label, (bool, int, float, str)) for label in classes)
        and len(set(classes)) == len(classes) >= 2
    )


def _canonical(manifest: Manifest) -> bytes:
    """Return the bytes of a manifest in the one accepted form, so that any changed byte is detected."""
    try:
        return json.dumps(manifest, indent=2, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"parameters and diagnostics must be finite numbers and text: {error}") from None


def _digest(manifest: Manifest) -> str:
    """Return the SHA-256 of the canonical manifest without its own digest."""
    body = {key: value for key, value in manifest.items() if key != "manifest_sha256"}
    return hashlib.sha256(_canonical(body)).hexdigest()


def _identity(file: Path) -> tuple[int, ...] | None:
    try:
        found = file.lstat()
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _check_plain(file: Path) -> None:
    if file.is_symlink() or not file.is_file():
        raise ModelFileError(f"{file} is missing or not a plain file; expected a folder that save() wrote")


def _read_tensors(file: Path, manifest: Mapping[str, Any]) -> Tensors:
    _check_plain(file)
    with file.open("rb") as handle:
        tensors = _check_sizes(file, handle, manifest.get("tensor_bytes"))
        blob = _checked(file, handle, manifest["sha256"])
    return {name: tensor.copy_from(blob) for name, tensor in tensors.items()}


def _check_sizes(file: Path, handle: BufferedReader, expected: Any) -> dict[str, Tensor]:
    """Check the size of the file against manifest, header and limits, and return its tensors."""
    size = os.fstat(handle.fileno()).st_size
    if size > MAX_TENSOR_BYTES:
        raise ModelFileError(f"{file} has {size} bytes, more than the limit of {MAX_TENSOR_BYTES}")
    if expected not in (None, size):
        raise ModelFileError(
            f"{file} has {size} bytes, its manifest says {expected!r:.20}: the file is damaged or was changed"
        )
    header = int.from_bytes(handle.read(8), "little")
    if header > MAX_HEADER_BYTES:
        raise ModelFileError(f"{file} has a header of {header} bytes, more than {MAX_HEADER_BYTES}")
    handle.seek(0)
    return tensors_of(handle, file, ModelFileError, most=MAX_TENSORS)[0]


def _checked(file: Path, handle: BufferedReader, expected: Any) -> bytes:
    """Return the bytes of the file if its digest matches; it is hashed in pieces first, which takes no memory."""
    handle.seek(0)
    if hashlib.file_digest(handle, "sha256").hexdigest() == expected:
        handle.seek(0)
        blob = handle.read()
        if hashlib.sha256(blob).hexdigest() == expected:
            return blob
    raise ModelFileError(f"{file} does not match its digest: the file is damaged or was changed")
