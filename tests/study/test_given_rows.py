"""TIE in a comparison: it is given S of the rows that it predicts, and is therefore no rival of any method."""

from dataclasses import replace

import numpy as np
import pytest
from made_comparison import BY_KEY, compared, run_of, small_experiment, wrong
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip.data import Split
from fairerclip.errors import LabelError, ParameterError
from fairerclip.experiment import Experiment
from fairerclip.study import choose_model as module
from fairerclip.study.best_method import best_row
from fairerclip.study.compare import CompareOptions, compare
from fairerclip.study.comparison_answer import answer_of, rivals
from fairerclip.study.comparison_page import draw_front, page
from fairerclip.study.fit_method import fit_method
from fairerclip.study.methods import chosen_methods
from fairerclip.study.ranking_run import ranking_methods
from fairerclip.study.run_method import run_method
from fairerclip.study.split_figures import split_means

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
    assert {verdict.others for verdict in found.verdicts} == {2}
    assert found.best_for_labels == without.best_for_labels
    assert [entry.method for entry in rivals(found)] == [
        "fairerclip-none",
        "fairerclip-all",
        "tie",
        "zero-shot",
    ]
    assert answer_of(found) == answer_of(without)
    assert best_row(found).method == "fairerclip-none"
    assert found.against_zero_shot["tie-true"].worst_group.low > 0  # it is shown beside the others
    assert next(row for row in found.rows if row.method == "tie-true").labels == "prediction"


def test_its_table_and_picture_say_what_it_is_given(experiment, tmp_path):
    runs = {"zero-shot": 0.4, "tie-true": 0.01, "fairerclip-none": 0.1}
    found = compared(experiment, {key: [run_of(experiment, wrong(experiment, r))] for key, r in runs.items()})
    use = "Use “FairerCLIP, no labels”: the worst group of every other method that is given no S of these rows is"
    assert found.recommendation == f"{use} clearly worse."
    text = page(found).to_markdown()
    assert "S, also of the rows it predicts" in text
    assert (
        "Given S of the rows that they predict: shown beside the others, never the best"
        in page(found).to_html()
    )
    assert "TIE, true S of test rows: the same with the true sensitive value" in text
    pytest.importorskip("matplotlib")
    draw_front(found, tmp_path / "front.svg")
    assert (tmp_path / "front.svg").read_bytes().startswith(b"<?xml")


def test_alone_it_is_shown_and_nothing_is_recommended(experiment):
    found = compared(experiment, {"tie-true": [run_of(experiment, wrong(experiment, 0.2))]})
    assert found.answer.startswith("Only “TIE, true S of test rows” has figures")
    assert "Compare at least two methods" in found.recommendation
    assert found.best_for_labels == ()
    with pytest.raises(LabelError, match="no method has figures of .*, apart from those that are given S"):
        best_row(found)


def test_it_does_not_change_the_means_of_methods_with_fewer_splits(experiment):
    runs = {
        key: [run_of(experiment, wrong(experiment, share + k / 100, seed=k), seed=k) for k in range(splits)]
        for key, share, splits in (("zero-shot", 0.3, 4), ("adapter", 0.2, 2))
    }
    # Its splits are the easier, the harder zero-shot finds them.
    runs["tie-true"] = [
        run_of(experiment, wrong(experiment, 0.1 * (4 - k), seed=9), seed=k) for k in range(4)
    ]
    without = {key: found for key, found in runs.items() if key != "tie-true"}
    means, alone = split_means(runs, 0.5), split_means(without, 0.5)
    assert {key: means[key] for key in alone} == alone
    assert means["tie-true"].average.seeds == 4


def test_tasks_whose_measured_rows_have_no_sensitive_values_leave_it_out(experiment, inline_jobs):
    task = experiment.task
    (name,) = task.sensitive
    s = task.test.s[name].copy()
    s[:3] = -1
    partly = Experiment.of(
        replace(task, splits={**task.splits, "test": Split(task.test.X, task.test.y, {name: s})})
    )
    found = compare(partly, CompareOptions(methods=("zero-shot", "tie-true"), seeds=1))
    n = len(s)
    reason = f"it needs S of all rows that it predicts, and 3 of the {n} test rows have none"
    assert found.left_out == {"tie-true": reason}
    with pytest.raises(LabelError, match="3 of the"):
        run_method(TIE, partly, 0)
    (attribute,) = task.sensitive.values()
    silent = Experiment.of(replace(task, sensitive={name: replace(attribute, text=None)}))
    assert "no prompts" in TIE.why_not(silent)
    bare = {key: Split(split.X, split.y) for key, split in task.splits.items()}
    assert "no rows have both labels" in TIE.why_not(Experiment.of(replace(task, splits=bare)))


def test_without_s_of_training_rows_lengths_are_from_values_that_are_read(experiment):
    train = Split(experiment.task.train.X, experiment.task.train.y)
    blind = Experiment.of(replace(experiment.task, splits={**experiment.task.splits, "train": train}))
    method = replace(TIE, candidates=[{"scale": 1.0}])
    expected = literal(blind, blind.task.test, 1.0)
    assert np.abs(expected - literal(experiment, experiment.task.test, 1.0)).max() > 1e-4
    run = run_method(method, blind, 0)
    assert_array_equal(run.predicted, (expected + run.offsets).argmax(axis=1))


def test_without_validation_rows_it_has_its_published_setting(experiment):
    splits = {name: split for name, split in experiment.task.splits.items() if name != "val"}
    bare = Experiment.of(replace(experiment.task, splits=splits))
    run = run_method(TIE, bare, 0)
    assert_array_equal(run.predicted, literal(bare, bare.task.test, 1.0).argmax(axis=1))


def test_it_is_a_row_of_comparisons_alone(experiment):
    with pytest.raises(ParameterError, match="Use tie, whose model takes true values in Python"):
        fit_method("tie-true", experiment)
    assert "tie-true" not in [method.key for method in ranking_methods()]
    assert chosen_methods(["tie-true"]) == [TIE]
    assert TIE.needs == ["sensitive_labels_of_predicted_rows", "class_prompts", "sensitive_prompts"]
