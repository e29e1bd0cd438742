"""RoboShot: the published steps one after the other, and pairs from wherever they are given."""

from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip.baselines import RoboShot, ZeroShot


def unit(a):
    return a / np.linalg.norm(a, axis=-1, keepdims=True)


def literal(X, harmful, helpful):
    """Direction after direction of a QR decomposition, normalised after each step."""
    X = unit(X)
    for pairs, sign in ((harmful, -1), (helpful, 1)):
        if len(pairs):
            for q in np.linalg.qr(np.array([unit(a) - unit(b) for a, b in pairs]).T)[0].T:
                X = np.array([unit(x + sign * (x @ q) / np.linalg.norm(x) * q) for x in X])
    return X


def pairs_of(rows):
    return list(combinations(rows, 2))


def given_pairs(e, seed=0):
    rng = np.random.default_rng(seed)
    return {"harmful": rng.normal(size=(3, 2, 12)), "helpful": rng.normal(size=(2, 2, 12))}


@pytest.mark.parametrize("kinds", [("harmful", "helpful"), ("harmful",)])
def test_given_pairs_are_removed_and_boosted_as_published(embeddings, kinds):
    e = embeddings(seed=1, n_classes=3)
    pairs = {kind: given_pairs(e)[kind] for kind in kinds}
    model = RoboShot().fit(3 * e.X, text=e.text, text_pairs=pairs)
    expected = literal(e.X, pairs.get("harmful", []), pairs.get("helpful", []))
    assert_allclose(model.transform(e.X), expected, atol=1e-12)
    assert_allclose(model.scores(e.X), expected @ unit(e.text).T, atol=1e-12)


def test_without_pairs_they_are_made_of_prompts(embeddings):
    e = embeddings(seed=2, n_classes=3, n_sensitive=2)
    model = RoboShot().fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    helpful = [(e.text[0], e.text[1]), (e.text[0], e.text[2])]  # the third difference adds no direction
    assert_allclose(model.transform(e.X), literal(e.X, pairs_of(e.sensitive_text), helpful), atol=1e-12)
    told = model.diagnostics_
    assert (told["pairs"], told["n_harmful"], told["n_helpful"]) == ("prompts", 1, 3)
    plain = RoboShot(boost=0.0).fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    assert_array_equal(
        plain.predict(e.X), model.predict(e.X)
    )  # a boost of class differences changes no class
    assert_allclose(plain.transform(e.X) @ (e.sensitive_text[0] - e.sensitive_text[1]), 0, atol=1e-12)


def test_parameters_go_from_no_change_to_the_published_map(embeddings):
    e = embeddings(seed=4)
    given = {"text": e.text, "text_pairs": given_pairs(e)}
    none = RoboShot(0.0, boost=0.0).fit(e.X, **given)
    assert_allclose(none.scores(e.X), ZeroShot().fit(e.X, text=e.text).scores(e.X), atol=1e-12)
    half = RoboShot(0.5, boost=0.0).fit(e.X, **given)
    q = half.harmful_
    assert_allclose(half.transform(e.X), unit(unit(e.X) - 0.5 * unit(e.X) @ q.T @ q), atol=1e-12)
