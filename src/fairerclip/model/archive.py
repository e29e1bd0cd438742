"""Saved models: a folder of two files, tensors (safetensors), and a manifest (JSON) with their size and digest.

All kinds of models are written, read and checked here; a kind adds its own arrays and entries (`Archive`), and `KINDS`
says which class reads which folder. There is no pickle anywhere: the files hold numbers and JSON, and reading them runs
no code. Sizes and headers are checked before anything is allocated. Digests are evidence of damage, not of who wrote
the file.
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
TRIES = 20
"""How often a folder is read that is replaced while it is read."""
KINDS = {
    "fairerclip.json": ("fairerclip.model.estimator", "FairerCLIP"),
    "model.json": ("fairerclip.baselines.baseline", "Baseline"),
}
"""Name of the manifest → module and class whose ``load`` reads such a folder."""
Manifest = dict[str, Any]
Tensors = dict[str, NDArray[Any]]
M = TypeVar("M")


def load(path: str | Path) -> Any:
    """Read any model that `save` wrote, of `FairerCLIP` or of a baseline; runs no code from the folder.

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
    """A JSON value for a label or parameter; anything that JSON cannot give back is an error."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ModelFileError(
        f"{what} is {type(value).__name__} {value!r}; a model file holds numbers, strings and booleans only: "
        "relabel before fitting"
    )


def class_array(classes: list[Any]) -> NDArray[Any]:
    """Class labels of a manifest as an array, of objects where numpy would turn mixed types into strings."""
    array = np.asarray(classes)
    return array if array.tolist() == classes else np.array(classes, dtype=object)


@dataclass(frozen=True)
class Archive:
    """One kind of such folders.

    Attributes
    ----------
    noun : what it holds, for messages.
    format : first word of the manifest.
    version, first : the format version that is written, and the oldest that is read.
    tensors, manifest : names of the two files.
    dtypes : what the tensors may be made of.
    keys : of a manifest of the present version, in the order in which they are written.
    added : keys that came with a version, by version.
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
        """Refuse, before the work, a path that could not be written after it, or holds something else."""
        check_folder(path, overwrite)
        self._check_kind(path, overwrite)

    def _check_kind(self, path: Path, overwrite: bool) -> None:
        """Refuse to replace what is there, unless it is such a folder, of plain files."""
        if not os.path.lexists(path) or not overwrite:
            return  # what is in the way without leave to replace it is refused in any case
        files = [path / name for name in (self.manifest, self.tensors)]
        if not files[0].is_file() or path.is_symlink() or any(file.is_symlink() for file in files):
            raise OutputExistsError(f"{path} exists and is not a fairerclip {self.noun}; it is left alone")

    def save(
        self, model: Any, path: Path, parameters: Manifest, tensors: Tensors, *, overwrite: bool, **more: Any
    ) -> Path:
        """Write a fitted model; the folder appears whole or not at all.

        Parameters
        ----------
        model : a fitted model.
        path : a folder, made with its parents.
        parameters : those of the model, ready for JSON.
        tensors : its arrays by name.
        overwrite : replace a model of this kind that is there; anything else is left alone.
        **more : entries of the manifest that this kind has besides.
        """
        self._check_kind(path, overwrite)
        blob = save_tensors(tensors)
        names = getattr(model, "feature_names_in_", None)
        told = {
            "format": self.format,
            "format_version": self.version,
            "fairerclip_version": __version__,
            "parameters": parameters,
            "classes": [plain_value(label, "a class label") for label in model.classes_.tolist()],
            "n_features_in": model.n_features_in_,
            "feature_names_in": None if names is None else [str(name) for name in names],
            "diagnostics": getattr(model, "diagnostics_", None),
            **more,
            "tensor_bytes": len(blob),
            "sha256": hashlib.sha256(blob).hexdigest(),
        }
        told = {key: told[key] for key in self.keys}
        raw = _canonical({**told, "manifest_sha256": _digest(told)})
        # Nothing is written that cannot be read.
        strict_loads(raw, str(path / self.manifest), ModelFileError, limit=MAX_MANIFEST_BYTES)
        write_folder(path, {self.tensors: blob, self.manifest: raw}, overwrite=overwrite)
        return path

    def load(self, path: Path, build: Callable[[Path, Manifest, Tensors], M]) -> M:
        """Read a folder, check what all models have in common, and ``build`` the model."""
        manifest, tensors = self.read(path)
        allowed = [np.dtype(name) for name in self.dtypes]
        bad = [name for name, t in tensors.items() if t.dtype not in allowed or not np.isfinite(t).all()]
        if bad:
            raise ModelFileError(
                f"{path / self.tensors}: {bad[:3]} are not finite arrays of {' or '.join(self.dtypes)}"
            )
        classes, width, names = (manifest[key] for key in ("classes", "n_features_in", "feature_names_in"))
        valid = {
            "classes": isinstance(classes, list)
            and all(isinstance(label, (bool, int, float, str)) for label in classes)
            and len(set(classes)) == len(classes) >= 2,
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
            # A forged file, digests and all.
            message = " ".join(str(error).split())
            raise ModelFileError(f"{path} does not describe a {self.noun}: {message}") from None
        if names is not None:
            vars(model)["feature_names_in_"] = np.array(names, dtype=object)
        return model

    def refuse(self, path: Path, valid: Mapping[str, bool]) -> None:
        """Refuse a manifest some of whose entries are not valid."""
        wrong = [name for name, fine in valid.items() if not fine]
        if wrong:
            raise ModelFileError(f"{path / self.manifest}: {wrong} do not describe a model")

    def make(self, path: Path, cls: type[M], parameters: Manifest) -> M:
        """Return an unfitted model of a class whose parameters these are."""
        if set(parameters) != set(cls._get_param_names()):  # type: ignore[attr-defined]
            raise ModelFileError(
                f"{path / self.manifest}: parameters do not match this version of fairerclip"
            )
        return cls(**parameters)

    def read(self, path: Path) -> tuple[Manifest, Tensors]:
        """The manifest and the tensors, both whole and of one writing, whoever replaces the folder meanwhile."""
        for _ in range(TRIES - 1):
            before = self._seen(path)
            try:
                return self._read(path)
            except ModelFileError:
                if self._seen(path) == before:
                    raise
        return self._read(path)

    def _seen(self, path: Path) -> list[tuple[int, ...] | None]:
        """What tells one writing of the folder from another."""
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


def _canonical(manifest: Manifest) -> bytes:
    """The one way in which a manifest is written, so that no byte of it can change unnoticed."""
    try:
        return json.dumps(manifest, indent=2, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"parameters and diagnostics must be finite numbers and text: {error}") from None


def _digest(manifest: Manifest) -> str:
    """SHA-256 of the canonical manifest without its own digest."""
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
    """What the file holds, its size compared with its manifest, if that says it, its header and our limits."""
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
    """The whole file, if its digest fits; it is first hashed piece by piece, which takes no memory."""
    handle.seek(0)
    if hashlib.file_digest(handle, "sha256").hexdigest() == expected:
        handle.seek(0)
        blob = handle.read()
        if hashlib.sha256(blob).hexdigest() == expected:
            return blob
    raise ModelFileError(f"{file} does not match its digest: the file is damaged or was changed")
