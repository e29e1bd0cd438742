"""The benchmark's figures are those of the public search and of the comparison; its verdicts count every row."""

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fairerclip import FairerCLIP
from fairerclip.data import save_task, simulate
from fairerclip.experiment import Experiment
from fairerclip.study.methods import METHODS
from fairerclip.study.run_method import run_method
from fairerclip.tuning import candidates

FOLDER = Path(__file__).parents[2] / "benchmarks"
BY_KEY = {method.key: method for method in METHODS}


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def resampled():
    return load("resampled")


@pytest.fixture(scope="module")
def task():
    made = simulate("waterbirds", seed=3, scale=0.1, width=48)
    # Codes of a file need not be in the order of the names: here they are not.
    attribute = made.sensitive_attribute()
    renamed = replace(attribute, names=tuple(f"{9 - i} {name}" for i, name in enumerate(attribute.names)))
    return replace(made, sensitive={attribute.name: renamed})


@pytest.fixture(scope="module")
def file(task, tmp_path_factory):
    return str(save_task(task, tmp_path_factory.mktemp("task") / "t.npz"))


def right_by_cell(task, predicted):
    experiment, test = Experiment.of(task), task.test
    right = np.asarray(predicted) == experiment.target(test)
    return [[int(right[(test.y == k) & (test.sensitive() == g)].sum()) for g in (0, 1)] for k in (0, 1)]


@pytest.mark.parametrize(("key", "objective"), [("search-target", "worst_group"), ("eod-none", "eod")])
def test_a_searched_model_of_the_benchmark_is_that_of_the_public_search(
    resampled, file, task, key, objective, monkeypatch
):
    monkeypatch.setattr(candidates, "FITS", candidates.FITS[:1])
    found = resampled.run_split(file, 7, key, 10, original=True)
    model = Experiment.of(task).tune(FairerCLIP(random_state=7), key.split("-")[1], objective)
    assert found["cells"] == right_by_cell(task, model.predict(task.test.X))
    assert found["chosen"] == model.diagnostics_["tuning"]["chosen"]["parameters"]
    assert found["candidates"] == model.diagnostics_["tuning"]["candidates"]


def test_a_method_of_the_benchmark_is_that_of_the_comparison(resampled, file, task):
    found = resampled.run_split(file, 0, "orth-cali", 10, original=True)
    run = run_method(BY_KEY["orth-cali"], Experiment.of(task), 0)
    assert (found["chosen"], tuple(found["offsets"])) == (run.chosen, run.offsets)
    names = np.array(task.class_names)
    assert found["cells"] == right_by_cell(task, names[list(run.predicted)])


def test_the_verdict_counts_every_row_that_sees_no_more_labels(resampled, file, task, tmp_path, capsys):
    table = load("resampled_table")
    shares = {"zero-shot": 0.5, "probe-group": 0.9, "probe-group-true": 0.95, "fairerclip-target": 0.8}
    folder = tmp_path
    for split in (0, 1):
        test = table.resplit(task, split).test
        counts = np.zeros((2, 2))
        np.add.at(counts, (test.y, test.sensitive()), 1)
        for key, share in shares.items():
            hits = np.floor(share * counts).tolist()
            (folder / f"{split:02d}-{key}.json").write_text(json.dumps({"cells": hits, "candidates": 1}))
    rows = table.collect(tmp_path, task)
    own = next(row for row in rows if row.key == "fairerclip-target")
    assert [row.key for row in table.rivals(own, rows)] == ["probe-group", "zero-shot"]
    table.print_task(task, rows)
    told = capsys.readouterr().out.splitlines()
    verdict = next(line for line in told if line.startswith("| FairerCLIP, labels; Y |"))
    assert "Group-balanced probe, Ŝ" in verdict
    best = next(row for row in rows if row.key == "probe-group")
    assert f"{own.mean('worst') - best.mean('worst'):+.1f} [" in verdict
    assert own.mean("worst") < best.mean("worst")
