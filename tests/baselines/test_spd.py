"""SPD: which directions are removed, and with what they are filled."""

import numpy as np
import pytest
from free_rankings import skew_and_order
from numpy.testing import assert_allclose
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from fairerclip.baselines import SPD, ZeroShot
from fairerclip.baselines.spd import NullSpaces
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.errors import ConstantSensitiveWarning, ParameterError


def gallery(n=300, p=16, values=2, seed=1, lean=1.5):
    """Rows with S along random directions, and queries that lean towards the last value."""
    rng = np.random.default_rng(seed)
    s = np.arange(n) % values
    axes = rng.normal(size=(values, p)) / np.sqrt(p)
    X = rng.normal(size=(n, p)) + lean * p**0.5 * axes[s]
    return X, s, rng.normal(size=(10, p)) + 3.0 * (axes[-1] - axes[0])


def fitted(X, s, queries, directions=5, **parameters):
    model = SPD(directions, random_state=0, max_rows=100, **parameters)
    return model.fit(X, text=queries[:3], sensitive_features=s)


def test_directions_are_those_of_classifiers_that_are_fitted_one_after_the_other():
    X, s, queries = gallery()
    model = fitted(X, s, queries, 4)
    rest, expected = unit_rows(X), []
    for _ in range(4):
        exact = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(rest, s)
        w = exact.coef_[0] / np.linalg.norm(exact.coef_)
        expected.append(w)
        rest = rest - np.outer(rest @ w, w)
    cosines = np.abs(np.sum(model.basis_ * expected, axis=1))
    assert_allclose(cosines, 1.0, atol=1e-5)
    assert model.diagnostics_["classifiers"] == model.diagnostics_["directions"] == 4


@pytest.mark.parametrize("values", [2, 4])
def test_the_projection_is_idempotent_and_leaves_a_constant_in_the_removed_directions(values):
    X, s, queries = gallery(values=values)
    model = fitted(X, s, queries)
    U = model.basis_
    assert U.shape == (5, 16)
    assert_allclose(U @ U.T, np.eye(5), atol=1e-12)
    once = model.transform(X)
    assert_allclose(model._embed(once), once, atol=1e-12)
    assert_allclose(once @ U.T, np.tile(U @ model.image_fill_, (len(X), 1)), atol=1e-12)
    off = np.eye(16) - U.T @ U
    assert_allclose(once @ off, unit_rows(X) @ off, atol=1e-12)  # and nothing else is changed
    before, after = (
        LogisticRegression(tol=1e-8, max_iter=10_000).fit(rows, s).coef_ for rows in (unit_rows(X), once)
    )
    assert np.abs(before @ U.T).max() > 1  # a classifier finds nothing there afterwards
    assert np.abs(after @ U.T).max() < 1e-4


def test_fills_are_the_means_of_rows_of_uncertain_s_and_of_prompts():
    X, s, queries = gallery(lean=0.5)
    sensitive = [X[s == value].mean(axis=0) for value in (0, 1)]
    model = SPD(3, random_state=5).fit(X, text=queries[:3], sensitive_features=s, sensitive_text=sensitive)
    rows, span = unit_rows(X), model.basis_.T @ model.basis_
    forest = RandomForestClassifier(100, oob_score=True, random_state=5).fit(rows, s, np.ones(len(s)))
    uncertain = forest.oob_decision_function_.max(axis=1) < 0.7
    assert 10 < uncertain.sum() == model.diagnostics_["uncertain_rows"] < 290
    expected = rows @ (np.eye(16) - span) + span @ rows[uncertain].mean(axis=0)
    assert_allclose(model.transform(X), expected, atol=1e-12)
    prompts = unit_rows(np.concatenate([queries[:3], sensitive]))
    expected = unit_rows(queries) @ (np.eye(16) - span) + span @ prompts.mean(axis=0)
    assert_allclose(model.transform_text(queries), unit_rows(expected), atol=1e-12)


def test_several_values_give_one_direction_fewer_per_classifier_and_settings_share_them():
    X, s, queries = gallery(values=4)
    rows, weight = unit_rows(X), np.ones(300)
    apart = {number: NullSpaces(rows, s, weight, 1.0).first(number) for number in (2, 5, 9)}
    assert [classifiers for _, classifiers in apart.values()] == [1, 2, 3]
    together = NullSpaces(rows, s, weight, 1.0)
    for number in (5, 9, 2):
        basis, classifiers = together.first(number)
        assert classifiers == apart[number][1]
        assert_allclose(basis, apart[number][0], atol=1e-12)
        assert_allclose(basis, apart[9][0][:number], atol=1e-12)
    crossed = SPD(6, random_state=0).fit(
        X, text=queries[:2], sensitive_features={"a": s % 2, "b": s // 2}, sample_weight=weight
    )
    span, expected = crossed.basis_, together.first(6)[0]
    assert_allclose(span.T @ span, expected.T @ expected, atol=1e-3)


def test_row_weights_count_as_repeated_rows_and_zero_weights_do_not_count():
    X, s, queries = gallery()
    weight = np.r_[np.zeros(100), np.ones(100), np.full(100, 2.0)]
    weighted = SPD(3, random_state=0).fit(X, text=queries[:2], sensitive_features=s, sample_weight=weight)
    rows = np.repeat(np.arange(300), weight.astype(int))
    repeated = SPD(3, random_state=0).fit(X[rows], text=queries[:2], sensitive_features=s[rows])
    assert_allclose(weighted.basis_.T @ weighted.basis_, repeated.basis_.T @ repeated.basis_, atol=1e-4)
    junk = np.r_[np.random.default_rng(0).normal(size=(100, 16)), X[100:]]
    other = SPD(3, random_state=0).fit(junk, text=queries[:2], sensitive_features=s, sample_weight=weight)
    assert_allclose(other.image_fill_, weighted.image_fill_, atol=1e-10)


def test_skew_of_a_gallery_falls():
    X, s, queries = gallery(n=600, lean=0.6)
    model = fitted(X, s, queries, 2)
    before, after, order = skew_and_order(model, X, queries, s, k=60)
    assert after < 0.2 < 0.4 < before
    assert order > 0.6


def test_one_value_of_s_changes_nothing_and_directions_end_where_rows_do(embeddings):
    e = embeddings(seed=3)
    with pytest.warns(ConstantSensitiveWarning):
        model = SPD().fit(e.X, text=e.text, sensitive_features=np.zeros(len(e.X)))
    assert model.basis_.shape == (0, e.X.shape[1])
    assert_allclose(model.scores(e.X), ZeroShot().fit(e.X, text=e.text).scores(e.X), atol=1e-12)
    X, s, queries = gallery(n=12, p=40)  # centred rows have rank 11
    assert len(fitted(X, s, queries, 30).basis_) <= 11
    X, s, queries = gallery(p=4)
    assert len(fitted(X, s, queries, 30).basis_) == 3
    for wrong, parameters in (("directions", {"directions": 0}), ("C", {"C": 0.0})):
        with pytest.raises(ParameterError, match=f"{wrong} must be"):
            fitted(X, s, queries, **parameters)
