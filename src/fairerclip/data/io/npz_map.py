"""Mapping arrays of an ``.npz`` where they lie, in the byte order they have.

`read_npz` gives native arrays in memory; embeddings that do not fit there are read through these instead. The
checks are the same, except that a checksum is compared only where a member is inflated.
"""

from __future__ import annotations

import os
import struct
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.data.io import npz
from fairerclip.data.io.limits import DEFAULT_LIMITS, Limits
from fairerclip.errors import TaskFileError

Array = NDArray[Any]
_LOCAL, _LOCAL_SIZE = b"PK\x03\x04", 30


@dataclass(frozen=True)
class Member:
    """One array of an ``.npz``, not read yet."""

    file: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int | None  # of the data in the file; None where it is deflated
    limits: Limits
    stamp: tuple[int, int]  # size and time of the file, so that a changed file is read anew

    def array(self) -> Array:
        """Map the array where it is stored, or inflate it; the last inflated one is kept."""
        if self.offset is None:
            return _inflate(self)
        with npz._damage(self.file, "a readable .npz"), self.file.open("rb") as handle:
            handle.seek(self.offset)
            header = npz._read_header(f"{self.file}: member {self.name!r}", handle, self.limits)
            return npz._map(self.file, header, self.offset + header.length)


@lru_cache(maxsize=1)
def _inflate(member: Member) -> Array:
    with (
        npz._damage(member.file, "a readable .npz"),
        member.file.open("rb") as handle,
        zipfile.ZipFile(handle) as archive,
    ):
        return npz._read_member(member.file, archive, archive.getinfo(f"{member.name}.npy"), member.limits)


def npz_members(path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> dict[str, Member]:
    """Every array of an ``.npz`` by name, with shape and dtype; nothing is read but the headers."""
    file = npz._regular(path)
    with npz._damage(file, "a readable .npz"), file.open("rb") as handle:
        stat = os.fstat(handle.fileno())
        npz._check_directory(file, handle, stat.st_size, limits)
        with zipfile.ZipFile(handle) as archive:
            infos = archive.infolist()
            npz._check_members(file, infos, stat.st_size, limits)
            out: dict[str, Member] = {}
            for info in infos:
                where = f"{file}: member {info.filename!r}"
                with archive.open(info) as stream:
                    header = npz._read_header(where, stream, limits)
                npz._check_size(where, header, info.file_size)
                offset = _data_offset(where, handle, info, stat.st_size)
                name = info.filename[: -len(".npy")]
                stamp = (stat.st_size, stat.st_mtime_ns)
                out[name] = Member(file, name, header.shape, header.dtype, offset, limits, stamp)
            return out


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
