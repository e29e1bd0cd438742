"""Connection to a cluster for the time of one command: worker processes of this machine, or a scheduler's address."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fairerclip.data.cluster_rows import dask
from fairerclip.data.distribution import distribute
from fairerclip.errors import ClusterError

if TYPE_CHECKING:
    from fairerclip.data.task import Task

LOCAL = "local"
CONNECT = "30s"
"""Time to wait for a scheduler."""
REUSED_MEMORY = {"MALLOC_MMAP_THRESHOLD_": 1 << 25, "MALLOC_TRIM_THRESHOLD_": 1 << 27}
"""Settings of the C library of workers: blocks of features are allocated again and again, and Dask's setting would
return their memory to the system each time, which costs a tenth of the time of a pass."""


@contextmanager
def cluster_client(where: str) -> Iterator[Any]:
    """Yield a client of a cluster, and close it.

    Parameters
    ----------
    where : str
        "local" for one worker process on each processor of this machine, which end with the block; or the address of
        a scheduler, such as ``tcp://host:8786``, whose workers stay.

    Raises
    ------
    ClusterError
        There is no scheduler at the address.
    """
    distributed = dask()
    import dask as core

    with ExitStack() as opened:
        address: Any = where
        if where == LOCAL:
            settings = {f"distributed.nanny.pre-spawn-environ.{k}": v for k, v in REUSED_MEMORY.items()}
            opened.enter_context(core.config.set(settings))
            address = opened.enter_context(
                distributed.LocalCluster(
                    n_workers=_processors(),
                    threads_per_worker=1,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.ERROR,
                )
            )
        try:
            client = distributed.Client(address, timeout=CONNECT)
        except (OSError, TimeoutError, ValueError) as error:
            raise ClusterError(
                f"no Dask scheduler can be reached at {where!r} ({error}): give local, or the address that the command "
                "dask scheduler prints, such as tcp://HOST:8786"
            ) from error
        yield opened.enter_context(client)


def _processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


def task_on_cluster(task: Task, client: Any) -> Task:
    """Return a task whose training rows are on a cluster."""
    train = task.split("train")
    return replace(task, splits={**task.splits, "train": replace(train, X=distribute(train.X, client))})
