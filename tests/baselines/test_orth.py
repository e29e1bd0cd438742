"""Orth-Proj and Orth-Cali: a projection, and the minimiser of the published objective."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from fairerclip.baselines import OrthCali, OrthProj
from fairerclip.baselines.orth_cali import calibration
from fairerclip.baselines.sentences import compose_pairs
from fairerclip.errors import PromptError, ShapeError


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


def test_the_projection_annihilates_sensitive_prompts_and_nothing_else(embeddings):
    e = embeddings(seed=1, n_classes=3, n_sensitive=5)
    model = OrthProj().fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    P = matrix(model)
    assert_allclose(P, np.eye(12) - np.linalg.pinv(e.sensitive_text) @ e.sensitive_text, atol=1e-12)
    assert_allclose(model.text_, unit(e.text @ P), atol=1e-12)
    assert_allclose(model.transform(e.X), e.X, atol=1e-15)


def test_several_prompts_per_value_and_repeated_ones(embeddings):
    e, rng = embeddings(seed=2), np.random.default_rng(2)
    first = e.sensitive_text[0] + 0.1 * rng.normal(size=(3, 12))
    prompts = [np.vstack([first, 2 * first[:1], first[:1] + first[1:2]]), e.sensitive_text[1:]]
    model = OrthProj().fit(e.X, text=e.text, sensitive_text=prompts)
    assert model.basis_.shape == (4, 12)  # three and one: a multiple and a sum add nothing
    assert_allclose(model.text_ @ np.concatenate(prompts).T, 0, atol=1e-12)


def test_a_class_that_is_a_sensitive_prompt_is_refused(embeddings):
    e = embeddings(seed=7)
    inside = e.sensitive_text[0] - e.sensitive_text[1]
    with pytest.raises(PromptError):
        OrthProj().fit(e.X, e.y, text=[e.text[0], inside], sensitive_text=e.sensitive_text)


# Orth-Cali ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lam", [0.5, 30.0])
def test_it_is_the_minimiser_that_a_generic_optimiser_finds(lam):
    rng = np.random.default_rng(9)
    X, text, sensitive = unit(rng.normal(size=(20, 4))), np.eye(4)[:2], rng.normal(size=(2, 4))
    pairs = unit(rng.normal(size=(3, 2, 4)))
    model = OrthCali(lam, pairs=5 * pairs).fit(X, np.arange(20) % 2, text=text, sensitive_text=sensitive)
    P0, D = np.eye(4) - np.linalg.pinv(sensitive) @ sensitive, pairs[:, 0] - pairs[:, 1]

    def objective(v):
        P = v.reshape(4, 4)
        value = np.sum((P - P0) ** 2) + lam / 3 * np.sum((D @ P.T) ** 2)
        return value, (2 * (P - P0) + 2 * lam / 3 * P @ D.T @ D).ravel()

    found = minimize(objective, np.zeros(16), jac=True, tol=1e-14)
    assert_allclose(matrix(model), found.x.reshape(4, 4), atol=1e-5)


@pytest.mark.parametrize(("m", "lam"), [(3, 0.0), (3, 1000.0), (30, 1.0)])
def test_the_low_rank_form_equals_the_dense_inverse(m, lam):
    d = np.random.default_rng(10).normal(size=(m, 12))
    U, shrink = calibration(d, lam)
    dense = np.linalg.inv(np.eye(12) + lam / m * d.T @ d)
    assert_allclose(np.eye(12) - U.T * shrink @ U, dense, atol=1e-12)
    assert len(U) == min(m, 12)


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


# What both are for ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "error"),
    [
        (np.ones((3, 2, 5)), ShapeError),
        (np.full((1, 2, 12), np.nan), PromptError),
    ],
    ids=["shape", "value"],
)
def test_bad_pairs_are_refused(embeddings, pairs, error):
    e = embeddings()
    with pytest.raises(error):
        OrthCali(pairs=pairs).fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
