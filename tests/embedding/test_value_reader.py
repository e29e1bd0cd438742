"""ValueReader: probabilities of sensitive values from prompts, labelled rows, or both."""

import numpy as np
import pytest
from gallery import Gallery
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

from fairerclip.embedding import attributes
from fairerclip.embedding.value_reader import (
    ValueReader,
    _fit,
    _folds,
    _prompt_scale,
    read_from_labels,
    read_from_prompts,
)
from fairerclip.errors import ModelFileError


def loss(reader, X, s):
    return float(-np.mean(np.log(reader.probabilities(X)[np.arange(len(X)), s])))


def groups(g):
    return [prompt[None] for prompt in g.prompts]


@pytest.mark.parametrize("v", [2, 3, 5])
def test_without_labels_the_most_likely_value_is_the_zero_shot_prediction(v):
    g = Gallery(v=v)
    reader = read_from_prompts("s", g.names, groups(g), g.X)
    P, cosines = reader.probabilities(g.X), g.X @ g.prompts.T
    assert_allclose(P.sum(axis=1), 1)
    assert np.array_equal(P.argmax(axis=1), cosines.argmax(axis=1))
    logits = np.log(P) - np.log(P).mean(axis=1, keepdims=True)
    centred = cosines - cosines.mean(axis=1, keepdims=True)
    scales = logits / centred  # one number for all rows and values
    assert_allclose(scales, scales[0, 0], rtol=1e-6)
    sure, right = P.max(axis=1), P.argmax(axis=1) == g.s
    assert sure[right].mean() > sure[~right].mean()


@pytest.mark.parametrize("with_prompts", [False, True])
def test_probabilities_sum_to_one_and_are_right_mostly(with_prompts):
    g = Gallery(v=3)
    prompts = groups(g) if with_prompts else None
    reader, penalty = read_from_labels("s", g.names, prompts, g.X, g.X, np.eye(3)[g.s])
    assert penalty > 0
    P = reader.probabilities(g.X)
    assert_allclose(P.sum(axis=1), 1)
    assert P.min() > 0
    assert np.mean(P.argmax(axis=1) == g.s) > 0.9


def test_extreme_rows_have_finite_probabilities():
    reader = ValueReader("s", np.arange(2), np.full((3, 2), [1e6, -1e6]), np.zeros(2))
    assert_allclose(reader.probabilities(np.eye(3)), [[1, 0]] * 3)


@pytest.mark.parametrize(("weights", "intercepts"), [((3, 3), 2), ((3, 2), 3), ((3, 3), 3), ((3,), 2)])
def test_a_reader_whose_arrays_do_not_fit_its_values_is_refused(weights, intercepts):
    with pytest.raises(ModelFileError, match="reader of 's'"):
        ValueReader("s", np.arange(2), np.zeros(weights), np.zeros(intercepts))


@pytest.mark.parametrize("with_prompts", [False, True])
@pytest.mark.parametrize("soft", [False, True])
def test_the_regression_satisfies_first_order_optimality(with_prompts, soft):
    g = Gallery(v=3, n=150)
    known = np.eye(3)[g.s] * 0.8 + 0.2 / 3 if soft else np.eye(3)[g.s]
    rows = g.X - g.X.mean(axis=0)
    base = _prompt_scale(groups(g) if with_prompts else None, g.X, 3)
    cosines = g.X @ base.weights + base.intercepts
    penalty = 2.0
    scale, b, W = _fit(rows, cosines, known, penalty)
    logits = scale * cosines + b + rows @ W
    P = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    rest = P - known
    assert abs((rest * cosines).sum()) / 150 < 1e-4
    assert np.abs(rest.sum(axis=0) + b).max() / 150 < 1e-4
    assert np.abs(rows.T @ rest + penalty * W).max() / 150 < 1e-4

    def objective(scale, b, W):
        logits = scale * cosines + b + rows @ W
        log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return -(known * log_p).sum() + 0.5 * b @ b + 0.5 * penalty * (W**2).sum()

    best, rng = objective(scale, b, W), np.random.default_rng(0)
    for _ in range(10):
        moved = objective(
            scale + 0.1 * with_prompts * rng.normal(),
            b + 0.1 * rng.normal(size=3),
            W + 0.1 * rng.normal(size=W.shape),
        )
        assert moved > best


