"""Fitted models inside a CLIP: mitigated embeddings in the place of the original, and classification of images."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fairerclip
from fairerclip import EmbeddingMitigator, FairerCLIP
from fairerclip.baselines import ZeroShot
from fairerclip.encoders import load
from fairerclip.errors import ExportError, ImageError, LabelError

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.slow


def mitigator(width, **parameters):
    rng = np.random.default_rng(0)
    s = rng.integers(2, size=300)
    X = rng.normal(size=(300, width)) + np.outer(2 * s - 1, np.eye(width)[0])
    return EmbeddingMitigator(**parameters).fit(X, sensitive_features=s)


def pixels(n, size):
    return torch.tensor(np.random.default_rng(1).normal(size=(n, 3, size, size)), dtype=torch.float32)


@pytest.fixture(scope="module")
def open_clip_model(open_clip_folder):
    return load(f"open_clip:{open_clip_folder}").towers.model


@pytest.fixture(scope="module")
def clip_model(clip_folder):
    return load(f"transformers:{clip_folder}").towers.model


@pytest.fixture(scope="module")
def siglip_model(siglip_folder):
    return load(f"transformers:{siglip_folder}").towers.model


@pytest.mark.parametrize("unit", [False, True])
def test_open_clip_returns_mitigated_embeddings_everywhere(open_clip_model, unit):
    clip, x = open_clip_model, pixels(3, 64)
    model = mitigator(32, unit=unit)
    wrapped, before = fairerclip.wrap(model, clip), clip.state_dict().keys()
    raw = clip.encode_image(x)
    expected = torch.tensor(model.transform(raw.numpy()))
    assert_allclose(wrapped.encode_image(x), expected, atol=1e-6)
    scaled = torch.nn.functional.normalize(expected, dim=1)
    assert_allclose(wrapped.encode_image(x, normalize=True), scaled, atol=1e-6)
    tokens = torch.randint(1, 100, (2, 77), generator=torch.Generator().manual_seed(0))
    images, texts, scale = wrapped(x, tokens)
    assert_allclose(images, scaled, atol=1e-6)
    assert torch.equal(texts, clip(x, tokens)[1])
    assert_allclose(wrapped.get_logits(x, tokens)[0], scale * images @ texts.T, atol=1e-5)
    assert_allclose(wrapped.forward_intermediates(x)["image_features"], scaled, atol=1e-6)
    # The given model is as it was.
    assert type(wrapped) is type(clip)
    assert clip.state_dict().keys() == before
    assert torch.equal(clip.encode_image(x), raw)
    assert not torch.allclose(raw, expected, atol=0.1)


@pytest.mark.parametrize(("kind", "width", "size"), [("clip_model", 32, 64), ("siglip_model", 64, 48)])
def test_transformers_returns_mitigated_embeddings_everywhere(request, kind, width, size):
    clip, model, x = request.getfixturevalue(kind), mitigator(width), pixels(3, size)
    wrapped = fairerclip.wrap(model, clip)
    raw = clip.get_image_features(pixel_values=x)
    found = wrapped.get_image_features(pixel_values=x)
    assert type(found) is type(raw)
    expected = torch.tensor(model.transform(raw.pooler_output.numpy()))
    assert_allclose(found.pooler_output, expected, atol=1e-6)
    assert torch.equal(found.last_hidden_state, raw.last_hidden_state)
    in_tuple = wrapped.get_image_features(pixel_values=x, return_dict=False)
    assert isinstance(in_tuple, tuple)
    assert torch.equal(in_tuple[1], found.pooler_output)
    ids = torch.ones(2, clip.config.text_config.max_position_embeddings, dtype=torch.long)
    both, original = wrapped(input_ids=ids, pixel_values=x), clip(input_ids=ids, pixel_values=x)
    assert_allclose(both.image_embeds, torch.nn.functional.normalize(expected, dim=1), atol=1e-6)
    assert torch.equal(both.text_embeds, original.text_embeds)
    bias = getattr(clip, "logit_bias", 0.0)
    logits = clip.logit_scale.exp() * both.image_embeds @ both.text_embeds.T + bias
    assert_allclose(both.logits_per_image, logits, atol=1e-4)
    assert type(wrapped) is type(clip)
    assert torch.equal(clip.get_image_features(pixel_values=x).pooler_output, raw.pooler_output)


# Classifiers ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def classifier():
    """A classifier of random rows of width 32."""
    rng = np.random.default_rng(0)
    y, s = rng.integers(3, size=200), rng.integers(2, size=200)
    X = rng.normal(size=(200, 32)) + np.eye(32)[y]
    model = FairerCLIP(tau=0.5, n_features=60, random_state=0, class_offsets=None, gamma=1e-3, zero_shot=0)
    return model.set_params(criterion="marginal").fit(X, np.array(["a", "b", "c"])[y], sensitive_features=s)


def test_images_are_classified_as_by_the_model(classifier, open_clip_folder, pictures, tmp_path):
    encoder = load(f"open_clip:{open_clip_folder}")
    wrapped = fairerclip.wrap(classifier, encoder)
    rows = encoder.encode_images(np.stack([encoder.preprocess(image) for image in pictures]))
    shares = classifier.predict_proba(rows)
    found = wrapped(pictures, batch_size=4)
    assert [one[0]["label"] for one in found] == classifier.predict(rows).tolist()
    for one, row in zip(found, shares, strict=True):
        assert [answer["score"] for answer in one] == pytest.approx(sorted(row, reverse=True), abs=1e-5)
        named = {answer["label"]: answer["score"] for answer in one}
        assert [named[label] for label in "abc"] == pytest.approx(row.tolist(), abs=1e-5)
    file = tmp_path / "one.png"
    pictures[0].save(file)
    assert wrapped(file) == wrapped(str(file)) == wrapped(pictures[0])
    assert wrapped([file]) == [wrapped(file)]
    assert wrapped([]) == []
    assert wrapped(pictures[0].convert("L"))[0]["label"] in "abc"


def test_a_baseline_has_the_softmax_of_its_scores(open_clip_folder, pictures):
    encoder = load(f"open_clip:{open_clip_folder}")
    text = encoder.encode_text(["a photo of a bird", "a photo of a man"])
    model = ZeroShot().fit(np.eye(32), text={"bird": text[0], "man": text[1]})
    (found,) = fairerclip.wrap(model, encoder)(pictures[:1])
    scores = model.scores(encoder.encode_images(encoder.preprocess(pictures[0])[None]))[0]
    assert found[0]["label"] == ["bird", "man"][scores.argmax()]
    assert found[0]["score"] == pytest.approx(1 / (1 + np.exp(-abs(scores[0] - scores[1]))))


def test_only_the_fitted_classes_are_taken_as_labels(classifier, open_clip_folder, open_clip_model, pictures):
    wrapped = fairerclip.wrap(classifier, load(f"open_clip:{open_clip_folder}"))
    assert wrapped(pictures[0], candidate_labels=["c", "a", "b"]) == wrapped(pictures[0])
    with pytest.raises(LabelError):
        wrapped(pictures[0], candidate_labels=["a", "b"])
    with pytest.raises(ImageError):
        wrapped(np.zeros((4, 4, 3)))
    with pytest.raises(ExportError, match="preprocess"):
        fairerclip.wrap(classifier, open_clip_model)


def test_what_cannot_be_wrapped_is_refused(open_clip_model, clip_model):
    for clip in (open_clip_model, clip_model, torch.nn.Linear(2, 2)):
        with pytest.raises(ExportError):
            fairerclip.wrap(mitigator(8), clip)
