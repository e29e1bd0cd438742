"""Prompt debiasing with learned tokens: S is hidden through the text tower, which stays as it is."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fairerclip
from fairerclip.baselines import PromptDebiasing, ZeroShot
from fairerclip.data import load_task, save_task, simulate
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.encoders import load
from fairerclip.encoders.prompt_tokens import TokenTower
from fairerclip.errors import (
    EncoderError,
    ExportError,
    FreeQueryError,
    ModelFileError,
    ParameterError,
    PromptError,
    ProvenanceError,
    ShapeError,
)
from fairerclip.experiment import Experiment
from fairerclip.export.model_computation import computation_of, parts_of
from fairerclip.inputs.prompts import prototypes
from fairerclip.study.fit_method import fit_method

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
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


def test_scores_depend_less_on_s_and_the_route_is_said(encoder, given, fitted):
    X, s = given
    plain = ZeroShot().fit(
        X, text=[encoder.encode_text([t] if isinstance(t, str) else t) for t in TEXT.values()]
    )
    before, after = (abs(np.corrcoef(m.decision_function(X), s)[0, 1]) for m in (plain, fitted))
    assert after < 0.35 < 0.6 < before
    assert_allclose(fitted.prompts_, plain.text_, atol=1e-6)
    assert fitted.diagnostics_["route"] == "tokens"
    assert fitted.diagnostics_["encoder"]["weights"] == encoder.provenance.weights
    assert "tokens" in fitted.title
    other = PromptDebiasing(epochs=1, random_state=0).fit(X, text=plain.text_, sensitive_features=s)
    assert other.diagnostics_["route"] == "embedding space"
    assert not hasattr(other, "tokens_")


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
    with pytest.raises(
        FreeQueryError, match=r"rows \[1\] of T are not class prompts.*give a list of sentences"
    ):
        fitted.query_scores(X, np.stack([fitted.text_[0], X[0]]))
    assert parts_of(fitted) == ("classifier",)
    with pytest.raises(ExportError, match="its tokens go through the text encoder"):
        computation_of(fitted, "text")


def test_a_loaded_model_classifies_and_asks_for_its_encoder(encoder, given, fitted, tmp_path, clip_folder):
    X, s = given
    back = fairerclip.load(fitted.save(tmp_path / "m"))
    assert back.encoder is None
    assert back.tokens == 2
    assert_array_equal(back.scores(X), fitted.scores(X))
    assert_array_equal(back.transform_text(fitted.prompts_), fitted.text_)
    with pytest.raises(FreeQueryError, match=r"a loaded model has none.*siglip.*set_params\(encoder="):
        back.transform_text(["woman"])
    with pytest.raises(ParameterError, match="give encoder="):
        back.fit(X, text=TEXT, sensitive_features=s)
    back.set_params(encoder=encoder)
    assert_array_equal(back.query_scores(X, ["woman"]), fitted.query_scores(X, ["woman"]))
    with pytest.raises(ProvenanceError, match="the tokens were learned with siglip"):
        back.set_params(encoder=load(f"transformers:{clip_folder}")).transform_text(["woman"])
    with pytest.raises(ModelFileError, match="unknown tensors"):
        back.set_params(tokens=0).save(tmp_path / "n")
    again = back.set_params(tokens=0, encoder=None, epochs=1).fit(
        X, text=fitted.prompts_, sensitive_features=s
    )
    assert not again.has_tokens
    assert len(fairerclip.load(again.save(tmp_path / "n")).transform_text(X[:3])) == 3


def test_training_starts_at_plain_words_and_is_the_same_for_a_seed(encoder, given):
    from gradient_parts import token_net

    net, adversary, run = token_net(encoder, given, [["a photo of a bird", "bird"], ["a photo of water"]])
    words = [["a a a photo of a bird", "a a bird"], ["a a a photo of water"]]
    expected = [unit_rows(encoder.encode_text(group).astype(float).mean(axis=0)[None])[0] for group in words]
    assert_allclose(net.prompts().detach().numpy(), expected, atol=1e-6)
    assert_allclose(net.fitted()["text_"], expected, atol=1e-6)
    assert [name for name, _ in net.named_parameters()] == ["tokens"]
    logits = 20 * unit_rows(given[0]) @ net.text.numpy().T  # prompts without tokens are what is kept
    kept = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert_allclose(torch.softmax(adversary.unchanged, dim=1).numpy(), kept, atol=1e-5)
    assert len(run.X) == 200


def test_equal_seeds_give_equal_tokens(encoder, given):
    X, s = given
    short = {**RECIPE, "epochs": 1, "tokens": 1, "encoder": encoder}
    a, b, c = (
        PromptDebiasing(**{**short, "random_state": seed}).fit(X, text=TEXT, sensitive_features=s)
        for seed in (3, 3, 4)
    )
    assert_array_equal(a.tokens_, b.tokens_)
    assert_array_equal(a.text_, b.text_)
    assert np.abs(a.tokens_ - c.tokens_).max() > 1e-6
    # Classes in a list, S read from sentences, and validation rows.
    listed = PromptDebiasing(**short).fit(
        X,
        text=list(TEXT.values()),
        classes=list(TEXT),
        sensitive_text=["photo of a man", "photo of a woman"],
        validation=(X, np.array(list(TEXT))[s], s),
    )
    read = PromptDebiasing(**short).fit(
        X,
        text=TEXT,
        sensitive_text=encoder.encode_text(["photo of a man", "photo of a woman"]),
        validation=(X, np.array(list(TEXT))[s], s),
    )
    assert_array_equal(listed.scores(X), read.scores(X))
    assert listed.diagnostics_["kept"] == "best validation worst group"


def test_bad_inputs_are_refused(encoder, given, onnx_folder):
    X, s = given

    def fit(text=TEXT, X=X, **parameters):
        return PromptDebiasing(**{"tokens": 2, "encoder": encoder, **RECIPE, **parameters}).fit(
            X, text=text, sensitive_features=s
        )

    with pytest.raises(ParameterError, match=r"give encoder=fairerclip.encoders.load\(…\), or tokens=0"):
        fit(encoder=None)
    with pytest.raises(ParameterError, match="tokens is 0: give tokens=2, or leave the encoder out"):
        fit(tokens=0)
    with pytest.raises(ParameterError, match="tokens must be"):
        fit(tokens=-1)
    with pytest.raises(EncoderError, match="has no gradients"):
        fit(encoder=load(f"onnx:{onnx_folder}"))
    for text in (np.eye(2, 64), {"a": "x", "b": 3}, {"a": "x", "b": []}, "a photo", 3):
        with pytest.raises(PromptError, match=r"give text=\{class: \[sentence, …\]\}, and not embeddings"):
            fit(text=text)
    with pytest.raises(PromptError, match="starts from class prompts: give text"):
        fit(text=None)
    with pytest.raises(EncoderError, match="at most 14 tokens"):
        fit(text={"a": "bird " * 14, "b": "man"})
    with pytest.raises(ShapeError, match="must come from the same model"):
        fit(X=X[:, :5])


@pytest.fixture(scope="module")
def task(encoder, tmp_path_factory):
    """A task of the encoder's own prompts, with rows around them that lean to S, as a file."""
    drawn, rng = simulate("waterbirds", scale=0.04, width=encoder.width), np.random.default_rng(1)
    prompts = ("a photo of a bird | bird", "a photo of water")  # as `fairerclip task` writes two prompts
    text = prototypes([encoder.encode_text(sentences.split(" | ")) for sentences in prompts]).astype("f4")
    values = encoder.encode_text(["photo of a man", "photo of a woman"])
    place = replace(drawn.sensitive_attribute(), text=values)
    splits = {
        name: replace(
            rows,
            X=(text[rows.y] + 0.5 * values[rows.s[place.name]] + 0.05 * rng.normal(size=rows.X.shape)).astype(
                "f4"
            ),
        )
        for name, rows in drawn.splits.items()
    }
    made = replace(
        drawn,
        splits=splits,
        text_target=text,
        target_prompts=prompts,
        sensitive={place.name: place},
        simulated=False,
        variants=None,
    )
    return save_task(made, tmp_path_factory.mktemp("tokens") / "task.npz")


