"""PRISM: the projection of Orth-Proj for images and prompts, and the map that the published loss leads to."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip.baselines import PRISM, OrthProj
from fairerclip.baselines.prism import WeightedPairs, descend, loss_and_gradient
from fairerclip.errors import PromptError


def unit(a):
    return a / np.linalg.norm(a, axis=-1, keepdims=True)


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def literal_loss(W, alike, apart, margin):
    near = np.mean([1 - cosine(W @ a, W @ b) for a, b in alike])
    return near + np.mean([max(0.0, cosine(W @ a, W @ b) - margin) for a, b in apart])


def composed(text, values):
    """TextPairs with the same class and another value, and with another class and the same value."""
    z = {(c, v): unit(t + u) for c, t in enumerate(unit(text)) for v, u in enumerate(unit(values))}
    alike = [(z[a], z[b]) for a in z for b in z if a[0] == b[0] and a[1] < b[1]]
    apart = [(z[a], z[b]) for a in z for b in z if a[0] < b[0] and a[1] == b[1]]
    return alike, apart


def random_pairs(seed=0, k=6, p=5):
    rng = np.random.default_rng(seed)
    return WeightedPairs(unit(rng.normal(size=(k, p))), *(np.triu(rng.uniform(size=(2, k, k)), 1)))


# PRISM-mini -----------------------------------------------------------------------------------------


def test_mini_projects_images_and_prompts_and_predicts_as_orth_proj(embeddings):
    e = embeddings(seed=1, n_classes=3, n_sensitive=3)
    given = {"text": e.text, "sensitive_text": e.sensitive_text}
    model, other = PRISM("mini").fit(e.X, **given), OrthProj().fit(e.X, **given)
    assert_allclose(model.map_, np.eye(12) - np.linalg.pinv(e.sensitive_text) @ e.sensitive_text, atol=1e-12)
    assert_allclose(model.transform(e.X) @ e.sensitive_text.T, 0, atol=1e-12)
    assert_array_equal(model.predict(e.X), other.predict(e.X))
    assert_allclose(model.scores(e.X), unit(e.X @ model.map_) @ other.text_.T, atol=1e-12)
    told = PRISM("mini").fit(e.X, **given, spurious_text=e.sensitive_text[:1])
    assert np.linalg.matrix_rank(told.map_) == 11


# The learned map ------------------------------------------------------------------------------------


def test_the_gradient_is_that_of_the_loss():
    pairs, rng = random_pairs(), np.random.default_rng(1)
    pairs = pairs._replace(alike=pairs.alike + pairs.alike.T, apart=pairs.apart + pairs.apart.T)
    W, step = rng.normal(size=(5, 5)), 1e-6
    _, gradient = loss_and_gradient(W, pairs, 0.1)
    for i, j in np.ndindex(5, 5):
        E = np.zeros((5, 5))
        E[i, j] = step
        slope = (loss_and_gradient(W + E, pairs, 0.1)[0] - loss_and_gradient(W - E, pairs, 0.1)[0]) / (
            2 * step
        )
        assert gradient[i, j] == pytest.approx(slope, abs=1e-7)


@pytest.mark.parametrize("start", ["identity", "projection", "random"])
def test_loss_and_pairs_are_the_published_ones(embeddings, start):
    e = embeddings(seed=2, n_classes=3, n_sensitive=3)
    model = PRISM(start=start, lr=0.01, steps=30, random_state=0)
    model.fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    alike, apart = composed(e.text, e.sensitive_text)
    told = model.diagnostics_
    assert (told["n_alike"], told["n_apart"]) == (len(alike), len(apart)) == (9, 9)
    assert told["loss"] == pytest.approx(literal_loss(model.map_, alike, apart, 0.5))
    # After the projection these sentences agree inside classes already.
    assert told["loss"] < (1e-3 if start == "projection" else told["start_loss"] - 0.1)
    if start == "identity":
        assert told["start_loss"] == pytest.approx(literal_loss(np.eye(12), alike, apart, 0.5))


def test_steps_are_those_of_adam():
    pairs = random_pairs(3)
    pairs = pairs._replace(alike=pairs.alike + pairs.alike.T, apart=pairs.apart + pairs.apart.T)
    W, gradients = np.eye(5), []
    for step in range(1, 21):
        gradients.append(loss_and_gradient(W, pairs, 0.2)[1])
        ages = np.arange(step)[
            ::-1, None, None
        ]  # means with weights that fall with age, as Kingma & Ba write them
        first = np.average(gradients, axis=0, weights=np.broadcast_to(0.9**ages, (step, 5, 5)))
        second = np.average(np.square(gradients), axis=0, weights=np.broadcast_to(0.999**ages, (step, 5, 5)))
        W = W - 0.05 * first / (np.sqrt(second) + 1e-8)
    assert_allclose(descend(np.eye(5), pairs, 0.05, 20, 0.2), W, atol=1e-10)


def test_given_sentences_take_the_place_of_composed_ones(embeddings):
    e, rng = embeddings(seed=4, n_classes=3), np.random.default_rng(4)
    by_class = {k: e.text[k] + 0.3 * rng.normal(size=(2 + k, 12)) for k in (0, 2)}
    model = PRISM(start="identity", lr=0.01).fit(
        e.X, text=e.text, sensitive_text=e.sensitive_text, counterfactual_text=by_class
    )
    rows = {k: list(v) for k, v in by_class.items()}
    alike = [(a, b) for group in rows.values() for i, a in enumerate(group) for b in group[:i]]
    apart = [(a, b) for a in rows[0] for b in rows[2]]
    assert model.diagnostics_["loss"] == pytest.approx(literal_loss(model.map_, alike, apart, 0.5))
    with pytest.raises(PromptError):
        PRISM().fit(
            e.X, text=e.text, sensitive_text=e.sensitive_text, counterfactual_text={0: np.eye(12)[:3]}
        )
