"""Reading of the two files of a saved model: nothing is allocated, hashed or mapped before its size is checked.

Links are not followed, and only plain files are opened. The bytes that are used are the bytes that were hashed.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fairerclip.data.io.strict_json import strict_loads
from fairerclip.data.io.tensors import DTYPES, Tensor, tensors_of
from fairerclip.errors import ModelFileError
from fairerclip.model.contents import Manifest, Tensors

MAX_MANIFEST_BYTES = 2 << 20
MAX_HEADER_BYTES = 1 << 20
MAX_TENSOR_BYTES = 8 << 30
MAX_TENSORS = 64
PIECE = 1 << 20
"""Bytes that are hashed at a time, before a file is read as a whole."""
LINKED = "folders in the cache of huggingface_hub hold links: use snapshot_download(…, local_dir=FOLDER)"


@dataclass(frozen=True)
class Hashed:
    """A part of a file with the SHA-256 that it must have."""

    what: str
    start: int
    stop: int
    sha256: str


def open_plain(file: Path) -> BinaryIO:
    """Open a plain file for reading; raise for a link, a folder, a pipe or a device."""
    try:
        found = os.lstat(file)
    except FileNotFoundError:
        raise ModelFileError(f"{file} is missing; expected a folder that save() wrote").because(
            "missing-file"
        ) from None
    except (OSError, ValueError) as problem:
        raise _unreadable(file, problem) from None
    if stat.S_ISLNK(found.st_mode):
        raise ModelFileError(f"{file} is a link, not a plain file; {LINKED}").because("link")
    if not stat.S_ISREG(found.st_mode):
        raise ModelFileError(
            f"{file} is not a plain file but a folder, a pipe or a device; expected a folder that save() wrote"
        ).because("not-plain")
    try:
        # It may have been replaced since: neither a link is followed, nor is the writer of a pipe waited for.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        handle = open(os.open(file, flags | getattr(os, "O_BINARY", 0)), "rb")  # noqa: SIM115 - returned
    except OSError as problem:
        raise _unreadable(file, problem) from None
    if not stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
        handle.close()
        raise ModelFileError(f"{file} is not a plain file").because("not-plain")
    return handle


def _unreadable(file: Path, problem: OSError | ValueError) -> ModelFileError:
    why = getattr(problem, "strerror", None) or problem
    return ModelFileError(f"{file} cannot be read: {why}").because("unreadable")


def read_manifest(file: Path) -> tuple[bytes, Manifest]:
    """Return the bytes of a manifest and its object of JSON, read strictly."""
    with open_plain(file) as handle:
        size = os.fstat(handle.fileno()).st_size
        raw = handle.read(min(size, MAX_MANIFEST_BYTES) + 1)
    if max(size, len(raw)) > MAX_MANIFEST_BYTES:
        raise ModelFileError(f"{file}: expected at most {MAX_MANIFEST_BYTES:,} bytes, got {size:,}").because(
            "too-large"
        )
    manifest = strict_loads(raw, str(file), ModelFileError, limit=MAX_MANIFEST_BYTES)
    if not isinstance(manifest, dict):
        raise ModelFileError(f"{file} does not describe a fairerclip model: it is no JSON object").because(
            "format"
        )
    return raw, manifest


def check_digest(file: Path, raw: bytes, manifest: Manifest) -> None:
    """Raise if the bytes of a manifest are not those that its own digest and its values give."""
    try:
        expected = canonical(manifest)
    except ModelFileError:
        raise ModelFileError(f"{file}: expected finite numbers, got one that is too large").because(
            "not-finite-json"
        ) from None
    if raw != expected or manifest.get("manifest_sha256") != digest(manifest):
        raise ModelFileError(f"{file} does not match its digest: the file is damaged or was changed").because(
            "changed-manifest"
        )


def canonical(manifest: Manifest) -> bytes:
    """Return the bytes of a manifest in the one accepted form, so that any changed byte is detected."""
    try:
        return json.dumps(manifest, indent=2, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ModelFileError(
            f"parameters, diagnostics and other values must be finite numbers and text: {error}"
        ).because("not-finite-json") from None


def digest(manifest: Manifest) -> str:
    """Return the SHA-256 of the canonical manifest without its own digest."""
    body = {key: value for key, value in manifest.items() if key != "manifest_sha256"}
    return hashlib.sha256(canonical(body)).hexdigest()


def read_tensors(
    file: Path,
    size: int | None,
    hashes: Callable[[Mapping[str, Tensor], Mapping[str, str], int], Sequence[Hashed]],
    *,
    mapped: bool,
) -> Tensors:
    """Read or map the tensors of a file.

    Parameters
    ----------
    file : Path
        The file.
    size : int or None
        Bytes that it must have, if they are known.
    hashes : callable
        Given tensors and metadata of the header and the size of the file, returns its parts with their digests.
    mapped : bool
        Return read-only views of a memory map of the file, which processes share.
    """
    with open_plain(file) as handle:
        found = os.fstat(handle.fileno()).st_size
        tensors, metadata = _header(file, handle, found, size)
        parts = hashes(tensors, metadata, found)
        if not mapped:  # once in pieces, which takes no memory, and once what is used
            _verify(file, parts, lambda start, stop: _at(handle, start, stop))
        content = _content(file, handle, found, mapped=mapped)
        view = memoryview(content)
        _verify(file, parts, lambda start, stop: view[start:stop])
    return {name: _array(tensor, content) for name, tensor in tensors.items()}


def _header(
    file: Path, handle: BinaryIO, found: int, size: int | None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Check the size of the file against manifest, header and limits; return its tensors and metadata."""
    if found > MAX_TENSOR_BYTES:
        raise ModelFileError(
            f"{file} has {found:,} bytes, more than the limit of {MAX_TENSOR_BYTES:,}"
        ).because("too-large")
    if size not in (None, found):
        raise ModelFileError(
            f"{file} has {found} bytes, its manifest says {size!r:.20}: the file is damaged or was changed"
        ).because("size")
    header = int.from_bytes(handle.read(8), "little")
    if header > MAX_HEADER_BYTES:
        raise ModelFileError(f"{file} has a header of {header} bytes, more than {MAX_HEADER_BYTES}").because(
            "too-large"
        )
    handle.seek(0)
    try:
        return tensors_of(handle, file, ModelFileError, most=MAX_TENSORS)
    except ModelFileError as error:
        raise error.because(error.reason or "header") from None


