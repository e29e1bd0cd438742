"""Precision, recall and drift of rankings against sorting by hand, and resampled ones against real ones."""

import json

import numpy as np
import pytest
from scipy.stats import spearmanr

from fairerclip.errors import LabelError, ParameterError, ShapeError
from fairerclip.metrics import precision_at_k, ranking_drift, recall_at_k
from fairerclip.metrics.retrieval.top_rows import (
    TopRows,
    rankings,
    resampled_counts,
    row_weights,
)


def test_precision_and_recall_are_those_counted_by_hand():
    scores, relevant = [9, 8, 7, 6, 5], [1, 0, 1, 1, 0]
    assert precision_at_k(scores, relevant, 2) == 0.5
    assert recall_at_k(scores, relevant, 2) == pytest.approx(1 / 3)
    assert precision_at_k(scores, relevant, 5) == pytest.approx(3 / 5)
    assert recall_at_k(scores, relevant, 5) == 1.0


def test_expected_precision_under_ties_is_the_mean_of_random_orders():
    rng = np.random.default_rng(3)
    scores, relevant = rng.integers(4, size=40), rng.random(40) < 0.4
    for measure in (precision_at_k, recall_at_k):
        drawn = [measure(scores, relevant, 15, ties="random", random_state=rng) for _ in range(1000)]
        assert np.std(drawn) > 0.01
        assert measure(scores, relevant, 15) == pytest.approx(
            np.mean(drawn), abs=4 * np.std(drawn) / 1000**0.5
        )


def test_each_query_has_its_own_relevance_or_all_the_same():
    rng = np.random.default_rng(4)
    scores, relevant = rng.normal(size=(50, 3)), rng.random((50, 3)) < 0.3
    for measure in (precision_at_k, recall_at_k):
        values = measure(scores, relevant, 10)
        assert values == pytest.approx([measure(scores[:, q], relevant[:, q], 10) for q in range(3)])
        shared = measure(scores, relevant[:, 0], 10)
        assert shared == pytest.approx([measure(scores[:, q], relevant[:, 0], 10) for q in range(3)])


@pytest.mark.parametrize(
    ("scores", "relevant", "k", "error"),
    [
        ([1, 2], [0, 2], 1, LabelError),
        ([1, 2], [0, 1, 1], 1, ShapeError),
        (np.zeros((4, 3)), np.zeros((4, 2)), 1, ShapeError),
        ([1, 2], [0, 1], 3, ParameterError),
    ],
)
def test_bad_relevance_is_refused(scores, relevant, k, error):
    for measure in (precision_at_k, recall_at_k):
        with pytest.raises(error):
            measure(scores, relevant, k)


# Resampled galleries


def test_all_queries_see_the_same_resampled_rows_in_blocks_of_any_size(monkeypatch):
    rng = np.random.default_rng(5)
    scores, members = rng.normal(size=(80, 2)), np.eye(2)[rng.integers(2, size=80)]
    scores[:, 1] = scores[:, 0]
    ranked = rankings(scores, "expected", None)
    top, every = resampled_counts(ranked, [members] * 2, 20, 30, np.random.default_rng(6))
    assert (top[:, 0] == top[:, 1]).all()
    np.testing.assert_allclose(top.sum(axis=2), 20)
    np.testing.assert_allclose(every.sum(axis=2), 80)
    assert top[:, 0].std(axis=0).min() > 0.5
    monkeypatch.setattr("fairerclip.metrics.retrieval.top_rows.BLOCK", 80)
    again, _ = resampled_counts(ranked, [members] * 2, 20, 30, np.random.default_rng(6))
    np.testing.assert_allclose(top, again)


# Drift


def moved(seed=7, n=300, levels=None):
    rng = np.random.default_rng(seed)
    groups = rng.choice(["a", "b", "c"], size=n)
    before = rng.normal(size=n)
    after = before + 0.5 * rng.normal(size=n) + (groups == "a")
    if levels:
        before, after = (np.floor(levels * x) for x in (before, after))
    return before, after, groups


