"""Reading and writing ``.npz`` and ``.npy`` without trusting them.

Everything a file declares is checked before memory is taken for it: a file can make these functions raise
`TaskFileError`, and nothing else. No pickles are read, and none are written.
"""

import io
import math
import os
import struct
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.files import atomic_file
from fairerclip.data.io.limits import DEFAULT_LIMITS, Limits
from fairerclip.errors import TaskFileError

Array = NDArray[Any]

ALLOWED = "floats of 2, 4 or 8 bytes, integers, booleans and text"
_LAST_CODE_POINT = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)
_END, _END64_LOCATOR, _END64 = b"PK\x05\x06", b"PK\x06\x07", b"PK\x06\x06"
_END_SIZE, _LOCATOR_SIZE, _END64_SIZE = 22, 20, 56
# All that zipfile, zlib and numpy's header parser are known to raise on damaged input.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    tokenize.TokenError,
    SyntaxError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    EOFError,
    NotImplementedError,
    RecursionError,
    RuntimeError,
    MemoryError,
    OSError,
)


@dataclass(frozen=True)
class _Header:
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    length: int  # bytes before the data

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_npz(path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> dict[str, Array]:
    """Read every array of an ``.npz``; memory is at most what the file honestly holds.

    Parameters
    ----------
    path : path-like
        An ``.npz`` as `numpy.savez` or `numpy.savez_compressed` writes it.
    limits : Limits
        What the file may declare.

    Returns
    -------
    dict of str to ndarray
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
    file = _regular(path)
    with _damage(file, "a readable .npz"), file.open("rb") as handle:
        size = os.fstat(handle.fileno()).st_size
        _check_directory(file, handle, size, limits)
        with zipfile.ZipFile(handle) as archive:
            members = archive.infolist()
            _check_members(file, members, size, limits)
            return {m.filename[: -len(".npy")]: _read_member(file, archive, m, limits) for m in members}


def member_sizes(path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> dict[str, int]:
    """Unpacked sizes of the members of a zip archive by name; nothing is unpacked."""
    file = _regular(path)
    with _damage(file, "a readable archive"), file.open("rb") as handle:
        _check_directory(file, handle, os.fstat(handle.fileno()).st_size, limits)
        with zipfile.ZipFile(handle) as archive:
            return {member.filename: member.file_size for member in archive.infolist()}


def read_npy(path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> Array:
    """Map an ``.npy`` into memory, read-only; rows are read when touched.

    Parameters
    ----------
    path : path-like
        An ``.npy`` of format version 1, 2 or 3.
    limits : Limits
        What the file may declare.

    Returns
    -------
    numpy.memmap
        Of the file's own order, so that Fortran-ordered files give the right rows. A file of foreign byte
        order, or an empty one, comes as an array in memory.

    Raises
    ------
    TaskFileError
        The file is absent, damaged, or its size is not the one that its header declares.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(Path(folder.name) / "x.npy", np.eye(2))
    >>> read_npy(Path(folder.name) / "x.npy").tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    >>> folder.cleanup()
    """
    array = map_npy(path, limits=limits)
    with _damage(Path(path), "a readable .npy"):
        return _native(str(path), array)


def map_npy(path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> Array:
    """Map an ``.npy``, read-only, whatever its order and byte order; damage is a `TaskFileError`."""
    file = _regular(path)
    with _damage(file, "a readable .npy"):
        with file.open("rb") as handle:
            size = os.fstat(handle.fileno()).st_size
            header = _read_header(str(file), handle, limits)
        _check_size(str(file), header, size)
        return _map(file, header, header.length)


def _map(file: Path, header: _Header, offset: int) -> Array:
    if header.nbytes == 0:  # an empty file region cannot be mapped
        return np.empty(header.shape, dtype=header.dtype)
    order: Any = "F" if header.fortran else "C"
    return np.memmap(file, dtype=header.dtype, mode="r", offset=offset, shape=header.shape, order=order)


def write_npz(
    path: str | os.PathLike[str],
    arrays: Mapping[str, Array],
    *,
    overwrite: bool = False,
    compress: bool = False,
) -> Path:
    """Write arrays so that the path holds either the old file or the whole new one, even after a crash.

    Parameters
    ----------
    path : path-like
        Where to; a folder that is absent is made.
    arrays : mapping of str to ndarray
        Plain arrays; keys are the member names.
    overwrite : bool
        Replace a file that is there.
    compress : bool
        Deflate the members; embeddings shrink by some 7 % only.

    Returns
    -------
    pathlib.Path
        The path written.

    Raises
    ------
    OutputExistsError
        The path is taken and `overwrite` is false.
    TaskFileError
        An array or its name could not be read back.

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
        _check_dtype(f"{file}: array {name!r}", np.asarray(array).dtype)
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


def _regular(path: str | os.PathLike[str]) -> Path:
    file = Path(path)
    try:
        present, regular = file.exists(), file.is_file()
    except (OSError, ValueError) as error:  # a NUL in the name, a name too long, no permission
        raise TaskFileError(f"{path!s}: expected a readable file, got {error}") from error
    if not present:
        raise TaskFileError(f"{file}: expected a file, found nothing at this path")
    if not regular:  # a FIFO or a device could block or never end
        raise TaskFileError(f"{file}: expected a regular file, found a folder or a device")
    return file


@contextmanager
def _damage(file: Path, expected: str) -> Iterator[None]:
    try:
        yield
    except TaskFileError:
        raise
    except _DAMAGE as error:
        raise TaskFileError(f"{file}: expected {expected}, got {type(error).__name__}: {error}") from error


def _check_directory(file: Path, handle: IO[bytes], size: int, limits: Limits) -> None:
    """Bound the zip directory from its end record, since zipfile reads it whole before we see it."""
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


def _check_members(file: Path, members: list[zipfile.ZipInfo], size: int, limits: Limits) -> None:
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
                f"{file}: {member.filename!r} is encrypted or in a compression that is not read"
            )
    held, declared = sum(m.compress_size for m in members), sum(m.file_size for m in members)
    if held > size:
        raise TaskFileError(f"{file}: members declare {held} compressed bytes, the file has {size}")
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
    # The stream needs no bound of its own: zipfile stops at the declared size, whatever is deflated.
    with archive.open(member) as stream:
        header = _read_header(where, stream, limits)
        _check_size(where, header, member.file_size)
        stream.seek(0)
        array: Array = np.lib.format.read_array(
            stream, allow_pickle=False, max_header_size=limits.header_bytes
        )
        stream.read(1)  # reaching the end makes zipfile compare the checksum
    return _native(where, np.asarray(array, order="C"))


