"""Comparisons over resampled splits: means, intervals for new rows, and differences paired by split."""

from dataclasses import replace

import numpy as np
import pytest
from made_comparison import BY_KEY, run_of, small_experiment, wrong
from scipy.stats import t as student

from fairerclip.data import resplit
from fairerclip.study.run_method import run_method, run_split
from fairerclip.study.split_figures import PairedSplits, half_width, overlap_ratio, split_means


@pytest.fixture(scope="module")
def experiment():
    return small_experiment()


def runs_on_splits(experiment, share, splits, seed=0):
    """Runs with a share of wrong answers, one on each resampled split."""
    found = []
    for split in splits:
        other = replace(experiment, task=resplit(experiment.task, split))
        found.append(run_of(other, wrong(other, share, seed=seed + split), seed=split))
    return found


def test_the_interval_is_that_of_nadeau_and_bengio():
    values, ratio = np.random.default_rng(0).normal(0.7, 0.05, size=12), 0.9
    variance = sum((v - values.mean()) ** 2 for v in values) / 11
    expected = student.ppf(0.975, 11) * (variance * (1 / 12 + 0.9)) ** 0.5
    assert half_width(values, ratio) == pytest.approx(expected)
    assert half_width(values[:1], ratio) == float("inf")
    # Equal figures say nothing about their spread: worst groups of few rows move in large steps.
    assert half_width(np.full(5, 0.7), ratio) == float("inf")
    assert half_width(np.array([14 / 23 - 13 / 23, 15 / 23 - 14 / 23]), ratio) == float("inf")


def test_methods_with_fewer_splits_are_corrected_for_how_hard_these_are(experiment):
    full = {}
    for key, worse in (("zero-shot", 0.0), ("orth-proj", 0.1)):
        easy = runs_on_splits(experiment, 0.05 + worse, range(3))
        full[key] = easy + runs_on_splits(experiment, 0.25 + worse, range(3, 6))
    few = {**full, "adapter": full["orth-proj"][:3]}
    figures = split_means(few, overlap_ratio(experiment.task))
    raw = np.mean([run.report.estimate("average").value for run in few["adapter"]])
    means = {key: found.average.mean for key, found in figures.items()}
    assert means["adapter"] < raw - 0.05  # it ran on easy splits only
    assert means["adapter"] == pytest.approx(means["orth-proj"], abs=0.03)
    # Paired differences are over the splits that both have.
    paired = PairedSplits.of(experiment, [BY_KEY[key] for key in few], few, figures)
    assert paired.difference("adapter", "orth-proj").worst_group.difference == 0
    change = paired.difference("adapter", "zero-shot").average
    pairs = zip(few["adapter"], full["zero-shot"], strict=False)
    values = np.array([a.report.average - b.report.average for a, b in pairs])
    assert change.difference == pytest.approx(values.mean())
    wide = half_width(values, overlap_ratio(experiment.task))
    assert change.high - change.difference == pytest.approx(wide)


def test_a_run_on_a_split_is_a_run_on_the_resampled_task(experiment):
    one = run_split(BY_KEY["zero-shot"], experiment, 3)
    other = run_method(BY_KEY["zero-shot"], replace(experiment, task=resplit(experiment.task, 3)), 3)
    assert one.report == other.report
    assert one.seed == 3
    assert other.predicted
    assert one.predicted == (), "a kept run on a split says nothing of single rows"
