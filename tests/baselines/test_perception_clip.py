"""PerceptionCLIP: the probabilities of the paper, one row, class and context after the other."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip.baselines import PerceptionCLIP, ZeroShot
from fairerclip.errors import ExportError, ParameterError, PromptError
from fairerclip.export.model_computation import computation_of


def unit(a):
    return a / np.linalg.norm(a, axis=-1, keepdims=True)


def literal(X, sentences, contexts, infer, T, scale):
    """log p(y|x) with explicit sums; sentences (c, z, p)."""
    found = []
    for x in unit(X):
        f = scale * unit(sentences) @ x  # (c, z)
        given = np.exp(f / T).sum(axis=0) if infer == "classes" else np.exp(scale * unit(contexts) @ x / T)
        p_z = given / given.sum()
        p_yz = np.exp(f) / np.exp(f).sum(axis=0)
        found.append([np.log(np.sum(p_z * p_yz[y])) for y in range(len(f))])
    return np.array(found)


@pytest.mark.parametrize("infer", ["classes", "contexts"])
@pytest.mark.parametrize("T", [0.5, 1.0, 10.0])
def test_scores_are_the_logarithms_of_the_published_probabilities(embeddings, infer, T):
    e = embeddings(seed=1, n_classes=3, n_sensitive=4)
    model = PerceptionCLIP(infer, temperature=T, logit_scale=30.0)
    model.fit(e.X, text=2 * e.text, sensitive_text=3 * e.sensitive_text)
    composed = unit(unit(e.text)[:, None] + unit(e.sensitive_text)[None])
    expected = literal(e.X, composed, e.sensitive_text, infer, T, 30.0)
    assert_allclose(model.scores(e.X), expected, atol=1e-10)
    assert_allclose(np.exp(model.scores(e.X)).sum(axis=1), 1)
    assert model.diagnostics_["note"] == "3 classes in 4 contexts, composed"


def test_inferring_from_classes_at_temperature_one_is_the_version_in_one_step(embeddings):
    e = embeddings(seed=2, n_classes=3, n_sensitive=3)
    model = PerceptionCLIP().fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    sums = np.exp(100 * np.einsum("np,czp->ncz", unit(e.X), model.sentences_)).sum(axis=2)
    assert_allclose(np.exp(model.scores(e.X)), sums / sums.sum(axis=1, keepdims=True), atol=1e-10)


def test_given_sentences_are_contexts_in_their_order(embeddings):
    e, rng = embeddings(seed=3, n_classes=3), np.random.default_rng(3)
    names = ["b", "c", "a"]
    text = dict(zip(names, e.text, strict=True))
    given = {name: text[name] + 0.3 * rng.normal(size=(5, 12)) for name in sorted(names)}
    model = PerceptionCLIP("contexts", temperature=2.0, logit_scale=20.0)
    model.fit(e.X, text=text, sensitive_text=e.sensitive_text, counterfactual_text=given)
    sentences = np.stack([unit(given[name]) for name in model.classes_])
    expected = literal(e.X, sentences, sentences.mean(axis=0), "contexts", 2.0, 20.0)
    assert_allclose(model.scores(e.X), expected, atol=1e-10)
    assert model.diagnostics_["note"] == "3 classes in 5 contexts, counterfactual sentences"


def test_classes_with_other_numbers_of_sentences_cannot_be_compared(embeddings):
    e = embeddings(seed=4)
    given = {"text": e.text, "sensitive_text": e.sensitive_text}
    for uneven in ({0: np.eye(12)[:2], 1: np.eye(12)[:3]}, {1: np.eye(12)[:2]}):
        with pytest.raises(PromptError, match="as many sentences for every class.*Leave it out to compose"):
            PerceptionCLIP().fit(e.X, **given, counterfactual_text=uneven)


def test_several_attributes_are_combined(embeddings, monkeypatch):
    e, rng = embeddings(seed=5), np.random.default_rng(5)
    age = unit(rng.normal(size=(3, 12)))
    prompts = {"sex": e.sensitive_text, "age": age}
    model = PerceptionCLIP().fit(e.X, text=e.text, sensitive_text=prompts)
    combined = [unit(unit(a) + b) for a in e.sensitive_text for b in age]
    assert_allclose(model.contexts_, combined, atol=1e-12)
    assert model.sentences_.shape == (2, 6, 12)
    monkeypatch.setattr("fairerclip.baselines.perception_clip.MOST_SENTENCES", 11)
    with pytest.raises(PromptError, match="12, more than 11; use fewer sensitive attributes"):
        PerceptionCLIP().fit(e.X, text=e.text, sensitive_text=prompts)


def test_rows_are_scored_in_parts(embeddings, monkeypatch):
    e = embeddings(seed=6, n_classes=3)
    model = PerceptionCLIP().fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    whole = model.scores(e.X)
    monkeypatch.setattr("fairerclip.baselines.perception_clip.BLOCK", 50)
    assert_allclose(model.scores(e.X), whole, atol=1e-12)


def test_what_is_wrong_is_named(embeddings):
    e = embeddings()
    given = {"text": e.text, "sensitive_text": e.sensitive_text}
    for parameters, name in (
        ({"infer": "both"}, "infer"),
        ({"temperature": 0.0}, "temperature"),
        ({"logit_scale": -1.0}, "logit_scale"),
    ):
        with pytest.raises(ParameterError, match=f"{name} must be"):
            PerceptionCLIP(**parameters).fit(e.X, **given)
    with pytest.raises(PromptError, match="give sensitive_text to compose them, or counterfactual_text"):
        PerceptionCLIP().fit(e.X, text=e.text, sensitive_features=e.s)
    with pytest.raises(ExportError, match="PerceptionCLIP cannot be exported"):
        computation_of(PerceptionCLIP().fit(e.X, **given))


def test_extreme_temperatures_choose_one_context_or_all(embeddings):
    e = embeddings(seed=7, n_sensitive=3)
    given = {"text": e.text, "sensitive_text": e.sensitive_text}
    sharp = PerceptionCLIP("contexts", temperature=1e-6).fit(e.X, **given)
    read = (unit(e.X) @ unit(e.sensitive_text).T).argmax(axis=1)
    own = np.array([unit(x) @ sharp.sentences_[:, z].T for x, z in zip(e.X, read, strict=True)])
    assert_array_equal(sharp.predict(e.X), own.argmax(axis=1))
    flat = PerceptionCLIP(temperature=1e6).fit(e.X, **given)
    f = np.exp(100 * np.einsum("np,czp->ncz", unit(e.X), flat.sentences_))
    assert_allclose(np.exp(flat.scores(e.X)), (f / f.sum(axis=1, keepdims=True)).mean(axis=2), atol=1e-3)


def test_sentences_that_name_the_background_undo_its_effect():
    rng = np.random.default_rng(8)
    y, s = np.arange(400) % 2, np.arange(400) // 2 % 2
    axes = np.eye(10)
    X = axes[y] + 1.5 * axes[2 + s] + 0.1 * rng.normal(size=(400, 10))
    text = axes[:2] + 0.8 * axes[2:4]  # each class prompt also speaks of one background
    sentences = {k: axes[k] + axes[2:4] for k in (0, 1)}
    given = {"text": text, "sensitive_text": axes[2:4]}
    assert np.mean(ZeroShot().fit(X, **given).predict(X) == y) < 0.65
    told = PerceptionCLIP().fit(X, **given, counterfactual_text=sentences)
    assert np.mean(told.predict(X) == y) > 0.95


def test_sentences_that_name_class_and_value_replace_prompts_of_values(embeddings):
    e = embeddings(seed=1)
    sentences = {k: e.X[3 * k : 3 * k + 3] for k in range(len(e.text))}
    alone = PerceptionCLIP().fit(e.X, text=e.text, counterfactual_text=sentences)
    both = PerceptionCLIP().fit(
        e.X, text=e.text, counterfactual_text=sentences, sensitive_text=e.sensitive_text
    )
    assert_array_equal(alone.scores(e.X), both.scores(e.X))
    with pytest.raises(PromptError, match="needs sensitive values"):
        PerceptionCLIP().fit(e.X, text=e.text)
