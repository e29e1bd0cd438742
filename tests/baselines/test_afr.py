"""AFR: weights of held-out rows by the definition, and the minimum of the second stage."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from fairerclip.baselines import AFR, LinearProbe, load_baseline
from fairerclip.baselines.afr import likelihood_weights
from fairerclip.baselines.logistic import Scaling
from fairerclip.baselines.shared_solutions import shared_solutions
from fairerclip.baselines.softmax import softmax_path
from fairerclip.data import simulate
from fairerclip.errors import NotConvergedWarning, ParameterError
from fairerclip.metrics import group_report

TIGHT = {"tol": 1e-8}


def worst(model, rows):
    return group_report(rows.y, model.predict(rows.X), next(iter(rows.s.values()))).worst.accuracy


def stages(model, e, weight=None):
    """The first head, the held-out rows and their weights, for a model whose rows are known to be drawn alike."""
    from types import SimpleNamespace

    weight = np.ones(len(e.y)) if weight is None else weight
    data = SimpleNamespace(X=e.X, y=e.y, weight=weight, n_classes=int(e.y.max()) + 1)
    rest, held = model._parts(data)
    first = LinearProbe(C=model.C, tol=model.tol).fit(e.X[rest], e.y[rest], sample_weight=weight[rest])
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


@pytest.mark.parametrize("n_classes", [2, 3])
def test_rows_are_divided_inside_classes(embeddings, n_classes):
    e = embeddings(seed=1, n_classes=n_classes)
    model = AFR(random_state=3).fit(e.X, e.y)
    rest, held, _ = stages(model, e)
    assert_array_equal(np.sort(np.concatenate([rest, held])), np.arange(len(e.y)))
    counts = np.bincount(e.y)
    assert_array_equal(np.bincount(e.y[held]), np.round(0.2 * counts))
    assert model.diagnostics_["held_out"] == len(held)
    assert 1 <= model.diagnostics_["effective_rows"] <= len(held)
    other = AFR(random_state=4)
    assert not np.array_equal(np.sort(stages(other, e)[1]), np.sort(held))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("lam", [0.5, 0.01])
def test_the_head_is_where_the_gradient_vanishes_and_no_other_is_lower(embeddings, n_classes, lam):
    e = embeddings(seed=2, n_classes=n_classes, p=5)
    model = AFR(3.0, lam=lam, C=0.5, random_state=0, **TIGHT).fit(e.X, e.y)
    _, held, first = stages(model, e)
    scaling = Scaling.of(e.X, np.ones(len(e.y)), "scalar")
    Z, scale = scaling.apply(e.X[held]), scaling.scale[0]
    logits = first.scores(e.X[held])
    mu, Y = likelihood_weights(logits, e.y[held], 3.0, np.ones(len(held))), np.eye(n_classes)[e.y[held]]
    V = (model.coef_ - first.coef_) / scale
    P = softmax(model.scores(e.X[held]), axis=1)
    assert_allclose((mu[:, None] * (P - Y)).T @ Z + 2 * lam * V, 0, atol=1e-6)
    shift = model.intercept_ - first.intercept_ + V @ (scale * scaling.shift)
    assert_allclose(mu @ (P - Y) + 2 * lam * shift, 0, atol=1e-6)

    def objective(theta):
        change = theta.reshape(n_classes, -1)
        scores = logits + Z @ change[:, :-1].T + change[:, -1]
        return -mu @ np.sum(Y * log_softmax(scores, axis=1), axis=1) + lam * np.sum(change**2)

    found = minimize(objective, np.zeros(n_classes * 6), method="BFGS", options={"gtol": 1e-7})
    assert_allclose(np.column_stack([V, shift]), found.x.reshape(n_classes, -1), atol=2e-5)


@pytest.mark.parametrize("gamma", [0.0, 14.0])
def test_a_huge_penalty_leaves_the_first_head(embeddings, gamma):
    e = embeddings(seed=3, n_classes=3)
    model = AFR(gamma, lam=1e8, random_state=0, **TIGHT).fit(e.X, e.y)
    first = stages(model, e)[2]
    assert_allclose(model.coef_, first.coef_, atol=1e-5)
    assert_allclose(model.intercept_, first.intercept_, atol=1e-5)


def test_offsets_are_added_to_the_logits(embeddings):
    e = embeddings(seed=4)
    weight, arguments = np.ones(len(e.y)), {"tol": 1e-10, "max_iter": 100}
    (plain,) = softmax_path(e.X, e.y, weight, 2, [1.0], **arguments)
    constant = np.tile([2.0, -1.0], (len(e.y), 1))
    with shared_solutions():
        (moved,) = softmax_path(e.X, e.y, weight, 2, [1.0], **arguments, offset=constant)
        (again,) = softmax_path(e.X, e.y, weight, 2, [1.0], **arguments)
    assert_allclose(moved.coef, plain.coef, atol=1e-8)
    assert_allclose(moved.intercept, plain.intercept - [1.5, -1.5], atol=1e-8)
    assert_allclose(again.intercept, plain.intercept, atol=1e-8)  # other offsets are other problems


def test_shared_first_stages_change_nothing(embeddings):
    e = embeddings(seed=5)
    settings = [(14.0, 0.2), (2.0, 0.2), (2.0, 0.01)]
    alone = [AFR(g, lam=lam, random_state=0, **TIGHT).fit(e.X, e.y).coef_ for g, lam in settings]
    with shared_solutions():
        shared = [AFR(g, lam=lam, random_state=0, **TIGHT).fit(e.X, e.y).coef_ for g, lam in settings]
    for a, b in zip(alone, shared, strict=True):
        assert_allclose(a, b, atol=1e-5)


def test_row_weights_count_and_a_class_of_one_row_is_in_both_stages(embeddings):
    e = embeddings(seed=6)
    weight = (np.arange(len(e.y)) % 4 > 0).astype(float)
    rest, held, _ = stages(AFR(random_state=0), e, weight)
    assert set(rest) | set(held) == set(np.flatnonzero(weight))
    e.y[0] = 2
    e.y[1:][e.y[1:] == 2] = 0
    model = AFR(random_state=0).fit(e.X, e.y)
    rest, held, _ = stages(model, e)
    assert 0 in rest
    assert 0 in held
    assert np.isfinite(model.scores(e.X)).all()


def test_bad_parameters_are_refused_and_an_unfinished_fit_warns(embeddings):
    e = embeddings()
    for parameters, message in [
        ({"gamma": -1}, r"gamma must be a number in \[0, 500\]"),
        ({"lam": 0}, "lam must be a number in"),
        ({"share": 1}, r"share must be a number in \(0, 1\)"),
        ({"random_state": "x"}, "random_state"),
    ]:
        with pytest.raises(ParameterError, match=message):
            AFR(**parameters).fit(e.X, e.y)
    with pytest.warns(NotConvergedWarning) as caught:
        AFR(lam=1e-4, max_iter=1, random_state=0).fit(e.X, e.y)
    assert any("the second stage of AFR with lam=0.0001" in str(w.message) for w in caught)


def test_it_helps_the_worst_group_and_is_saved(tmp_path):
    task = simulate("waterbirds", scale=0.3, seed=1)
    model = AFR(8.0, lam=0.01, C=0.01, random_state=0).fit(task.train.X, task.train.y)
    assert (
        worst(model, task.test) > worst(LinearProbe(C=0.01).fit(task.train.X, task.train.y), task.test) + 0.1
    )
    back = load_baseline(model.save(tmp_path / "model"))
    assert_array_equal(back.scores(task.test.X), model.scores(task.test.X))