@pytest.mark.parametrize("levels", [None, 2])
def test_drift_is_spearman_overall_and_inside_groups_and_the_kept_share(levels):
    before, after, groups = moved(levels=levels)
    drift = ranking_drift(before, after, groups, 50, random_state=0)
    assert drift.spearman.value == pytest.approx(spearmanr(before, after).statistic)
    each = [spearmanr(before[groups == g], after[groups == g]).statistic for g in "abc"]
    assert [group.spearman.value for group in drift.groups] == pytest.approx(each)
    assert [(group.group, group.n) for group in drift.groups] == [(g, (groups == g).sum()) for g in "abc"]
    assert drift.spearman_within.value == pytest.approx(np.mean(each))
    if levels is None:
        tops = [set(np.argsort(-x)[:50]) for x in (before, after)]
        assert drift.overlap.value == pytest.approx(len(tops[0] & tops[1]) / 50)
    for estimate in (drift.spearman, drift.spearman_within, drift.overlap):
        assert -1 <= estimate.low < estimate.value < estimate.high <= 1


def test_resampled_spearman_equals_spearman_of_repeated_rows():
    from fairerclip.metrics.retrieval.rank_quality import _kept, _spearman

    before, after, _ = moved(n=60, levels=2)
    pair = [TopRows.of(x, "expected") for x in (before, after)]
    for weights in row_weights(60, 15, np.random.default_rng(8)):
        values, kept = _spearman(weights, *pair), _kept(weights, *pair, 12)
        for weight, value, both in zip(weights, values, kept, strict=True):
            drawn = np.repeat(np.arange(60), weight.astype(int))
            assert value == pytest.approx(spearmanr(before[drawn], after[drawn]).statistic)
            shown = [TopRows.of(x[drawn], "expected").shown(12) for x in (before, after)]
            assert both == pytest.approx(shown[0] @ shown[1])


def test_a_ranking_that_did_not_move_has_no_drift_and_a_reversed_one_all():
    before, _, groups = moved()
    same = ranking_drift(before, 3 * before + 1, groups, 50, random_state=0)
    assert (same.spearman.value, same.spearman.low, same.spearman.high) == (1, 1, 1)
    assert same.overlap.value == same.overlap.high == 1
    assert same.overlap.low < 1
    turned = ranking_drift(before, -before, k=50, random_state=0)
    assert turned.spearman.value == -1
    assert turned.overlap.value == 0
    assert turned.overlap.high > 0
    assert turned.spearman_within is None
    assert turned.groups == ()


def test_groups_too_small_to_rank_are_left_out_and_all_ties_have_no_correlation():
    before, after, _ = moved(n=30)
    groups = ["x"] * 28 + ["y"] * 2
    drift = ranking_drift(before, after, groups, random_state=0)
    assert [group.group for group in drift.groups] == ["x"]
    assert drift.spearman_within.value == drift.groups[0].spearman.value
    assert drift.overlap is None
    flat = ranking_drift(before, np.zeros(30), groups, 5, random_state=0)
    assert json.loads(json.dumps(flat.as_dict()))["spearman"] == {"value": None, "low": None, "high": None}
    assert flat.overlap.value == pytest.approx(5 / 30)


def test_several_queries_give_a_tuple_and_bad_input_is_named():
    before, after, groups = moved()
    two = ranking_drift(np.column_stack([before, after]), np.column_stack([after, before]), groups, 9)
    assert len(two) == 2
    assert two[0].spearman.value == pytest.approx(two[1].spearman.value)
    with pytest.raises(ShapeError):
        ranking_drift(before, after[:-1])
    with pytest.raises(ParameterError):
        ranking_drift(before, after, n_replicates=10)


def test_intervals_of_drift_hold_the_value_of_the_population():
    # Spearman's correlation of normals with Pearson's ρ is (6/π) arcsin(ρ/2).
    rng, hits, sets = np.random.default_rng(9), np.zeros(2), 60
    true = 6 / np.pi * np.arcsin(0.8 / 2)
    big = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], size=10**5)
    cuts = np.quantile(big, 0.8, axis=0)
    kept = (big > cuts).all(axis=1).mean() / 0.2
    for _ in range(sets):
        x = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], size=300)
        drift = ranking_drift(x[:, 0], x[:, 1], k=60, n_replicates=100, random_state=rng)
        for place, (estimate, value) in enumerate(((drift.spearman, true), (drift.overlap, kept))):
            hits[place] += estimate.low <= value <= estimate.high
    # Three binomial standard errors below 0.95.
    assert (hits / sets > 0.95 - 3 * (0.95 * 0.05 / sets) ** 0.5).all(), hits / sets
