"""Orth-Proj and Orth-Cali on the sentences that were published: spurious ones, and pairs of counterfactual ones."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip.baselines import OrthCali, OrthProj
from fairerclip.data import Sentences, simulate
from fairerclip.data.prompts import encode_prompts, load_prompts
from fairerclip.errors import PromptError, ShapeError
from fairerclip.experiment import Experiment


def unit(a):
    return a / np.linalg.norm(a, axis=-1, keepdims=True)


def sentences(e, seed=0, m=5):
    """Spurious sentences (8, p), and m sentences of each class."""
    rng = np.random.default_rng(seed)
    spurious = np.repeat(e.sensitive_text, 4, axis=0) + 0.2 * rng.normal(size=(8, e.X.shape[1]))
    return spurious, {k: t + 0.3 * rng.normal(size=(m, len(t))) for k, t in enumerate(e.text)}


def dense(spurious, by_class, lam):
    """P by a dense inverse, and the number of pairs."""
    p = spurious.shape[1]
    d = [unit(a) - unit(b) for rows in by_class.values() for a, b in combinations(rows, 2)]
    P0 = np.eye(p) - np.linalg.pinv(unit(spurious)) @ unit(spurious)
    return P0 @ np.linalg.inv(np.eye(p) + lam / len(d) * sum(np.outer(v, v) for v in d)), len(d)


def test_the_map_is_the_closed_form_of_all_pairs_inside_each_class(embeddings):
    e = embeddings(seed=1, p=20)
    spurious, by_class = sentences(e)
    model = OrthCali(50.0).fit(e.X, text=e.text, spurious_text=3 * spurious, counterfactual_text=by_class)
    P, n_pairs = dense(spurious, by_class, 50.0)
    assert n_pairs == model.diagnostics_["n_pairs"] == 20
    assert_allclose(model.text_, unit(e.text @ P.T), atol=1e-10)
    assert_allclose(model.transform_text(e.sensitive_text), unit(e.sensitive_text @ P.T), atol=1e-10)


def test_spurious_sentences_take_the_place_of_sensitive_prompts(embeddings):
    e = embeddings(seed=2, p=20)
    spurious, _ = sentences(e)
    model = OrthProj().fit(e.X, text=e.text, spurious_text=spurious, sensitive_text=e.sensitive_text)
    assert model.basis_.shape == (8, 20)
    assert_allclose(model.text_ @ spurious.T, 0, atol=1e-12)
    assert np.abs(model.text_ @ e.sensitive_text.T).max() > 1e-3


# Through a task -------------------------------------------------------------------------------------


def words(prompts):
    """An embedding for every sentence, its own each."""
    return np.stack([np.random.default_rng(sum(p.encode())).normal(size=32) for p in prompts])


@pytest.fixture(scope="module")
def birds():
    """A simulated task with the published sentences, in made-up embeddings."""
    task = simulate("waterbirds", seed=1, scale=0.05, width=32)
    said = encode_prompts(load_prompts("waterbirds-debias-vl"), words, average=True)
    both = said.counterfactual
    return replace(
        task,
        spurious=Sentences(said.spurious, said.spurious_prompts),
        counterfactual=Sentences(both.vectors, both.prompts, both.classes),
    )


def test_an_experiment_gives_the_sentences_of_its_classes(birds):
    given = Experiment.of(birds).sentences()
    assert_array_equal(given["spurious_text"], birds.spurious.text)
    assert list(given["counterfactual_text"]) == ["landbird", "waterbird"]
    assert_array_equal(given["counterfactual_text"]["waterbird"], birds.counterfactual.text[5:])
    plain = replace(birds, spurious=None, counterfactual=None)
    assert Experiment.of(plain).sentences() == {}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"spurious_text": np.ones((2, 5))}, ShapeError),
        ({"counterfactual_text": {0: np.ones((1, 12))}}, PromptError),
    ],
    ids=["width", "one sentence"],
)
def test_bad_sentences_are_refused(embeddings, given, error):
    e = embeddings()
    with pytest.raises(error):
        OrthCali().fit(e.X, text=e.text, sensitive_text=e.sensitive_text, **given)
