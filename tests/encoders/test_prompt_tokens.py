"""Sentences with extra word vectors: they are the sentences with these words, and gradients reach the vectors alone."""

from __future__ import annotations

import numpy as np
import pytest

from fairerclip.encoders import load
from fairerclip.encoders.prompt_tokens import TokenTower
from fairerclip.errors import EncoderError, ShapeError

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = pytest.mark.slow
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


def test_bad_sentences_tokens_and_encoders_are_refused(encoders, onnx_folder):
    tower = TokenTower.of(encoders["siglip"])
    fits = " ".join(["bird"] * 13)  # 13 words, the end and two tokens fill the context of 16
    assert tower.embed([fits], tower.fillers(2)).shape == (1, 64)
    with pytest.raises(EncoderError):
        tower.embed([fits + " bird"], tower.fillers(2))
    with pytest.raises(ShapeError):
        tower.embed(SENTENCES, np.zeros((2, 5)))
    with pytest.raises(EncoderError):
        TokenTower.of(load(f"onnx:{onnx_folder}"))
