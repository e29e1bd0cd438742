"""One pass over rows: the same sum is taken of blocks of rows in threads of this process, or on a cluster.

A pass makes one accumulator for each range of consecutive rows, adds the blocks of that range to it, and merges the
accumulators in the order of the rows. So what is summed is written once, for arrays, stores and clusters alike.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from itertools import pairwise
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from fairerclip._util.arrays import is_on_device, is_tensor, joined, to_numpy
from fairerclip._util.types import Ints

BLOCK_ROWS = 8192
"""Rows per block: large enough for BLAS to run at full speed, small enough for the memory of a laptop."""
LEAST_ROWS = 1024
"""Fewest rows of a block that is made smaller to give every thread one."""

CACHE_BYTES = 1 << 19
"""Bytes of a part of a block that stays in the cache of a core while several operations are applied to it."""

Progress = Callable[[int, int], None]
"""Called with the numbers of rows done and of all rows."""


class RowSum(Protocol):
    """Accumulator of a pass; instances are made, filled and merged in any process.

    A class whose size grows with the rows has an attribute ``per_row`` that is True: sums of remote rows are then
    merged in this process, so that results per row are moved once.
    """

    def add(self, rows: Any, *columns: Any) -> Any:
        """Add a block of rows (b, p), with the same rows of each column (b, …)."""

    def merge(self, other: Self) -> Any:
        """Add what another accumulator has of the rows that come after those of this one."""


Sum = TypeVar("Sum", bound=RowSum)


class RemoteRows(Protocol):
    """Rows that are elsewhere, such as on the workers of a cluster: passes go to them."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]

    @property
    def parts_per_worker(self) -> int:
        """Largest number of parts that share the memory of a worker."""

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        """Return rows (m, p) for a slice or their numbers; for samples, because they are moved here."""

    def sum_rows(self, start: Callable[[], Sum], columns: Sequence[Any], progress: Progress | None) -> Sum:
        """Do what the function `sum_rows` does, where the rows are."""

    def wrapped(self, view: Callable[[Any], Any]) -> RemoteRows:
        """Return the rows of which each part is seen through ``view``, which makes rows of rows, also of none."""

    def taken(self, rows: Ints) -> RemoteRows:
        """Return some rows, by their numbers in rising order."""

    def map_some(self, function: Callable[[Any, Any], NDArray[Any]], rows: Ints) -> list[NDArray[Any]]:
        """Return what ``function`` returns for each part and the numbers of some of its rows, which rise."""


def is_remote(X: Any) -> bool:
    """Return whether rows are elsewhere, so that a pass is sent to them."""
    return hasattr(X, "sum_rows") and hasattr(X, "wrapped")


