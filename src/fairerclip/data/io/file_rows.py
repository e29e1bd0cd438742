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


COMPARED_ROWS = 64
"""Rows of a map that are compared with those of its file."""
GAP_BYTES = 1 << 14
"""Bytes between two rows that are read and left: to ask the system once more takes longer."""
TAKEN_ROWS = 1024
"""Most rows that are read together with those between them."""


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
        self._seen: dict[str, tuple[int, ...]] = {}

    @classmethod
    def of(cls, array: Array) -> FileRows | None:
        """Return the rows of a matrix that is a map of a file, or a part of one; None if it is not in a file as it is.

        None, too, for a map that can be written to, since the file may not have its values yet, and for a map of a
        file that was removed or replaced since: some rows are compared.
        """
        mapped = _map_of(array)
        if mapped is None or mapped.mode != "r" or mapped.filename is None:
            return None
        if array.ndim != 2 or not array.size or not array.flags.c_contiguous:
            return None
        # Of a part, numpy keeps the offset of the whole map: addresses tell where the part begins.
        begin = mapped.offset + array.ctypes.data - mapped.ctypes.data
        rows = cls(Path(mapped.filename), begin, (array.shape[0], array.shape[1]), array.dtype)
        some = np.unique(np.linspace(0, len(array) - 1, COMPARED_ROWS).astype(np.int64))
        try:
            in_file = rows.take(some)
        except (
            StoreError
        ):  # to touch a map beyond the end of its file would end the process: reading is an error
            return rows
        except OSError:
            return None
        same = in_file.tobytes() == array[some].tobytes()
        whole = mapped.base
        if isinstance(whole, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            whole.madvise(
                mmap.MADV_DONTNEED
            )  # the pages around these rows count as memory of the process no longer
        return rows if same else None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_seen": {}}  # another machine numbers its devices and files in its own way

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
        numbers = self._numbers(np.asarray(rows))
        order = np.argsort(numbers, kind="stable")
        out = np.empty((len(numbers), self.shape[1]), dtype=self.dtype)
        out[order] = self.take(numbers[order])
        return out

    def _numbers(self, rows: Array) -> Ints:
        """Return row numbers or a mask as numbers from 0 on; raise as an array does for others."""
        n = len(self)
        if rows.dtype == np.bool_ and rows.shape == (n,):
            return np.flatnonzero(rows)
        if rows.ndim != 1 or (rows.dtype.kind not in "iu" and rows.size):
            raise IndexError(
                f"expected a slice, row numbers (m,) or a mask ({n},), got {rows.dtype} {rows.shape}"
            )
        numbers = rows.astype(np.int64)
        outside = (numbers < -n) | (numbers >= n)
        if outside.any():
            raise IndexError(f"row {numbers[outside][0]} is outside of the {n} rows")
        return np.where(numbers < 0, numbers + n, numbers)

    def read(self, start: int, stop: int) -> Array:
        """Return rows start to stop (m, p)."""
        out = np.empty((stop - start, self.shape[1]), dtype=self.dtype)
        with self._opened() as handle:
            self._fill(handle, start, out)
        return out

    def take(self, rows: Ints) -> Array:
        """Return rows (m, p) by sorted row numbers; those near each other are read together."""
        out = np.empty((len(rows), self.shape[1]), dtype=self.dtype)
        wide = np.flatnonzero(np.diff(rows) * self._row_bytes > GAP_BYTES) + 1
        edges = np.union1d(wide, np.arange(0, len(rows), TAKEN_ROWS)).tolist()
        with self._opened() as handle:
            for first, stop in pairwise([*edges, len(rows)]):
                begin, end = int(rows[first]), int(rows[stop - 1]) + 1
                if np.all(np.diff(rows[first:stop]) == 1):
                    self._fill(handle, begin, out[first:stop])
                    continue
                between = np.empty((end - begin, self.shape[1]), dtype=self.dtype)
                self._fill(handle, begin, between)
                out[first:stop] = between[rows[first:stop] - begin]
        return out

    @contextmanager
    def _opened(self) -> Iterator[FileIO]:
        """Open the file; raise if it is not the one that was read before."""
        with FileIO(self._file) as handle:
            found = os.fstat(handle.fileno())
            identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if self._seen.setdefault("identity", identity) != identity:
                raise StoreError(
                    f"{self._file}: the file has been replaced or changed since rows were read from it; begin again"
                )
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
