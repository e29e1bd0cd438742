"""`ClusterRows`: rows on the workers of a Dask cluster, to which passes are sent; only sums come back.

Each part of the rows is one task of a pass, and the sums are merged pairwise in the order of the rows, on the workers.
So the result depends on the parts, in the last digits, and neither on timing nor on workers that die.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.extras import require
from fairerclip._util.types import Ints
from fairerclip.data import cluster_tasks
from fairerclip.data.row_pass import Progress, Sum
from fairerclip.errors import ClusterError, LostWorkerError, ShapeError

RETRIES = 1
"""Further tries of a task that raised an error, such as one of a network drive; tasks of dead workers do not count."""
SHARED_BYTES = 1 << 16
"""Size from which an object that all parts need is sent once, and then from worker to worker."""
TASKS_PER_THREAD = 3
"""Tasks under way for each thread of the cluster where results are taken in order."""
TICK, PATIENCE = 1.0, 60.0
"""Seconds after which it is looked whether there are workers, and for how long there may be none."""
LARGEST_GRAPH = {"distributed.admin.large-graph-warning-threshold": 1 << 60}
"""Columns of labels are sent with the tasks, so that they are there if a worker dies: they are large on purpose."""


def dask() -> Any:
    """Return the module ``distributed``; raise with the extra to install if it is absent."""
    return require("distributed", "dask", "a cluster")


class ClusterRows:
    """Rows (n, p) that are read by the workers of a cluster; `fairerclip.distribute` makes them.

    They can be given as ``X`` to `FairerCLIP` and `EmbeddingMitigator`. An index returns rows here; use it for few.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    parts : sequence of Future
        Parts in the order of the rows: anything that returns rows for a slice.
    sizes : sequence of int
        Number of rows of each part.
    width : int
        Width p of the rows.
    dtype : dtype
        Type of the rows.
    homes : sequence of str or None, optional
        Address of the worker that does the work of each part while it lives. Where it is None Dask chooses, by the size
        of what a task needs, and may give one worker the work of two.
    """

    ndim = 2

    def __init__(
        self,
        client: Any,
        parts: Sequence[Any],
        sizes: Sequence[int],
        width: int,
        dtype: Any,
        homes: Sequence[str | None] | None = None,
    ) -> None:
        self._client, self._parts = client, list(parts)
        self._homes = [None] * len(self._parts) if homes is None else list(homes)
        self._starts = np.cumsum([0, *sizes])  # (parts + 1,)
        self.shape = (int(self._starts[-1]), int(width))
        self.dtype = np.dtype(dtype)
        self._sent: dict[str, Any] = {}

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"ClusterRows(shape={self.shape}, parts={len(self._parts)}, workers={len(self._client.nthreads())})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        rows = self[:]
        return rows if dtype is None else rows.astype(dtype, copy=False)

    @property
    def parts_per_worker(self) -> int:
        """Largest number of parts that a worker has if they are spread evenly."""
        return -(-len(self._parts) // max(1, len(self._client.nthreads())))

    def sum_rows(
        self, start: Callable[[], Sum], columns: Sequence[Any] = (), progress: Progress | None = None
    ) -> Sum:
        """Do what `fairerclip.data.row_pass.sum_rows` does, on the workers."""
        with asking():
            shared = self._shared(start)
            sent = self._columns(columns)
            leaves = [
                self._submit(cluster_tasks.sum_part, part, shared, own, home=home)
                for part, own, home in zip(self._parts, sent, self._homes, strict=True)
            ]
            # Results per row come here as they are; moved from worker to worker they would only cost time.
            gathers = getattr(getattr(start, "func", start), "per_row", False)
            sums = leaves if gathers else [self._tree(leaves)]
            left = dict(zip(leaves, np.diff(self._starts).tolist(), strict=True))
            if not gathers:
                left.setdefault(sums[0], 0)
                del leaves  # a part's sum is released when it is merged, if nothing here refers to it
            try:
                done = 0
                for rows in _finished(self._client, left, self._homes):
                    done += rows
                    if progress is not None:
                        progress(done, len(self))
                total: Sum = sums.pop(0).result()
                while sums:
                    total.merge(sums.pop(0).result())
            except BaseException:
                self._client.cancel([*sums, *left])
                raise
        return total

    def wrapped(self, view: Callable[[Any], Any]) -> ClusterRows:
        """Return the rows of which each part is seen through ``view``; what it keeps stays on the workers."""
        with asking():
            shared = self._shared(view)
            parts = [
                self._submit(cluster_tasks.seen_through, shared, part, home=home)
                for part, home in zip(self._parts, self._homes, strict=True)
            ]
        probe = view(np.empty((0, self.shape[1]), dtype=self.dtype))
        sizes = np.diff(self._starts).tolist()
        return ClusterRows(self._client, parts, sizes, probe.shape[1], probe.dtype, self._homes)

    def taken(self, rows: Ints) -> ClusterRows:
        """Return some rows, by their numbers in rising order; parts without any of them are left out."""
        edges = np.searchsorted(rows, self._starts)
        parts, sizes, homes = [], [], []
        with asking():
            for number, (part, home) in enumerate(zip(self._parts, self._homes, strict=True)):
                inside = rows[edges[number] : edges[number + 1]] - self._starts[number]
                if not len(inside):
                    continue
                if len(inside) < self._starts[number + 1] - self._starts[number]:
                    part = self._submit(cluster_tasks.TakenRows, part, inside, home=home)
                parts.append(part)
                sizes.append(len(inside))
                homes.append(home)
        if not parts:
            raise ShapeError("expected the numbers of some rows, got none")
        return ClusterRows(self._client, parts, sizes, self.shape[1], self.dtype, homes)

    def map_some(self, function: Callable[[Any, Any], NDArray[Any]], rows: Ints) -> list[NDArray[Any]]:
        """Return what ``function`` returns for each part and the numbers of some of its rows, part by part.

        ``rows`` are the numbers of all of them in rising order. The function gets consecutive numbers as a slice.
        """
        edges = np.searchsorted(rows, self._starts)
        with asking():
            shared = self._shared(function)
            asked = [
                self._submit(cluster_tasks.run, shared, part, _compact(rows[low:high] - begin), home=home)
                for part, home, begin, low, high in zip(
                    self._parts, self._homes, self._starts[:-1], edges[:-1], edges[1:], strict=True
                )
                if low < high
            ]
            for _ in _finished(self._client, dict.fromkeys(asked, 0), self._homes):
                pass
            found: list[NDArray[Any]] = self._client.gather(asked)
        return found

    def __getitem__(self, rows: slice | Sequence[int] | NDArray[Any]) -> NDArray[Any]:
        """Return rows (m, p) for a slice or an array of row numbers; they come to this process."""
        n = len(self)
        numbers = np.arange(n)[rows] if isinstance(rows, slice) else np.asarray(rows)
        if numbers.dtype == np.bool_:
            numbers = np.flatnonzero(numbers)
        if numbers.ndim != 1 or np.any((numbers < -n) | (numbers >= n)):
            raise ShapeError(f"expected row numbers (m,) from {-n} to {n - 1}, got {numbers!r}")
        numbers = np.where(numbers < 0, numbers + n, numbers).astype(np.int64)
        if not len(numbers):
            return np.empty((0, self.shape[1]), dtype=self.dtype)
        order = np.argsort(numbers, kind="stable")
        out = np.empty((len(numbers), self.shape[1]), dtype=self.dtype)
        out[order] = cluster_tasks.joined(*self.map_some(cluster_tasks.read_part, numbers[order]))
        return out

    def _submit(self, function: Callable[..., Any], *arguments: Any, home: str | None = None) -> Any:
        where = {} if home is None else {"workers": [home], "allow_other_workers": True}
        # Not pure: Dask would hash all arguments to find a task that was submitted before.
        return self._client.submit(function, *arguments, **where, pure=False, retries=RETRIES)

    def _shared(self, value: Any) -> Any:
        """Return what all tasks need: a small object itself, a large one as the future of one task."""
        large = require("dask.sizeof", "dask", "a cluster").sizeof(_content(value)) > SHARED_BYTES
        return self._submit(cluster_tasks.same, value) if large else value

    def _columns(self, columns: Sequence[Any]) -> Iterator[list[Any]]:
        """Yield the rows of each column for every part; those that the last pass had, too, are not sent again."""
        if not columns:
            yield from ([] for _ in self._parts)
            return
        tokenize = require("dask.base", "dask", "a cluster").tokenize
        sent: dict[str, Any] = {}
        edges = self._starts.tolist()
        for start, stop, home in zip(edges[:-1], edges[1:], self._homes, strict=True):
            row: list[Any] = []
            for column in columns:
                rows = column[start:stop]
                digest = tokenize(rows)
                if digest not in sent:
                    known = self._sent.get(digest)
                    sent[digest] = known or self._submit(cluster_tasks.same, rows, home=home)
                row.append(sent[digest])
            yield row
        self._sent = sent

    def _tree(self, sums: Sequence[Any]) -> Any:
        """Return the future of the sum of all parts, merged pairwise in the order of the rows."""
        homes: Sequence[Any] = self._homes
        while len(sums) > 1:
            pairs = zip_longest(sums[::2], sums[1::2])
            sums = [
                first if second is None else self._submit(cluster_tasks.merged, first, second, home=home)
                for (first, second), home in zip(pairs, homes[::2], strict=True)
            ]
            homes = homes[::2]
        return sums[0]


def _content(value: Any) -> Any:
    """Return the attributes of an object, or the arguments of a partial function, whose sizes add up to its own."""
    if isinstance(value, partial):
        return [[_content(a) for a in value.args], {k: _content(a) for k, a in value.keywords.items()}]
    return vars(value) if hasattr(value, "__dict__") and not callable(value) else value


def _finished(client: Any, left: dict[Any, int], homes: Sequence[str | None] = ()) -> Iterator[int]:
    """Yield the value of each future as it is done, and raise the error of one that failed.

    The futures are taken out of ``left``. ``homes`` are workers that are preferred for some of them.
    """
    distributed, alive = dask(), time.monotonic()
    while left:
        try:
            with client.as_current():  # or the client that was made last would wait
                finished = distributed.wait(list(left), timeout=TICK, return_when="FIRST_COMPLETED").done
        except TimeoutError:
            if workers := client.nthreads().keys():
                alive = time.monotonic()
                if any(home is not None and home not in workers for home in homes):
                    client.run_on_scheduler(cluster_tasks.free_waiting, keys=[future.key for future in left])
            elif time.monotonic() - alive > PATIENCE:
                raise LostWorkerError(
                    f"the cluster has had no worker for {int(PATIENCE)} seconds: start workers, and begin again"
                ) from None
            continue
        for future in finished:
            if future.status != "finished":
                future.result()  # raises
            yield left.pop(future)


def run_in_order(
    client: Any, function: Callable[..., Any], shared: Sequence[Any], blocks: Iterable[Any]
) -> Iterator[Any]:
    """Run a function of the same arguments and of each block on the workers, and yield the results in this order.

    A few tasks for each thread are under way at a time, so that neither blocks nor results fill the memory.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    function : callable
        Called with the ``shared`` arguments and one block.
    shared : sequence
        Arguments of all calls; each worker gets them once.
    blocks : iterable
        Last arguments.
    """
    with asking():
        sent = [client.submit(cluster_tasks.same, value, pure=False, retries=RETRIES) for value in shared]
        waiting: deque[Any] = deque()
        try:
            for block in blocks:
                call = (cluster_tasks.run, function, *sent, block)
                waiting.append(client.submit(*call, pure=False, retries=RETRIES))
                if len(waiting) >= TASKS_PER_THREAD * max(1, sum(client.nthreads().values())):
                    yield _result(client, waiting.popleft())
            while waiting:
                yield _result(client, waiting.popleft())
        except BaseException:
            client.cancel([*waiting])
            raise


def _result(client: Any, future: Any) -> Any:
    for _ in _finished(client, {future: 0}):
        pass
    return future.result()


@contextmanager
def asking() -> Iterator[None]:
    """Turn errors of the cluster into errors of the package."""
    distributed = dask()
    import dask as core

    try:
        with core.config.set(LARGEST_GRAPH):
            yield
    except distributed.KilledWorker as error:
        raise LostWorkerError(
            f"workers that had the same part of the rows died {error.allowed_failures + 1} times, as they do when "
            "memory runs out: give them more memory, fewer threads each, smaller parts (rows_per_part=) or a "
            "memory_budget"
        ) from error
    except distributed.CancelledError as error:
        raise LostWorkerError(
            "the cluster no longer has the rows, since it was restarted or the client was closed: call "
            "fairerclip.distribute again"
        ) from error
    except distributed.comm.CommClosedError as error:
        raise ClusterError(f"the connection to the cluster was lost: {error}; connect again") from error


def _compact(numbers: Ints) -> slice | Ints:
    """Return consecutive numbers as a slice, which is read in one piece."""
    first, last = int(numbers[0]), int(numbers[-1])
    follow = last - first + 1 == len(numbers) and bool(np.all(np.diff(numbers) == 1))
    return slice(first, last + 1) if follow else numbers