@pytest.mark.parametrize("penalty", [0.5, 5.0])
def test_without_prompts_it_is_scikit_learns_regression(penalty):
    g = Gallery(v=3, n=200)
    rows = g.X - g.X.mean(axis=0)
    _, b, W = _fit(rows, np.zeros((200, 3)), np.eye(3)[g.s], penalty)
    # Its intercept has no penalty and ours has 1: a column of √penalty has one, and makes both problems the same.
    padded = np.column_stack([rows, np.full(200, np.sqrt(penalty))])
    probe = LogisticRegression(C=1 / penalty, fit_intercept=False, tol=1e-10, max_iter=5000).fit(padded, g.s)
    assert_allclose(W, probe.coef_[:, :-1].T, atol=2e-3)
    assert_allclose(b, np.sqrt(penalty) * probe.coef_[:, -1], atol=2e-3)
    expected = probe.predict_proba(padded)
    P = np.exp(b + rows @ W)
    assert_allclose(P / P.sum(axis=1, keepdims=True), expected, atol=1e-3)


def test_more_labelled_rows_predict_held_out_values_better():
    held = Gallery(v=3, n=2000, seed=99, noise=1.5)
    means = []
    for m in (10, 40, 160, 640):
        losses = []
        for seed in range(4):
            g = Gallery(v=3, n=m, seed=seed, noise=1.5)
            reader, _ = read_from_labels("s", g.names, groups(g), held.X, g.X, np.eye(3)[g.s])
            losses.append(loss(reader, held.X, held.s))
        means.append(np.mean(losses))
    assert np.all(np.diff(means) < 0)


def test_few_labelled_rows_with_prompts_predict_better_than_either_alone():
    held = Gallery(v=3, n=2000, seed=99, noise=1.5)
    with_prompts, without = [], []
    for seed in range(6):
        g = Gallery(v=3, n=20, seed=seed, noise=1.5)
        for prompts, losses in ((groups(g), with_prompts), (None, without)):
            losses.append(
                loss(read_from_labels("s", g.names, prompts, held.X, g.X, np.eye(3)[g.s])[0], held.X, held.s)
            )
    assert np.mean(with_prompts) < np.mean(without)


def test_a_penalty_is_weakened_only_where_held_out_labels_say_so():
    g = Gallery(v=2, n=1500, noise=0.3)

    def penalty(rows, known):
        return read_from_labels("s", g.names, None, g.X, g.X[:rows], np.eye(2)[known[:rows]])[1]

    default = penalty(7, np.arange(7) % 2)  # too few rows to compare
    assert penalty(1500, g.s) < default
    noise = [np.random.default_rng(seed).integers(2, size=600) for seed in range(8)]
    assert sum(penalty(600, known) == default for known in noise) >= 6


def test_cosines_with_prompts_are_brought_to_mean_0_and_unit_spread():
    g = Gallery(v=3)
    base = _prompt_scale(groups(g), g.X, 3)
    logits = g.X @ base.weights + base.intercepts
    centred = g.X @ (g.prompts - g.prompts.mean(axis=0)).T
    assert_allclose(logits, (centred - centred.mean(axis=0)) / centred.std(), atol=1e-10)


def test_a_reader_learns_from_so_many_rows_at_most_spread_over_all(monkeypatch):
    monkeypatch.setattr(attributes, "MAX_ROWS", 10)
    for n in (5, 10, 11, 95, 1000):
        rows = attributes._spread(np.arange(n))
        assert min(n, 5) <= len(rows) <= 10
        assert (rows[0], len(set(np.diff(rows).tolist()))) == (0, 1)
        assert rows[-1] >= n - np.ceil(n / 10)


def test_folds_hold_every_value_and_are_not_made_of_too_few_rows():
    codes = np.array([0] * 9 + [1] * 7)
    folds = _folds(np.eye(3)[codes])
    for value in (0, 1):
        counts = np.bincount(folds[codes == value], minlength=4)
        assert counts.max() - counts.min() <= 1
        assert counts.min() > 0
    assert _folds(np.eye(2)[[0, 1, 0]]) is None
    assert _folds(np.eye(2)[[0] * 30]) is None


def test_labels_do_not_depend_on_the_order_of_the_values():
    g = Gallery(v=3, n=200)
    order = [2, 0, 1]
    given = np.eye(3)[g.s]
    a, _ = read_from_labels("s", g.names, groups(g), g.X, g.X, given)
    b, _ = read_from_labels("s", g.names[order], [groups(g)[k] for k in order], g.X, g.X, given[:, order])
    assert_allclose(b.probabilities(g.X), a.probabilities(g.X)[:, order], atol=1e-3)
