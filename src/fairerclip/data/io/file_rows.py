"""Rows of a matrix in a file, read into memory block by block in the place of being mapped.

Pages of a map count as memory of the process as long as the map exists, and the system maps up to 16 pages around each
one that is touched. So the pages of a large file would add up, even where only single rows are used. A file that was
cut short while it was mapped ends the process; read, it is an error.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import Ints
from fairerclip.errors import StoreError

Array = NDArray[Any]


class FileRows:
    """Rows (n, p) of a matrix in C order in a file, for slices and row numbers.

    Parameters
    ----------
    file : Path
        The file.
    offset : int
        Bytes before the first row.
    shape : tuple of int
        Numbers n of rows and p of columns.
    dtype : dtype
        Type of the numbers in the file.
    """

    ndim = 2

    def __init__(self, file: Path, offset: int, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        self._file, self._offset = file, offset
        self.shape, self.dtype = shape, dtype
        self._identity: tuple[int, ...] | None = None

    @classmethod
    def of(cls, array: Array) -> FileRows | None:
        """Return the rows of a matrix that is a map of a file, or a part of one; None if it is not in a file as it is.

        None, too, for a map that can be written to: the file may not have its values yet.
        """
        mapped = _map_of(array)
        if mapped is None or mapped.mode != "r" or mapped.filename is None:
            return None
        if array.ndim != 2 or not array.size or not array.flags.c_contiguous:
            return None
        # Of a part, numpy keeps the offset of the whole map: addresses tell where the part begins.
        begin = mapped.offset + array.ctypes.data - mapped.ctypes.data
        return cls(Path(mapped.filename), begin, (array.shape[0], array.shape[1]), array.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.shape[0] * self._row_bytes

    @property
    def _row_bytes(self) -> int:
        return self.shape[1] * self.dtype.itemsize

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        rows = self.read(0, len(self))
        return rows if dtype is None else rows.astype(dtype, copy=False)

    def __getitem__(self, rows: slice | Sequence[int] | Array) -> Array:
        """Return rows (m, p) for a slice, row numbers or a mask."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                return self.read(start, max(start, stop))
            rows = np.arange(start, stop, step)
        numbers = np.arange(len(self))[rows]  # raises as an array does for a number outside
        order = np.argsort(numbers, kind="stable")
        out = np.empty((len(numbers), self.shape[1]), dtype=self.dtype)
        out[order] = self.take(numbers[order])
        return out

    def read(self, start: int, stop: int) -> Array:
        """Return rows start to stop (m, p)."""
        out = np.empty((stop - start, self.shape[1]), dtype=self.dtype)
        with self._opened() as handle:
            self._fill(handle, start, out)
        return out

    def take(self, rows: Ints) -> Array:
        """Return rows (m, p) by sorted row numbers; consecutive ones are read together."""
        out = np.empty((len(rows), self.shape[1]), dtype=self.dtype)
        edges = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)]
        with self._opened() as handle:
            for first, stop in pairwise(edges):
                self._fill(handle, int(rows[first]) if first < stop else 0, out[first:stop])
        return out

    @contextmanager
    def _opened(self) -> Iterator[FileIO]:
        """Open the file; raise if it is not the one that was read before."""
        with FileIO(self._file) as handle:
            found = os.fstat(handle.fileno())
            identity = (found.st_dev, found.st_ino, found.st_size)
            if self._identity not in (None, identity):
                raise StoreError(
                    f"{self._file}: the file has been replaced or has another size since rows were read from it; begin "
                    "again"
                )
            self._identity = identity
            yield handle

    def _fill(self, handle: FileIO, start: int, out: Array) -> None:
        """Read the rows from ``start`` on into an array."""
        handle.seek(self._offset + start * self._row_bytes)
        left = out.reshape(-1).view(np.uint8).data
        while len(left):
            count = handle.readinto(left)
            if not count:
                raise StoreError(
                    f"{self._file}: the file ends before row {start + len(out)} of {len(self)}; it has become shorter "
                    "since it was opened"
                )
            left = left[count:]


def _map_of(array: Any) -> np.memmap[Any, Any] | None:
    """Return the map of a file that an array is, or that it is a view of; None if it is in memory."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap):
            return array
        array = array.base
    return None
