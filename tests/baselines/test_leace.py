"""LEACE: nothing linear is left of S, and no smaller change would do."""

import numpy as np
import pytest
from free_rankings import skew_and_order
from gradient_inputs import spurious, training
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from fairerclip.baselines import LEACE, LinearProbe, ZeroShot
from fairerclip.baselines.leace import erase
from fairerclip.errors import ConstantSensitiveWarning, LabelError, ParameterError, PromptError, ShapeError
from fairerclip.metrics import group_report


def onehot(s):
    return np.eye(s.max() + 1)[s]


def cross_covariance(X, s, weight=None):
    w = np.ones(len(X)) if weight is None else weight
    w = w / w.sum()
    Z = onehot(s)
    return (X - w @ X).T @ (w[:, None] * (Z - w @ Z))


@pytest.mark.parametrize("n_sensitive", [2, 5])
@pytest.mark.parametrize("shrinkage", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("n", "p"), [(400, 12), (40, 100)])
def test_erased_rows_do_not_covary_with_s(embeddings, n_sensitive, shrinkage, n, p):
    e = embeddings(seed=1, n=n, p=p, n_sensitive=n_sensitive)
    model = LEACE(shrinkage=shrinkage).fit(e.X, text=e.text, sensitive_features=e.s)
    assert np.abs(cross_covariance(e.X, e.s)).max() > 1e-3
    assert np.abs(cross_covariance(model.transform(e.X), e.s)).max() < 1e-10
    assert model.left_.shape == (n_sensitive - 1, p)
    assert np.abs(cross_covariance(model.scores(e.X), e.s)).max() < 1e-10


@pytest.mark.parametrize("n_sensitive", [2, 3])
def test_no_linear_probe_beats_chance_on_the_rows_it_was_trained_on(embeddings, n_sensitive):
    e = embeddings(seed=2, n=300, n_sensitive=n_sensitive)
    model = LEACE().fit(e.X, text=e.text, sensitive_features=e.s)
    share = np.bincount(e.s) / len(e.s)
    chance = -np.sum(share * np.log(share))  # log loss of the best constant

    def log_loss(X):
        probe = LogisticRegression(C=1e6, tol=1e-10, max_iter=10_000).fit(X, e.s)
        return -np.mean(probe.predict_log_proba(X)[np.arange(len(X)), e.s])

    assert log_loss(e.X) < 0.8 * chance
    assert log_loss(model.transform(e.X)) == pytest.approx(chance, abs=1e-7)


def test_it_is_an_oblique_projection_with_the_mean_fixed(embeddings):
    e = embeddings(seed=3, n_sensitive=3)
    model = LEACE().fit(e.X, text=e.text, sensitive_features=e.s)
    P = np.eye(12) - model.right_ @ model.left_
    assert_allclose(P @ P, P, atol=1e-10)
    assert np.abs(P - P.T).max() > 1e-3
    assert_allclose(model.transform(e.X).mean(axis=0), e.X.mean(axis=0), atol=1e-12)
    # Erasing again does nothing: there is nothing left.
    again = erase(model.transform(e.X), e.s, np.ones(len(e.X)))
    assert again.left.shape[0] == 0


@pytest.mark.parametrize("n_sensitive", [2, 3])
def test_no_smaller_change_erases_s(n_sensitive):
    rng = np.random.default_rng(4)
    s = np.arange(60) % n_sensitive
    p = 3 if n_sensitive == 2 else 4
    X = rng.normal(size=(60, p)) @ rng.normal(size=(p, p)) + rng.normal(size=(n_sensitive, p))[s]
    eraser = erase(X, s, np.ones(60))
    distortion = np.mean(np.sum((eraser(X) - X) ** 2, axis=1))
    centred, cross = X - X.mean(axis=0), cross_covariance(X, s)[:, :-1]  # (p, v−1): the last is minus the sum

    def change(v):
        return np.mean(np.sum((centred @ (v.reshape(p, p) - np.eye(p))) ** 2, axis=1))

    found = minimize(
        change,
        np.zeros(p * p),
        method="SLSQP",
        constraints={"type": "eq", "fun": lambda v: (v.reshape(p, p).T @ cross).ravel()},
        options={"maxiter": 2000, "ftol": 1e-14},
    )
    assert found.success
    assert distortion == pytest.approx(found.fun, rel=1e-6)
    assert np.abs(cross_covariance(eraser(X), s)).max() < 1e-12


def test_row_weights_are_repeated_rows(embeddings):
    e = embeddings(seed=5, n=90)
    times = np.arange(90) % 3
    a = erase(e.X, e.s, times.astype(float))
    rows = np.repeat(np.arange(90), times)
    b = erase(e.X[rows], e.s[rows], np.ones(len(rows)))
    assert_allclose(a(e.X), b(e.X), atol=1e-10)
    assert np.abs(cross_covariance(a(e.X), e.s, times)).max() < 1e-12


def test_several_attributes_are_erased_as_their_cross(embeddings):
    e = embeddings(seed=6, n=500)
    age = np.arange(500) % 3
    model = LEACE().fit(e.X, text=e.text, sensitive_features={"sex": e.s, "age": age})
    for s in (e.s, age, 3 * e.s + age):
        assert np.abs(cross_covariance(model.transform(e.X), s)).max() < 1e-10


