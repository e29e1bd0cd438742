"""Flat index files of faiss (inner product), written and searched with numpy alone.

A flat index is the rows themselves after a header of 45 bytes. Its file is written row by row, so that no row stays in
memory, and mapped for reading: its size and header are checked, and no other program parses it. faiss reads and writes
the same bytes; a test compares them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import numpy as np

from fairerclip._util.files import reading
from fairerclip._util.types import F64, Floats, Ints
from fairerclip.applying.best_rows import BestRows
from fairerclip.data.io.npy import regular
from fairerclip.data.row_pass import BLOCK_ROWS
from fairerclip.errors import IndexFileError, TaskFileError

MAGIC = b"IxFI"
_HEADER = struct.Struct("<4siqqqBiQ")
_UNUSED = 1 << 20  # faiss writes this number into two fields that it no longer uses
_TRAINED, _INNER_PRODUCT = 1, 0


def write_flat(handle: IO[bytes], blocks: Iterable[Floats], shape: tuple[int, int]) -> None:
    """Write an index of rows (n, p) of the given shape, block by block."""
    handle.write(_header(*shape))
    for rows in blocks:
        handle.write(np.ascontiguousarray(rows, dtype="<f4").data)


def _header(rows: int, width: int) -> bytes:
    return _HEADER.pack(MAGIC, width, rows, _UNUSED, _UNUSED, _TRAINED, _INNER_PRODUCT, rows * width)


class FlatIndex:
    """A flat index on disk, searched block by block; rows are mapped, not read into memory.

    Parameters
    ----------
    file : Path
        File of the index.
    rows, width : int
        Shape that it must have.
    """

    def __init__(self, file: Path, rows: int, width: int) -> None:
        try:
            size = os.path.getsize(regular(file))
            with reading(IndexFileError), file.open("rb") as handle:
                found = handle.read(_HEADER.size)
        except TaskFileError as error:
            raise IndexFileError(str(error)) from None
        expected = _HEADER.size + 4 * rows * width
        if size != expected or found != _header(rows, width):
            raise IndexFileError(
                f"{file}: expected a flat index of {rows:,} rows of width {width} in {expected:,} bytes, got {size:,} "
                f"bytes that begin with {found[:4]!r}; build the index again"
            )
        self._rows = np.memmap(file, dtype="<f4", mode="r", offset=_HEADER.size, shape=(rows, width))

    def search(self, Q: F64, k: int) -> tuple[list[Ints], list[F64]]:
        """Return row numbers and scores of the k best rows of each unit query (m, p). O(n·p·m) time."""
        best = BestRows(len(Q), k)
        columns = Q.T.astype(np.float32)
        for start in range(0, len(self._rows), BLOCK_ROWS):
            best.add(start, self._rows[start : start + BLOCK_ROWS] @ columns)
        return best.rows, best.scores