def sum_rows(
    X: Any,
    start: Callable[[], Sum],
    columns: Sequence[Any] = (),
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Sum:
    """Add all rows to an accumulator, block by block, in threads or where the rows are.

    Parameters
    ----------
    X : array, tensor, memory map, store, view or RemoteRows of shape (n, p)
        Rows; anything with ``shape`` that returns rows for a slice.
    start : callable
        Makes an empty accumulator. For remote rows it must be possible to pickle it.
    columns : sequence of arrays of shape (n, …)
        Columns of which each block gets its rows.
    threads : int, optional
        Most threads, each with an accumulator of its own. Default: as many as BLAS may use; one for tensors. Sums
        depend on the number of threads in the last digits.
    progress : callable, optional
        Called with the number of rows done and of all rows.

    Examples
    --------
    >>> import numpy as np
    >>> class Total:
    ...     total = 0.0
    ...     def add(self, rows, weight):
    ...         self.total += float(weight @ rows.sum(axis=1))
    ...     def merge(self, other):
    ...         self.total += other.total
    >>> sum_rows(np.ones((5, 2)), Total, [np.arange(5.0)]).total
    20.0
    """
    if is_remote(X):
        found: Sum = X.sum_rows(start, columns, progress)
        return found
    most = row_threads() if threads is None else max(1, min(threads, row_threads()))
    most = 1 if is_on_device(X) else most  # torch has threads of its own, and a device one queue
    # Rows that are kept from pass to pass come in the same blocks each time.
    blocks = getattr(X, "kept_blocks", None) or row_blocks(int(X.shape[0]), threads=most)
    lanes = _lanes(blocks, most)
    work: _Pass[Sum] = _Pass(X, start, columns, progress)
    if len(lanes) == 1:
        return work.lane(lanes[0], reports=True)
    return work.in_threads(lanes)


class _Pass(Generic[Sum]):
    """A pass that is under way."""

    def __init__(
        self, X: Any, start: Callable[[], Sum], columns: Sequence[Any], progress: Progress | None
    ) -> None:
        self._X, self._start, self._columns, self._progress = X, start, columns, progress
        self._done, self._lock = 0, threading.Lock()
        self.stopped = False

    def lane(self, blocks: Sequence[slice], *, reports: bool) -> Sum:
        """Return the sum of consecutive blocks; ``reports`` their progress."""
        total = self._start()
        for block in blocks:
            if self.stopped:
                break
            total.add(self._X[block], *(column[block] for column in self._columns))
            with self._lock:
                self._done += block.stop - block.start
            if reports:
                self.report()
        return total

    def in_threads(self, lanes: Sequence[Sequence[slice]]) -> Sum:
        """Return the sum of all lanes, each in a thread of its own."""
        with single_blas(), ThreadPoolExecutor(len(lanes) - 1) as pool:
            others = [pool.submit(self.lane, lane, reports=False) for lane in lanes[1:]]
            try:
                # This thread takes a lane, too: it hears of interrupts at once, and reports the progress.
                total = self.lane(lanes[0], reports=True)
                while others:
                    total.merge(others.pop(0).result())
                    self.report()
            except BaseException:
                self.stopped = True
                raise
        return total

    def report(self) -> None:
        """Tell how many rows are done."""
        if self._progress is not None:
            self._progress(self._done, int(self._X.shape[0]))


def row_blocks(n: int, block_rows: int | None = None, threads: int | None = None) -> list[slice]:
    """Return blocks of n rows: of ``block_rows`` (8192 for None), or fewer rows where some thread would have no block.

    Examples
    --------
    >>> row_blocks(10_000, threads=1)
    [slice(0, 8192, None), slice(8192, 10000, None)]
    >>> row_blocks(10_000, threads=4)[:2]
    [slice(0, 2500, None), slice(2500, 5000, None)]
    """
    threads = row_threads() if threads is None else threads
    block_rows = BLOCK_ROWS if block_rows is None else block_rows
    if threads > 1:
        block_rows = min(block_rows, max(LEAST_ROWS, -(-n // threads)))
    return [slice(first, min(first + block_rows, n)) for first in range(0, n, block_rows)]


def cache_sized(rows: Any) -> Iterator[slice]:
    """Yield parts of a block that fit in the cache of a core, for several operations on each; a tensor is one part."""
    if is_tensor(rows):
        yield slice(0, len(rows))
        return
    step = max(1, CACHE_BYTES // max(1, rows.shape[1] * rows.dtype.itemsize))
    for start in range(0, len(rows), step):
        yield slice(start, start + step)


def _lanes(blocks: Sequence[slice], threads: int) -> list[Sequence[slice]]:
    """Return consecutive blocks for each of at most ``threads`` lanes, of about the same number."""
    lanes = max(1, min(threads, len(blocks)))
    edges = [len(blocks) * k // lanes for k in range(lanes + 1)]
    return [blocks[first:stop] for first, stop in pairwise(edges)]


def row_threads() -> int:
    """Return the number of threads of a pass: as many as BLAS may use, and as there are processors for this process."""
    if _LIMIT.depth:
        return 1  # a pass inside a pass, or another pass of this process
    allowed: list[int] = [library.num_threads for library in _blas().lib_controllers]
    return max(1, min([*allowed, _processors()]))


def _processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


@cache
def _blas() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401 - scipy has a BLAS of its own, which is found only once it is loaded

    return ThreadpoolController().select(user_api="blas")


class _Limit:
    """Number of passes that run in threads now; the first sets BLAS to one thread, the last resets it."""

    def __init__(self) -> None:
        self.lock, self.depth, self.limiter = threading.Lock(), 0, None


_LIMIT: Any = _Limit()


@contextmanager
def single_blas() -> Iterator[None]:
    """Let BLAS use one thread while threads of Python work: more would wait for each other.

    The number of threads of BLAS is one for the whole process. Several passes at a time, from threads of the user,
    share one limit, so that the number of before is there again after the last of them.
    """
    with _LIMIT.lock:
        if _LIMIT.depth == 0:
            _LIMIT.limiter = _blas().limit(limits=1)
        _LIMIT.depth += 1
    try:
        yield
    finally:
        with _LIMIT.lock:
            _LIMIT.depth -= 1
            if _LIMIT.depth == 0:
                _LIMIT.limiter.restore_original_limits()
                _LIMIT.limiter = None


class Collected:
    """Accumulator of results per row: arrays of consecutive rows, to be joined at the end."""

    per_row = True

    def __init__(self, function: Callable[..., tuple[NDArray[Any], ...]]) -> None:
        self._function = function
        self._blocks: list[tuple[NDArray[Any], ...]] = []

    def add(self, rows: Any, *columns: Any) -> None:
        """Add what the function returns for a block."""
        self._blocks.append(self._function(rows, *columns))

    def merge(self, other: Collected) -> None:
        """Append the results of later rows."""
        self._blocks += other._blocks

    def joined(self) -> tuple[NDArray[Any], ...]:
        """Return the arrays of all rows; those of the blocks are released one after another."""
        columns = list(zip(*self._blocks, strict=True))
        self._blocks = []
        return tuple(joined(columns.pop(0)) for _ in range(len(columns)))


def map_rows(
    X: Any,
    function: Callable[..., tuple[NDArray[Any], ...]],
    columns: Sequence[Any] = (),
    *,
    progress: Progress | None = None,
) -> tuple[NDArray[Any], ...]:
    """Return arrays (n, …) with one entry per row, which ``function`` computes from blocks of rows and columns.

    ``function`` gets a block (b, p) and the same rows of each column, and returns a tuple of arrays (b, …).
    """
    return sum_rows(X, partial(Collected, function), columns, progress=progress).joined()


class _Filled:
    """Accumulator that writes results per row into their places; rows of ``out`` come as the first column."""

    def __init__(self, function: Callable[..., NDArray[Any]]) -> None:
        self._function = function

    def add(self, rows: Any, out: NDArray[Any], *columns: Any) -> None:
        found = self._function(rows, *columns)
        out[...] = found if is_tensor(out) else to_numpy(found)

    def merge(self, other: _Filled) -> None:
        """Do nothing: the results are in their places."""


def fill_rows(
    X: Any,
    function: Callable[..., NDArray[Any]],
    out: NDArray[Any],
    columns: Sequence[Any] = (),
    *,
    progress: Progress | None = None,
) -> NDArray[Any]:
    """Write what ``function`` returns for blocks of rows and columns into ``out`` (n, …), and return it.

    Unlike `map_rows` it needs the memory of the results once, and a block for each thread.
    """
    if is_remote(X):
        (out[...],) = map_rows(X, partial(_as_tuple, function), columns, progress=progress)
    else:
        sum_rows(X, partial(_Filled, function), [out, *columns], progress=progress)
    return out


def _as_tuple(function: Callable[..., NDArray[Any]], *block: Any) -> tuple[NDArray[Any]]:
    return (function(*block),)