def test_fit_learns_tokens_through_the_encoder_of_the_task(run, task, siglip_folder, tmp_path):
    model = f"transformers:{siglip_folder}"
    call = ("fit", task, "--method", "prompt-debiasing", "--max-steps", 4, "-o", tmp_path / "m")
    code, out, err = run(*call, "--encoder", model, "--json")
    assert (code, err) == (0, "")
    found, back = json.loads(out), fairerclip.load(tmp_path / "m")
    assert found["diagnostics"]["route"] == back.diagnostics_["route"] == "tokens"
    assert found["parameters"]["tokens"] == back.tokens == 2
    assert "encoder" not in found["parameters"]
    assert_allclose(back.prompts_, load_task(task).text_target, atol=1e-6)
    code, out, _ = run("audit", task, "--after", tmp_path / "m", "--json")
    assert code == 0
    assert json.loads(out)["model"]["method"] == "Prompt debiasing, learned tokens"
    code, _, _ = run(*call, "--overwrite")
    assert code == 0
    assert fairerclip.load(tmp_path / "m").diagnostics_["route"] == "embedding space"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--method", "tie"), "--encoder is for prompt-debiasing"),
        ((), "--encoder is for prompt-debiasing"),
        (("--method", "embedding"), "--encoder is for prompt-debiasing"),
    ],
)
def test_other_methods_take_no_encoder(run, task, siglip_folder, tmp_path, options, words):
    code, out, err = run(
        "fit", task, *options, "--encoder", f"transformers:{siglip_folder}", "-o", tmp_path / "m"
    )
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert not (tmp_path / "m").exists()


def test_an_encoder_that_did_not_embed_the_task_is_refused(encoder, task, clip_folder, siglip_folder):
    experiment = Experiment.of(load_task(task))
    other = load(f"transformers:{clip_folder}")
    assert other.width != encoder.width or other.provenance.weights != encoder.provenance.weights
    with pytest.raises(ProvenanceError, match="give the model that embedded"):
        fit_method("prompt-debiasing", experiment, encoder=other)
    torch.manual_seed(1)
    twin = load(f"transformers:{siglip_folder}")  # the same model with other weights
    with torch.no_grad():
        for weight in twin.towers.model.text_model.parameters():
            weight += 0.02 * torch.randn_like(weight)
    with pytest.raises(ProvenanceError, match="where 1 is expected: give the model that embedded this task"):
        fit_method("prompt-debiasing", experiment, encoder=twin)
    simulated = Experiment.of(simulate("waterbirds", scale=0.04, width=encoder.width))
    with pytest.raises(ProvenanceError, match="its embeddings come from no encoder"):
        fit_method("prompt-debiasing", simulated, encoder=encoder)
    with pytest.raises(ParameterError, match="an encoder is for prompt-debiasing"):
        fit_method("zero-shot", experiment, encoder=encoder)
