"""Thousands of points are scored together, from rows that are read once, as they would be one by one."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import fairerclip.model.path
import fairerclip.model.path_scores
import fairerclip.solver.grid
from paper import PAPER
from sample_rows import Embeddings
from small_models import small


def one_by_one(path, X):
    """Codes of every point from its own encoders, and -1 without a solution."""
    codes = np.full((len(path), len(X)), -1)
    for g, point in enumerate(path):
        if point.encoders is not None:
            model = path.model(g)
            codes[g] = np.searchsorted(model.classes_, model.predict(X))
    return codes


def counted(codes, y, s, n_classes, n_groups):
    """Correct rows of every point and cell, in plain loops."""
    hits = np.zeros((len(codes), n_classes, n_groups), dtype=int)
    for row, y_row, s_row in zip(codes.T, y, s, strict=True):
        hits[row == y_row, y_row, s_row] += 1
    return hits


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(st.integers(2, 4), st.integers(2, 3), st.integers(0, 10**6), st.booleans(), st.integers(1, 60))
def test_a_table_of_many_points_equals_the_slow_loop(n_classes, n_groups, seed, text, at_once):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(60, 160))
    e = Embeddings(n_classes=n_classes, n_sensitive=n_groups, n=n, seed=seed, correlation=0.5)
    own = {} if text else {"class_offsets": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cells may be empty
        model = small(dtype="float64", **own).fit(
            e.X, e.y, sensitive_features=e.s, **({"text": e.text} if text else {})
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fairerclip.solver.grid, "VALUES_AT_ONCE", at_once)
            patch.setattr(fairerclip.model.path_scores, "SCORES_AT_ONCE", at_once)
            patch.setattr(fairerclip.model.path, "BLOCK_ROWS", 1 + at_once)
            path = model.path(
                *(rng.uniform(0, 0.99, 3), [0.0, 0.6]),
                criterion=["marginal", "conditional"],
                zero_shots=[0.0, 0.4, 1.0],
            )
            known = rng.uniform(size=n) < 0.8
            y = np.where(known, e.y.astype(object), None)
            table = path.evaluate(e.X, y, e.s)
            codes = path.predict_codes(e.X)
        slow = one_by_one(path, e.X)
    assert_array_equal(codes, slow)
    assert codes.dtype == np.int8
    groups = np.unique(e.s[known], return_inverse=True)[1]
    n_seen = path.cells.hits.shape[2]
    expected = counted(
        slow[:, known], e.y[known], e.s[known] if n_seen == n_groups else groups, n_classes, n_seen
    )
    assert_array_equal(path.cells.hits, expected)
    assert [row["average"] for row in table] == pytest.approx((slow == e.y)[:, known].mean(axis=1))


@pytest.mark.parametrize(
    "parameters",
    [
        PAPER,
        {"decision": "prompts"},
        {"alignment": "rbf"},
        {"n_components": 1},
        {"class_weight": {0: 1.0, 1: 3.0, 2: 1.5}},
        {"tau_text": None, "tau_z_text": None},
    ],
    ids=["paper", "prompts", "rbf", "components", "class weights", "same strengths"],
)
def test_points_that_are_solved_one_by_one_are_scored_together(parameters):
    e = Embeddings(n_classes=3, n=200, correlation=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = small(**parameters).fit(e.X, e.y, sensitive_features=e.s, text=e.text)
        model = model.at(offsets=[0.01, 0.0, -0.01])
        path = model.path([0.0, 0.5, 0.97], [0.0, 0.6])
        assert_array_equal(path.predict_codes(e.X), one_by_one(path, e.X))
        for _, found in path.scores(e.X):
            for g, scores in found.items():
                # Scores of one point may differ by a constant: encoders move the origin.
                expected = path.model(g).scores(e.X)
                error = (scores - expected) - (scores - expected).mean(axis=1, keepdims=True)
                assert_allclose(error, 0, atol=1e-4 * np.abs(expected).max())
