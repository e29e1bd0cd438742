"""`distribute`: rows of a store, a Dask array or an array become `ClusterRows`, in few large parts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fairerclip._util.checks import MAX_COUNT, check_count
from fairerclip.data import cluster_tasks
from fairerclip.data.cluster_rows import LARGEST_GRAPH, RETRIES, ClusterRows, dask
from fairerclip.data.row_pass import BLOCK_ROWS
from fairerclip.data.stores import EmbeddingStore, open_store
from fairerclip.errors import ClusterError, ShapeError

PARTS_PER_THREAD = 3
"""Most parts for each thread of the cluster: a few, so that a slow or lost worker leaves little to do again."""
ROWS_PER_PART = 100_000
"""Fewest rows of a part where every thread has one: with less, sending a task takes a share of its time."""
WAIT = 30.0
"""Seconds to wait for the first worker of a cluster."""


def distribute(X: Any, client: Any = None, *, rows_per_part: int | None = None) -> ClusterRows:
    """Return rows on a Dask cluster, to be given as ``X`` to `FairerCLIP` and `EmbeddingMitigator`.

    Parameters
    ----------
    X : str, Path, EmbeddingStore, dask.array.Array or array of shape (n, p)
        Embeddings. A path, or a store that `open_store` opened, must be readable for all workers: each reads its own
        rows. Chunks of a Dask array stay on the workers. Rows of an array are sent to the workers.
    client : distributed.Client, optional
        Client of the cluster. Default: the client that was made last.
    rows_per_part : int, optional
        Rows of each part, the work of one task. Default: about three parts for each thread of the cluster, of at least
        100,000 rows where there are so many. Chunks of a Dask array are joined up to this number and never divided.

    Returns
    -------
    ClusterRows
        Rows in the order of X.

    Raises
    ------
    ClusterError
        There is no client, or the cluster has no workers.
    """
    if isinstance(X, ClusterRows):
        return X
    client = _client(client)
    if rows_per_part is not None:
        check_count("rows_per_part", rows_per_part, MAX_COUNT, least=1)
    if isinstance(X, str | os.PathLike):
        X = open_store(X)
    if len(getattr(X, "shape", ())) != 2 or not X.shape[0]:
        raise ShapeError(f"expected rows (n, p) of a store or an array, got {_described(X)}")
    threads = list(client.nthreads().values())
    if is_dask_array(X):
        return _from_chunks(client, X, rows_per_part or _part_rows(int(X.shape[0]), sum(threads)))
    if not isinstance(X, EmbeddingStore) and not isinstance(X, np.ndarray):
        X = np.asarray(X)
    if isinstance(X, EmbeddingStore) and X.origin is not None and X.origin.rows is not None:
        whole = open_store(X.origin.path, **X.origin.options)
        return distribute(whole, client, rows_per_part=rows_per_part).taken(X.origin.rows)
    return _from_rows(client, X, rows_per_part or _part_rows(int(X.shape[0]), sum(threads)))


def on_cluster(X: Any) -> Any:
    """Return a Dask array as rows on the active cluster, and anything else as it is."""
    return distribute(X) if is_dask_array(X) else X


def is_dask_array(X: Any) -> bool:
    """Return whether X is an array of Dask, without importing it."""
    return type(X).__module__.startswith("dask.array") and hasattr(X, "chunks")


def _described(X: Any) -> str:
    return f"shape {tuple(X.shape)}" if hasattr(X, "shape") else f"a {type(X).__name__}"


def _client(client: Any) -> Any:
    distributed = dask()
    if client is None:
        try:
            client = distributed.default_client()
        except ValueError:
            raise ClusterError(
                "expected the client of a Dask cluster, and there is none: make one with "
                'client = distributed.Client() for this machine, or distributed.Client("tcp://HOST:8786")'
            ) from None
    if not client.nthreads():
        try:
            client.wait_for_workers(1, timeout=WAIT)
        except TimeoutError:
            raise ClusterError(
                f"the cluster has no workers (waited {int(WAIT)} seconds): start some, such as with dask worker "
                f"{client.scheduler.address}"
            ) from None
    return client


def _part_rows(n: int, threads: int) -> int:
    """Return the number of rows of a part.

    Examples
    --------
    >>> _part_rows(400_000_000, 256), _part_rows(300_000, 2), _part_rows(50_000, 2), _part_rows(100, 2)
    (520834, 100000, 25000, 100)
    """
    fewest = min(threads, -(-n // BLOCK_ROWS))
    parts = max(fewest, min(PARTS_PER_THREAD * threads, n // ROWS_PER_PART))
    return -(-n // parts)


def _from_rows(client: Any, X: Any, rows_per_part: int) -> ClusterRows:
    edges = [*range(0, int(X.shape[0]), rows_per_part), int(X.shape[0])]
    homes = _homes(client, len(edges) - 1)
    origin = X.origin if isinstance(X, EmbeddingStore) else None
    parts = []
    import dask as core

    with core.config.set(LARGEST_GRAPH):
        for (start, stop), home in zip(pairwise(edges), homes, strict=True):
            # Neighbours are on one worker, so that most sums are merged where they are.
            where = {"workers": [home], "allow_other_workers": True, "pure": False, "retries": RETRIES}
            if origin is not None:
                opened = (origin.path, origin.options, start, stop)
                parts.append(client.submit(cluster_tasks.RowSlice, *opened, **where))
            else:
                parts.append(client.submit(cluster_tasks.same, np.asarray(X[start:stop]), **where))
    return ClusterRows(client, parts, np.diff(edges).tolist(), int(X.shape[1]), X.dtype, homes)


def _homes(client: Any, parts: int) -> list[str]:
    """Return the worker of each part: as many for each thread, and consecutive parts on one worker."""
    slots = [worker for worker, threads in sorted(client.nthreads().items()) for _ in range(threads)]
    return [slots[part * len(slots) // parts] for part in range(parts)]


def _from_chunks(client: Any, X: Any, rows_per_part: int) -> ClusterRows:
    if any(np.isnan(size) for axis in X.chunks for size in axis):
        raise ShapeError(
            "expected a Dask array whose chunks have known sizes: call X.compute_chunk_sizes() first"
        )
    X = client.persist(X.rechunk({1: -1}))
    futures = {future.key: future for future in dask().futures_of(X)}
    chunks = [futures[key] for (key,) in X.__dask_keys__()]
    sizes = [int(size) for size in X.chunks[0]]
    parts, counts = [], []
    for group in _groups(sizes, rows_per_part):
        some = chunks[group]
        part = (
            some[0]
            if len(some) == 1
            else client.submit(cluster_tasks.joined, *some, pure=False, retries=RETRIES)
        )
        parts.append(part)
        counts.append(sum(sizes[group]))
    return ClusterRows(client, parts, counts, int(X.shape[1]), X.dtype)


def _groups(sizes: Sequence[int], rows: int) -> list[slice]:
    """Return ranges of consecutive chunks that have together at most so many rows, or are one chunk.

    Examples
    --------
    >>> _groups([4, 4, 4, 9], 8)
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    groups, first, total = [], 0, 0
    for number, size in enumerate(sizes):
        if number > first and total + size > rows:
            groups.append(slice(first, number))
            first, total = number, 0
        total += size
    groups.append(slice(first, len(sizes)))
    return groups
