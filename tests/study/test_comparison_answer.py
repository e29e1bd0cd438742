"""The answer of a comparison: who is best, how FairerCLIP does, what to use, and what is never folded."""

from dataclasses import replace

import numpy as np
import pytest
from made_comparison import compared, run_of, small_experiment, wrong

from fairerclip.experiment import Experiment
from fairerclip.study.comparison_answer import answer_of


@pytest.fixture(scope="module")
def experiment():
    return small_experiment()


def made(experiment, **shares):
    """A comparison of methods by their shares of wrong rows; equal shares give the same predictions."""
    runs = {}
    for key, share in shares.items():
        key = key.replace("_", "-")
        runs[key] = share if isinstance(share, str) else [run_of(experiment, wrong(experiment, share))]
    return compared(experiment, runs)


def test_differences_are_those_of_the_same_rows(experiment):
    rows, names = experiment.task.test, np.array(experiment.classes)
    seeds = [wrong(experiment, 0.2, seed) for seed in range(3)]
    best = wrong(experiment, 0.05, 7)
    found = compared(
        experiment,
        {
            "zero-shot": [run_of(experiment, best)],
            "fairerclip-none": [run_of(experiment, codes, k) for k, codes in enumerate(seeds)],
        },
    )
    (level,) = found.best_for_labels
    assert (level.labels, level.best) == ("none", "zero-shot")
    expected = [
        experiment.paired_report(rows, names[best], names[codes]).change("worst_group") for codes in seeds
    ]
    difference = level.differences["fairerclip-none"].worst_group
    for name in ("difference", "low", "high"):
        assert getattr(difference, name) == pytest.approx(np.mean([getattr(c, name) for c in expected]))
    means = {row.method: row.figures.worst_group.mean for row in found.rows}
    assert difference.difference == pytest.approx(means["fairerclip-none"] - means["zero-shot"])
    assert found.against_zero_shot["fairerclip-none"] == level.differences["fairerclip-none"]
    assert found.verdicts[0].worst_group == difference


def test_zero_shot_is_kept_unless_something_is_clearly_better(experiment):
    found = made(experiment, zero_shot=0.2, orth_proj=0.199, probe=0.2, fairerclip_target=0.2)
    assert found.recommendation.startswith("Keep zero-shot")
    level = found.best_for_labels[-1]
    assert {*level.not_told_apart, level.best} == {row.method for row in found.rows}


def test_the_simplest_of_the_methods_that_are_alike_is_recommended(experiment):
    found = made(experiment, wise=0.1, probe=0.11, probe_group_true=0.1, fairerclip_all=0.09)
    assert found.best_for_labels[-1].use == "probe"


@pytest.fixture(scope="module")
def alike(experiment):
    """Predictions with half of the smallest group wrong: with one error less, so, and with more errors elsewhere."""
    test = experiment.task.test
    truth, (_, groups) = test.y, experiment.labels(test)
    cells = [(truth == code) & (groups == group) for code in (0, 1) for group in set(groups)]
    inside = min(cells, key=np.sum)
    every_second = inside & (np.cumsum(inside) % 2 == 0)
    half = np.where(every_second, 1 - truth, truth)
    better = half.copy()
    better[np.flatnonzero(every_second)[0]] = truth[np.flatnonzero(every_second)[0]]
    noisy = np.where(~inside & (np.arange(len(truth)) % 4 == 0), 1 - truth, half)
    return [[run_of(experiment, codes)] for codes in (better, half, noisy)]


def test_a_simpler_method_that_loses_on_average_is_not_recommended(experiment, alike):
    better, half, noisy = alike
    found = compared(experiment, {"zero-shot": noisy, "probe": better})
    level = found.best_for_labels[-1]
    assert (level.best, level.not_told_apart, level.use) == ("probe", ("zero-shot",), "probe")
    assert level.differences["zero-shot"].average.high < -0.01
    found = compared(experiment, {"zero-shot": noisy, "orth-proj": half, "probe": better})
    assert found.best_for_labels[-1].use == "orth-proj"


def test_harms_and_failures_are_never_folded(experiment):
    found = made(experiment, zero_shot=0.1, orth_proj="ParameterError: no", probe=0.45, fairerclip_target=0.4)
    failed, harm = answer_of(found).alerts[:2]
    assert (failed.kind, harm.kind) == ("failed", "harm")
    assert "Orth-Proj" in failed.text
    assert "FairerCLIP, labels" in harm.text


def test_figures_on_training_rows_are_no_reason_to_choose(experiment):
    task = experiment.task
    only = Experiment.of(replace(task, splits={"train": task.train}))
    runs = {
        key: [run_of(only, wrong(only, share, split="train"), split="train")]
        for key, share in (("zero-shot", 0.3), ("probe", 0.0))
    }
    found = compared(only, runs)
    assert found.recommendation.startswith("Do not choose by these figures")
    assert answer_of(found).advice == ()
