"""Orth-Proj and Orth-Cali: a projection, and the minimiser of the published objective."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

from fairerclip.baselines import OrthCali, OrthProj, ZeroShot
from fairerclip.baselines.orth_cali import calibration
from fairerclip.baselines.orth_proj import project, span
from fairerclip.baselines.sentences import compose_pairs
from fairerclip.errors import ConstantSensitiveWarning, ParameterError, PromptError, ShapeError


def unit(a):
    return a / np.linalg.norm(a, axis=-1, keepdims=True)


def matrix(model):
    """P, from what the model keeps."""
    p = model.n_features_in_
    P0 = np.eye(p) - model.basis_.T @ model.basis_
    if isinstance(model, OrthProj):
        return P0
    return P0 @ (np.eye(p) - model.directions_.T * model.shrink_ @ model.directions_)


# Orth-Proj ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_sensitive", [2, 5])
def test_the_projection_annihilates_sensitive_prompts_and_nothing_else(embeddings, n_sensitive):
    e = embeddings(seed=1, n_classes=3, n_sensitive=n_sensitive)
    model = OrthProj().fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    P = matrix(model)
    assert_allclose(P @ e.sensitive_text.T, 0, atol=1e-12)
    assert_allclose(P @ P, P, atol=1e-12)
    assert_allclose(P, P.T, atol=1e-15)
    assert np.linalg.matrix_rank(P) == e.X.shape[1] - n_sensitive
    assert_allclose(model.text_, unit(e.text @ P), atol=1e-12)
    assert_allclose(model.text_ @ e.sensitive_text.T, 0, atol=1e-12)
    assert_allclose(model.transform(e.X), e.X, atol=1e-15)


def test_several_prompts_per_value_and_repeated_ones(embeddings):
    e, rng = embeddings(seed=2), np.random.default_rng(2)
    first = e.sensitive_text[0] + 0.1 * rng.normal(size=(3, 12))
    prompts = [np.vstack([first, 2 * first[:1], first[:1] + first[1:2]]), e.sensitive_text[1:]]
    model = OrthProj().fit(e.X, text=e.text, sensitive_text=prompts)
    assert model.basis_.shape == (4, 12)  # three and one: a multiple and a sum add nothing
    assert_allclose(model.text_ @ np.concatenate(prompts).T, 0, atol=1e-12)


def test_span_and_project_at_the_ends():
    assert span(np.zeros((2, 3))).shape == (0, 3)
    assert_array_equal(project(np.eye(3), span(np.zeros((2, 3)))), np.eye(3))
    assert_allclose(project(np.eye(3), span(np.eye(3))), 0, atol=1e-15)
    assert span(np.random.default_rng(3).normal(size=(9, 4))).shape == (4, 4)


def test_more_columns_than_rows_and_prompts_of_any_length(embeddings):
    e = embeddings(seed=4, n=20, p=60)
    a = OrthProj().fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    b = OrthProj().fit(5 * e.X, text=3 * e.text, sensitive_text=[[7.0], [0.1]] * e.sensitive_text)
    assert_allclose(a.scores(e.X), b.scores(e.X), atol=1e-12)


def test_it_takes_no_labels_and_learns_nothing_from_images(embeddings):
    e, other = embeddings(seed=5), embeddings(seed=6)
    a = OrthProj().fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    b = OrthProj().fit(other.X, other.y, text=e.text, sensitive_text=e.sensitive_text)
    assert_array_equal(a.text_, b.text_)


def test_a_class_that_is_a_sensitive_prompt_is_refused(embeddings):
    e = embeddings(seed=7)
    inside = e.sensitive_text[0] - e.sensitive_text[1]
    with pytest.raises(PromptError, match=r"nothing is left of class prompts \[1\]"):
        OrthProj().fit(e.X, e.y, text=[e.text[0], inside], sensitive_text=e.sensitive_text)


@pytest.mark.parametrize("cls", [OrthProj, OrthCali])
def test_what_is_missing_is_named(embeddings, cls):
    e = embeddings(seed=8)
    with pytest.raises(PromptError, match="starts from class prompts"):
        cls().fit(e.X, e.y, sensitive_text=e.sensitive_text)
    with pytest.raises(PromptError, match="works on prompts of the sensitive values: give sensitive_text"):
        cls().fit(e.X, e.y, text=e.text, sensitive_features=e.s)
    model = cls().fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    with pytest.raises(ShapeError, match=r"T must have shape \(m, 12\)"):
        model.transform_text(np.ones((2, 3)))
    assert_allclose(model.transform_text(2 * e.text), model.text_, atol=1e-12)


# Orth-Cali ------------------------------------------------------------------------------------------


def objective(P, P0, pairs, lam):
    moved = [np.sum((P @ (a - b)) ** 2) for a, b in pairs]
    return np.sum((P - P0) ** 2) + lam / len(pairs) * np.sum(moved)


@pytest.mark.parametrize("lam", [0.5, 30.0])
def test_it_is_the_minimiser_that_a_generic_optimiser_finds(lam):
    rng = np.random.default_rng(9)
    X, text, sensitive = unit(rng.normal(size=(20, 4))), np.eye(4)[:2], rng.normal(size=(2, 4))
    pairs = unit(rng.normal(size=(3, 2, 4)))
    model = OrthCali(lam, pairs=5 * pairs).fit(X, np.arange(20) % 2, text=text, sensitive_text=sensitive)
    E = unit(sensitive)
    P0 = np.eye(4) - E.T @ np.linalg.inv(E @ E.T) @ E

    def gradient(v):
        P, D = v.reshape(4, 4), pairs[:, 0] - pairs[:, 1]
        return (2 * (P - P0) + 2 * lam / 3 * P @ D.T @ D).ravel()

    found = minimize(
        lambda v: objective(v.reshape(4, 4), P0, pairs, lam), np.zeros(16), jac=gradient, tol=1e-14
    )
    assert_allclose(matrix(model), found.x.reshape(4, 4), atol=1e-5)
    least = objective(matrix(model), P0, pairs, lam)
    for _ in range(20):
        step = 1e-3 * rng.normal(size=(4, 4))
        assert objective(matrix(model) + step, P0, pairs, lam) > least


@pytest.mark.parametrize("m", [1, 3, 30])
@pytest.mark.parametrize("lam", [0.0, 1.0, 1000.0])
def test_the_low_rank_form_equals_the_dense_inverse(m, lam):
    d = np.random.default_rng(10).normal(size=(m, 12))
    U, shrink = calibration(d, lam)
    dense = np.linalg.inv(np.eye(12) + lam / m * d.T @ d)
    assert_allclose(np.eye(12) - U.T * shrink @ U, dense, atol=1e-12)
    assert len(U) == min(m, 12)


def test_without_weight_it_is_the_projection(embeddings):
    e = embeddings(seed=11, n_classes=3, n_sensitive=3)
    fit = {"text": e.text, "sensitive_text": e.sensitive_text}
    assert_allclose(OrthCali(0.0).fit(e.X, **fit).text_, OrthProj().fit(e.X, **fit).text_, atol=1e-12)


def test_pairs_are_composed_for_every_class_and_every_two_values(embeddings):
    e = embeddings(seed=12, n_classes=3, n_sensitive=4)
    pairs = compose_pairs(e.text, [e.sensitive_text])
    assert pairs.shape == (3 * 6, 2, 12)
    k = 0
    for t in e.text:
        for a in range(4):
            for b in range(a + 1, 4):
                assert_allclose(pairs[k], unit(t + e.sensitive_text[[a, b]]), atol=1e-12)
                k += 1
    a = OrthCali().fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    b = OrthCali(pairs=pairs).fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    assert_allclose(a.text_, b.text_, atol=1e-10)


def test_values_of_different_attributes_are_no_pair(embeddings):
    e, rng = embeddings(seed=13), np.random.default_rng(13)
    prompts = {"sex": e.sensitive_text, "age": unit(rng.normal(size=(3, 12)))}
    model = OrthCali().fit(e.X, text=e.text, sensitive_text=prompts)
    pairs = compose_pairs(e.text, list(prompts.values()))
    assert len(pairs) == 2 * (1 + 3)
    given = OrthCali(pairs=pairs).fit(e.X, text=e.text, sensitive_text=prompts)
    assert_allclose(model.text_, given.text_, atol=1e-10)
    assert model.basis_.shape == (5, 12)


def test_prompts_by_value_are_one_attribute_when_the_values_are_known(embeddings):
    e, rng = embeddings(seed=14), np.random.default_rng(14)
    several = {v: e.sensitive_text[v] + 0.1 * rng.normal(size=(3, 12)) for v in (0, 1)}
    model = OrthCali().fit(e.X, text=e.text, sensitive_features=e.s, sensitive_text=several)
    values = [np.stack([unit(unit(rows).mean(axis=0)) for rows in several.values()])]
    given = OrthCali(pairs=compose_pairs(e.text, values))
    given.fit(e.X, text=e.text, sensitive_features=e.s, sensitive_text=several)
    assert_allclose(model.text_, given.text_, atol=1e-10)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"lam": -1.0}, ParameterError, r"lam must be a number in \[0"),
        ({"lam": float("nan")}, ParameterError, r"lam must be a number in \[0"),
        ({"lam": float("inf")}, ParameterError, r"lam must be a number in \[0"),
        ({"pairs": np.ones((3, 2, 5))}, ShapeError, r"shape \(m, 2, 12\), as wide as X; got \(3, 2, 5\)"),
        ({"pairs": np.ones((0, 2, 12))}, ShapeError, "pairs must be embeddings"),
        ({"pairs": "a man, a woman"}, ShapeError, "pairs must be embeddings"),
        ({"pairs": np.zeros((1, 2, 12))}, PromptError, "none of them zero"),
        ({"pairs": np.full((1, 2, 12), np.nan)}, PromptError, "finite"),
    ],
    ids=str,
)
def test_bad_parameters_are_named(embeddings, parameters, error, message):
    e = embeddings()
    with pytest.raises(error, match=message):
        OrthCali(**parameters).fit(e.X, text=e.text, sensitive_text=e.sensitive_text)


# What both are for ----------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [OrthProj, OrthCali])
def test_a_sensitive_direction_in_a_class_prompt_loses_its_effect(cls):
    rng = np.random.default_rng(15)
    y, s = np.arange(400) % 2, np.arange(400) // 2 % 2
    axes = np.eye(10)
    X = axes[y] + 3 * axes[2 + s] + 0.1 * rng.normal(size=(400, 10))
    text = axes[:2] + 0.8 * axes[2:4]  # each class prompt also speaks of one value
    fit = {"text": text, "sensitive_text": axes[2:4]}
    assert np.mean(ZeroShot().fit(X, **fit).predict(X) == y) < 0.6
    assert np.mean(cls().fit(X, **fit).predict(X) == y) > 0.99


def test_images_of_one_value_alone_are_fine(embeddings):
    e = embeddings(seed=16)
    rows = (e.X @ e.sensitive_text.T).argmax(axis=1) == 0
    with pytest.warns(ConstantSensitiveWarning):
        model = OrthProj().fit(e.X[rows], text=e.text, sensitive_text=e.sensitive_text)
    assert model.basis_.shape == (2, 12)
