"""The winner of a comparison as a saved model."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import fairerclip
from fairerclip import FairerCLIP
from fairerclip.data import simulate
from fairerclip.errors import LabelError, ParameterError, RefitWarning
from fairerclip.experiment import Experiment
from fairerclip.study.best_method import best_row, refit_best, save_best
from fairerclip.study.compare import CompareOptions, compare


@pytest.fixture(scope="module")
def experiment():
    return Experiment.of(simulate("waterbirds", seed=1, scale=0.05, width=32))


@pytest.fixture
def compared(experiment, inline_jobs):
    return compare(experiment, CompareOptions(methods=("zero-shot", "orth-cali", "leace"), seeds=1))


def test_the_winner_is_saved_as_it_was_run(experiment, compared, tmp_path):
    best = save_best(experiment, compared, tmp_path / "model")
    means = {row.method: row.figures.worst_group.mean for row in compared.rows}
    assert means[best.method.key] == max(means.values())
    (run,) = best_row(compared).runs
    loaded = fairerclip.load(tmp_path / "model")
    predicted = np.array(experiment.classes)[list(run.predicted)]
    assert_array_equal(loaded.predict(experiment.task.test.X), predicted)
    assert loaded.offsets_.tolist() == list(run.offsets)
    assert best.as_dict()["chosen"] == dict(run.chosen)
    assert f"{best.method.key} (" in best.sentences[0]
    assert "seed 0" in best.sentences[0]


@pytest.mark.usefixtures("inline_jobs")
def test_fairerclip_is_saved_if_it_wins(experiment, tmp_path):
    compared = compare(experiment, CompareOptions(methods=("fairerclip-none",), seeds=1))
    best = save_best(experiment, compared, tmp_path / "model")
    assert isinstance(fairerclip.load(tmp_path / "model"), FairerCLIP)
    assert best.run.strategy == best.model.diagnostics_["tuning"]["strategy"]


def test_a_model_that_predicts_otherwise_than_its_run_warns(experiment, compared):
    row = best_row(compared)
    (run,) = row.runs
    other = run.model_copy(update={"predicted": (1 - run.predicted[0], *run.predicted[1:])})
    changed = row.model_copy(update={"runs": (other,)})
    comparison = compared.model_copy(update={"rows": (changed,)})
    with pytest.warns(RefitWarning, match=f"predicts 1 of {len(run.predicted)} rows otherwise"):
        refit_best(experiment, comparison)


def test_another_task_or_no_figures_are_refused(experiment, compared):
    others = Experiment.of(replace(experiment.task, splits={"train": experiment.task.train}))
    with pytest.raises(ParameterError, match="give the task it was made of"):
        refit_best(others, compared)
    rows = tuple(row.model_copy(update={"figures": None}) for row in compared.rows)
    with pytest.raises(LabelError, match="no method has figures"):
        refit_best(experiment, compared.model_copy(update={"rows": rows}))
