"""Safe reading, mapping and writing of ``.npz``.

Everything that a file declares is checked before memory is allocated for it: whatever the file holds, these functions
raise `TaskFileError` and nothing else. Pickles are neither read nor written. `read_npz` returns native arrays in
memory; `npz_members` maps embeddings that do not fit in memory, in the byte order of the file. Its checks are the
same, except that a checksum is compared only if a member is compressed.
"""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np

from fairerclip._util.files import atomic_file
from fairerclip.data.io.npy import (
    DEFAULT_LIMITS,
    Array,
    Limits,
    check_dtype,
    check_size,
    damage,
    map_region,
    native,
    read_header,
    regular,
)
from fairerclip.errors import TaskFileError

_END, _END64_LOCATOR, _END64 = b"PK\x05\x06", b"PK\x06\x07", b"PK\x06\x06"
_END_SIZE, _LOCATOR_SIZE, _END64_SIZE = 22, 20, 56
_LOCAL, _LOCAL_SIZE = b"PK\x03\x04", 30


def read_npz(path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> dict[str, Array]:
    """Read every array of an ``.npz``; memory is the size of the arrays.

    Parameters
    ----------
    path : path-like
        An ``.npz`` as `numpy.savez` or `numpy.savez_compressed` writes it.
    limits : Limits
        Largest sizes that the file may declare.

    Returns
    -------
    arrays : dict of str to ndarray
        C-ordered arrays of native byte order, in the order of the file.

    Raises
    ------
    TaskFileError
        The file is absent, damaged, too large, or holds anything but plain arrays.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = write_npz(Path(folder.name) / "a.npz", {"y": np.arange(3)})
    >>> read_npz(file)["y"].tolist()
    [0, 1, 2]
    >>> folder.cleanup()
    """
    with _opened(path, "a readable .npz", limits) as (file, handle, archive):
        members = archive.infolist()
        _check_members(file, handle, members, limits)
        return {m.filename[: -len(".npy")]: _read_member(file, archive, m, limits) for m in members}


def member_sizes(path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> dict[str, int]:
    """Return the uncompressed sizes of the members of a zip archive by name, without reading the members."""
    with _opened(path, "a readable archive", limits) as (_, _, archive):
        return {member.filename: member.file_size for member in archive.infolist()}


@dataclass(frozen=True)
class Member:
    """One array of an ``.npz`` that has not been read yet."""

    file: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int | None  # of the data in the file; None if it is compressed
    limits: Limits
    stamp: tuple[int, int]  # size and time of the file, so that a changed file is read again

    def array(self) -> Array:
        """Map the array, or decompress it; the last decompressed array is cached."""
        if self.offset is None:
            return _inflate(self)
        with damage(self.file, "a readable .npz"), self.file.open("rb") as handle:
            handle.seek(self.offset)
            header = read_header(f"{self.file}: member {self.name!r}", handle, self.limits)
            return map_region(self.file, header, self.offset + header.length)


@lru_cache(maxsize=1)
def _inflate(member: Member) -> Array:
    with damage(member.file, "a readable .npz"), zipfile.ZipFile(member.file) as archive:
        return _read_member(member.file, archive, archive.getinfo(f"{member.name}.npy"), member.limits)


def npz_members(path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> dict[str, Member]:
    """Return every array of an ``.npz`` by name, with shape and dtype; only the headers are read."""
    with _opened(path, "a readable .npz", limits) as (file, handle, archive):
        stat = os.fstat(handle.fileno())
        infos = archive.infolist()
        _check_members(file, handle, infos, limits)
        out: dict[str, Member] = {}
        for info in infos:
            where = f"{file}: member {info.filename!r}"
            with archive.open(info) as stream:
                header = read_header(where, stream, limits)
            check_size(where, header, info.file_size)
            offset = _data_offset(where, handle, info, stat.st_size)
            name = info.filename[: -len(".npy")]
            stamp = (stat.st_size, stat.st_mtime_ns)
            out[name] = Member(file, name, header.shape, header.dtype, offset, limits, stamp)
        return out


def write_npz(
    path: str | os.PathLike[str],
    arrays: Mapping[str, Array],
    *,
    overwrite: bool = False,
    compress: bool = False,
) -> Path:
    """Write arrays so that the path holds either the old file or the whole new one, even after a crash.

    An array or a name that could not be read back is a `TaskFileError`. ``compress`` makes embeddings only some 7 %
    smaller.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> write_npz(Path(folder.name) / "a.npz", {"y": np.arange(3)}).name
    'a.npz'
    >>> folder.cleanup()
    """
    file = Path(path)
    for name, array in arrays.items():
        _check_name(str(file), f"{name}.npy")
        check_dtype(f"{file}: array {name!r}", np.asarray(array).dtype)
    with atomic_file(file, overwrite=overwrite) as handle:
        method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
        with zipfile.ZipFile(handle, "w", compression=method) as archive:
            for name, array in arrays.items():
                # ZipInfo has a fixed date, so that equal arrays make equal files.
                info = zipfile.ZipInfo(f"{name}.npy")
                info.compress_type = method
                with archive.open(info, "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
    return file


@contextmanager
def _opened(
    path: str | os.PathLike[str], expected: str, limits: Limits
) -> Iterator[tuple[Path, IO[bytes], zipfile.ZipFile]]:
    """Yield the path, the open file and its zip archive, after checking the size of the archive's directory."""
    file = regular(path)
    with damage(file, expected), file.open("rb") as handle:
        _check_directory(file, handle, limits)
        with zipfile.ZipFile(handle) as archive:
            yield file, handle, archive


def _check_directory(file: Path, handle: IO[bytes], limits: Limits) -> None:
    """Raise if the zip directory is too large by its end record: zipfile would read the whole directory."""
    size = os.fstat(handle.fileno()).st_size
    tail_size = min(size, _END_SIZE + 0xFFFF + _LOCATOR_SIZE + _END64_SIZE)
    handle.seek(size - tail_size)
    tail = handle.read(tail_size)
    handle.seek(0)
    at = tail.rfind(_END)
    if at < 0 or len(tail) < at + _END_SIZE:
        raise TaskFileError(f"{file}: expected a zip archive, got no zip directory; is it truncated?")
    (listing,) = struct.unpack_from("<I", tail, at + 12)
    record = at - _LOCATOR_SIZE - _END64_SIZE
    if tail[max(at - _LOCATOR_SIZE, 0) : at].startswith(_END64_LOCATOR) and record >= 0:
        if not tail[record:].startswith(_END64):
            raise TaskFileError(f"{file}: expected a zip64 end record before its locator, got other bytes")
        (listing,) = struct.unpack_from("<Q", tail, record + 40)
    if listing > limits.directory_bytes:
        raise TaskFileError(
            f"{file}: expected a zip directory of at most {limits.directory_bytes} bytes, got {listing}"
        )


def _check_members(file: Path, handle: IO[bytes], members: list[zipfile.ZipInfo], limits: Limits) -> None:
    if len(members) > limits.members:
        raise TaskFileError(f"{file}: expected at most {limits.members} arrays, got {len(members)}")
    seen: set[str] = set()
    for member in members:
        _check_name(str(file), member.filename)
        if member.filename in seen:
            raise TaskFileError(f"{file}: expected each array once, got {member.filename!r} twice")
        seen.add(member.filename)
        if member.flag_bits & 0x1 or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise TaskFileError(
                f"{file}: expected members stored or deflated, {member.filename!r} is encrypted or compressed otherwise"
            )
    held, declared = sum(m.compress_size for m in members), sum(m.file_size for m in members)
    size = os.fstat(handle.fileno()).st_size
    if held > size:
        raise TaskFileError(
            f"{file}: members declare {held} compressed bytes, the file has {size}; is it damaged?"
        )
    if declared > limits.npz_bytes:
        raise TaskFileError(
            f"{file}: expected at most {limits.npz_bytes} bytes of arrays, got {declared}; "
            "raise Limits(npz_bytes=...) if you trust the file"
        )
    if declared > limits.ratio_free_bytes and declared > limits.ratio * max(held, 1):
        raise TaskFileError(
            f"{file}: expected a compression ratio of at most {limits.ratio:g}:1, "
            f"got {declared} bytes from {held}; a decompression bomb?"
        )


def _check_name(where: str, name: str) -> None:
    if not name.endswith(".npy") or name == ".npy":
        raise TaskFileError(f"{where}: expected members named *.npy only, got {name!r}")
    if any(mark in name for mark in ("/", "\\", ":", "\0")):
        raise TaskFileError(f"{where}: expected member names without path separators, got {name!r}")


def _read_member(file: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, limits: Limits) -> Array:
    where = f"{file}: member {member.filename!r}"
    # The stream needs no limit of its own: zipfile stops at the declared size.
    with archive.open(member) as stream:
        header = read_header(where, stream, limits)
        check_size(where, header, member.file_size)
        stream.seek(0)
        array: Array = np.lib.format.read_array(
            stream, allow_pickle=False, max_header_size=limits.header_bytes
        )
        stream.read(1)  # reaching the end makes zipfile compare the checksum
    return native(where, np.asarray(array, order="C"))


def _data_offset(where: str, handle: Any, info: zipfile.ZipInfo, size: int) -> int | None:
    if info.compress_type != zipfile.ZIP_STORED:
        return None
    handle.seek(info.header_offset)
    local = handle.read(_LOCAL_SIZE)
    if len(local) < _LOCAL_SIZE or not local.startswith(_LOCAL):
        raise TaskFileError(f"{where}: expected a zip entry at byte {info.header_offset}, got other bytes")
    name, extra = struct.unpack_from("<HH", local, 26)
    offset: int = info.header_offset + _LOCAL_SIZE + name + extra
    if offset + info.file_size > size or info.compress_size != info.file_size:
        raise TaskFileError(
            f"{where}: expected {info.file_size} bytes from byte {offset} on, the file has {size}"
        )
    return offset
