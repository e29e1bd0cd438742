"""PerceptionCLIP: the probabilities of the paper, one row, class and context after the other."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fairerclip.baselines import PerceptionCLIP


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


@pytest.mark.parametrize(("infer", "T"), [("classes", 1.0), ("classes", 10.0), ("contexts", 0.5)])
def test_scores_are_the_logarithms_of_the_published_probabilities(embeddings, infer, T):
    e = embeddings(seed=1, n_classes=3, n_sensitive=4)
    model = PerceptionCLIP(infer, temperature=T, logit_scale=30.0)
    model.fit(e.X, text=2 * e.text, sensitive_text=3 * e.sensitive_text)
    composed = unit(unit(e.text)[:, None] + unit(e.sensitive_text)[None])
    expected = literal(e.X, composed, e.sensitive_text, infer, T, 30.0)
    assert_allclose(model.scores(e.X), expected, atol=1e-10)


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


def test_rows_are_scored_in_parts(embeddings, monkeypatch):
    e = embeddings(seed=6, n_classes=3)
    model = PerceptionCLIP().fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    whole = model.scores(e.X)
    monkeypatch.setattr("fairerclip.baselines.perception_clip.BLOCK", 50)
    assert_allclose(model.scores(e.X), whole, atol=1e-12)
