"""Sentences with extra word vectors: they are the sentences with these words, and gradients reach the vectors alone."""

from __future__ import annotations

import json
import shutil
import threading

import numpy as np
import pytest
from sklearn.base import clone

from fairerclip.baselines import PromptDebiasing
from fairerclip.encoders import load
from fairerclip.encoders.prompt_tokens import TokenTower
from fairerclip.errors import EncoderError, ShapeError

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
SENTENCES = ["photo of a bird", "man on water"]


@pytest.fixture(scope="module")
def encoders(open_clip_folder, clip_folder, siglip_folder):
    """Encoders with a start token, through both libraries, and one without."""
    names = {"open_clip": open_clip_folder, "transformers": clip_folder}
    found = {library: load(f"{library}:{folder}") for library, folder in names.items()}
    return {**found, "siglip": load(f"transformers:{siglip_folder}")}


every = pytest.mark.parametrize("name", ["open_clip", "transformers", "siglip"])


@every
def test_words_as_tokens_give_the_sentence_with_these_words(encoders, name):
    encoder = encoders[name]
    tower = TokenTower.of(encoder)
    assert encoder.tokenizer.start == (name != "siglip")
    words = ["woman", "photo"]
    place = encoder.tokenizer.start
    ids = encoder.tokenizer.ids(words)[:, place]
    vectors = tower.words.weight[torch.from_numpy(ids)].detach().numpy()
    expected = encoder.encode_text([f"woman photo {sentence}" for sentence in SENTENCES])
    np.testing.assert_allclose(tower.embed(SENTENCES, vectors), expected, atol=1e-6)
    assert np.abs(tower.embed(SENTENCES, vectors[::-1]) - expected).max() > 1e-4
    np.testing.assert_allclose(
        tower.embed(SENTENCES, tower.fillers(2)),
        encoder.encode_text([f"a a {sentence}" for sentence in SENTENCES]),
        atol=1e-6,
    )
    np.testing.assert_array_equal(tower.embed(SENTENCES, tower.fillers(0)), encoder.encode_text(SENTENCES))


@every
def test_gradients_reach_the_tokens_alone_and_agree_with_differences(encoders, name):
    encoder = encoders[name]
    tower, before = TokenTower.of(encoder), encoder.encode_text(SENTENCES)
    state = {key: value.clone() for key, value in tower.towers.model.state_dict().items()}
    tokens = torch.nn.Parameter(torch.from_numpy(tower.fillers(2)))
    ids = tower.ids(SENTENCES, 2)
    direction = torch.randn(tokens.shape, generator=torch.Generator().manual_seed(0))
    direction /= direction.norm()
    tower.rows(ids, tokens)[:, 0].sum().backward()
    with torch.no_grad():
        step = 1e-2 * float(tower.words.weight.std())
        up, down = (float(tower.rows(ids, tokens + sign * step * direction)[:, 0].sum()) for sign in (1, -1))
    assert float((tokens.grad * direction).sum()) == pytest.approx((up - down) / (2 * step), rel=0.05)
    assert all(value.grad is None and not value.requires_grad for value in tower.towers.model.parameters())
    assert all(torch.equal(value, state[key]) for key, value in tower.towers.model.state_dict().items())
    np.testing.assert_array_equal(encoder.encode_text(SENTENCES), before)


def test_a_text_tower_in_another_module_and_another_thread(encoders, open_clip_folder, tmp_path):
    """A model of another class in open_clip has its word vectors elsewhere; other threads get plain sentences."""
    open_clip = pytest.importorskip("open_clip")
    from safetensors.torch import save_file

    config = json.loads((open_clip_folder / "open_clip_config.json").read_text())
    config["model_cfg"]["custom_text"] = True
    shutil.copytree(open_clip_folder, tmp_path / "m")
    (tmp_path / "m" / "open_clip_config.json").write_text(json.dumps(config))
    parts = {key: value for key, value in config["model_cfg"].items() if key != "custom_text"}
    torch.manual_seed(0)
    model = open_clip.CustomTextCLIP(**parts)
    save_file(model.state_dict(), tmp_path / "m" / "open_clip_model.safetensors")
    tower = TokenTower.of(load(f"open_clip:{tmp_path / 'm'}"))
    plain, found = tower.encoder.encode_text(SENTENCES), []
    with tower._replaced(torch.from_numpy(tower.fillers(2) + 1)):
        thread = threading.Thread(target=lambda: found.append(tower.encoder.encode_text(SENTENCES)))
        thread.start()
        thread.join()
        assert np.abs(tower.encoder.encode_text(SENTENCES) - plain).max() > 1e-3
    np.testing.assert_array_equal(found[0], plain)
    expected = tower.encoder.encode_text([f"a {sentence}" for sentence in SENTENCES])
    np.testing.assert_allclose(tower.embed(SENTENCES, tower.fillers(1)), expected, atol=1e-6)


def test_bad_sentences_tokens_and_encoders_are_refused(encoders, onnx_folder):
    encoder = encoders["siglip"]
    tower = TokenTower.of(encoder)
    assert tower.embed([], tower.fillers(2)).shape == (0, 64)
    fits = " ".join(["bird"] * 13)  # 13 words, the end and two tokens fill the context of 16
    assert tower.embed([fits], tower.fillers(2)).shape == (1, 64)
    with pytest.raises(EncoderError, match="at most 14 tokens, got one of 15"):
        tower.embed([fits + " bird"], tower.fillers(2))
    with pytest.raises(ShapeError, match=r"tokens must have shape \(t, 64\)"):
        tower.embed(SENTENCES, np.zeros((2, 5)))
    with pytest.raises(EncoderError, match="list of non-empty strings"):
        tower.embed(["a", ""], tower.fillers(1))
    with pytest.raises(EncoderError, match="has no gradients.*open_clip:… or transformers:…"):
        TokenTower.of(load(f"onnx:{onnx_folder}"))
    with pytest.raises(EncoderError, match=r"expected encoder= from fairerclip.encoders.load.*got str"):
        TokenTower.of("ViT-B/32")


def test_a_clone_of_a_model_has_the_same_encoder(encoders):
    model = PromptDebiasing(tokens=2, encoder=encoders["siglip"])
    assert clone(model).encoder is encoders["siglip"]
    assert clone(model).get_params() == model.get_params()
    assert len(repr(encoders["siglip"])) < 500
