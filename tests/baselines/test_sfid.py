"""SFID: which dimensions are overwritten, and with what."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import RandomForestClassifier

from fairerclip.baselines import SFID
from fairerclip.baselines.sensitive_forest import Forest
from fairerclip.data.embedding_rows import unit_rows


def few_axes(n=400, p=24, seed=1, lean=2.0):
    """Rows with S in the first three dimensions, and queries that lean towards one value."""
    rng = np.random.default_rng(seed)
    s = np.arange(n) % 2
    X = rng.normal(size=(n, p)) + lean * np.outer(2 * s - 1, np.arange(p) < 3)
    return X, s, rng.normal(size=(10, p)) + 1.0 * (np.arange(p) < 3)


@pytest.mark.slow
def test_the_most_important_dimensions_get_the_mean_of_uncertain_rows():
    X, s, queries = few_axes(lean=0.7)
    sensitive = np.outer([-1.0, 1.0], np.arange(24) < 3)
    model = SFID(0.25, random_state=5).fit(
        X, text=queries[:3], sensitive_features=s, sensitive_text=sensitive
    )
    rows = unit_rows(X)
    forest = RandomForestClassifier(100, oob_score=True, random_state=5).fit(rows, s, np.ones(len(s)))
    replaced = np.argsort(-forest.feature_importances_)[:6]
    assert_array_equal(np.flatnonzero(model.kept_ == 0), np.sort(replaced))
    assert {0, 1, 2} <= set(replaced)
    uncertain = forest.oob_decision_function_.max(axis=1) < 0.7
    assert 10 < uncertain.sum() == model.diagnostics_["uncertain_rows"] < 390
    expected = rows.copy()
    expected[:, replaced] = rows[uncertain][:, replaced].mean(axis=0)
    assert_allclose(model.transform(X), expected, atol=1e-12)
    prompts = unit_rows(np.concatenate([queries[:3], sensitive]))
    text = unit_rows(queries)
    text[:, replaced] = prompts[:, replaced].mean(axis=0)
    assert_allclose(model.transform_text(queries), unit_rows(text), atol=1e-12)


@pytest.mark.slow
def test_the_forest_learns_from_few_rows_and_judges_the_others_and_zero_weights_do_not_count():
    X, s, queries = few_axes()
    model = SFID(0.125, max_rows=100, random_state=0).fit(X, text=queries[:2], sensitive_features=s)
    assert not model.kept_[:3].any()
    weight = np.r_[np.zeros(200), np.ones(200)]
    junk = np.r_[np.random.default_rng(0).normal(size=(200, 24)), X[200:]]
    a, b = (
        SFID(0.125, random_state=0).fit(rows, text=queries[:2], sensitive_features=s, sample_weight=weight)
        for rows in (X, junk)
    )
    assert_allclose(a.image_fill_, b.image_fill_, atol=1e-12)
    rare = np.where(np.arange(400) < 2, 2, s)  # a value that a draw of ten rows would miss
    SFID(max_rows=10, random_state=0).fit(X, text=queries[:2], sensitive_features=rare)


@pytest.mark.parametrize(("n", "expected"), [(2400, 24), (12, 12)])
def test_a_fill_is_the_mean_of_twenty_rows_and_of_one_in_a_hundred_at_least(n, expected):
    rng = np.random.default_rng(2)
    rows, weight = rng.normal(size=(n, 5)), np.ones(n)
    confidence = 0.75 + 0.2 * rng.permutation(n) / n
    confidence[:2] = 0.65
    found = Forest(np.ones(5), confidence).uncertain(rows, weight, 0.7)
    assert found.number == expected
    assert_allclose(found.mean, rows[np.argsort(confidence)[:expected]].mean(axis=0), atol=1e-12)
