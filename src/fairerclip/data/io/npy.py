"""Safe reading of ``.npy``, and the limits, headers and types that it shares with ``.npz``.

Everything that a file declares is checked before memory is allocated for it: whatever the file holds, these functions
raise `TaskFileError` and nothing else. Pickles are never read.
"""

from __future__ import annotations

import io
import math
import os
import struct
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.errors import TaskFileError

Array = NDArray[Any]

ALLOWED = "floats of 2, 4 or 8 bytes, integers, booleans and text"
_LAST_CODE_POINT = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)
# Exceptions that zipfile, zlib and numpy's header parser raise on damaged input.
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
class Limits:
    """Largest sizes that a file may declare; they are checked before memory is allocated.

    Examples
    --------
    >>> Limits(npz_bytes=10**6).members
    256
    """

    npz_bytes: int = 8 * 1024**3
    """Bytes of all arrays of one file together, uncompressed."""
    ratio: float = 100.0
    """Ratio of uncompressed to compressed bytes."""
    ratio_free_bytes: int = 64 * 1024**2
    """Uncompressed bytes up to which any ratio is accepted: honest labels compress 1000:1, but they are small."""
    members: int = 256
    """Number of arrays in one ``.npz``."""
    directory_bytes: int = 1024**2
    """Bytes of the zip directory; zipfile makes an object of every entry before they can be counted."""
    header_bytes: int = 10_000
    """Bytes of the header of one ``.npy``, as numpy's max_header_size."""
    axes: int = 8
    """Number of axes of one array."""


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Header:
    """Checked header of an ``.npy``."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    length: int  # bytes before the data

    @property
    def nbytes(self) -> int:
        """Number of bytes of the data."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_npy(path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> Array:
    """Map an ``.npy`` into memory, read-only; rows are read when they are used.

    Parameters
    ----------
    path : path-like
        An ``.npy`` of format version 1, 2 or 3.
    limits : Limits
        Largest sizes that the file may declare.

    Returns
    -------
    array : numpy.memmap or ndarray
        In the order of the file, C or Fortran. A file of foreign byte order, or an empty one, is returned as
        an array in memory.

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
    with damage(Path(path), "a readable .npy"):
        return native(str(path), array)


def map_npy(path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> Array:
    """Map an ``.npy``, read-only, in any order and byte order; raise `TaskFileError` if it is damaged."""
    file = regular(path)
    with damage(file, "a readable .npy"):
        with file.open("rb") as handle:
            size = os.fstat(handle.fileno()).st_size
            header = read_header(str(file), handle, limits)
        check_size(str(file), header, size)
        return map_region(file, header, header.length)


def map_region(file: Path, header: Header, offset: int) -> Array:
    """Map the data that begin at ``offset``, read-only."""
    if header.nbytes == 0:  # an empty file region cannot be mapped
        return np.empty(header.shape, dtype=header.dtype)
    order: Any = "F" if header.fortran else "C"
    return np.memmap(file, dtype=header.dtype, mode="r", offset=offset, shape=header.shape, order=order)


def regular(path: str | os.PathLike[str]) -> Path:
    """Return the path of a regular file; raise if it is absent, not accessible, or another kind of file."""
    file = Path(path)
    try:
        present, regular = file.exists(), file.is_file()
    except (OSError, ValueError) as error:  # the name holds a NUL or is too long, or no permission
        raise TaskFileError(f"{path!s}: expected a readable file, got {error}") from error
    if not present:
        raise TaskFileError(f"{file}: expected a file, found nothing at this path")
    if not regular:  # a FIFO or a device could block or never end
        raise TaskFileError(f"{file}: expected a regular file, found a folder or a device")
    return file


@contextmanager
def damage(file: Path, expected: str) -> Iterator[None]:
    """Turn every exception that damaged input can cause into a `TaskFileError` that says what was ``expected``."""
    try:
        yield
    except TaskFileError:
        raise
    except _DAMAGE as error:
        raise TaskFileError(f"{file}: expected {expected}, got {type(error).__name__}: {error}") from error


def read_header(where: str, stream: IO[bytes], limits: Limits) -> Header:
    """Read and check the header; its length is checked first, because numpy would read any length."""
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
    # Version 3 differs from 2 in the UTF-8 field names of structured types, which are not accepted.
    parse = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    try:
        shape, fortran, dtype = parse(text, max_header_size=limits.header_bytes)
    except _DAMAGE as error:
        raise TaskFileError(
            f"{where}: expected an .npy header, got {type(error).__name__}: {error}"
        ) from error
    check_dtype(where, dtype)
    shape = tuple(int(n) for n in shape)
    if len(shape) > limits.axes or any(n < 0 for n in shape):
        raise TaskFileError(
            f"{where}: expected at most {limits.axes} axes of length 0 or more, got shape {shape}"
        )
    if math.prod(max(n, 1) for n in shape) * dtype.itemsize > sys.maxsize:
        raise TaskFileError(f"{where}: expected a shape that fits in memory, got {shape}")
    return Header(shape, bool(fortran), dtype, 8 + width + length)


def check_dtype(where: str, dtype: np.dtype[Any]) -> None:
    """Raise if a dtype is not one of plain numbers or text."""
    plain = dtype.kind in "iubU" or (dtype.kind == "f" and dtype.itemsize in (2, 4, 8))
    if not plain or dtype.itemsize == 0 or dtype.hasobject or dtype.fields or dtype.subdtype:
        raise TaskFileError(f"{where}: expected {ALLOWED}, got dtype {dtype}")


def check_size(where: str, header: Header, size: int) -> None:
    """Raise if a file or member does not have the size that its header requires."""
    if header.length + header.nbytes != size:
        raise TaskFileError(
            f"{where}: shape {header.shape} of {header.dtype} needs {header.length + header.nbytes} bytes "
            f"with its header, got {size}; is it truncated?"
        )


def native(where: str, array: Array) -> Array:
    """Convert to native byte order, and raise on invalid bit patterns that numpy's reader accepts.

    These are code points beyond Unicode, whose use raises a SystemError; halves of surrogate pairs, which cannot be
    encoded; and booleans of other bytes than 0 and 1, which do not compare as booleans.
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
