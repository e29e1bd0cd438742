"""Checks of rows on a cluster of worker processes; `test_cluster_rows.py` runs them in another process.

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
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import dask
import dask.array as da
import distributed
import numpy as np
import pytest

from fairerclip import EmbeddingMitigator, FairerCLIP, FairerCLIPSearch, distribute, mitigate_store
from fairerclip.applying import answer_blocks, mitigated_files
from fairerclip.applying.streamed_answers import apply_to_file
from fairerclip.baselines import ZeroShot
from fairerclip.data import cluster_client
from fairerclip.data.cluster_rows import ClusterRows
from fairerclip.data.row_pass import map_rows
from fairerclip.data.simulate import simulate
from fairerclip.data.store_rows import select_rows
from fairerclip.data.stores import open_store
from fairerclip.errors import ClusterError, NonFiniteError, ParameterError, ShapeError
from fairerclip.model.automatic import LABELLED

N, WIDTH = 900, 32
FIXED = {**LABELLED, "n_features": 40, "random_state": 0}


def given(task, *, labelled=True):
    return {
        "y": task.train.y[:N] if labelled else None,
        "text": task.text_target,
        "sensitive_text": task.sensitive_attribute().text,
    }


def assert_close(found, expected):
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


def fits_have_the_scores_of_fits_here(client, task, file):
    rows, local = distribute(file, client, rows_per_part=300), open_store(file)
    assert isinstance(rows, ClusterRows)
    assert distribute(rows) is rows
    for parameters, labelled in (({}, True), ({"solver": "cg"}, True), ({"refine": True}, False)):
        model = FairerCLIP(**{**FIXED, **parameters})
        expected = model.fit(local, **given(task, labelled=labelled)).scores(local)
        assert_close(model.fit(rows, **given(task, labelled=labelled)).scores(rows), expected)


def parameters_chosen_by_the_data_are_those_of_a_fit_here(client, task, file):
    automatic = {"n_features": 40, "random_state": 0, "zero_shot": 0.5, "criterion": "marginal"}
    here, there = (
        FairerCLIP(**automatic).fit(rows, **given(task))
        for rows in (open_store(file), distribute(file, client, rows_per_part=400))
    )
    assert there.used_parameters() == here.used_parameters()
    np.testing.assert_allclose(there.offsets_, here.offsets_, atol=1e-6)


def a_search_finds_the_model_of_a_search_here(client, task, file):
    exact = FairerCLIP(n_features=40, random_state=0, dtype="float64")
    space = {"fits": [{"class_weight": "balanced"}, {"gamma": 1e-2}], "taus": [0.0, 0.8], "zero_shots": [0.5]}
    validation = (task.val.X, task.val.y, task.val.sensitive())
    here, there = (
        FairerCLIPSearch(exact, search_space=space).fit(rows, **given(task), validation=validation)
        for rows in (open_store(file), distribute(file, client, rows_per_part=300))
    )
    assert there.best_params_ == here.best_params_
    assert_close(there.scores(task.test.X), here.scores(task.test.X))


def a_mitigator_is_fitted_and_applied_as_here(client, task, file, tmp_path):
    rows, local = distribute(file, client, rows_per_part=300), open_store(file)
    S = task.sensitive_attribute().text
    here, there = (EmbeddingMitigator().fit(X, sensitive_text=S) for X in (local, rows))
    np.testing.assert_allclose(there.transform(rows), here.transform(local), atol=1e-6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mitigated_files, "BLOCK_ROWS", 64)
        for name, more in (("here.npy", {}), ("there.npy", {"client": client})):
            mitigate_store(here, file, tmp_path / name, **more)
    assert (tmp_path / "here.npy").read_bytes() == (tmp_path / "there.npy").read_bytes()
    with pytest.raises(ParameterError):
        mitigate_store(here, np.load(file), tmp_path / "rows.npy", client=client)


def a_dask_array_is_taken_as_rows_on_the_active_cluster(client, task):
    X = task.train.X[:N]
    there = FairerCLIP(**FIXED).fit(da.from_array(X, chunks=(250, 20)), **given(task))
    here = FairerCLIP(**FIXED).fit(X, **given(task))
    assert_close(there.scores(da.from_array(X, chunks=(100, WIDTH))), here.scores(X))


def rows_come_in_the_order_that_is_asked_for(client, file):
    rows, local = distribute(file, client, rows_per_part=300), open_store(file)
    for numbers in ([899, 3, 3, -1, 450], [0, 0, 2], slice(150, 450), slice(0, 0)):
        np.testing.assert_array_equal(rows[numbers], local[numbers])
    rows[0:3][:] += 1.0  # ours to change
    np.testing.assert_array_equal(np.asarray(rows), local[:])
    np.testing.assert_array_equal(rows.taken(np.array([5, 700]))[:], local[[5, 700]])
    with pytest.raises(ShapeError):
        rows[[900]]
    with pytest.raises(ParameterError):
        distribute(file, client, rows_per_part=0)
    third = np.arange(1, N, 3)
    chosen = distribute(select_rows(local, third), client, rows_per_part=300)
    np.testing.assert_array_equal(chosen[:], local[third])


def weighted(rows, weight):
    return (weight,)


def columns_are_sent_again_only_if_they_changed(client, file):
    rows, weight, seen = distribute(file, client, rows_per_part=300), np.arange(N, dtype=np.float64), []
    map_rows(rows, weighted, [weight], progress=lambda *counts: seen.append(counts))
    assert seen[-1] == (N, N)
    sent = {key: future.key for key, future in rows._sent.items()}
    map_rows(rows, weighted, [weight.copy()])
    assert {key: future.key for key, future in rows._sent.items()} == sent
    weight[0] = 7.0
    (found,) = map_rows(rows, weighted, [weight])
    assert found[0] == 7.0


def answers_make_the_same_files(client, task, file, tmp_path):
    chosen = select_rows(open_store(file), np.arange(0, N, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answer_blocks, "BLOCK_ROWS", 64)
        for model in (FairerCLIP(**FIXED), ZeroShot()):
            model.fit(task.train.X[:N], **given(task))
            for source in (file, chosen):
                for name in ("a.csv", "a.npz"):
                    here, there = tmp_path / name, tmp_path / f"there-{name}"
                    apply_to_file(model, source, here, overwrite=True)
                    apply_to_file(model, source, there, overwrite=True, client=client)
                    assert there.read_bytes() == here.read_bytes()


def a_command_applies_on_a_cluster_and_an_address_without_one_is_an_error(client, task, file, tmp_path):
    from typer.testing import CliRunner  # here, because workers import this file, too

    from fairerclip.cli.app import app

    model = FairerCLIP(**FIXED).fit(task.train.X[:N], **given(task))
    model.save(tmp_path / "model")
    apply_to_file(model, file, tmp_path / "here.csv")
    words = ["apply", tmp_path / "model", file, "-o", tmp_path / "there.csv", "--overwrite", "--cluster"]
    done = CliRunner().invoke(app, [*map(str, words), client.scheduler.address])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "there.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_client, "CONNECT", "1s")
        with pytest.raises(ClusterError):
            CliRunner().invoke(app, [*map(str, words), "tcp://127.0.0.1:9"], catch_exceptions=False)


def a_row_that_is_not_finite_has_the_number_that_it_has_here(client, task, file, tmp_path):
    X = np.load(file)
    X[437, 5] = np.nan
    np.save(tmp_path / "bad.npy", X)
    model = FairerCLIP(**FIXED).fit(task.train.X[:N], **given(task))
    with pytest.raises(NonFiniteError, match="row 437 of 900"):
        model.fit(distribute(tmp_path / "bad.npy", client, rows_per_part=300), **given(task))
    with pytest.raises(NonFiniteError, match="row 437 of 900"):
        apply_to_file(model, tmp_path / "bad.npy", tmp_path / "answers.csv", client=client)
    assert not (tmp_path / "answers.csv").exists()


def kill(client):
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)


def a_fit_goes_on_if_a_worker_with_kept_features_is_killed(client, task, file):
    rows, model = distribute(file, client, rows_per_part=300), FairerCLIP(**FIXED, solver="cg")
    expected = model.fit(open_store(file), **given(task)).scores(task.test.X[:50])
    calls = []

    def progress(done, total):
        calls.append(done)
        if len(calls) == 2:  # in the middle of the first pass over the features
            kill(client)

    found = model.fit(rows, **given(task), progress=progress).scores(task.test.X[:50])
    assert len(calls) >= 3
    assert_close(found, expected)


CHECKS: list[Callable[..., None]] = [
    fits_have_the_scores_of_fits_here,
    parameters_chosen_by_the_data_are_those_of_a_fit_here,
    a_search_finds_the_model_of_a_search_here,
    a_mitigator_is_fitted_and_applied_as_here,
    a_dask_array_is_taken_as_rows_on_the_active_cluster,
    rows_come_in_the_order_that_is_asked_for,
    columns_are_sent_again_only_if_they_changed,
    answers_make_the_same_files,
    a_command_applies_on_a_cluster_and_an_address_without_one_is_an_error,
    a_row_that_is_not_finite_has_the_number_that_it_has_here,
    a_fit_goes_on_if_a_worker_with_kept_features_is_killed,  # last: its replacement takes a while to start
]


def run() -> dict[str, str | None]:
    """Run the checks on one cluster, and return how each failed, or None."""
    task, found = simulate("waterbirds", seed=0, width=WIDTH), {}
    with (
        tempfile.TemporaryDirectory() as folder,
        # On a busy machine a new process takes longer than the 15 s after which a local cluster gives a worker up.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "120s"}),
        # Dask's list of workers fails at the end if one is killed that it has not heard of yet.
        contextlib.suppress(KeyError),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            memory_limit="1GB",
            host="127.0.0.1",
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        file = Path(folder) / "x.npy"
        np.save(file, task.train.X[:N].astype(np.float16))
        for function in CHECKS:
            own = Path(folder) / function.__name__
            own.mkdir()
            inputs = {"client": client, "task": task, "file": file, "tmp_path": own}
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
    sys.stdout.write(json.dumps(run()))
