"""Ids of a store block by block, and stores of some of its rows: nothing of the size of the store is in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.files import reading
from fairerclip._util.types import Ints
from fairerclip.data.store_parts import StoredRows, StorePart
from fairerclip.data.stores import EmbeddingStore, part_ids
from fairerclip.data.task_parts import Split
from fairerclip.errors import ShapeError, StoreError

Array = NDArray[Any]

ID_ROWS = 65_536
"""Ids that are in memory at once."""
RANKED_ROWS = 100_000
"""Most rows of a store by which rankings are measured, in memory. Of more rows, a random sample is drawn."""


def id_blocks(store: EmbeddingStore, rows: int = ID_ROWS) -> Iterator[Array]:
    """Yield the ids of a store that has ids, ``rows`` of them (b,) at a time, in the order of its rows.

    Memory: a block; the ids of one file, where its format can only be read as a whole.

    Examples
    --------
    >>> store = EmbeddingStore.from_array(np.eye(3), ids=["a", "b", "c"])
    >>> [block.tolist() for block in id_blocks(store, 2)]
    [['a', 'b'], ['c']]
    """
    waiting: list[Array] = []
    count = 0
    for piece in _pieces(store):
        start = 0
        while count + len(piece) - start >= rows:
            stop = start + rows - count
            waiting.append(piece[start:stop])
            yield np.concatenate(waiting) if len(waiting) > 1 else waiting[0]
            waiting, count, start = [], 0, stop
        if start < len(piece):
            waiting.append(piece[start:])
            count += len(piece) - start
    if waiting:
        yield np.concatenate(waiting)


def _pieces(store: EmbeddingStore) -> Iterator[Array]:
    """Yield ids in pieces of any size; raise if a part has another number of ids than rows."""
    if store.held_ids is not None:
        yield store.held_ids
        return
    with reading(StoreError):
        for part in store.parts:
            if part.id_blocks is None:
                yield part_ids(part)
                continue
            count = 0
            for block in part.id_blocks():
                count += len(block)
                yield block
            if count != part.shape[0]:
                raise StoreError(
                    f"{part.where}: {part.shape[0]:,} embeddings but {count:,} ids; each row needs one"
                )


def ids_at(store: EmbeddingStore, rows: Any) -> list[str]:
    """Return the ids of some rows, by row number in any order; all ids are read, but only these are kept."""
    wanted = np.asarray(rows, dtype=np.int64)
    order = np.argsort(wanted, kind="stable")
    ascending, found = wanted[order], [""] * len(wanted)
    start = at = 0
    for block in id_blocks(store):
        end = int(np.searchsorted(ascending, start + len(block)))
        for place, name in zip(order[at:end], block[ascending[at:end] - start].tolist(), strict=True):
            found[place] = name
        start, at = start + len(block), end
        if at == len(wanted):
            break
    return found


class _SomeRows:
    """Rows of a part of a store by their sorted numbers (m,)."""

    def __init__(self, source: StoredRows, rows: Array) -> None:
        self._source, self._rows = source, rows

    def read(self, start: int, stop: int) -> Array:
        return self.take(np.arange(start, stop))

    def take(self, rows: Ints) -> Array:
        numbers = self._rows[rows]
        if len(numbers) and int(numbers[-1]) - int(numbers[0]) == len(numbers) - 1:  # without a gap
            return self._source.read(int(numbers[0]), int(numbers[-1]) + 1)
        return self._source.take(numbers.astype(np.int64))


def select_rows(store: EmbeddingStore, rows: Any) -> EmbeddingStore:
    """Return a store of some rows of another one; the rows stay on disk.

    Parameters
    ----------
    store : EmbeddingStore
        The rows to choose from.
    rows : array of shape (m,)
        Row numbers, ascending and each once.

    Returns
    -------
    EmbeddingStore
        Its ids are read from the files when they are used. Memory: 4 bytes per row.

    Examples
    --------
    >>> store = EmbeddingStore.from_array(np.eye(3), ids=["a", "b", "c"])
    >>> some = select_rows(store, [0, 2])
    >>> some.shape, some.ids.tolist()
    ((2, 3), ['a', 'c'])
    """
    numbers = np.asarray(rows)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not len(numbers):
        raise ShapeError(
            f"{store.path}: expected row numbers (m,), got {numbers.dtype} of shape {numbers.shape}"
        )
    if (numbers[1:] <= numbers[:-1]).any() or numbers[0] < 0 or numbers[-1] >= len(store):
        raise ShapeError(
            f"{store.path}: expected ascending row numbers from 0 to {len(store) - 1}, each once"
        )
    if len(numbers) == len(store):
        return store
    parts, start = [], 0
    for part in store.parts:
        low, high = np.searchsorted(numbers, [start, start + part.shape[0]])
        if low < high:
            own = (numbers[low:high] - start).astype(np.uint32)
            held = store.held_ids
            parts.append(_some(part, own, None if held is None else held[start : start + part.shape[0]]))
        start += part.shape[0]
    selected = EmbeddingStore(parts, path=store.path, provenance=store.provenance)
    if store.origin is not None and store.origin.rows is None:
        selected.origin = store.origin._replace(rows=numbers)
    return selected


def _some(part: StorePart, rows: Array, held: Array | None) -> StorePart:
    """Return some rows of a part; ``held`` are ids that take the place of those of the file."""
    shape = (len(rows), part.shape[1])
    source = _SomeRows(part.source, rows)
    if held is not None:
        return StorePart(part.where, source, shape, part.dtype, lambda: held[rows])
    if part.ids is None:
        return StorePart(part.where, source, shape, part.dtype)
    return StorePart(part.where, source, shape, part.dtype, lambda: part_ids(part)[rows])


def rows_in_memory(split: Split, most: int = RANKED_ROWS, seed: int = 0) -> Split:
    """Return a split as it is, or of rows on disk at most so many, drawn at random, in memory."""
    if not isinstance(split.X, EmbeddingStore):
        return split
    rows = np.arange(len(split))
    if len(split) > most:
        rows = np.sort(np.random.default_rng(seed).choice(len(split), most, replace=False))
    return split.take(rows)


def sample_note(split: Split) -> str | None:
    """Return the sentence on rankings that are measured on a sample of the rows of a split, or None."""
    if not isinstance(split.X, EmbeddingStore) or len(split) <= RANKED_ROWS:
        return None
    return f"Rankings are measured on {RANKED_ROWS:,} of the {len(split):,} rows, drawn at random."
