"""ValueReader: probabilities of sensitive values from prompts, labelled rows, or both."""

import numpy as np
import pytest
from gallery import Gallery
from numpy.testing import assert_allclose

from fairerclip import EmbeddingMitigator
from fairerclip.embedding import attributes, sums
from fairerclip.embedding.value_reader import (
    _fit,
    _folds,
    _prompt_scale,
    read_from_labels,
    read_from_prompts,
)


def loss(reader, X, s):
    return float(-np.mean(np.log(reader.probabilities(X)[np.arange(len(X)), s])))


def groups(g):
    return [prompt[None] for prompt in g.prompts]


@pytest.mark.parametrize("v", [2, 5])
def test_without_labels_probabilities_are_a_softmax_of_the_scaled_cosines(v):
    g = Gallery(v=v)
    P = read_from_prompts("s", g.names, groups(g), g.X).probabilities(g.X)
    cosines = g.X @ g.prompts.T
    assert_allclose(P.sum(axis=1), 1)
    assert np.array_equal(P.argmax(axis=1), cosines.argmax(axis=1))
    logits = np.log(P) - np.log(P).mean(axis=1, keepdims=True)
    centred = cosines - cosines.mean(axis=1, keepdims=True)
    scales = logits / centred  # one number for all rows and values
    assert_allclose(scales, scales[0, 0], rtol=1e-6)
    base = _prompt_scale(groups(g), g.X, v)  # of mean 0 and unit spread
    logits = g.X @ base.weights + base.intercepts
    centred = g.X @ (g.prompts - g.prompts.mean(axis=0)).T
    assert_allclose(logits, (centred - centred.mean(axis=0)) / centred.std(), atol=1e-10)
    sure, right = P.max(axis=1), P.argmax(axis=1) == g.s
    assert sure[right].mean() > sure[~right].mean()


@pytest.mark.parametrize("with_prompts", [False, True])
@pytest.mark.parametrize("soft", [False, True])
def test_the_regression_satisfies_first_order_optimality(with_prompts, soft):
    g = Gallery(v=3, n=150)
    known = np.eye(3)[g.s] * 0.8 + 0.2 / 3 if soft else np.eye(3)[g.s]
    rows = g.X - g.X.mean(axis=0)
    base = _prompt_scale(groups(g) if with_prompts else None, g.X, 3)
    cosines = g.X @ base.weights + base.intercepts
    scale, b, W = _fit(rows, cosines, known, 2.0)
    logits = scale * cosines + b + rows @ W
    rest = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True) - known
    assert abs((rest * cosines).sum()) / 150 < 1e-4
    assert np.abs(rest.sum(axis=0) + b).max() / 150 < 1e-4
    assert np.abs(rows.T @ rest + 2.0 * W).max() / 150 < 1e-4


@pytest.mark.slow
def test_more_labelled_rows_and_prompts_predict_held_out_values_better():
    held = Gallery(v=3, n=1000, seed=99, noise=1.5)

    def mean_loss(rows, with_prompts):
        losses = []
        for seed in range(4):
            g = Gallery(v=3, n=rows, seed=seed, noise=1.5)
            prompts = groups(g) if with_prompts else None
            reader, _ = read_from_labels("s", g.names, prompts, held.X, g.X, np.eye(3)[g.s])
            losses.append(loss(reader, held.X, held.s))
        return np.mean(losses)

    assert np.all(np.diff([mean_loss(rows, True) for rows in (10, 80, 640)]) < 0)
    assert mean_loss(20, True) < mean_loss(20, False)


def test_a_penalty_is_weakened_only_where_held_out_labels_say_so():
    g = Gallery(v=2, n=1500, noise=0.3)

    def penalty(rows, known):
        return read_from_labels("s", g.names, None, g.X, g.X[:rows], np.eye(2)[known[:rows]])[1]

    default = penalty(7, np.arange(7) % 2)  # too few rows to compare
    assert penalty(1500, g.s) < default
    noise = [np.random.default_rng(seed).integers(2, size=600) for seed in range(8)]
    assert sum(penalty(600, known) == default for known in noise) >= 6


@pytest.mark.parametrize(("most", "step"), [(20_000, 1), (50, 6)])
def test_a_fit_scales_the_prompts_by_rows_spread_over_all(monkeypatch, most, step):
    g = Gallery(v=3)
    monkeypatch.setattr(sums, "SAMPLE_ROWS", most)
    reader = EmbeddingMitigator().fit(g.X, sensitive_text=g.text).fitted_.attributes[0].reader
    expected = read_from_prompts("s", g.names, groups(g), g.X[::step])
    assert_allclose(reader.weights, expected.weights, rtol=1e-9)
    assert_allclose(reader.intercepts, expected.intercepts, rtol=1e-9)


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


def test_probabilities_do_not_depend_on_the_order_of_the_values():
    g, order = Gallery(v=3, n=200), [2, 0, 1]
    given = np.eye(3)[g.s]
    a, _ = read_from_labels("s", g.names, groups(g), g.X, g.X, given)
    b, _ = read_from_labels("s", g.names[order], [groups(g)[k] for k in order], g.X, g.X, given[:, order])
    assert_allclose(b.probabilities(g.X), a.probabilities(g.X)[:, order], atol=1e-3)
    assert np.mean(a.probabilities(g.X).argmax(axis=1) == g.s) > 0.9
