"""Labelled rows as evidence: a posterior of the accuracy of each class × group."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from fairerclip.judging import evidence as module
from fairerclip.judging.evidence import DRAWS, PRIOR_ROWS, SOFTNESS, Evidence, row_keys
from fairerclip.model.automatic import limit_rows


def evidence_of(seed=0, n=60, n_classes=3, n_groups=2, soft=True):
    """Rows of every class; groups are probabilities, or codes."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(n_classes), rng.integers(n_classes, size=n - n_classes)])
    keys = rng.normal(size=n)
    if soft:
        return Evidence(y, rng.dirichlet(np.full(n_groups, 0.4), size=n), n_classes, keys)
    return Evidence.of_codes(y, rng.integers(n_groups, size=n), n_classes, n_groups, keys)


def scores_of(evidence, models=3, seed=0):
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(models, len(evidence.y), evidence.n_classes))
    return noise + np.arange(models)[:, None, None] * np.eye(evidence.n_classes)[evidence.y]


def drawn(evidence, scores):
    return evidence.accuracies(evidence.margins(scores))


def test_keys_follow_the_direction_of_a_row_and_neither_its_length_nor_its_place(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 9))
    keys = row_keys(X)
    order = rng.permutation(50)
    assert_allclose(row_keys(X[order]), keys[order], rtol=1e-12)
    assert_allclose(row_keys(X * rng.uniform(0.01, 100, size=(50, 1))), keys, rtol=1e-12)
    assert_allclose(row_keys(X.astype(np.float32)), keys, rtol=1e-5)
    assert len(np.unique(keys.round(9))) == 50
    assert np.all(np.abs(row_keys(X + 1e-3) - keys) > 0)
    monkeypatch.setattr(module, "READ_ROWS", 7)
    assert_allclose(row_keys(X), keys, rtol=1e-12)


def test_counts_are_expected_numbers_of_rows():
    e = evidence_of()
    expected = np.zeros((3, 2))
    for y, probabilities in zip(e.y, e.groups, strict=True):
        for v in range(2):
            expected[y, v] += probabilities[v]
    assert_allclose(e.counts, expected, rtol=1e-12)
    codes = Evidence.of_codes(np.array([0, 0, 2]), np.array([1, 1, 0]), 3, 2, np.arange(3.0))
    assert codes.counts.tolist() == [[0, 2], [0, 0], [1, 0]]
    assert codes.present.tolist() == [[False, True], [False, False], [True, False]]


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_margins_are_the_true_score_minus_the_best_other(n_classes, dtype):
    e = evidence_of(n=20, n_classes=n_classes)
    scores = scores_of(e).astype(dtype)
    found = e.margins(scores)
    assert found.shape == (3, 20)
    assert found.dtype == dtype
    for g in range(3):
        for i, y in enumerate(e.y):
            others = [scores[g, i, k] for k in range(n_classes) if k != y]
            assert found[g, i] == pytest.approx(scores[g, i, y] - max(others), abs=1e-6)
    assert_array_equal(e.margins(scores[1]), found[1])


@pytest.mark.parametrize("soft", [True, False])
def test_draws_are_accuracies_with_random_weights_and_a_prior(soft):
    """A loop over models, cells, draws and rows."""
    e = evidence_of(n=15, soft=soft)
    margins = e.margins(scores_of(e))
    weights, prior = e._draws
    assert weights.shape == (15, DRAWS)
    found = e.accuracies(margins)
    assert found.shape == (3, 3, 2, DRAWS)
    for g in range(3):
        right = np.zeros(15)
        for i, y in enumerate(e.y):
            width = SOFTNESS * margins[g, e.y == y].std()
            right[i] = norm.cdf(margins[g, i] / width) if width > 0 else float(margins[g, i] > 0)
        average = right.mean()
        for y, v in zip(*np.nonzero(e.present), strict=True):
            for b in range(0, DRAWS, 9):
                rows, total = average * prior[y, v, b], prior[y, v, b]
                for i in range(15):
                    if e.y[i] == y:
                        rows += weights[i, b] * e.groups[i, v] * right[i]
                        total += weights[i, b] * e.groups[i, v]
                assert found[g, y, v, b] == pytest.approx(rows / total, abs=1e-5)


def test_absent_cells_are_nan_and_the_others_are_shares():
    e = Evidence.of_codes(np.array([0, 0, 0, 2, 2]), np.array([0, 0, 1, 1, 1]), 3, 2, np.arange(5.0))
    draws = drawn(e, scores_of(e))
    absent = np.isnan(draws)
    assert_array_equal(absent.any(axis=(0, 3)), ~e.present)
    assert_array_equal(absent.all(axis=(0, 3)), ~e.present)
    assert np.all((draws[~absent] >= 0) & (draws[~absent] <= 1))


def test_rates_are_counted_accuracies_with_a_prior_of_four_rows():
    e = evidence_of(n=30)
    e = e.at(np.flatnonzero(e.y != 1))
    margins = e.margins(scores_of(e))
    found = e.rates(margins)
    assert np.all(np.isnan(found[:, 1]))
    for g, own in enumerate(margins):
        average = np.mean(own > 0)
        for y in (0, 2):
            for v in range(2):
                rows = [i for i in range(len(e.y)) if e.y[i] == y]
                hits = sum(e.groups[i, v] for i in rows if own[i] > 0)
                total = sum(e.groups[i, v] for i in rows)
                expected = (hits + PRIOR_ROWS * average) / (total + PRIOR_ROWS)
                assert found[g, y, v] == pytest.approx(expected, abs=1e-12)


def test_models_are_compared_on_the_same_draws():
    e = evidence_of(n=40, n_classes=2)
    scores = scores_of(e)
    both = drawn(e, np.array([scores[2], scores[1], scores[2]]))
    assert_array_equal(both[0], both[2])
    nearly = scores[2] + 0.02 * np.random.default_rng(1).normal(size=scores[2].shape)
    pair = drawn(e, np.array([scores[2], nearly]))
    assert (pair[1] - pair[0]).std(axis=2).max() < 0.1 * pair[0].std(axis=2).min()


def cell_evidence(sizes, seed=0):
    """Evidence with so many rows of each class × group (c, v)."""
    cells = np.repeat(np.arange(np.size(sizes)), np.ravel(sizes))
    v = np.shape(sizes)[1]
    keys = np.random.default_rng(seed).normal(size=len(cells))
    return Evidence.of_codes(cells // v, cells % v, len(sizes), v, keys)


def test_too_many_rows_are_drawn_from_every_cell_alike_and_along_the_keys():
    e = cell_evidence([[50, 3], [40, 0]])
    assert_array_equal(limit_rows(e, 93), np.arange(93))
    kept = limit_rows(e, 30)
    assert np.all(np.diff(kept) > 0)
    assert e.at(kept).counts.tolist() == [[10, 3], [10, 0]]
    places = np.searchsorted(np.sort(e.keys[:50]), e.keys[kept[kept < 50]])
    assert sorted(places.tolist()) == list(range(0, 50, 5))
    order = np.random.default_rng(1).permutation(93)
    assert_array_equal(np.sort(order[limit_rows(e.at(order), 30)]), kept)
    assert e.at(limit_rows(e, 2)).counts.tolist() == [[1, 1], [1, 0]]