def _at(handle: BinaryIO, start: int, stop: int) -> bytes:
    handle.seek(start)
    return handle.read(stop - start)


def _verify(file: Path, parts: Sequence[Hashed], read: Callable[[int, int], Any]) -> None:
    for part in parts:
        found = hashlib.sha256()
        for start in range(part.start, part.stop, PIECE):
            found.update(read(start, min(part.stop, start + PIECE)))
        if found.hexdigest() != part.sha256:
            raise ModelFileError(
                f"{file}: {part.what} does not match its digest: the file is damaged or was changed"
            ).because("changed-tensor")


def _content(file: Path, handle: BinaryIO, size: int, *, mapped: bool) -> Any:
    """Return the bytes of a file: a memory map, or an array."""
    try:
        if mapped:
            return mmap.mmap(handle.fileno(), size, access=mmap.ACCESS_READ)
        content = np.empty(size, dtype=np.uint8)
        handle.seek(0)
        if handle.readinto(content.data) != size:  # type: ignore[attr-defined]
            raise ValueError("it became shorter while it was read")
    except (OSError, ValueError) as problem:
        raise _unreadable(file, problem) from None
    return content


def _array(tensor: Tensor, content: Any) -> Any:
    """Return a tensor as a view of the bytes of its file, or a copy if it begins at no multiple of its item size."""
    values = np.frombuffer(content, np.dtype(DTYPES[tensor.kind]), tensor.count, tensor.offset)
    values = values.reshape(tensor.shape)
    return values if values.flags.aligned else values.copy()