def _read_header(where: str, stream: IO[bytes], limits: Limits) -> _Header:
    """Read the header alone, its length first: numpy would read what the length field asks for."""
    start = stream.read(8)
    if len(start) < 8 or not start.startswith(np.lib.format.MAGIC_PREFIX):
        raise TaskFileError(f"{where}: expected the .npy signature, got {start!r}")
    major = start[6]
    if start[6:8] not in (b"\x01\x00", b"\x02\x00", b"\x03\x00"):
        raise TaskFileError(f"{where}: expected .npy version 1.0, 2.0 or 3.0, got {major}.{start[7]}")
    width, code = (2, "<H") if major == 1 else (4, "<I")
    field = stream.read(width)
    (length,) = struct.unpack(code, field) if len(field) == width else (-1,)
    if not 0 <= length <= limits.header_bytes:
        raise TaskFileError(
            f"{where}: expected a header of at most {limits.header_bytes} bytes, got {length}"
        )
    text = io.BytesIO(field + stream.read(length))
    # Version 3 differs from 2 by UTF-8 field names, and structured types are refused anyway.
    parse = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    try:
        shape, fortran, dtype = parse(text, max_header_size=limits.header_bytes)
    except _DAMAGE as error:
        raise TaskFileError(
            f"{where}: expected an .npy header, got {type(error).__name__}: {error}"
        ) from error
    _check_dtype(where, dtype)
    shape = tuple(int(n) for n in shape)
    if len(shape) > limits.axes or any(n < 0 for n in shape):
        raise TaskFileError(
            f"{where}: expected at most {limits.axes} axes of length 0 or more, got shape {shape}"
        )
    if math.prod(max(n, 1) for n in shape) * dtype.itemsize > sys.maxsize:
        raise TaskFileError(f"{where}: expected a shape that fits in memory, got {shape}")
    return _Header(shape, bool(fortran), dtype, 8 + width + length)


def _check_dtype(where: str, dtype: np.dtype[Any]) -> None:
    plain = dtype.kind in "iubU" or (dtype.kind == "f" and dtype.itemsize in (2, 4, 8))
    if not plain or dtype.itemsize == 0 or dtype.hasobject or dtype.fields or dtype.subdtype:
        raise TaskFileError(f"{where}: expected {ALLOWED}, got dtype {dtype}")


def _check_size(where: str, header: _Header, size: int) -> None:
    if header.length + header.nbytes != size:
        raise TaskFileError(
            f"{where}: shape {header.shape} of {header.dtype} needs {header.length + header.nbytes} bytes "
            f"with its header, got {size}; is it truncated?"
        )


def _native(where: str, array: Array) -> Array:
    """Bring to native byte order, and refuse bit patterns that numpy's reader takes.

    Of text beyond Unicode it gives an array whose use is a SystemError, of half a surrogate pair one that no file can
    hold, and of other bytes than 0 and 1 booleans that differ from the same ones in memory.
    """
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.size and array.dtype.kind in "Ub":
        raw = np.ravel(array, order="K")
        if array.dtype.kind == "b" and raw.view(np.uint8).max() > 1:
            raise TaskFileError(f"{where}: expected booleans of 0 or 1, got other bytes")
        if array.dtype.kind == "U":
            points = raw.view(np.uint32)
            surrogate = (points >= _SURROGATES[0]) & (points <= _SURROGATES[1])
            if points.max() > _LAST_CODE_POINT or surrogate.any():
                raise TaskFileError(f"{where}: expected Unicode text, got invalid code points")
    return array