def test_zero_shot_head_without_anything_to_erase_is_zero_shot(embeddings):
    e = embeddings(seed=7, n_classes=3)
    with pytest.warns(ConstantSensitiveWarning):
        model = LEACE().fit(3 * e.X, text=e.text, sensitive_features=np.ones(len(e.X), dtype=int))
    zero = ZeroShot().fit(e.X, text=e.text)
    assert model.left_.shape == (0, 12)
    assert_allclose(model.scores(e.X), zero.scores(e.X), atol=1e-12)


def test_probe_head_is_a_probe_of_erased_rows(embeddings):
    e = embeddings(seed=8, n_classes=3)
    model = LEACE("probe", class_weight="group").fit(e.X, e.y, sensitive_features=e.s)
    erased = model.transform(e.X)
    data = training(e.X, e.y, sensitive_features=e.s)
    coef, intercept, _ = LinearProbe(class_weight="group")._fit_probe(data, erased)
    assert_allclose(model.scores(e.X), erased @ coef.T + intercept, atol=1e-10)
    assert model.diagnostics_["sensitive"] == "given"


def test_c_of_the_probe_is_chosen_on_erased_validation_rows(embeddings):
    e, grid = embeddings(seed=9, n=300, p=30), (1e-5, 1e-2, 10.0)
    train, v = slice(0, 80), (e.X[80:], e.y[80:], e.s[80:])
    model = LEACE("probe", C=grid).fit(e.X[:80], e.y[train], sensitive_features=e.s[train], validation=v)
    erased, held = model.transform(e.X[:80]), model.transform(v[0])
    figures = [np.mean(LinearProbe(C=C).fit(erased, e.y[train]).predict(held) == v[1]) for C in grid]
    assert model.diagnostics_["C"] == grid[int(np.argmax(figures))]


def test_groups_may_be_read_from_prompts_and_labels_are_not_needed(embeddings):
    e = embeddings(seed=10)
    read = (e.X @ e.sensitive_text.T).argmax(axis=1)
    model = LEACE().fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    assert np.abs(cross_covariance(model.transform(e.X), read)).max() < 1e-10


def test_full_shrinkage_is_an_orthogonal_projection(embeddings):
    e = embeddings(seed=11, n_sensitive=3)
    eraser = erase(e.X, e.s, np.ones(len(e.X)), 1.0)
    P = np.eye(12) - eraser.right @ eraser.left
    assert_allclose(P, P.T, atol=1e-12)


def test_constant_and_repeated_columns(embeddings):
    e = embeddings(seed=12)
    X = np.column_stack([e.X, np.full(len(e.X), 0.5), e.X[:, 0], e.X[:, :2].sum(axis=1)])
    eraser = erase(X, e.s, np.ones(len(X)))
    assert np.abs(cross_covariance(eraser(X), e.s)).max() < 1e-10
    assert_allclose(eraser(X)[:, 12], 0.5, atol=1e-10)
    assert_allclose(eraser(X)[:, 13], eraser(X)[:, 0], atol=1e-10)


def test_rows_are_seen_at_length_one(embeddings):
    e = embeddings(seed=13)
    lengths = np.random.default_rng(13).uniform(1, 20, size=(len(e.X), 1))
    a = LEACE().fit(e.X, text=e.text, sensitive_features=e.s)
    b = LEACE().fit(lengths * e.X, text=e.text, sensitive_features=e.s)
    assert_allclose(a.transform(e.X), b.transform(lengths * e.X), atol=1e-10)


def test_what_is_missing_or_wrong_is_named(embeddings):
    e = embeddings(seed=14)
    with pytest.raises(PromptError, match="LEACE starts from class prompts"):
        LEACE().fit(e.X, e.y, sensitive_features=e.s)
    with pytest.raises(PromptError, match="LEACE needs sensitive values"):
        LEACE().fit(e.X, text=e.text)
    with pytest.raises(LabelError, match="LEACE learns from labels"):
        LEACE("probe").fit(e.X, text=e.text, sensitive_features=e.s)
    with pytest.raises(ParameterError, match="head must be one of 'zero-shot', 'probe'"):
        LEACE("svm").fit(e.X, e.y, text=e.text, sensitive_features=e.s)
    with pytest.raises(ParameterError, match=r"shrinkage must be a number in \[0, 1\]"):
        LEACE(shrinkage=2.0).fit(e.X, text=e.text, sensitive_features=e.s)
    with pytest.raises(ParameterError, match="class_weight must be one of"):
        LEACE("probe", class_weight="cells").fit(e.X, e.y, sensitive_features=e.s)


def test_a_fit_leaves_its_input_alone(embeddings):
    e = embeddings(seed=15)
    before = e.X.copy()
    LEACE().fit(e.X, text=e.text, sensitive_features=e.s).transform(e.X)
    assert_array_equal(e.X, before)


def test_rows_too_wide_for_their_covariance_are_refused_at_once():
    X = np.eye(4, 8193)
    with pytest.raises(ShapeError, match="at most 8,192 wide"):
        LEACE().fit(X, sensitive_features=[0, 1, 0, 1], text=X[:2])


def test_the_worst_group_and_the_skew_are_better_where_s_and_the_classes_are_independent():
    X, y, s, text = spurious(0, n=400, correlation=0.0)
    fit, test = slice(200), slice(200, 400)
    model = LEACE().fit(X[fit], text=text, sensitive_features=s[fit])
    plain = ZeroShot().fit(X[fit], text=text)
    before, after = (group_report(y[test], m.predict(X[test]), s[test]) for m in (plain, model))
    assert after.worst.accuracy > before.worst.accuracy + 0.2
    assert after.average > before.average + 0.1
    before, after, order = skew_and_order(model, X[test], text, s[test], k=50)
    assert after < 0.5 * before
    assert order > 0.85
