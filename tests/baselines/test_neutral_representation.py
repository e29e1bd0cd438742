"""The neutral representation: the closed form is the minimiser, and similarities with prototypes become equal."""

import numpy as np
import pytest
from free_rankings import skew_and_order
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from fairerclip.baselines import NeutralRepresentation, ZeroShot, load_baseline
from fairerclip.baselines.learned_prefix import PENALTY, TEMPERATURE, learned_prefix, reading_loss
from fairerclip.baselines.neutral_representation import group_means, neutralised
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.errors import ConstantSensitiveWarning, ParameterError, PromptError


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


@pytest.mark.parametrize(("strength", "keep"), [(0.0, 1.0), (3.0, 0.0), (5.0, 2.0)])
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
    # The normal equations: (I + λBᵀB + (μ/c)TᵀT) R = I + (μ/c)TᵀT.
    kept = np.eye(5) + keep / 2 * T.T @ T
    assert_allclose((kept + strength * B.T @ B) @ R, kept, atol=1e-12)
    assert right.shape == (5, 2)


@pytest.mark.parametrize("n_sensitive", [2, 4])
@pytest.mark.parametrize(("n", "p"), [(300, 12), (40, 80)])
def test_similarities_with_prototypes_become_equal_and_a_large_weight_is_a_projection(
    embeddings, n_sensitive, n, p
):
    e = embeddings(seed=2, n=n, p=p, n_sensitive=n_sensitive)
    given = {"text": e.text, "sensitive_features": e.s, "sensitive_text": e.sensitive_text}
    model = NeutralRepresentation(1e10, keep=0).fit(e.X, **given)
    rows = model.transform(e.X)
    means = group_means(unit_rows(e.X), e.s, np.ones(n))
    for prototypes in (unit_rows(e.sensitive_text), means):
        assert np.ptp(unit_rows(e.X) @ prototypes.T, axis=1).max() > 1e-2
        assert np.ptp(rows @ prototypes.T, axis=1).max() < 1e-6
    projection = np.eye(p) - model.right_ @ model.left_
    assert_allclose(projection @ projection, projection, atol=1e-6)
    assert_allclose(projection, projection.T, atol=1e-6)


def test_class_similarities_are_kept_the_more_the_larger_their_weight(embeddings):
    e = embeddings(seed=3, n=200, correlation=0.6)
    changes = []
    for keep in (0.0, 1.0, 100.0):
        model = NeutralRepresentation(keep=keep).fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
        difference = (model.transform(e.X) - unit_rows(e.X)) @ unit_rows(e.text).T
        changes.append(np.abs(difference).mean())
    assert changes[0] > 1.2 * changes[1] > 3 * changes[2]


def test_shares_attributes_and_weights(embeddings):
    e = embeddings(seed=4, p=20, n_sensitive=3)
    other = np.random.default_rng(3).normal(size=(2, 20))
    model = NeutralRepresentation(prompt_share=1).fit(
        e.X, text=e.text, sensitive_text={"a": e.sensitive_text, "b": other}
    )
    assert model.diagnostics_["prompt_directions"] == 4
    assert model.right_.shape == (20, 3)
    weight = np.where(np.arange(len(e.X)) < 200, 1.0, 0.0)
    a = NeutralRepresentation().fit(e.X, text=e.text, sensitive_features=e.s, sample_weight=weight)
    b = NeutralRepresentation().fit(e.X[:200], text=e.text, sensitive_features=e.s[:200])
    assert_allclose(a.transform(e.X), b.transform(e.X), atol=1e-10)
    means = group_means(e.X, e.s, weight)
    assert_allclose(means[1], e.X[:200][e.s[:200] == 1].mean(axis=0))


def test_nothing_to_neutralise_changes_nothing(embeddings):
    e = embeddings(seed=5)
    plain = ZeroShot().fit(e.X, text=e.text).scores(e.X)
    with pytest.warns(ConstantSensitiveWarning):
        model = NeutralRepresentation().fit(e.X, text=e.text, sensitive_features=np.zeros(len(e.X)))
    assert_allclose(model.scores(e.X), plain, atol=1e-12)
    idle = NeutralRepresentation(0.0).fit(e.X, text=e.text, sensitive_features=e.s)
    assert_allclose(idle.scores(e.X), plain, atol=1e-12)
    for name, value in (("strength", -1), ("prompt_share", 2), ("keep", "all")):
        with pytest.raises(ParameterError, match=f"{name} must be a number in"):
            NeutralRepresentation(**{name: value}).fit(e.X, text=e.text, sensitive_features=e.s)


