"""RoboShot: the published steps one after the other, and pairs from wherever they are given."""

from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip.baselines import LEACE, OrthCali, RoboShot, ZeroShot
from fairerclip.errors import ParameterError, PromptError, ShapeError, TextCollapseWarning


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


@pytest.mark.parametrize("kinds", [("harmful", "helpful"), ("harmful",), ("helpful",)])
def test_given_pairs_are_removed_and_boosted_as_published(embeddings, kinds):
    e = embeddings(seed=1, n_classes=3)
    pairs = {kind: given_pairs(e)[kind] for kind in kinds}
    model = RoboShot().fit(3 * e.X, text=e.text, text_pairs=pairs)
    expected = literal(e.X, pairs.get("harmful", []), pairs.get("helpful", []))
    assert_allclose(model.transform(e.X), expected, atol=1e-12)
    assert_allclose(model.scores(e.X), expected @ unit(e.text).T, atol=1e-12)
    counts = [len(pairs.get(kind, [])) for kind in ("harmful", "helpful")]
    assert model.diagnostics_["note"] == f"{counts[0]} harmful and {counts[1]} helpful pairs, given"


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


def test_values_of_different_attributes_are_no_pair(embeddings):
    e, rng = embeddings(seed=3), np.random.default_rng(3)
    age = unit(rng.normal(size=(3, 12)))
    model = RoboShot().fit(e.X, text=e.text, sensitive_text={"sex": e.sensitive_text, "age": age})
    assert model.diagnostics_["n_harmful"] == 1 + 3
    assert model.harmful_.shape == (1 + 2, 12)


def test_parameters_go_from_no_change_to_the_published_map(embeddings):
    e = embeddings(seed=4)
    given = {"text": e.text, "text_pairs": given_pairs(e)}
    none = RoboShot(0.0, boost=0.0).fit(e.X, **given)
    assert_allclose(none.scores(e.X), ZeroShot().fit(e.X, text=e.text).scores(e.X), atol=1e-12)
    half = RoboShot(0.5, boost=0.0).fit(e.X, **given)
    q = half.harmful_
    assert_allclose(half.transform(e.X), unit(unit(e.X) - 0.5 * unit(e.X) @ q.T @ q), atol=1e-12)


def test_repeated_and_dependent_pairs_add_nothing(embeddings):
    e = embeddings(seed=5)
    pairs = given_pairs(e)
    twice = {kind: np.concatenate([rows, rows[:, ::-1]]) for kind, rows in pairs.items()}
    a, b = (RoboShot().fit(e.X, text=e.text, text_pairs=given) for given in (pairs, twice))
    assert_allclose(a.transform(e.X), b.transform(e.X), atol=1e-10)


def test_a_row_of_harmful_directions_alone_becomes_zero_and_stays_finite():
    model = RoboShot().fit(np.eye(3), text=np.eye(3)[:2], text_pairs={"harmful": np.eye(3)[None, [2, 1]]})
    row = np.array([[0.0, -1.0, 1.0]])
    assert np.abs(model.transform(row)).max() <= 1
    assert np.isfinite(model.scores(row)).all()


@pytest.mark.parametrize(
    ("pairs", "error", "message"),
    [
        ({"bad": np.ones((1, 2, 12))}, PromptError, "must be a mapping with"),
        ({}, PromptError, "must be a mapping with"),
        (np.ones((1, 2, 12)), PromptError, "must be a mapping with"),
        (
            {"harmful": np.ones((1, 3, 12))},
            ShapeError,
            r"text_pairs\['harmful'\] must be embeddings of shape",
        ),
        ({"helpful": np.zeros((1, 2, 12))}, PromptError, "none of them zero"),
        (
            {"harmful": np.stack([np.eye(2, 12), np.ones((2, 12))])},
            PromptError,
            r"text_pairs\['harmful'\]: expected pairs of two different sentences, got equal ones in pair 1",
        ),
    ],
    ids=str,
)
def test_bad_pairs_are_named(embeddings, pairs, error, message):
    e = embeddings()
    with pytest.raises(error, match=message):
        RoboShot().fit(e.X, text=e.text, sensitive_text=e.sensitive_text, text_pairs=pairs)


def test_what_is_missing_is_named_and_other_methods_ignore_pairs(embeddings):
    e = embeddings()
    with pytest.raises(PromptError, match="give text_pairs, or sensitive_text"):
        RoboShot().fit(e.X, text=e.text, sensitive_features=e.s)
    for parameters in ({"remove": -1.0}, {"boost": float("nan")}):
        with pytest.raises(ParameterError, match="must be a number"):
            RoboShot(**parameters).fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    given = {"text": e.text, "sensitive_text": e.sensitive_text}
    for model in (LEACE(), OrthCali()):
        plain = model.fit(e.X, **given).scores(e.X)
        assert_array_equal(model.fit(e.X, **given, text_pairs=given_pairs(e)).scores(e.X), plain)
    with pytest.raises(PromptError, match="LEACE needs sensitive values"):
        LEACE().fit(e.X, text=e.text, text_pairs=given_pairs(e))


def test_a_sensitive_direction_in_a_class_prompt_loses_its_effect():
    rng = np.random.default_rng(6)
    y, s = np.arange(400) % 2, np.arange(400) // 2 % 2
    axes = np.eye(10)
    X = axes[y] + 1.5 * axes[2 + s] + 0.1 * rng.normal(size=(400, 10))
    given = {"text": axes[:2] + 0.8 * axes[2:4], "sensitive_text": axes[2:4]}
    assert np.mean(ZeroShot().fit(X, **given).predict(X) == y) < 0.65
    assert np.mean(RoboShot().fit(X, **given).predict(X) == y) > 0.95


def test_an_image_of_which_nothing_is_left_is_not_classified_by_rounding_errors(embeddings):
    e = embeddings(seed=2, p=40)
    X = np.vstack([e.X, unit(e.sensitive_text[0]) - unit(e.sensitive_text[1])])
    model = RoboShot().fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    assert_array_equal(model.transform(X)[-1], 0)
    assert_array_equal(model.scores(X)[-1], 0)
    assert_allclose(np.linalg.norm(model.transform(X)[:-1], axis=1), 1)


def test_classes_that_differ_in_what_is_removed_alone_are_named(embeddings):
    e = embeddings(seed=2, n_classes=3)
    with pytest.warns(TextCollapseWarning, match="difference of the prompts of classes 'a' and 'c' after"):
        model = RoboShot().fit(e.X, text=dict(zip("abc", e.text, strict=True)), sensitive_text=e.text[[0, 2]])
    scores = model.scores(e.X)
    assert np.abs(scores[:, 0] - scores[:, 2]).max() < 1e-12
    # Helpful directions that are not orthogonal to the harmful one put the difference back.
    T = np.eye(12)[:3]
    helpful = [[T[0] + 0.2 * np.eye(12)[5], T[1]]]
    model = RoboShot().fit(e.X, text=T, text_pairs={"harmful": [[T[0], T[2]]], "helpful": helpful})
    assert np.abs(np.diff(model.scores(e.X)[:, [0, 2]])).max() > 0.1
    RoboShot(remove=0.9).fit(e.X, text=e.text, sensitive_text=e.text[[0, 2]])
