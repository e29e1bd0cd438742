"""Checks of rows on a cluster of worker processes; `tests/data/test_cluster_rows.py` runs them in another process.

The processes of a cluster talk over sockets of this machine (127.0.0.1), and the process of the tests may open none.
Prints the names of the checks with None, or how they failed, as JSON.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import dask
import distributed
import numpy as np
import pytest

from fairerclip import EmbeddingMitigator, FairerCLIP, FairerCLIPSearch, distribute, mitigate_store
from fairerclip.applying import answer_blocks, mitigated_files
from fairerclip.applying.streamed_answers import apply_to_file
from fairerclip.data import cluster_client, save_task
from fairerclip.data.cluster_rows import ClusterRows
from fairerclip.data.row_pass import map_rows, sum_rows
from fairerclip.data.simulate import simulate
from fairerclip.data.store_rows import select_rows
from fairerclip.data.stores import open_store
from fairerclip.errors import ClusterError, LostWorkerError, NonFiniteError, ParameterError, ShapeError
from fairerclip.model.automatic import LABELLED

CASES = [({}, True), ({"solver": "cg"}, True), ({"refine": True}, False)]
CHECKS: list[Callable[..., None]] = []


def check(function):
    CHECKS.append(function)
    return function


N, WIDTH = 900, 32
FIXED = {**LABELLED, "n_features": 40, "random_state": 0}


def given(task, *, labelled=True):
    return {
        "y": task.train.y[:N] if labelled else None,
        "text": task.text_target,
        "sensitive_text": task.sensitive_attribute().text,
    }


def assert_equal_scores(task, rows, local, parameters, *, labelled=True):
    here = FairerCLIP(**parameters).fit(local, **given(task, labelled=labelled))
    there = FairerCLIP(**parameters).fit(rows, **given(task, labelled=labelled))
    expected, found = here.scores(local), there.scores(rows)
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()
    np.testing.assert_array_equal(there.predict(rows), here.predict(local))
    np.testing.assert_allclose(there.transform(rows), here.transform(local), atol=1e-5)


@check
def fits_on_a_cluster_give_the_scores_of_fits_here(client, task, file):
    rows = distribute(file, client, rows_per_part=300)
    assert isinstance(rows, ClusterRows)
    assert rows.shape == (N, WIDTH)
    for parameters, labelled in CASES:
        assert_equal_scores(task, rows, open_store(file), {**FIXED, **parameters}, labelled=labelled)


@check
def parameters_chosen_by_the_data_are_those_of_a_fit_here(client, task, file):
    automatic = {"n_features": 40, "random_state": 0, "zero_shot": 0.5, "criterion": "marginal"}
    rows = distribute(file, client, rows_per_part=400)
    here = FairerCLIP(**automatic).fit(open_store(file), **given(task))
    there = FairerCLIP(**automatic).fit(rows, **given(task))
    assert there.used_parameters() == here.used_parameters()
    np.testing.assert_allclose(there.offsets_, here.offsets_, atol=1e-6)


@check
def a_search_on_a_cluster_finds_the_model_of_a_search_here(client, task, file):
    exact = FairerCLIP(n_features=40, random_state=0, dtype="float64")
    space = {"fits": [{"class_weight": "balanced"}, {"gamma": 1e-2}], "taus": [0.0, 0.8], "zero_shots": [0.5]}
    validation = (task.val.X, task.val.y, task.val.sensitive())
    for more, objective in (({"validation": validation}, "worst_group"), ({}, "eod")):
        here, there = (
            FairerCLIPSearch(exact, search_space=space, objective=objective).fit(X, **given(task), **more)
            for X in (open_store(file), distribute(file, client, rows_per_part=300))
        )
        assert there.best_params_ == here.best_params_
        assert there.best_score_ == pytest.approx(here.best_score_, abs=1e-6)
        expected, found = here.scores(task.test.X), there.scores(task.test.X)
        assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


@check
def the_work_of_a_part_stays_with_its_worker(client, file):
    rows = distribute(file, client, rows_per_part=300)
    views = rows.wrapped(partial(Padded, np.zeros(1 << 14)))  # so large that it is a task of one worker
    distributed.wait(views._parts)
    places = client.who_has([*rows._parts, *views._parts])
    assert [places[view.key] for view in views._parts] == [places[part.key] for part in rows._parts]
    assert len({*places.values()}) == 3


class Padded:
    """View of rows that holds a large array."""

    def __init__(self, padding, rows):
        self.padding, self.rows, self.shape, self.dtype = padding, rows, rows.shape, rows.dtype


def written(folder, model, source, **more):
    files = [folder / f"{len(more)}.{kind}" for kind in ("csv", "npz")]
    for file in files:
        apply_to_file(model, source, file, overwrite=True, **more)
    return [file.read_bytes() for file in files]


@check
def answers_of_classifiers_on_a_cluster_make_the_same_files(client, task, file, tmp_path):
    from fairerclip.baselines import ZeroShot

    models = [
        FairerCLIP(**FIXED).fit(task.train.X[:N], **given(task)),
        ZeroShot().fit(task.train.X[:N], **given(task)),
    ]
    chosen = select_rows(open_store(file), np.arange(0, N, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answer_blocks, "BLOCK_ROWS", 64)
        for model in models:
            for source in (file, chosen, np.load(file)):
                assert written(tmp_path, model, source, client=client) == written(tmp_path, model, source)


@check
def a_mitigated_copy_is_the_same_from_a_cluster(client, task, file, tmp_path):
    mitigator = EmbeddingMitigator().fit(np.load(file), sensitive_text=task.sensitive_attribute().text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mitigated_files, "BLOCK_ROWS", 64)
        for name, more in (("here.npy", {}), ("there.npy", {"client": client})):
            mitigate_store(mitigator, file, tmp_path / name, **more)
    assert (tmp_path / "here.npy").read_bytes() == (tmp_path / "there.npy").read_bytes()
    with pytest.raises(ParameterError, match="by its path"):
        mitigate_store(mitigator, np.load(file), tmp_path / "rows.npy", client=client)


@check
def a_row_without_a_direction_is_named_before_anything_is_written(client, task, file, tmp_path):
    X = np.load(file)
    X[437, 5] = np.nan
    np.save(tmp_path / "bad.npy", X)
    model = FairerCLIP(**FIXED).fit(task.train.X[:N], **given(task))
    with pytest.raises(NonFiniteError, match="row 437 of 900"):
        apply_to_file(model, tmp_path / "bad.npy", tmp_path / "answers.csv", client=client)
    assert not (tmp_path / "answers.csv").exists()


@check
def answers_are_the_same_if_a_worker_is_killed(client, task, file, tmp_path):
    model = FairerCLIP(**FIXED).fit(task.train.X[:N], **given(task))
    killed = []

    def kill(done, total):
        if not killed:
            killed.append(next(iter(client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answer_blocks, "BLOCK_ROWS", 64)
        apply_to_file(model, file, tmp_path / "there.csv", client=client, progress=kill)
        apply_to_file(model, file, tmp_path / "here.csv")
    assert killed
    assert (tmp_path / "there.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()


def ran(*words):
    """Return the printed JSON of a command."""
    from typer.testing import CliRunner  # here, because workers import this file, too

    from fairerclip.cli.app import app

    done = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@check
def commands_search_and_apply_on_a_cluster(client, file, tmp_path):
    task = save_task(simulate("waterbirds", seed=1, scale=0.1, width=WIDTH), tmp_path / "task.npz")
    where = ("--cluster", client.scheduler.address)
    fit = ("fit", task, "--set", "n_features=40", "--max-seconds", "0.01", "-o")
    here, there = ran(*fit, tmp_path / "here"), ran(*fit, tmp_path / "there", *where)
    assert (there["tau"], there["criterion"]) == (here["tau"], here["criterion"])
    assert there["tuning"]["strategy"] == here["tuning"]["strategy"]
    apply = ("apply", tmp_path / "here", file, "-o")
    here, there = ran(*apply, tmp_path / "here.csv"), ran(*apply, tmp_path / "there.csv", *where)
    assert there["predicted"] == here["predicted"]
    assert (tmp_path / "there.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()


@check
def an_address_without_a_scheduler_is_one_line(file, task, tmp_path):
    from typer.testing import CliRunner

    from fairerclip.cli.app import app

    FairerCLIP(**FIXED).fit(task.train.X[:N], **given(task)).save(tmp_path / "model")
    words = ["apply", tmp_path / "model", file, "-o", tmp_path / "a.csv", "--cluster", "tcp://127.0.0.1:9"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_client, "CONNECT", "1s")
        with pytest.raises(ClusterError, match="no Dask scheduler") as error:
            CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert "\n" not in str(error.value)


@check
def a_mitigator_is_fitted_and_applied_on_a_cluster(client, task, file):
    rows, local = distribute(file, client, rows_per_part=300), open_store(file)
    S = task.sensitive_attribute().text
    here = EmbeddingMitigator().fit(local, sensitive_text=S)
    there = EmbeddingMitigator().fit(rows, sensitive_text=S)
    np.testing.assert_allclose(there.transform(rows), here.transform(local), atol=1e-6)


@check
def a_dask_array_is_taken_as_rows_on_the_active_cluster(client, task):
    import dask.array as da

    X = task.train.X[:N]
    there = FairerCLIP(**FIXED).fit(da.from_array(X, chunks=(250, 20)), **given(task))
    here = FairerCLIP(**FIXED).fit(X, **given(task))
    found, expected = there.scores(da.from_array(X, chunks=(100, WIDTH))), here.scores(X)
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


@check
def rows_come_in_the_order_that_is_asked_for(client, file):
    rows, local = distribute(file, client, rows_per_part=300), open_store(file)
    numbers = np.array([899, 3, 3, -1, 450])
    np.testing.assert_array_equal(rows[numbers], local[numbers])
    np.testing.assert_array_equal(rows[150:450], local[150:450])
    np.testing.assert_array_equal(rows[[0, 0, 2]], local[[0, 0, 2]])
    found = rows[0:3]
    found += 1.0  # ours to change
    np.testing.assert_array_equal(rows[0:3], local[0:3])
    np.testing.assert_array_equal(rows.taken(np.array([5, 700]))[:], local[[5, 700]])
    np.testing.assert_array_equal(np.asarray(rows), local[:])
    assert rows[:0].shape == (0, WIDTH)
    with pytest.raises(ShapeError, match="row numbers"):
        rows[[900]]


@check
def chosen_rows_of_a_store_are_read_by_the_workers(client, file):
    numbers = np.arange(1, N, 3)
    rows = distribute(select_rows(open_store(file), numbers), client, rows_per_part=300)
    np.testing.assert_array_equal(rows[:], open_store(file)[numbers])


class Killing:
    """Accumulator that ends its own worker in the first pass that reaches a row, once."""

    def __init__(self, flag):
        self.flag, self.total = flag, 0.0

    def add(self, rows):
        if not os.path.exists(self.flag):
            open(self.flag, "x").close()
            os.kill(os.getpid(), signal.SIGKILL)
        self.total += float(rows.sum(dtype=np.float64))

    def merge(self, other):
        self.total += other.total


def noticed(client, before):
    """Assert that the scheduler hears of a worker that was killed; the work may be done first."""
    until = time.monotonic() + 60
    while set(client.nthreads()) == before:
        assert time.monotonic() < until, before
        time.sleep(0.1)


@check
def a_worker_that_is_killed_changes_nothing_but_the_time(client, file, tmp_path):
    rows = distribute(file, client, rows_per_part=300)
    before = set(client.nthreads())
    found = sum_rows(rows, partial(Killing, str(tmp_path / "killed")))
    (tmp_path / "again").touch()
    assert found.total == pytest.approx(
        sum_rows(open_store(file), partial(Killing, str(tmp_path / "again"))).total, rel=1e-6
    )
    noticed(client, before)


@check
def a_fit_goes_on_if_a_worker_with_kept_features_is_killed(client, task, file):
    rows = distribute(file, client, rows_per_part=300)
    expected = FairerCLIP(**FIXED, solver="cg").fit(open_store(file), **given(task)).scores(task.test.X[:50])
    calls, workers = [], set(client.nthreads())

    def progress(done, total):
        calls.append(done)
        if len(calls) == 2:  # in the middle of the first pass over the features
            pid = next(iter(client.run(os.getpid).values()))
            os.kill(pid, signal.SIGKILL)

    found = (
        FairerCLIP(**FIXED, solver="cg").fit(rows, **given(task), progress=progress).scores(task.test.X[:50])
    )
    assert len(calls) >= 3
    noticed(client, workers)
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


async def new_worker(address):
    return await distributed.Worker(address, nthreads=1, dashboard_address="127.0.0.1:0")


@check
def a_pass_goes_on_with_a_new_worker_after_the_only_one_was_lost(file):
    settings = {"threads_per_worker": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with (
        distributed.LocalCluster(n_workers=1, **settings) as other,
        distributed.Client(other, set_as_default=False) as alone,
    ):
        rows = distribute(file, alone, rows_per_part=300)
        expected = rows[:]
        other.sync(other.workers[0].close)
        worker = other.sync(new_worker, other.scheduler_address)
        np.testing.assert_array_equal(rows[:], expected)
        other.sync(worker.close)


def always_killed(rows):
    os.kill(os.getpid(), signal.SIGKILL)


@check
def a_part_that_kills_every_worker_is_an_error_that_says_what_to_do(client, file):
    import dask

    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        cluster_scheduler = distributed.default_client().cluster.scheduler
        allowed, cluster_scheduler.allowed_failures = cluster_scheduler.allowed_failures, 0
        try:
            with pytest.raises(LostWorkerError, match="more memory"):
                map_rows(distribute(file, client), always_killed)
        finally:
            cluster_scheduler.allowed_failures = allowed


@check
def a_row_that_is_not_finite_has_the_number_that_it_has_here(client, task, file, tmp_path):
    X = np.load(file)
    X[437, 5] = np.nan
    np.save(tmp_path / "bad.npy", X)
    messages = []
    for rows in (
        open_store(tmp_path / "bad.npy"),
        distribute(tmp_path / "bad.npy", client, rows_per_part=300),
    ):
        with pytest.raises(NonFiniteError, match="row 437 of 900") as error:
            FairerCLIP(**FIXED).fit(rows, **given(task))
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def slow_rows(rows):
    time.sleep(0.3)
    return (rows[:, :1],)


@check
def an_interrupt_ends_a_pass_and_the_cluster_stays_usable(client, file):
    rows = distribute(file, client, rows_per_part=100)
    timer = threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        map_rows(rows, slow_rows)
    assert rows[:2].shape == (2, WIDTH)


@check
def progress_counts_the_rows_of_finished_parts(client, file):
    seen = []
    map_rows(distribute(file, client, rows_per_part=300), first_column, progress=lambda *c: seen.append(c))
    assert seen[-1] == (N, N)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


@check
def columns_that_the_last_pass_had_are_not_sent_again(client, file):
    rows, weight = distribute(file, client, rows_per_part=300), np.arange(N, dtype=np.float64)
    map_rows(rows, weighted, [weight])
    sent = dict(rows._sent)
    map_rows(rows, weighted, [weight.copy()])
    assert {key: future.key for key, future in rows._sent.items()} == {key: f.key for key, f in sent.items()}
    weight[0] = 7.0
    (found,) = map_rows(rows, weighted, [weight])
    assert found[0] == 7.0


def first_column(rows):
    return (rows[:, :1],)


def weighted(rows, weight):
    return (weight,)


@check
def bad_arguments_are_named(client, file):
    with pytest.raises(ParameterError, match="rows_per_part"):
        distribute(file, client, rows_per_part=0)
    with pytest.raises(ShapeError, match="expected rows"):
        distribute(np.ones(3), client)
    assert distribute(rows := distribute(file, client)) is rows


@check
def without_a_client_the_error_says_how_to_make_one(client, file):
    def none():
        raise ValueError("No clients found")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distributed, "default_client", none)
        with pytest.raises(ClusterError, match="distributed.Client"):
            distribute(file)


@check
def the_number_of_workers_does_not_change_the_result(client, task, file):
    parts = distribute(file, client, rows_per_part=300)
    both = FairerCLIP(**FIXED).fit(parts, **given(task)).scores(task.test.X[:50])
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0"
        ) as other,
        distributed.Client(other, set_as_default=False) as alone,
    ):
        rows = distribute(file, alone, rows_per_part=450)
        one = FairerCLIP(**FIXED).fit(rows, **given(task)).scores(task.test.X[:50])
    assert np.abs(one - both).max() <= 1e-6 * np.abs(both).max()


def wait_for_workers(client, count):
    """Wait until the scheduler has so many workers; the list that the cluster keeps may miss some after a kill."""
    until = time.monotonic() + 60
    while len(client.nthreads()) < count:
        assert time.monotonic() < until, client.nthreads()
        time.sleep(0.1)


def run(*only: str) -> dict[str, str | None]:
    """Run checks on one cluster, all or those with some words in their names, and return how each failed, or None."""
    task, found = simulate("waterbirds", seed=0, width=WIDTH), {}
    chosen = [f for f in CHECKS if not only or any(words in f.__name__ for words in only)]
    killing = any("kill" in function.__name__ for function in chosen)
    with (
        tempfile.TemporaryDirectory() as folder,
        # On a busy machine a new process takes longer than the 15 s after which a local cluster gives a worker up.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "120s"}),
        # Dask's list of workers fails at the end if one is killed that it has not heard of yet.
        contextlib.suppress(KeyError),
        distributed.LocalCluster(
            n_workers=3 if killing else 2,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            memory_limit="1GB",
            host="127.0.0.1",
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        file = Path(folder) / "x.npy"
        np.save(file, task.train.X[:N].astype(np.float16))
        # Each of the last checks kills a worker, and the cluster waits for its replacement only if one alone is left.
        for function in sorted(chosen, key=lambda function: "kill" in function.__name__):
            own = Path(folder) / function.__name__
            own.mkdir()
            inputs = {"client": client, "task": task, "file": file, "tmp_path": own}
            wait_for_workers(client, 2)
            began = time.perf_counter()
            try:
                function(**{name: inputs[name] for name in inspect.signature(function).parameters})
            except Exception:  # noqa: BLE001 - the tests print it
                found[function.__name__] = traceback.format_exc()
            else:
                found[function.__name__] = None
            sys.stderr.write(f"{time.perf_counter() - began:.1f} s  {function.__name__}\n")
    return found


if __name__ == "__main__":
    warnings.filterwarnings("error", category=UserWarning, module="fairerclip")
    sys.stdout.write(json.dumps(run(*sys.argv[1:])))
