"""Figures inside groups: rank correlation as scipy has it, average precision as scikit-learn has it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score

from fairerclip.errors import FairerClipError, ShapeError
from fairerclip.metrics.retrieval.inside_groups import average_precision, correlation_inside_groups


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(3, 40),
    v=st.integers(1, 4),
    levels=st.sampled_from([2, 4, 1000]),
)
@settings(max_examples=30, deadline=None, derandomize=True)
def test_correlations_are_those_of_scipy_with_ties(seed, n, v, levels):
    rng = np.random.default_rng(seed)
    before, after = rng.integers(levels, size=(2, n, 3)).astype(float)
    groups = rng.integers(v, size=n)
    found = correlation_inside_groups(before, after, groups)
    labels = np.unique(groups)
    assert found.shape == (3, len(labels))
    for column, label in enumerate(labels):
        rows = groups == label
        for query in range(3):
            a, b = before[rows, query], after[rows, query]
            if rows.sum() <= 2 or len(set(a)) == 1 or len(set(b)) == 1:
                assert np.isnan(found[query, column])
            else:
                assert found[query, column] == pytest.approx(spearmanr(a, b)[0], abs=1e-12)


def test_equal_orders_correlate_fully_and_opposite_ones_not_at_all():
    rng = np.random.default_rng(0)
    scores, groups = rng.normal(size=(50, 2)), np.repeat(["a", "b"], 25)
    assert_allclose(correlation_inside_groups(scores, np.exp(scores), groups), 1.0)
    assert_allclose(correlation_inside_groups(scores, -scores, groups), -1.0)
    shifted = scores + 100 * (groups == "a")[:, None]  # moving a group as a whole changes no order inside it
    assert_allclose(correlation_inside_groups(scores, shifted, groups), 1.0)


def test_one_query_may_have_one_axis():
    assert correlation_inside_groups([1, 2, 3], [1, 2, 3], [0, 0, 0]).shape == (1, 1)


@pytest.mark.parametrize(
    ("before", "after", "groups"),
    [
        (np.ones((4, 2)), np.ones((4, 3)), [0, 0, 1, 1]),
        (np.ones((4, 2)), np.ones((3, 2)), [0, 0, 1, 1]),
        (np.ones((4, 2)), np.ones((4, 2)), [0, 0, 1]),
    ],
)
def test_tables_that_do_not_match_are_refused(before, after, groups):
    with pytest.raises(ShapeError):
        correlation_inside_groups(before, after, groups)


@given(seed=st.integers(0, 10_000), n=st.integers(1, 40), levels=st.sampled_from([1, 3, 1000]))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_average_precision_is_that_of_scikit_learn_with_ties(seed, n, levels):
    rng = np.random.default_rng(seed)
    scores, relevant = rng.integers(levels, size=n).astype(float), rng.random(n) < 0.4
    found = average_precision(scores, relevant)
    if relevant.any():
        assert found == pytest.approx(average_precision_score(relevant, scores), abs=1e-12)
    else:
        assert np.isnan(found)


def test_average_precision_by_query_and_group():
    rng = np.random.default_rng(0)
    scores, relevant = rng.normal(size=(60, 3)), rng.random((60, 3)) < 0.3
    groups = np.repeat(["b", "a"], 30)
    inside = average_precision(scores, relevant, groups)
    assert inside.shape == (3, 2)
    for query in range(3):
        for column, label in enumerate(["a", "b"]):
            rows = groups == label
            expected = average_precision_score(relevant[rows, query], scores[rows, query])
            assert inside[query, column] == pytest.approx(expected)
    assert_allclose(average_precision(scores[:, 0], relevant[:, 0], groups), inside[0])
    assert_allclose(average_precision(scores, relevant)[0], average_precision(scores[:, 0], relevant[:, 0]))


def test_perfect_and_worst_rankings_of_average_precision():
    assert average_precision([3, 2, 1, 0], [True, True, False, False]) == 1.0
    assert average_precision([3, 2, 1, 0], [False, False, False, True]) == 0.25
    assert average_precision([1, 1, 1, 1], [True, False, False, False]) == 0.25
    with pytest.raises(FairerClipError):
        average_precision([1, 2], [True])
