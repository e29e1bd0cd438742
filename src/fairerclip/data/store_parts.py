"""Parts of a store: consecutive rows of one file, and where they are read from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import Ints
from fairerclip.errors import StoreError

Array = NDArray[Any]


class StoredRows(Protocol):
    """Source from which the rows of a part are read."""

    def read(self, start: int, stop: int) -> Array:
        """Return rows start to stop (m, p), as on disk."""

    def take(self, rows: Ints) -> Array:
        """Return rows (m, p) by sorted row numbers, as on disk."""


class StorePart:
    """Consecutive rows of a store: their source and its name for messages, shape, type on disk, and ids.

    ``id_blocks`` yields the ids block by block, where the file can be read so; otherwise None.
    """

    def __init__(
        self,
        where: str,
        source: StoredRows,
        shape: tuple[int, int],
        dtype: str,
        ids: Callable[[], Array] | None = None,
        id_blocks: Callable[[], Iterator[Array]] | None = None,
    ) -> None:
        self.where, self.source, self.shape, self.dtype = where, source, shape, dtype
        self.ids, self.id_blocks = ids, id_blocks


class ArrayRows:
    """Rows of an array or memory map, which is opened when rows are read."""

    def __init__(self, array: Callable[[], Array]) -> None:
        self._array = array

    def read(self, start: int, stop: int) -> Array:
        """Return rows start to stop (m, p), as on disk."""
        return _window(self._array(), start, stop)

    def take(self, rows: Ints) -> Array:
        """Return rows (m, p) by sorted row numbers, as on disk."""
        if not len(rows):
            return self._array()[rows]
        first = int(rows[0])
        return _window(self._array(), first, int(rows[-1]) + 1)[rows - first]


def _window(array: Array, start: int, stop: int) -> Array:
    """Return rows start to stop; of a file that is mapped, in a map of their own.

    Pages of a map stay in the memory of the process as long as the map: those of a whole collection would add up.
    """
    if (
        not isinstance(array, np.memmap)
        or not array.flags.c_contiguous
        or start >= stop
        or array.filename is None
    ):
        return array[start:stop]
    offset = array.offset + start * array.strides[0]
    shape = (stop - start, *array.shape[1:])
    return np.memmap(array.filename, dtype=array.dtype, mode="r", offset=offset, shape=shape)


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
