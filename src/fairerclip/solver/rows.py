"""Features of the training rows, computed in blocks and kept if they fit in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fairerclip._util.arrays import Placed, cast, empty, free_on_device, to_numpy
from fairerclip._util.memory import available_memory
from fairerclip._util.types import F64, Ints
from fairerclip.data.cluster_tasks import worker_memory
from fairerclip.data.row_pass import BLOCK_ROWS, Progress, Sum, is_remote, map_rows, row_blocks, sum_rows
from fairerclip.solver.moments import rounded_mean

if TYPE_CHECKING:
    from fairerclip.features import FeatureMap


KEPT_SHARE, SUMS_SHARE = 0.5, 0.25
"""Shares of the free memory that kept features, and the sums of all threads or parts, may take."""
SMALL_BYTES = 128 << 20
"""Size up to which features are kept even if no further pass is planned: new memory of this size costs little time."""
ROWS_PER_WIDTH = 2
"""Least rows of a thread with sums of its own, for each column of the sums; with fewer rows BLAS has the threads."""
FALLBACK_BYTES = 4 << 30
"""Free memory to count with on systems that do not report theirs."""
SAMPLES = 8
"""Number of samples of remote rows that stay here, because several fits need the same."""
CENTRE_ROWS = 256
"""Rows whose mean is the point that sums are taken about."""
BLOCK_BYTES, SMALLEST_BLOCK = 30 << 20, 2048
"""Size of a block of features, and the least number of its rows: the C library reuses memory of up to 32 MB, and
larger blocks would be slower."""


def free_memory() -> int:
    """Return the number of bytes of memory that this machine can give now, or that this worker of a cluster has."""
    return worker_memory() or available_memory() or FALLBACK_BYTES


def cache_budget(memory_budget: int | None = None, X: Any = None) -> int:
    """Return the number of bytes that kept features may take: half of the budget, or of the free memory.

    The free memory is that of the device of the rows X, if they are on one that has its own.
    """
    if memory_budget is None:
        memory_budget = free_on_device(X)
    return int(KEPT_SHARE * (free_memory() if memory_budget is None else memory_budget))


def sums_budget(memory_budget: int | None = None) -> int:
    """Return the number of bytes that sums of all threads or parts may take: a quarter of the budget or free memory."""
    return int(SUMS_SHARE * (free_memory() if memory_budget is None else memory_budget))


def kept_bytes(memory_budget: int | None) -> int | None:
    """Return the bytes that kept features may take; None where the memory of the process that keeps them tells it."""
    return None if memory_budget is None else cache_budget(memory_budget)


def sum_threads(values: int, memory_budget: int | None = None) -> int:
    """Return how many threads may have sums of so many values of their own within a quarter of the memory."""
    # Each has the sums in float64 and the product of one block in float32.
    return max(1, sums_budget(memory_budget) // (12 * max(1, values)))


@dataclass
class PassOptions:
    """How passes over the rows of a fit are made; none of it changes the result but for its last digits."""

    memory_budget: int | None = None
    """Bytes of memory to count with; None for what is free."""
    progress: Progress | None = None
    """Called with the numbers of rows done and of all rows."""

    def finish(self) -> None:
        """Report no more progress: the fit is done, and later passes, such as those of a path, are not part of it."""
        self.progress = None


DEFAULT_PASSES = PassOptions()


class FeatureRows:
    """Features Φ(X) of the rows of X, computed in blocks; the whole n×D matrix need not be in memory.

    Whether blocks are kept changes the time of later passes, and of the result the last digits at most.

    Parameters
    ----------
    features : FeatureMap
        The fitted feature map.
    X : array of shape (n, p)
        An array, a memory map, any object with ``shape`` that returns rows for a slice, or `RemoteRows`.
    rows : int array of shape (m,) or None
        Sorted numbers of the rows to use; None for all.
    dtype : str
        Working precision.
    block_rows : int or None
        Rows per block; None for blocks of about 30 MB.
    budget : int or None
        Bytes that kept features may take, of remote rows on each worker; None for `cache_budget`.
    """

    def __init__(
        self,
        features: FeatureMap,
        X: Any,
        *,
        rows: Ints | None = None,
        dtype: str = "float32",
        block_rows: int | None = None,
        budget: int | None = None,
    ) -> None:
        self.features = features
        self._X = X
        self._rows = rows
        self.dtype = np.dtype(dtype)
        self.n_rows = int(X.shape[0]) if rows is None else len(rows)
        self.shape = (self.n_rows, features.n_features)
        self.device = getattr(X, "device", None)
        self._whole: tuple[FeatureRows, Ints] | None = None
        self._samples: list[tuple[Ints, Any]] = []
        self._sizes = (block_rows, budget)
        budget = cache_budget(X=X) if budget is None else budget
        self.kept = self.n_rows * features.n_features * self.dtype.itemsize <= budget
        if block_rows is None:
            fitting = BLOCK_BYTES // (features.n_features * self.dtype.itemsize)
            block_rows = min(BLOCK_ROWS, max(SMALLEST_BLOCK, fitting))
        self.kept_blocks = row_blocks(self.n_rows, block_rows)
        self._cache: dict[int, Any] = {}

    def part(self, places: Ints, budget: int | None = None) -> FeatureRows:
        """Return the features of some of these rows, by their places in rising order.

        Where these rows keep their features, they serve the part, too; else it may keep ``budget`` bytes of its own.
        """
        numbers = places if self._rows is None else self._rows[places]
        shared = self.kept and not is_remote(self._X)
        own = 0 if shared else budget
        part = FeatureRows(self.features, self._X, rows=numbers, dtype=self.dtype.name, budget=own)
        if shared:
            part._whole, part.kept = (self, places), True
        return part

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {}}  # features are computed again where they are needed

    def __sizeof__(self) -> int:
        """Return the bytes that this will keep: Dask leaves large results on their worker."""
        kept = self.n_rows * self.n_features * self.dtype.itemsize if self.kept else 0
        return object.__sizeof__(self) + kept

    @property
    def n_features(self) -> int:
        """Number of features D."""
        return self.features.n_features

    @cached_property
    def _remote(self) -> Any:
        """The features on the workers, from the first pass on, because a fit from known moments needs none; or None."""
        if not is_remote(self._X):
            return None
        rows = self._X if self._rows is None else self._X.taken(self._rows)
        part = partial(_remote_part, self.features, self.dtype.name, *self._sizes, rows.parts_per_worker)
        return rows.wrapped(part)

    def __getitem__(self, block: slice) -> Any:
        """Return Φ of consecutive rows, a tensor if X has tensors; it must not be written to."""
        start, stop, _ = block.indices(self.n_rows)
        if self._whole is not None:
            whole, places = self._whole
            return whole._gathered(places[start:stop])
        kept = self._cache.get(start)
        if kept is not None and len(kept) == stop - start:
            return kept
        raw = self._X[block] if self._rows is None else self._X[self._rows[block]]
        Phi = self.features.transform(cast(raw, self.dtype))
        if self.kept:
            self._cache[start] = Phi
        return Phi

    def blocks(self) -> Iterator[tuple[slice, Any]]:
        """Yield pairs (slice of rows, Φ of those rows) in order. Blocks must not be written to."""
        for block in self.kept_blocks:
            yield block, self[block]

    def sum(
        self,
        start: Callable[[], Sum],
        columns: Sequence[Any] = (),
        *,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Sum:
        """Add Φ of all rows, with the same rows of each column, to an accumulator; `fairerclip.data.row_pass`."""
        return sum_rows(self._remote or self, start, columns, threads=threads, progress=progress)

    def sum_many(
        self, start: Callable[[], Sum], columns: Sequence[Any], how: PassOptions, *, values: int
    ) -> Sum:
        """Do as `sum` does for sums of many ``values``, in as many threads as the memory has room for."""
        # To clear and to merge the sums of another thread takes as long as to add some rows to sums that are there.
        worthwhile = max(1, self.n_rows // (ROWS_PER_WIDTH * math.isqrt(values)))
        threads = min(sum_threads(values, how.memory_budget), worthwhile)
        return self.sum(start, columns, threads=threads, progress=how.progress)

    def once(self) -> FeatureRows:
        """Return these rows for a single pass: new features are not kept, unless they are few.

        The system must clear memory for features that are kept, which takes a third of the time of computing them.
        """
        size = self.n_rows * self.n_features * self.dtype.itemsize
        used = bool(self._cache) or self._whole is not None or self.__dict__.get("_remote") is not None
        if not self.kept or used or size <= SMALL_BYTES:
            return self
        block_rows = self.kept_blocks[0].stop
        return FeatureRows(
            self.features, self._X, rows=self._rows, dtype=self.dtype.name, block_rows=block_rows, budget=0
        )

    def take(self, rows: Ints) -> Any:
        """Return Φ (m, D) of training rows, by rising numbers; from kept blocks if all are there."""
        if self._whole is not None:
            whole, places = self._whole
            return whole.take(places[rows])
        if len(self._cache) < len(self.kept_blocks):
            return self.raw(rows if self._rows is None else self._rows[rows])
        return self._gathered(rows)

    def _gathered(self, rows: Ints) -> Any:
        """Return Φ (m, D) of training rows, by rising numbers, from the blocks that they are in."""
        if not len(rows):
            return self.raw(rows)
        starts = [block.start for block in self.kept_blocks]
        first, stop = np.searchsorted(starts, rows[[0, -1]], side="right") - [1, 0]
        out = None
        for block in self.kept_blocks[first:stop]:
            at = slice(*np.searchsorted(rows, [block.start, block.stop]))
            Phi = self[block]
            out = empty(Phi, (len(rows), self.n_features), self.dtype) if out is None else out
            out[at] = Phi[rows[at] - block.start]
        return out

    def raw(self, rows: Ints) -> Any:
        """Return Φ (m, D) of rows given by their number in X, training rows or not."""
        return self.features.transform(cast(self._fetched(rows), self.dtype))

    def _fetched(self, rows: Ints) -> Any:
        """Return rows of X by their numbers; of remote rows, the last few samples are not moved again."""
        if not is_remote(self._X):
            return self._X[rows]
        for numbers, found in self._samples:
            if np.array_equal(numbers, rows):
                return found
        found = self._X[rows]
        self._samples = [(rows, found), *self._samples][:SAMPLES]
        return found

    def centre(self) -> F64:
        """Return a point (D,) near the features, about which sums are taken: the mean of some rows, rounded alike."""
        rows = np.linspace(0, self.n_rows - 1, min(CENTRE_ROWS, self.n_rows)).astype(np.int64)
        return rounded_mean(self.raw(rows if self._rows is None else self._rows[rows]))

    def project(self, mean: F64, basis: F64) -> F64:
        """Return (Φ − mean) @ basis (n, q) for every training row, in one pass."""
        (out,) = map_rows(self._remote or self, Projection(mean, basis, self.dtype))
        return np.asarray(out)

    def project_some(self, places: Ints, mean: F64, basis: F64) -> F64:
        """Return (Φ − mean) @ basis (m, q) of some training rows, by their places in rising order."""
        if self._remote:  # on the workers, from the features that they keep
            return np.concatenate(self._remote.map_some(partial(_projected, mean, basis), places))
        project, out = Projection(mean, basis, self.dtype), np.empty((len(places), basis.shape[1]))
        for block in self.kept_blocks:
            first, stop = np.searchsorted(places, [block.start, block.stop])
            if first == stop:
                continue
            inside = places[first:stop] - block.start
            if len(inside) == block.stop - block.start:
                Phi = self[block]
            else:  # few rows of a block that is not kept: their features alone
                Phi = self[block][inside] if self.kept else self.take(places[first:stop])
            (out[first:stop],) = project(Phi)
        return out


def _remote_part(
    features: FeatureMap, dtype: str, block_rows: int | None, budget: int | None, sharing: int, X: Any
) -> FeatureRows:
    """Return the features of one of the parts that share the memory of a worker; called on the worker."""
    share = (cache_budget() if budget is None else budget) // max(1, sharing)
    return FeatureRows(features, X, dtype=dtype, block_rows=block_rows, budget=share)


def _projected(mean: F64, basis: F64, part: FeatureRows, places: Ints | slice) -> F64:
    """Return (Φ − mean) @ basis (m, q) of some rows of a part; called on the worker."""
    numbers = np.arange(part.n_rows)[places] if isinstance(places, slice) else places
    return part.project_some(numbers, mean, basis)


class Projection:
    """Function of blocks of features: (Φ − mean) @ basis (b, q), in float64."""

    def __init__(self, mean: F64, basis: F64, dtype: np.dtype[Any]) -> None:
        self._basis, self._offset = Placed(basis.astype(dtype)), mean @ basis

    def __call__(self, Phi: Any) -> tuple[F64]:
        """Project a block."""
        (basis,) = self._basis.beside(Phi)
        return (np.asarray(to_numpy(Phi @ basis) - self._offset, dtype=np.float64),)