def test_skew_falls():
    rng = np.random.default_rng(7)
    s = np.arange(600) % 2
    axis = unit_rows(rng.normal(size=(1, 32)))[0]
    X = rng.normal(size=(600, 32)) + 2.5 * np.outer(2 * s - 1, axis)
    queries = rng.normal(size=(10, 32)) + 1.5 * axis
    model = NeutralRepresentation().fit(X, text=queries[:2], sensitive_text=np.array([-axis, axis]))
    before, after, order = skew_and_order(model, X, queries, s, k=100)
    assert after < 0.2 < 0.35 < before
    assert order > 0.9


@pytest.mark.parametrize("strength", [1e6, 1e9, 1e15])
def test_a_large_strength_loses_no_digits(strength):
    rng = np.random.default_rng(3)
    B, T = rng.normal(size=(3, 20)), unit_rows(rng.normal(size=(2, 20)))
    right, left = neutralised(B, T, strength, 1.0)
    # For λ → ∞ the inner products with B vanish as 1/λ.
    assert_allclose((np.eye(20) - right @ left) @ B.T, 0, atol=10 / strength + 1e-13)
    assert_allclose(right @ left, np.linalg.multi_dot([right @ left] * 2), atol=10 / strength + 1e-12)


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


@pytest.mark.parametrize("n_values", [2, 4])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_prompts_with_a_learned_prefix_read_values_at_least_as_well(seed, n_values):
    train, other, prompts, _ = shifted(seed, n_values)
    ones = np.ones(300)
    prefix = learned_prefix(*train, prompts, ones)
    assert prefix.before == pytest.approx(read(*train, prompts))
    assert prefix.after == pytest.approx(read(*train, prompts + prefix.offset))
    assert prefix.after > max(prefix.before, 0.97)
    before, after = read(*other, prompts), read(*other, prompts + prefix.offset)
    # Of other rows it reads more where many were read wrongly; where nearly none were, a few may be lost.
    assert after > (before if before < 0.95 else before - 0.02)
    arguments = (*train, prompts, ones)
    assert reading_loss(prefix.offset, *arguments)[0] < 0.9 * reading_loss(np.zeros(32), *arguments)[0]
    assert np.abs(reading_loss(prefix.offset, *arguments)[1]).max() < 1e-2
    heavy = np.where(np.arange(300) < 200, 2.0, 0.0)
    part = learned_prefix(train[0][:200], train[1][:200], prompts, np.ones(200))
    assert_allclose(learned_prefix(*train, prompts, heavy).offset, part.offset, atol=1e-5)


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


def test_a_learned_prefix_changes_prototypes_of_prompts_alone_and_is_saved(tmp_path):
    (X, s), _, prompts, true = shifted(0, 2)
    text = np.random.default_rng(1).normal(size=(2, 32))
    given = {"text": text, "sensitive_features": s, "sensitive_text": prompts}
    plain, learned = (
        NeutralRepresentation(prompt_share=1, prefix=p).fit(X, **given) for p in ("none", "learned")
    )
    (record,) = learned.diagnostics_["prefix"]
    assert record["read"] > record["read_before"]
    assert record["length"] > 0
    assert "prefix" not in plain.diagnostics_
    axis = unit_rows(true[1:] - true[:1])[0]
    left = [np.abs(m.transform(X) @ axis).mean() for m in (plain, learned)]
    assert left[1] < left[0]  # the direction that is removed is nearer to the true one
    images = [NeutralRepresentation(prompt_share=0, prefix=p).fit(X, **given) for p in ("none", "learned")]
    assert_allclose(images[0].transform(X), images[1].transform(X), atol=1e-12)
    back = load_baseline(learned.save(tmp_path / "m"))
    assert back.prefix == "learned"
    assert np.array_equal(back.scores(X), learned.scores(X))
    # Values that are read from the prompts agree with them before anything is learned.
    of_prompts = NeutralRepresentation(prefix="learned").fit(X, text=text, sensitive_text=prompts)
    assert of_prompts.diagnostics_["prefix"][0]["read_before"] == 1
    with pytest.raises(PromptError, match='give sensitive_text, or prefix="none"'):
        NeutralRepresentation(prefix="learned").fit(X, text=text, sensitive_features=s)
    with pytest.raises(ParameterError, match="prefix must be one of 'none', 'learned'"):
        NeutralRepresentation(prefix="fixed").fit(X, **given)
    with pytest.warns(ConstantSensitiveWarning):
        constant = NeutralRepresentation(prefix="learned").fit(
            X,
            text=text,
            sensitive_features={"a": s, "b": np.zeros(300, int)},
            sensitive_text={"a": prompts, "b": text},
        )
    assert constant.diagnostics_["prefix"][1] is None
