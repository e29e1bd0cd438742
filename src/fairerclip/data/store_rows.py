"""Stores of some of the rows of another one, and samples of rows for what needs them in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import Ints
from fairerclip.data.store_parts import StoredRows, StorePart
from fairerclip.data.stores import EmbeddingStore, part_ids
from fairerclip.data.task_parts import Split
from fairerclip.errors import ShapeError

Array = NDArray[Any]

RANKED_ROWS = 100_000
"""Most rows of a store by which rankings are measured, in memory. Of more rows, a random sample is drawn."""


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
        Ids that are not in memory are read from the files when they are used. Memory: 4 bytes per row.

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
            parts.append(_some(part, own))
        start += part.shape[0]
    selected = EmbeddingStore(parts, path=store.path, provenance=store.provenance)
    if store.held_ids is not None:
        selected = selected.with_ids(store.held_ids[numbers])
    if store.origin is not None and store.origin.rows is None:
        selected.origin = store.origin._replace(rows=numbers)
    return selected


def _some(part: StorePart, rows: Array) -> StorePart:
    """Return some rows of a part."""
    ids = None if part.ids is None else lambda: part_ids(part)[rows]
    source = _SomeRows(part.source, rows)
    return StorePart(part.where, source, (len(rows), part.shape[1]), part.dtype, ids)


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
