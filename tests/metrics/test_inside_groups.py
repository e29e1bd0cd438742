"""Figures inside groups: rank correlation as scipy has it, average precision as scikit-learn has it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score

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
