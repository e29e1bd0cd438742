"""The neutral representation: the closed form is the minimiser, and similarities with prototypes become equal."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from fairerclip.baselines import NeutralRepresentation
from fairerclip.baselines.learned_prefix import PENALTY, TEMPERATURE, learned_prefix, reading_loss
from fairerclip.baselines.neutral_representation import group_means, neutralised
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.errors import PromptError


def loss_of(X, B, T, strength, keep):
    """The loss of a matrix R, and its gradient, row by row of the definition."""
    n, p = X.shape

    def loss(flat):
        R = flat.reshape(p, p)
        change, similar, kept = X @ R.T - X, X @ R.T @ B.T, (X @ R.T - X) @ T.T
        value = (
            (change**2).sum() / n + strength * (similar**2).sum() / n + keep / len(T) * (kept**2).sum() / n
        )
        gradient = 2 / n * (change + strength * similar @ B + keep / len(T) * kept @ T).T @ X
        return value, gradient.ravel()

    return loss


@pytest.mark.parametrize(("strength", "keep"), [(3.0, 0.0), (5.0, 2.0)])
def test_the_closed_form_is_the_minimiser(strength, keep):
    rng = np.random.default_rng(1)
    X, B, T = rng.normal(size=(40, 5)), rng.normal(size=(3, 5)), unit_rows(rng.normal(size=(2, 5)))
    B[2] = B[0] - B[1]  # three differences of three prototypes
    right, left = neutralised(B, T, strength, keep)
    R = (np.eye(5) - right @ left).T
    loss = loss_of(X, B, T, strength, keep)
    found = minimize(loss, np.zeros(25), jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9})
    assert_allclose(R, found.x.reshape(5, 5), atol=1e-5)
    assert np.abs(loss(R.ravel())[1]).max() < 1e-10
    assert right.shape == (5, 2)


def test_shares_attributes_and_weights(embeddings):
    e = embeddings(seed=4, p=20, n_sensitive=3)
    other = np.random.default_rng(3).normal(size=(2, 20))
    model = NeutralRepresentation(prompt_share=1).fit(
        e.X, text=e.text, sensitive_text={"a": e.sensitive_text, "b": other}
    )
    assert model.diagnostics_["prompt_directions"] == 4
    assert model.right_.shape == (20, 3)
    weight = np.where(np.arange(len(e.X)) < 200, 1.0, 0.0)
    means = group_means(e.X, e.s, weight)
    assert_allclose(means[1], e.X[:200][e.s[:200] == 1].mean(axis=0))


def test_a_large_strength_loses_no_digits():
    rng = np.random.default_rng(3)
    B, T = rng.normal(size=(3, 20)), unit_rows(rng.normal(size=(2, 20)))
    right, left = neutralised(B, T, 1e15, 1.0)
    # For λ → ∞ the inner products with B vanish as 1/λ.
    assert_allclose((np.eye(20) - right @ left) @ B.T, 0, atol=1e-12)


def shifted(seed, n_values, p=32):
    """Training and other rows with their values, and prompts that are moved towards one value and the mean row."""
    rng = np.random.default_rng(seed)
    true = unit_rows(rng.normal(size=(n_values, p)))
    s, mean = rng.integers(n_values, size=600), rng.normal(size=p) / 4
    X = unit_rows(0.6 * true[s] + mean + 0.15 * rng.normal(size=(600, p)))
    prompts = unit_rows(true + 0.6 * true[0] + 0.5 * mean + 0.1 * rng.normal(size=p))
    return (X[:300], s[:300]), (X[300:], s[300:]), prompts, true


def read(X, s, prompts):
    return np.mean((X @ unit_rows(prompts).T).argmax(axis=1) == s)


def test_the_loss_of_a_prefix_is_that_of_its_definition_with_its_gradient():
    (X, s), _, prompts, _ = shifted(3, 3, p=7)
    rng = np.random.default_rng(0)
    weight, u = rng.uniform(0.1, 1, size=300), 0.2 * rng.normal(size=7)
    arguments = (X, s, prompts, weight)
    loss, gradient = reading_loss(u, *arguments)
    total = 0.0
    for x, value, w in zip(X, s, weight, strict=True):
        logits = [TEMPERATURE * x @ (p + u) / np.linalg.norm(p + u) for p in prompts]
        total += w * (max(logits) + np.log(np.sum(np.exp(logits - np.max(logits)))) - logits[value])
    assert loss == pytest.approx(total / weight.sum() + PENALTY * u @ u, rel=1e-12)
    steps = 1e-6 * np.eye(7)
    differences = [
        (reading_loss(u + step, *arguments)[0] - reading_loss(u - step, *arguments)[0]) / 2e-6
        for step in steps
    ]
    assert_allclose(gradient, differences, rtol=1e-6, atol=1e-8)


def test_similarities_with_prototypes_become_equal(embeddings):
    e = embeddings(seed=2, n=40, p=80, n_sensitive=4)
    given = {"text": e.text, "sensitive_features": e.s, "sensitive_text": e.sensitive_text}
    rows = NeutralRepresentation(1e10, keep=0).fit(e.X, **given).transform(e.X)
    means = np.stack([unit_rows(e.X)[e.s == value].mean(axis=0) for value in range(4)])
    for prototypes in (unit_rows(e.sensitive_text), means):
        assert np.ptp(unit_rows(e.X) @ prototypes.T, axis=1).max() > 1e-2
        assert np.ptp(rows @ prototypes.T, axis=1).max() < 1e-6


@pytest.mark.parametrize("n_values", [2, 4])
def test_prompts_with_a_learned_prefix_read_values_better(n_values):
    train, other, prompts, _ = shifted(0, n_values)
    ones = np.ones(300)
    prefix = learned_prefix(*train, prompts, ones)
    assert prefix.before == pytest.approx(read(*train, prompts))
    assert prefix.after == pytest.approx(read(*train, prompts + prefix.offset))
    assert prefix.after > max(prefix.before, 0.97)
    assert read(*other, prompts + prefix.offset) > read(*other, prompts)
    assert np.abs(reading_loss(prefix.offset, *train, prompts, ones)[1]).max() < 1e-2
    heavy = np.where(np.arange(300) < 200, 2.0, 0.0)
    part = learned_prefix(train[0][:200], train[1][:200], prompts, np.ones(200))
    assert_allclose(learned_prefix(*train, prompts, heavy).offset, part.offset, atol=1e-5)


def test_a_learned_prefix_changes_prototypes_of_prompts_alone():
    (X, s), _, prompts, true = shifted(0, 2)
    text = np.random.default_rng(1).normal(size=(2, 32))
    given = {"text": text, "sensitive_features": s, "sensitive_text": prompts}
    plain, learned = (
        NeutralRepresentation(prompt_share=1, prefix=p).fit(X, **given) for p in ("none", "learned")
    )
    (record,) = learned.diagnostics_["prefix"]
    assert record["read"] > record["read_before"]
    axis = unit_rows(true[1:] - true[:1])[0]
    left = [np.abs(m.transform(X) @ axis).mean() for m in (plain, learned)]
    assert left[1] < left[0]  # the direction that is removed is nearer to the true one
    images = [NeutralRepresentation(prompt_share=0, prefix=p).fit(X, **given) for p in ("none", "learned")]
    assert_allclose(images[0].transform(X), images[1].transform(X), atol=1e-12)
    with pytest.raises(PromptError):
        NeutralRepresentation(prefix="learned").fit(X, text=text, sensitive_features=s)
