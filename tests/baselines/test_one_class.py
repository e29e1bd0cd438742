"""Tasks on which zero-shot predicts one class for every row: what learns nothing from guesses does without them."""

from dataclasses import replace

import numpy as np
import pytest

from fairerclip.baselines import LEACE, OrthCali, ZeroShot
from fairerclip.data import simulate
from fairerclip.errors import VanishedLabelWarning
from fairerclip.experiment import Experiment
from fairerclip.study.methods import chosen_methods
from fairerclip.study.run_method import run_method

MODELS = [ZeroShot(), OrthCali(), LEACE()]


@pytest.fixture(scope="module")
def task():
    """The first class prompt points to where all images are, the second away from there."""
    made = simulate("waterbirds", seed=1, scale=0.05, width=32)
    towards = made.train.X.mean(axis=0)
    text = np.stack([made.text_target[0] + 30 * towards, made.text_target[1] - 30 * towards])
    return replace(made, text_target=text, variants=None)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_what_learns_nothing_from_guesses_predicts_one_class_and_says_so(task, model):
    experiment = Experiment.of(task)
    given = experiment.arguments("none")
    with pytest.warns(VanishedLabelWarning):
        model.fit(given.pop("X"), given.pop("y"), **given)
    report = experiment.report(task.test, model.predict(task.test.X))
    assert report.worst.accuracy == 0
    assert 0.5 < report.average < 1


@pytest.mark.filterwarnings("ignore::fairerclip.errors.VanishedLabelWarning")
def test_a_comparison_shows_a_worst_group_of_zero(task):
    (method,) = chosen_methods(["zero-shot"])
    found = run_method(method, Experiment.of(task), seed=0)
    assert found.as_published.report.worst.accuracy == 0
    assert found.report.worst.accuracy > 0  # offsets move the boundary to where rows are
