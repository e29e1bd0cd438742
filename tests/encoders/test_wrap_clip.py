"""Fitted models inside a CLIP: mitigated embeddings in the place of the original, and classification of images."""

import copy
import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fairerclip
from fairerclip import EmbeddingMitigator, FairerCLIP
from fairerclip.baselines import ZeroShot
from fairerclip.encoders import load
from fairerclip.errors import ExportError, ImageError, LabelError, ParameterError, ShapeError

torch = pytest.importorskip("torch")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


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


def test_coca_returns_mitigated_embeddings():
    library = pytest.importorskip("open_clip")
    torch.manual_seed(0)
    small = {"layers": 1, "width": 64}
    clip = library.CoCa(
        embed_dim=32,
        vision_cfg={**small, "image_size": 32, "patch_size": 16, "head_width": 32, "attentional_pool": True}
        | {"attn_pooler_heads": 2, "output_tokens": True},
        text_cfg={**small, "heads": 2, "context_length": 16, "vocab_size": 64, "embed_cls": True}
        | {"output_tokens": True},
        multimodal_cfg={**small, "heads": 2, "context_length": 16, "vocab_size": 64},
    ).eval()
    model, x = mitigator(32), pixels(2, 32)
    wrapped = fairerclip.wrap(model, clip)
    with torch.no_grad():
        raw, found = clip.encode_image(x, normalize=False), wrapped.encode_image(x, normalize=False)
    assert_allclose(found, model.transform(raw.numpy()), atol=1e-6)


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


def test_the_pipeline_of_transformers_runs_with_a_mitigated_clip(clip_model, clip_folder, pictures):
    library = pytest.importorskip("transformers")
    model = mitigator(32)
    wrapped = copy.deepcopy(fairerclip.wrap(model, clip_model))  # a copy of the copy is one, too
    processor = library.CLIPImageProcessorPil.from_pretrained(clip_folder)
    parts = {"tokenizer": library.CLIPTokenizer.from_pretrained(clip_folder), "image_processor": processor}
    labels = ["bird", "man"]
    classify = library.pipeline("zero-shot-image-classification", model=wrapped, **parts)
    found = {one["label"]: one["score"] for one in classify(pictures[0], candidate_labels=labels)}
    pixels = processor(images=[pictures[0]], return_tensors="pt")["pixel_values"]
    prompts = [f"This is a photo of {label}." for label in labels]
    texts = clip_model.get_text_features(**parts["tokenizer"](prompts, padding=True, return_tensors="pt"))
    rows = model.transform(clip_model.get_image_features(pixel_values=pixels).pooler_output.numpy())
    cosine = torch.nn.functional.cosine_similarity(torch.tensor(rows), texts.pooler_output)
    expected = torch.softmax(clip_model.logit_scale.exp() * cosine, dim=0)
    assert [found[label] for label in labels] == pytest.approx(expected.tolist(), abs=1e-5)


def test_precision_and_device_are_those_of_the_model(open_clip_model):
    model, x = mitigator(32), pixels(2, 64)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.bfloat16, 0.05)):
        clip = copy.deepcopy(open_clip_model).to(dtype)
        raw, found = clip.encode_image(x.to(dtype)), fairerclip.wrap(model, clip).encode_image(x.to(dtype))
        assert found.dtype == dtype
        assert_allclose(found.double(), model.transform(raw.double().numpy()), atol=tolerance)
    moved = fairerclip.wrap(model, copy.deepcopy(open_clip_model)).to("meta")
    assert {tensor.device.type for tensor in moved.state_dict().values()} == {"meta"}


def test_what_cannot_be_wrapped_is_said(open_clip_model, clip_model, open_clip_folder):
    with pytest.raises(
        ExportError, match="gives embeddings of width 32, and the mitigator was fitted on rows of width 8"
    ):
        fairerclip.wrap(mitigator(8), open_clip_model)
    with pytest.raises(ExportError, match="gives embeddings of width 32"):
        fairerclip.wrap(mitigator(8), clip_model)
    with pytest.raises(ExportError, match="expected a CLIP of open_clip .* got Linear"):
        fairerclip.wrap(mitigator(8), torch.nn.Linear(2, 2))
    with pytest.raises(ExportError, match="expected a CLIP of open_clip .* got ClipEncoder"):
        fairerclip.wrap(mitigator(32), load(f"open_clip:{open_clip_folder}"))
    with pytest.raises(ExportError, match="leave preprocess out"):
        fairerclip.wrap(mitigator(32), open_clip_model, print)
    patched = copy.deepcopy(open_clip_model)
    patched.forward = patched.forward
    with pytest.raises(ExportError, match="forward of this CLIP was replaced"):
        fairerclip.wrap(mitigator(32), patched)
    with pytest.raises(ExportError, match="expected a fitted model"):
        fairerclip.wrap(clip_model, clip_model)


