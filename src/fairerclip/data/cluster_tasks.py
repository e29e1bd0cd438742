"""What the workers of a cluster run: parts of rows are opened, seen through views, summed and merged.

Nothing here imports Dask: a worker has it already.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.data.row_pass import Sum, single_blas, sum_rows
from fairerclip.data.stores import open_store
from fairerclip.errors import StoreError


class RowSlice:
    """Consecutive rows of a store, opened where they are used and pickled as the path of the store.

    Parameters
    ----------
    path : str
        Path of the store.
    options : mapping
        Options of `open_store`.
    start, stop : int
        The rows.
    """

    def __init__(self, path: str, options: Mapping[str, Any], start: int, stop: int) -> None:
        self._opened, self._start, self._stop = (path, options), start, stop
        self._X = open_store(path, **options)
        if len(self._X) < stop:
            raise StoreError(
                f"{path}: has {len(self._X):,} rows here, expected {stop:,}; is it the same store?"
            )
        self.shape = (stop - start, self._X.shape[1])
        self.dtype = self._X.dtype

    def __reduce__(self) -> Any:
        return RowSlice, (*self._opened, self._start, self._stop)

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, slice):
            first, stop, step = rows.indices(self.shape[0])
            return self._X[slice(self._start + first, self._start + stop, step)]
        return self._X[self._start + np.asarray(rows)]


class TakenRows:
    """Some rows of others, by their numbers (m,), read when they are used."""

    def __init__(self, X: Any, numbers: NDArray[np.integer]) -> None:
        self._X, self._numbers = X, numbers
        self.shape = (len(numbers), int(X.shape[1]))
        self.dtype = X.dtype

    def __getitem__(self, rows: Any) -> Any:
        return self._X[self._numbers[rows]]


def same(value: Any) -> Any:
    """Return what was sent, so that several tasks share it."""
    return value


def joined(*pieces: NDArray[Any]) -> NDArray[Any]:
    """Return arrays of consecutive rows as one."""
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def seen_through(view: Callable[[Any], Any], part: Any) -> Any:
    """Return a part as a view sees it."""
    return view(part)


def read_part(part: Any, rows: Any) -> NDArray[Any]:
    """Return rows (m, p) of a part by a slice or their numbers in it."""
    return np.asarray(part[rows])


def sum_part(part: Any, start: Callable[[], Sum], columns: Sequence[Any]) -> Sum:
    """Add all rows of a part to an accumulator.

    A worker that runs several tasks at a time gives each of them one thread; a worker with one task gives it all
    threads that BLAS may use.
    """
    with single_blas() if _tasks_at_once() > 1 else nullcontext():
        total = sum_rows(part, start, columns)
    return copy.copy(total)  # as it is pickled: without buffers for the next block


def merged(first: Sum, *others: Sum) -> Sum:
    """Return the sum of accumulators of consecutive rows; the inputs stay, for a task that is run again."""
    total = copy.deepcopy(first)
    for other in others:
        total.merge(other)
    return total


def _worker() -> Any:
    """Return the worker that runs this task; None outside of a task."""
    module = sys.modules.get("distributed.worker")
    if module is None:
        return None
    try:
        return module.get_worker()
    except ValueError:
        return None


def _tasks_at_once() -> int:
    worker = _worker()
    return 1 if worker is None else int(worker.state.nthreads)


def worker_memory() -> int | None:
    """Return the bytes of memory that Dask allows the worker of this task; None without a limit, or outside of one."""
    worker = _worker()
    limit = None if worker is None else worker.memory_manager.memory_limit
    return None if limit is None else int(limit)
