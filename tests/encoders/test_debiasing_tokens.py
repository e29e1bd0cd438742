"""Prompt debiasing with learned tokens: S is hidden through the text tower, which stays as it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fairerclip
from fairerclip.baselines import PromptDebiasing, ZeroShot
from fairerclip.data import simulate
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.encoders import load
from fairerclip.encoders.prompt_tokens import TokenTower
from fairerclip.errors import (
    EncoderError,
    ExportError,
    FreeQueryError,
    ParameterError,
    PromptError,
    ProvenanceError,
)
from fairerclip.experiment import Experiment
from fairerclip.export.model_computation import computation_of, parts_of
from fairerclip.study.fit_method import fit_method

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = pytest.mark.slow
TEXT = {"bird": ["a photo of a bird", "bird"], "water": "a photo of water"}
RECIPE = {"strength": 10, "temperature": 20.0, "lr": 0.1, "batch_size": 50, "epochs": 5, "random_state": 0}


@pytest.fixture(scope="module")
def encoder(siglip_folder):
    return load(f"transformers:{siglip_folder}")


@pytest.fixture(scope="module")
def given(encoder):
    """Rows around the prompts of the random tower, with S along the difference of the classes, and S."""
    rng, s = np.random.default_rng(0), np.arange(200) % 2
    rows = encoder.encode_text(["a photo of a bird", "a photo of water"]).astype(np.float64)
    axis = unit_rows(rows[1:] - rows[:1])
    X = rows.mean(axis=0) + 0.15 * rng.normal(size=(200, encoder.width)) + 0.15 * np.outer(2 * s - 1, axis)
    return X, s


@pytest.fixture(scope="module")
def fitted(encoder, given):
    X, s = given
    state = {name: value.clone() for name, value in encoder.towers.model.state_dict().items()}
    model = PromptDebiasing(tokens=2, encoder=encoder, **RECIPE)
    model.fit(X, text=TEXT, sensitive_features=s)
    assert all(torch.equal(value, state[name]) for name, value in encoder.towers.model.state_dict().items())
    return model


def test_queries_are_sentences_with_the_tokens_or_class_prompts(encoder, given, fitted):
    X, _ = given
    tower = TokenTower.of(encoder)
    found = fitted.transform_text(["a photo of water", "woman on water"])
    assert_allclose(found, tower.embed(["a photo of water", "woman on water"], fitted.tokens_), atol=1e-6)
    assert_allclose(found[0], fitted.text_[1], atol=1e-6)
    assert np.abs(found[1] - encoder.encode_text(["woman on water"])).max() > 1e-2
    birds = unit_rows(fitted.transform_text(TEXT["bird"]).mean(axis=0, keepdims=True))
    assert_allclose(birds[0], fitted.text_[0], atol=1e-6)
    for classes in (fitted.prompts_, fitted.text_):
        assert_allclose(fitted.query_scores(X, classes[::-1]), fitted.scores(X)[:, ::-1], atol=1e-10)
    with pytest.raises(FreeQueryError):
        fitted.query_scores(X, np.stack([fitted.text_[0], X[0]]))
    assert parts_of(fitted) == ("classifier",)
    with pytest.raises(ExportError):
        computation_of(fitted, "text")


def test_a_loaded_model_classifies_and_asks_for_its_encoder(encoder, given, fitted, tmp_path, clip_folder):
    X, _ = given
    back = fairerclip.load(fitted.save(tmp_path / "m"))
    assert_array_equal(back.scores(X), fitted.scores(X))
    assert_array_equal(back.transform_text(fitted.prompts_), fitted.text_)
    with pytest.raises(FreeQueryError):
        back.transform_text(["woman"])
    back.set_params(encoder=encoder)
    assert_array_equal(back.query_scores(X, ["woman"]), fitted.query_scores(X, ["woman"]))
    with pytest.raises(ProvenanceError):
        back.set_params(encoder=load(f"transformers:{clip_folder}")).transform_text(["woman"])


def test_bad_inputs_are_refused(encoder, given, onnx_folder):
    X, s = given

    def fit(text=TEXT, **parameters):
        model = PromptDebiasing(**{"tokens": 2, "encoder": encoder, **RECIPE, **parameters})
        return model.fit(X, text=text, sensitive_features=s)

    for parameters, error in (
        ({"encoder": None}, ParameterError),
        ({"encoder": load(f"onnx:{onnx_folder}")}, EncoderError),
        ({"text": np.eye(2, 64)}, PromptError),
        ({"text": {"a": "bird " * 14, "b": "man"}}, EncoderError),
    ):
        with pytest.raises(error):
            fit(**parameters)


def test_an_encoder_that_did_not_embed_the_task_is_refused(encoder, siglip_folder):
    simulated = simulate("waterbirds", scale=0.04, width=encoder.width)
    prompts = ("a photo of a bird", "a photo of water")
    text = encoder.encode_text(list(prompts))
    task = replace(simulated, text_target=text, target_prompts=prompts, simulated=False, variants=None)
    torch.manual_seed(1)
    twin = load(f"transformers:{siglip_folder}")  # the same model with other weights
    with torch.no_grad():
        for weight in twin.towers.model.text_model.parameters():
            weight += 0.02 * torch.randn_like(weight)
    for given, other in ((task, twin), (simulated, encoder)):
        with pytest.raises(ProvenanceError):
            fit_method("prompt-debiasing", Experiment.of(given), encoder=other)


def test_scores_depend_less_on_s(encoder, given, fitted):
    X, s = given
    text = [encoder.encode_text([t] if isinstance(t, str) else t) for t in TEXT.values()]
    plain = ZeroShot().fit(X, text=text)
    before, after = (abs(np.corrcoef(m.decision_function(X), s)[0, 1]) for m in (plain, fitted))
    assert after < 0.35 < 0.6 < before
    assert_allclose(fitted.prompts_, plain.text_, atol=1e-6)
    assert fitted.diagnostics_["route"] == "tokens"
