"""AFR: weights of held-out rows by the definition, and the minimum of the second stage."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import log_softmax

from fairerclip.baselines import AFR, LinearProbe
from fairerclip.baselines.afr import likelihood_weights
from fairerclip.baselines.logistic import Scaling

TIGHT = {"tol": 1e-8}


def stages(model, e):
    """The first head and the held-out rows, for a model whose rows are known to be drawn alike."""
    weight = np.ones(len(e.y))
    data = SimpleNamespace(X=e.X, y=e.y, weight=weight, n_classes=int(e.y.max()) + 1)
    rest, held = model._parts(data)
    first = LinearProbe(C=model.C, tol=model.tol).fit(e.X[rest], e.y[rest])
    return rest, held, first


def test_weights_equal_a_loop_by_hand():
    rng = np.random.default_rng(0)
    logits, y, weight = 3 * rng.normal(size=(30, 3)), rng.integers(3, size=30), rng.uniform(0.5, 2, size=30)
    expected = []
    for i in range(30):
        likely = np.exp(logits[i, y[i]]) / sum(np.exp(logits[i]))
        count = sum(weight[j] for j in range(30) if y[j] == y[i])
        expected.append(weight[i] / count * np.exp(-6.0 * likely))
    assert_allclose(likelihood_weights(logits, y, 6.0, weight), np.array(expected) / sum(expected))
    balanced = likelihood_weights(logits, y, 0.0, weight)
    assert_allclose(np.bincount(y, weights=balanced), 1 / 3)
    assert np.isfinite(likelihood_weights(1e4 * logits, y, 500.0, weight)).all()


def test_rows_are_divided_inside_classes(embeddings):
    e = embeddings(seed=1, n_classes=3)
    e.y[0], e.y[1:][e.y[1:] == 2] = 2, 0  # one row alone is in both parts
    model = AFR(random_state=3).fit(e.X, e.y)
    rest, held, _ = stages(model, e)
    assert_array_equal(np.sort(np.concatenate([rest, held])), [0, *range(len(e.y))])
    assert_array_equal(np.bincount(e.y[held]), [*np.round(0.2 * np.bincount(e.y)[:2]), 1])
    assert not np.array_equal(np.sort(stages(AFR(random_state=4), e)[1]), np.sort(held))


@pytest.mark.parametrize(("n_classes", "lam"), [(2, 0.5), (3, 0.01)])
def test_the_head_is_where_the_gradient_vanishes_and_no_other_is_lower(embeddings, n_classes, lam):
    e = embeddings(seed=2, n_classes=n_classes, p=5)
    model = AFR(3.0, lam=lam, C=0.5, random_state=0, **TIGHT).fit(e.X, e.y)
    _, held, first = stages(model, e)
    scaling = Scaling.of(e.X, np.ones(len(e.y)), "scalar")
    Z, scale = scaling.apply(e.X[held]), scaling.scale[0]
    logits = first.scores(e.X[held])
    mu, Y = likelihood_weights(logits, e.y[held], 3.0, np.ones(len(held))), np.eye(n_classes)[e.y[held]]

    def objective(theta):
        change = theta.reshape(n_classes, -1)
        scores = logits + Z @ change[:, :-1].T + change[:, -1]
        return -mu @ np.sum(Y * log_softmax(scores, axis=1), axis=1) + lam * np.sum(change**2)

    found = minimize(objective, np.zeros(n_classes * 6), method="BFGS", options={"gtol": 1e-7})
    V = (model.coef_ - first.coef_) / scale
    shift = model.intercept_ - first.intercept_ + V @ (scale * scaling.shift)
    assert_allclose(np.column_stack([V, shift]), found.x.reshape(n_classes, -1), atol=2e-5)
