"""Comparisons over resampled splits: means, intervals for new rows, and differences paired by split."""

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
from made_comparison import BY_KEY, run_of, small_experiment, wrong
from scipy.stats import t as student

from fairerclip.data import resplit
from fairerclip.errors import LabelError, ParameterError
from fairerclip.study import compare as study
from fairerclip.study.compare import CompareOptions, compare
from fairerclip.study.comparison_answer import answer_of, splits_words
from fairerclip.study.comparison_page import page
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


def test_the_interval_holds_what_new_rows_give():
    """Means over overlapping splits of a sample, against the truth: the plain interval is far too short."""
    rng = np.random.default_rng(1)
    covered, plain = 0, 0
    for _ in range(300):
        rows = rng.random(200) < 0.8
        values = np.array([rng.permutation(rows)[:100].mean() for _ in range(20)])
        covered += abs(values.mean() - 0.8) <= half_width(values, 1.0)
        plain += abs(values.mean() - 0.8) <= half_width(values, 0.0)
    assert covered > 270
    assert plain < 200


def test_methods_with_fewer_splits_are_corrected_for_how_hard_these_are(experiment):
    easy, hard = range(3), range(3, 6)
    full = {}
    for key, worse in (("zero-shot", 0.0), ("orth-proj", 0.1)):
        runs = runs_on_splits(experiment, 0.05 + worse, easy) + runs_on_splits(experiment, 0.25 + worse, hard)
        full[key] = runs
    few = {**full, "adapter": full["orth-proj"][:3]}
    figures = split_means(few, overlap_ratio(experiment.task))
    raw = np.mean([run.report.estimate("average").value for run in few["adapter"]])
    means = {key: found.average.mean for key, found in figures.items()}
    assert means["zero-shot"] > means["orth-proj"]
    assert means["adapter"] < raw - 0.05  # it ran on easy splits only
    assert means["adapter"] == pytest.approx(means["orth-proj"], abs=0.03)
    assert figures["adapter"].average.seeds == 3
    assert figures["zero-shot"].average.seeds == 6
    # Paired differences are over the splits that both have.
    paired = PairedSplits.of(experiment, [BY_KEY[key] for key in few], few, figures)
    assert paired.difference("adapter", "orth-proj").worst_group.difference == 0
    change = paired.difference("adapter", "zero-shot").average
    values = [
        a.report.average - b.report.average for a, b in zip(few["adapter"], full["zero-shot"], strict=False)
    ]
    assert change.difference == pytest.approx(np.mean(values))
    assert change.high - change.difference == pytest.approx(
        half_width(np.array(values), overlap_ratio(experiment.task))
    )


def test_methods_that_share_no_split_are_not_told_apart(experiment):
    runs = {
        "zero-shot": runs_on_splits(experiment, 0.1, [0, 1]),
        "adapter": runs_on_splits(experiment, 0.3, [2, 3]),
    }
    paired = PairedSplits.of(experiment, [BY_KEY[key] for key in runs], runs, split_means(runs, 1.0))
    change = paired.difference("adapter", "zero-shot").worst_group
    assert (change.low, change.high) == (-1, 1)


def test_a_run_on_a_split_is_a_run_on_the_resampled_task(experiment):
    one = run_split(BY_KEY["zero-shot"], experiment, 3)
    other = run_method(BY_KEY["zero-shot"], replace(experiment, task=resplit(experiment.task, 3)), 3)
    assert one.report == other.report
    assert one.seed == 3
    assert other.predicted
    assert one.predicted == (), "a kept run on a split says nothing of single rows"


def test_a_comparison_over_splits_says_so_and_is_taken_up_again(experiment, tmp_path, monkeypatch):
    def inline(calls, answered, **_):
        for number, call in enumerate(calls):
            answered(number, study_guarded(call))

    from fairerclip.study.workers import guarded as study_guarded

    monkeypatch.setattr("fairerclip.study.jobs.run_calls", inline)
    options = CompareOptions(methods=("zero-shot", "orth-proj"), splits=3, jobs=1)
    found = compare(experiment, options, work=tmp_path)
    names = {file.name for file in tmp_path.iterdir()}
    assert {f"zero-shot-split-{k}.json" for k in range(3)} < names
    assert [len(row.runs) for row in found.rows] == [3, 3]
    assert found.settings.splits == 3
    assert found.rows[0].figures.worst_group.seeds == 3
    assert "3 resampled splits" in answer_of(found).sentence
    text = page(found).to_markdown()
    assert "paired by splits" in text
    assert "correction for splits that share rows" in text
    with patch.object(study, "run_split", side_effect=AssertionError("kept runs are not run again")):
        again = compare(experiment, options, work=tmp_path)
    assert again.rows[0].figures == found.rows[0].figures


def test_gradient_methods_run_on_the_first_splits(experiment):
    options = CompareOptions(splits=20)
    assert len(options.draws(BY_KEY["adapter"])) == 5
    assert len(options.draws(BY_KEY["zero-shot"])) == 20
    assert len(CompareOptions(splits=3).draws(BY_KEY["adapter"])) == 3


def test_the_splits_in_words_are_those_that_methods_ran_on():
    def row(splits, gradient):
        return SimpleNamespace(runs=[None] * splits, gradient=gradient)

    assert (
        splits_words([row(20, False), row(5, True)])
        == "20 resampled splits (5 for methods trained by gradient)"
    )
    assert splits_words([row(5, True)]) == "5 resampled splits"
    assert splits_words([row(3, False), row(3, True)]) == "3 resampled splits"


def test_splits_that_cannot_be_are_refused(experiment):
    with pytest.raises(ParameterError, match="splits must be a whole number from 2 to 1,000; got 1"):
        compare(experiment, CompareOptions(splits=1))
    only = replace(experiment.task, splits={"train": experiment.task.train})
    with pytest.raises(LabelError, match="no training or no test split to resample"):
        compare(replace(experiment, task=only), CompareOptions(splits=2))
