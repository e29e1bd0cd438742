"""Parts of a store: consecutive rows of one file, and where they are read from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import Ints
from fairerclip.data.io.file_rows import FileRows
from fairerclip.errors import StoreError

Array = NDArray[Any]


class StoredRows(Protocol):
    """Source from which the rows of a part are read."""

    def read(self, start: int, stop: int) -> Array:
        """Return rows start to stop (m, p), as on disk."""

    def take(self, rows: Ints) -> Array:
        """Return rows (m, p) by sorted row numbers, as on disk."""


@dataclass(eq=False)
class StorePart:
    """Consecutive rows of a store: their name for messages, source, shape, type on disk, and ids."""

    where: str
    source: StoredRows
    shape: tuple[int, int]
    dtype: str
    ids: Callable[[], Array] | None = None


class ArrayRows:
    """Rows of an array, which is opened when rows are read; those of a map are read from its file."""

    def __init__(self, array: Callable[[], Array]) -> None:
        self._array = array
        self._in_file: FileRows | None = None

    def read(self, start: int, stop: int) -> Array:
        """Return rows start to stop (m, p), as on disk."""
        rows = self._rows()
        return rows.read(start, stop) if isinstance(rows, FileRows) else rows[start:stop]

    def take(self, rows: Ints) -> Array:
        """Return rows (m, p) by sorted row numbers, as on disk."""
        found = self._rows()
        return found.take(rows) if isinstance(found, FileRows) else found[rows]

    def _rows(self) -> Array | FileRows:
        if self._in_file is None:  # one for all reads: it notices if the file is replaced
            array = self._array()
            self._in_file = FileRows.of(array)
            return array if self._in_file is None else self._in_file
        return self._in_file


def array_part(
    where: str,
    array: Callable[[], Array],
    shape: tuple[int, ...],
    dtype: np.dtype[Any] | str,
    ids: Callable[[], Array] | None = None,
) -> StorePart:
    """Return a part over one matrix; raise if it is not a matrix of floats."""
    return matrix_part(where, ArrayRows(array), shape, dtype, ids)


def matrix_part(
    where: str,
    source: StoredRows,
    shape: tuple[int, ...],
    dtype: np.dtype[Any] | str,
    ids: Callable[[], Array] | None = None,
) -> StorePart:
    """Return a part over the rows of one matrix; raise if it is not a matrix of floats."""
    bfloat = isinstance(dtype, str) and dtype == "bfloat16"
    if len(shape) != 2 or 0 in shape[1:] or not (bfloat or np.dtype(dtype).kind == "f"):
        raise StoreError(
            f"{where}: expected a matrix (rows, width) of floats; got {dtype} of shape {tuple(shape)}"
        )
    name = "bfloat16" if bfloat else np.dtype(dtype).newbyteorder("=").name
    return StorePart(where, source, (int(shape[0]), int(shape[1])), name, ids)
