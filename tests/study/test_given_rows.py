"""TIE in a comparison: it is given S of the rows that it predicts, and is therefore no rival of any method."""

from dataclasses import replace

import numpy as np
import pytest
from made_comparison import BY_KEY, compared, run_of, small_experiment, wrong
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip.data import Split
from fairerclip.errors import LabelError
from fairerclip.experiment import Experiment
from fairerclip.study import choose_model as module
from fairerclip.study.best_method import best_row
from fairerclip.study.compare import CompareOptions, compare
from fairerclip.study.comparison_answer import answer_of
from fairerclip.study.run_method import run_method

TIE = BY_KEY["tie-true"]


@pytest.fixture(scope="module")
def experiment():
    return small_experiment()


def unit(a):
    return a / np.linalg.norm(a, axis=-1, keepdims=True)


def literal(experiment, rows, scale):
    """Scores of rows that are moved by their true values; lengths are those of training rows with these values."""
    (attribute,) = experiment.task.sensitive.values()
    train = experiment.task.train
    prompts, X = unit(attribute.text), unit(train.X.astype(float))
    known = train.sensitive() if train.s else (X @ prompts.T).argmax(axis=1)
    lengths = np.array([(X[known == v] @ prompts[v]).mean() for v in range(len(prompts))])
    s = rows.sensitive()
    moved = unit(rows.X.astype(float)) - scale * lengths[s][:, None] * prompts[s]
    return unit(moved) @ unit(experiment.text.astype(float)).T


def test_it_is_chosen_and_measured_with_true_values(experiment, monkeypatch):
    kept = {}
    choose = module.choose

    def chosen(scores, *given):
        kept["scores"] = scores
        return choose(scores, *given)

    monkeypatch.setattr(module, "choose", chosen)
    run = run_method(TIE, experiment, 0)
    task = experiment.task
    scales = [setting["scale"] for setting in TIE.candidates]
    assert scales == [setting["scale"] for setting in BY_KEY["tie"].candidates]
    for place in (0, 1, 20, 39):
        assert_allclose(kept["scores"][place], literal(experiment, task.val, scales[place]), atol=1e-5)
    expected = (literal(experiment, task.test, run.chosen["scale"]) + run.offsets).argmax(axis=1)
    assert_array_equal(run.predicted, expected)
    published = literal(experiment, task.test, 1.0).argmax(axis=1)
    report = experiment.report(task.test, np.array(experiment.classes)[published])
    assert run.as_published.report.average == report.average
    star = run_method(replace(BY_KEY["tie"], candidates=[{"scale": 1.0}]), experiment, 0)
    assert star.as_published.report.average != report.average  # some values are read wrongly
    assert np.abs(kept["scores"][0] - literal(experiment, task.val, 0.0)).max() > 0.01


def test_it_is_no_rival_although_its_figures_are_best(experiment):
    shares = {"zero-shot": 0.4, "tie": 0.3, "tie-true": 0.01, "fairerclip-none": 0.1, "fairerclip-all": 0.1}
    runs = {key: [run_of(experiment, wrong(experiment, share))] for key, share in shares.items()}
    found = compared(experiment, runs)
    without = compared(experiment, {key: run for key, run in runs.items() if key != "tie-true"})
    assert found.verdicts == without.verdicts
    assert found.best_for_labels == without.best_for_labels
    assert answer_of(found) == answer_of(without)
    assert best_row(found).method == "fairerclip-none"
    assert found.against_zero_shot["tie-true"].worst_group.low > 0  # it is shown beside the others


def test_tasks_whose_measured_rows_have_no_sensitive_values_leave_it_out(experiment, inline_jobs):
    task = experiment.task
    (name,) = task.sensitive
    s = task.test.s[name].copy()
    s[:3] = -1
    test = Split(task.test.X, task.test.y, {name: s})
    partly = Experiment.of(replace(task, splits={**task.splits, "test": test}))
    found = compare(partly, CompareOptions(methods=("zero-shot", "tie-true"), seeds=1))
    assert set(found.left_out) == {"tie-true"}
    with pytest.raises(LabelError, match="3"):
        run_method(TIE, partly, 0)
