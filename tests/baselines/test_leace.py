"""LEACE: nothing linear is left of S, and no smaller change would do."""

import numpy as np
import pytest
from gradient_inputs import training
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from fairerclip.baselines import LEACE, LinearProbe
from fairerclip.baselines.leace import erase


def onehot(s):
    return np.eye(s.max() + 1)[s]


def cross_covariance(X, s, weight=None):
    w = np.ones(len(X)) if weight is None else weight
    w = w / w.sum()
    Z = onehot(s)
    return (X - w @ X).T @ (w[:, None] * (Z - w @ Z))


@pytest.mark.parametrize(("n", "p", "shrinkage"), [(400, 12, 0.0), (40, 100, 0.3)])
def test_erased_rows_do_not_covary_with_s(embeddings, n, p, shrinkage):
    e = embeddings(seed=1, n=n, p=p, n_sensitive=3)
    model = LEACE(shrinkage=shrinkage).fit(e.X, text=e.text, sensitive_features=e.s)
    assert np.abs(cross_covariance(e.X, e.s)).max() > 1e-3
    assert np.abs(cross_covariance(model.transform(e.X), e.s)).max() < 1e-10
    assert np.abs(cross_covariance(model.scores(e.X), e.s)).max() < 1e-10


def test_no_smaller_change_erases_s():
    rng = np.random.default_rng(4)
    s, p = np.arange(60) % 3, 4
    X = rng.normal(size=(60, p)) @ rng.normal(size=(p, p)) + rng.normal(size=(3, p))[s]
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


def test_with_full_shrinkage_it_is_an_orthogonal_projection(embeddings):
    e = embeddings(seed=3, n_sensitive=3)
    mean, cross = e.X.mean(axis=0), cross_covariance(e.X, e.s)
    off = np.eye(12) - cross @ np.linalg.pinv(cross)
    assert_allclose(erase(e.X, e.s, np.ones(len(e.X)), 1.0)(e.X), mean + (e.X - mean) @ off, atol=1e-10)


def test_several_attributes_are_erased_as_their_cross(embeddings):
    e = embeddings(seed=6, n=500)
    age = np.arange(500) % 3
    model = LEACE().fit(e.X, text=e.text, sensitive_features={"sex": e.s, "age": age})
    for s in (e.s, age, 3 * e.s + age):
        assert np.abs(cross_covariance(model.transform(e.X), s)).max() < 1e-10


def test_probe_head_is_a_probe_of_erased_rows(embeddings):
    e = embeddings(seed=8, n_classes=3)
    model = LEACE("probe", class_weight="group").fit(e.X, e.y, sensitive_features=e.s)
    erased = model.transform(e.X)
    data = training(e.X, e.y, sensitive_features=e.s)
    coef, intercept, _ = LinearProbe(class_weight="group")._fit_probe(data, erased)
    assert_allclose(model.scores(e.X), erased @ coef.T + intercept, atol=1e-10)
    assert model.diagnostics_["sensitive"] == "given"


def test_constant_and_repeated_columns(embeddings):
    e = embeddings(seed=12)
    X = np.column_stack([e.X, np.full(len(e.X), 0.5), e.X[:, 0], e.X[:, :2].sum(axis=1)])
    eraser = erase(X, e.s, np.ones(len(X)))
    assert np.abs(cross_covariance(eraser(X), e.s)).max() < 1e-10
    assert_allclose(eraser(X)[:, 12], 0.5, atol=1e-10)
    assert_allclose(eraser(X)[:, 13], eraser(X)[:, 0], atol=1e-10)
