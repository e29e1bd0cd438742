"""What the workers of a cluster run: parts of rows are opened, seen through views, summed and merged.

Nothing here imports Dask: a worker has it already.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.data.row_pass import Sum, single_blas, sum_rows
from fairerclip.data.stores import EmbeddingStore, open_store
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


def reopened(store: EmbeddingStore) -> Any:
    """Return the rows of a store, which are opened by its path where they are unpickled; None for a store of arrays."""
    if store.origin is None:
        return None
    path, options, numbers = store.origin
    if numbers is None:
        return RowSlice(path, options, 0, len(store))
    return TakenRows(RowSlice(path, options, 0, int(numbers.max()) + 1), numbers)


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


def run(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns."""
    with _one_thread_per_task():
        return function(*arguments)


def sum_part(part: Any, start: Callable[[], Sum], columns: Sequence[Any]) -> Sum:
    """Add all rows of a part to an accumulator."""
    with _one_thread_per_task():
        total = sum_rows(part, start, columns)
    return copy.copy(total)  # as it is pickled: without buffers for the next block


def merged(first: Sum, *others: Sum) -> Sum:
    """Return the sum of accumulators of consecutive rows; the inputs stay, for a task that is run again."""
    total = copy.deepcopy(first)
    for other in others:
        total.merge(other)
    return total


def free_waiting(dask_scheduler: Any, keys: Sequence[Any]) -> None:
    """Let tasks whose worker died while there was no other run on workers that came since; runs in the scheduler.

    Dask forgets here that other workers are allowed, and such tasks would wait for ever. ``keys`` are those of tasks
    that are waited for; they and what they depend on are ours, and tasks of others are left alone.
    """
    ours: set[Any] = set()
    more = {dask_scheduler.tasks[key] for key in keys if key in dask_scheduler.tasks}
    while more:
        ours |= more
        more = {needed for task in more for needed in task.dependencies} - ours
    stuck = [task.key for task in dask_scheduler.unrunnable if task.loose_restrictions and task in ours]
    dask_scheduler.set_restrictions(dict.fromkeys(stuck))
    dask_scheduler.transitions(dict.fromkeys(stuck, "processing"), "fairerclip")


def _worker() -> Any:
    """Return the worker that runs this task; None outside of a task."""
    module = sys.modules.get("distributed.worker")
    if module is None:
        return None
    try:
        return module.get_worker()
    except ValueError:
        return None


def _one_thread_per_task() -> AbstractContextManager[None]:
    """Give each task one thread on a worker that runs several; the only task has all threads that BLAS may use."""
    worker = _worker()
    return single_blas() if worker is not None and worker.state.nthreads > 1 else nullcontext()


def worker_memory() -> int | None:
    """Return the bytes of memory that Dask allows the worker of this task; None without a limit, or outside of one."""
    worker = _worker()
    limit = None if worker is None else worker.memory_manager.memory_limit
    return None if limit is None else int(limit)
