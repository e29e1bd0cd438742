"""The option of commands that can run on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fairerclip.experiment import Experiment

Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="local|ADDRESS",
        help="Run on a Dask cluster: local for processes of this machine, or the address of a scheduler such as "
        "tcp://host:8786, whose workers see the same files. Needs the extra dask.",
    ),
]


@contextmanager
def client_of(where: str | None) -> Iterator[Any]:
    """Yield the client of a cluster until the block ends; None without one."""
    if where is None:
        yield None
        return
    from fairerclip.data.cluster_client import cluster_client

    with cluster_client(where) as client:
        yield client


@contextmanager
def experiment_on(where: str | None, experiment: Experiment) -> Iterator[Experiment]:
    """Yield an experiment whose training rows are on a cluster, if there is one, until the block ends."""
    with client_of(where) as client:
        if client is None:
            yield experiment
            return
        from fairerclip.data.cluster_client import task_on_cluster

        yield replace(experiment, task=task_on_cluster(experiment.task, client))
