"""Arrays that are collected on disk block by block, in files that vanish with the process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.files import writing

Array = NDArray[Any]

COPY_ROWS = 65_536
"""Rows that are copied at once."""


class Spool:
    """An array (n, …) whose rows are added block by block to a temporary file.

    The file has no name, or loses it when the process ends, so that a process that is stopped leaves nothing behind.

    Parameters
    ----------
    folder : Path
        Where the file is created: a folder with room for the array.

    Examples
    --------
    >>> with Spool(Path(tempfile.gettempdir())) as spool:
    ...     spool.add(np.array([1.0, 2.0]))
    ...     spool.add(np.array([3.0]))
    ...     spool.array().tolist()
    [1.0, 2.0, 3.0]
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with writing(folder):
            self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by __exit__
        self.dtype: np.dtype[Any] | None = None
        self._row: tuple[int, ...] = ()
        self._rows = 0

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return self._rows

    def add(self, block: Array) -> None:
        """Add rows (b, …), of the type and width of the first block."""
        if self.dtype is None:
            self.dtype, self._row = block.dtype, block.shape[1:]
        with writing(self.folder):
            self._file.write(np.ascontiguousarray(block, dtype=self.dtype).data)
        self._rows += len(block)

    def array(self) -> Array:
        """Return the array, mapped; it can be used until the spool is closed."""
        if self.dtype is None or not self._rows:
            raise AssertionError("a spool has rows before it is read")
        with writing(self.folder):
            self._file.flush()
        return np.memmap(self._file, dtype=self.dtype, mode="r+", shape=(self._rows, *self._row))

    def fill(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Make it zeros of a shape instead, and return them, mapped, to be written in any order."""
        self.dtype, self._row, self._rows = np.dtype(dtype), shape[1:], shape[0]
        with writing(self.folder):
            self._file.truncate(int(np.prod(shape)) * self.dtype.itemsize)
        return self.array()


def write_npy(
    member: IO[bytes], blocks: Iterable[Array], shape: tuple[int, ...], dtype: Any, *, fortran: bool = False
) -> None:
    """Write an array in the format ``.npy``: its header, and then its values, block by block."""
    kind = np.dtype(dtype)
    header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": fortran, "shape": shape}
    np.lib.format.write_array_header_1_0(member, header)
    for block in blocks:
        member.write(np.ascontiguousarray(block, dtype=kind).tobytes())


def row_blocks(array: Array) -> Iterator[Array]:
    """Yield the rows of an array (n, …) block by block."""
    for start in range(0, len(array), COPY_ROWS):
        yield array[start : start + COPY_ROWS]
