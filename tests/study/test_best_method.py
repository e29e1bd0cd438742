"""The winner of a comparison as a saved model."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import fairerclip
from fairerclip.data import simulate
from fairerclip.experiment import Experiment
from fairerclip.study.best_method import best_row, save_best
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