class Delegating(torch.nn.Module):
    """A wrapper that has the attributes of the model inside it."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)


def test_a_clip_takes_one_mitigator_and_a_wrapper_around_a_clip_none(open_clip_model, clip_model):
    for clip in (open_clip_model, clip_model):
        with pytest.raises(ExportError, match="has a mitigator already"):
            fairerclip.wrap(mitigator(32), fairerclip.wrap(mitigator(32), clip))
        with pytest.raises(ExportError, match="expected a CLIP of open_clip .* got Delegating"):
            fairerclip.wrap(mitigator(32), Delegating(clip))


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


def test_every_library_gives_the_same_answers(
    classifier, open_clip_folder, open_clip_model, clip_model, clip_folder, pictures
):
    library = pytest.importorskip("transformers")
    encoder = load(f"open_clip:{open_clip_folder}")
    true = fairerclip.wrap(classifier, encoder)(pictures)
    ours = fairerclip.wrap(classifier, open_clip_model, lambda image: torch.tensor(encoder.preprocess(image)))
    processor = library.CLIPImageProcessorPil.from_pretrained(clip_folder)
    theirs = fairerclip.wrap(classifier, clip_model, processor)
    for found in (ours(pictures), theirs(pictures)):
        for one, expected in zip(found, true, strict=True):
            assert [answer["label"] for answer in one] == [answer["label"] for answer in expected]
            assert_allclose([a["score"] for a in one], [a["score"] for a in expected], atol=0.02)


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
    for labels in (["a", "b"], ["a", "b", "d"], "abc"):
        with pytest.raises(LabelError, match="must be the classes that the model was fitted on"):
            wrapped(pictures[0], candidate_labels=labels)
    with pytest.raises(ParameterError, match="batch_size"):
        wrapped(pictures[0], batch_size=0)
    with pytest.raises(ImageError, match="no such file"):
        wrapped("http://localhost/image.png")
    with pytest.raises(ImageError, match="expected a Pillow image or the path of a file; got ndarray"):
        wrapped(np.zeros((4, 4, 3)))
    with pytest.raises(ExportError, match="give the transform of open_clip as preprocess="):
        fairerclip.wrap(classifier, open_clip_model)
    with pytest.raises(ExportError, match="has its own preprocessing"):
        fairerclip.wrap(classifier, load(f"open_clip:{open_clip_folder}"), print)
    with pytest.raises(ExportError, match="expected an encoder .* got Linear"):
        fairerclip.wrap(classifier, torch.nn.Linear(2, 2), print)


def test_another_width_is_an_error(classifier, siglip_folder, pictures):
    with pytest.raises(
        ShapeError, match="gives embeddings of width 64, and the model was fitted on rows of width 32"
    ):
        fairerclip.wrap(classifier, load(f"transformers:{siglip_folder}"))(pictures[0])


# Examples -------------------------------------------------------------------------------------------


def test_the_example_of_a_mitigated_clip_ranks_with_less_dependence(capsys):
    pytest.importorskip("open_clip")
    clip, fairer, x = runpy.run_path(str(EXAMPLES / "mitigated_clip.py"))["main"]()
    before, after = (
        np.array(json.loads(line.rpartition(": ")[2])) for line in capsys.readouterr().out.splitlines()
    )
    assert type(fairer) is type(clip)
    assert abs(after - 0.5).max() < abs(before - 0.5).max()
    assert x.shape[0] == 200


def test_the_example_of_a_classifier_tells_the_classes_apart(capsys):
    pytest.importorskip("transformers")
    classifier, new, found = runpy.run_path(str(EXAMPLES / "zero_shot_classifier.py"))["main"]()
    assert found[0][0]["label"] == classifier(new[0])[0]["label"]
    assert int(capsys.readouterr().out.splitlines()[-1].partition("%")[0]) >= 80
