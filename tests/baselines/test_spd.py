"""SPD: which directions are removed, and with what they are filled."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from fairerclip.baselines import SPD
from fairerclip.baselines.spd import NullSpaces
from fairerclip.data.embedding_rows import unit_rows


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


def test_the_projection_is_idempotent_and_leaves_a_constant_in_the_removed_directions():
    X, s, queries = gallery(values=4)
    model = fitted(X, s, queries)
    U = model.basis_
    assert_allclose(U @ U.T, np.eye(5), atol=1e-12)
    once = model.transform(X)
    assert_allclose(once @ U.T, np.tile(U @ model.image_fill_, (len(X), 1)), atol=1e-12)
    off = np.eye(16) - U.T @ U
    assert_allclose(once @ off, unit_rows(X) @ off, atol=1e-12)  # and nothing else is changed


@pytest.mark.slow
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
    X, s, _ = gallery(values=4)
    rows, weight = unit_rows(X), np.ones(300)
    apart = {number: NullSpaces(rows, s, weight, 1.0).first(number) for number in (2, 5, 9)}
    assert [classifiers for _, classifiers in apart.values()] == [1, 2, 3]
    together = NullSpaces(rows, s, weight, 1.0)
    for number in (5, 9, 2):
        basis, classifiers = together.first(number)
        assert classifiers == apart[number][1]
        assert_allclose(basis, apart[number][0], atol=1e-12)
