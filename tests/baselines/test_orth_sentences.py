"""Orth-Proj and Orth-Cali on the sentences that were published: spurious ones, and pairs of counterfactual ones."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip.baselines import LEACE, OrthCali, OrthProj, ZeroShot, load_baseline
from fairerclip.data import SentencePairs, Sentences, simulate
from fairerclip.data.prompts import encode_prompts, load_prompts
from fairerclip.errors import ParameterError, PromptError, ShapeError
from fairerclip.experiment import Experiment
from fairerclip.study.choose_model import fit_arguments
from fairerclip.study.methods import chosen_methods
from fairerclip.study.run_method import run_method


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


@pytest.mark.parametrize("lam", [1.0, 1000.0])
def test_the_map_is_the_closed_form_of_all_pairs_inside_each_class(embeddings, lam):
    e = embeddings(seed=1, p=20)
    spurious, by_class = sentences(e)
    model = OrthCali(lam).fit(e.X, text=e.text, spurious_text=3 * spurious, counterfactual_text=by_class)
    P, n_pairs = dense(spurious, by_class, lam)
    assert n_pairs == 20
    assert_allclose(model.text_, unit(e.text @ P.T), atol=1e-10)
    assert_allclose(model.transform_text(e.sensitive_text), unit(e.sensitive_text @ P.T), atol=1e-10)
    assert model.diagnostics_ == {
        "projected": "spurious sentences",
        "pairs": "counterfactual sentences",
        "n_pairs": 20,
        "note": "8 spurious sentences are projected off; 20 pairs, counterfactual sentences",
    }


def test_lambda_is_1000_as_published():
    assert OrthCali().lam == 1000.0


def test_spurious_sentences_take_the_place_of_sensitive_prompts(embeddings):
    e = embeddings(seed=2, p=20)
    spurious, _ = sentences(e)
    alone = OrthProj().fit(e.X, text=e.text, spurious_text=spurious)
    both = OrthProj().fit(e.X, text=e.text, spurious_text=spurious, sensitive_text=e.sensitive_text)
    assert_array_equal(alone.text_, both.text_)
    assert alone.basis_.shape == (8, 20)
    assert_allclose(alone.text_ @ spurious.T, 0, atol=1e-12)
    assert alone.diagnostics_["projected"] == "spurious sentences"
    without = OrthProj().fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    assert without.diagnostics_["projected"] == "sensitive prompts"
    assert not np.allclose(without.text_, alone.text_)


def test_without_sentences_pairs_are_composed_and_it_says_so(embeddings):
    e = embeddings(seed=3)
    model = OrthCali().fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    assert model.diagnostics_["pairs"] == "composed"
    assert model.diagnostics_["note"] == "2 sensitive prompts are projected off; 2 pairs, composed"


def test_what_is_said_survives_the_file(embeddings, tmp_path):
    e = embeddings(seed=4, p=20)
    spurious, by_class = sentences(e)
    model = OrthCali().fit(e.X, text=e.text, spurious_text=spurious, counterfactual_text=by_class)
    back = load_baseline(model.save(tmp_path / "m"))
    assert back.diagnostics_ == model.diagnostics_
    assert_array_equal(back.scores(e.X), model.scores(e.X))


@pytest.mark.parametrize("cls", [ZeroShot, LEACE])
def test_other_methods_have_no_use_for_them(embeddings, cls):
    e = embeddings(seed=5, p=20)
    spurious, by_class = sentences(e)
    given = {"text": e.text, "sensitive_text": e.sensitive_text}
    told = cls().fit(e.X, **given, spurious_text=spurious, counterfactual_text=by_class)
    assert_array_equal(told.scores(e.X), cls().fit(e.X, **given).scores(e.X))
    if cls is LEACE:
        with pytest.raises(PromptError, match="LEACE needs sensitive values"):
            cls().fit(e.X, text=e.text, spurious_text=spurious)


BAD = {
    "width": ({"spurious_text": np.ones((2, 5))}, ShapeError, r"spurious_text must have shape \(m, 12\)"),
    "none": ({"spurious_text": np.ones((0, 12))}, ShapeError, "spurious_text must have shape"),
    "zero": ({"spurious_text": np.zeros((1, 12))}, ValueError, "spurious_text"),
    "array": ({"counterfactual_text": np.ones((2, 12))}, PromptError, "must be a mapping from class"),
    "class": ({"counterfactual_text": {7: np.ones((2, 12))}}, PromptError, r"names \[7\]; the classes are"),
    "wide": (
        {"counterfactual_text": {0: np.ones((2, 5))}},
        ShapeError,
        r"counterfactual_text\[0\] must have",
    ),
    "single": ({"counterfactual_text": {0: np.ones((1, 12))}}, PromptError, "no class with two sentences"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_sentences_are_named(embeddings, what):
    e, (given, error, message) = embeddings(), BAD[what]
    with pytest.raises(error, match=message):
        OrthCali().fit(e.X, text=e.text, sensitive_text=e.sensitive_text, **given)


def test_pairs_come_from_one_place(embeddings):
    e = embeddings(p=20)
    spurious, by_class = sentences(e)
    with pytest.raises(ParameterError, match="both say what to bring together"):
        OrthCali(pairs=np.ones((1, 2, 20))).fit(
            e.X, text=e.text, spurious_text=spurious, counterfactual_text=by_class
        )
    with pytest.raises(PromptError, match="OrthCali needs pairs"):
        OrthCali().fit(e.X, text=e.text, spurious_text=spurious)


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


def test_sentences_are_for_all_attributes_of_a_task_or_for_none(birds):
    other = replace(birds.sensitive_attribute(), name="other")
    name = birds.sensitive_attribute().name
    two = replace(birds, sensitive={**birds.sensitive, "other": other})
    assert Experiment.of(two, [name]).sentences() == {}
    assert set(Experiment.of(two, [name, "other"]).sentences()) == {"spurious_text", "counterfactual_text"}


def test_pairs_of_a_task_reach_roboshot_alone(birds):
    pairs = SentencePairs(np.random.default_rng(0).normal(size=(3, 2, 32)), (("a", "b"),) * 3)
    experiment = Experiment.of(replace(birds, harmful=pairs))
    for method in chosen_methods(["roboshot", "orth-cali"]):
        assert ("text_pairs" in fit_arguments(method, experiment)) == (method.key == "roboshot")
    found = run_method(chosen_methods(["roboshot"])[0], experiment, seed=0)
    assert any("3 harmful and 0 helpful pairs, given" in note for note in found.notes)


@pytest.mark.parametrize("key", ["orth-proj", "orth-cali"])
def test_a_comparison_uses_them_and_says_so(birds, key):
    (method,) = chosen_methods([key])
    found = run_method(method, Experiment.of(birds), seed=0)
    assert any("8 spurious sentences are projected off" in note for note in found.notes)
    assert any("20 pairs, counterfactual sentences" in n for n in found.notes) == (key == "orth-cali")
    plain = run_method(method, Experiment.of(replace(birds, spurious=None, counterfactual=None)), seed=0)
    assert any("2 sensitive prompts are projected off" in note for note in plain.notes)


def test_methods_that_take_no_sentences_are_not_given_any(birds):
    for method in chosen_methods(["zero-shot", "leace", "fairerclip-none"]):
        assert not {"spurious_text", "counterfactual_text"} & set(fit_arguments(method, Experiment.of(birds)))
