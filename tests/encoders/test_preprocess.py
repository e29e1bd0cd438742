"""Our preprocessing is the libraries' own."""

from __future__ import annotations

import numpy as np
import pytest

from fairerclip.encoders import Preprocessing
from fairerclip.errors import EncoderError, ImageError

pytest.importorskip("PIL")


@pytest.mark.parametrize("mode", ["shortest", "squash"])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("size", [64, 63, 224])
def test_equals_open_clip_exactly(pictures, mode, interpolation, size):
    transform = pytest.importorskip("open_clip.transform")
    config = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4), "interpolation": interpolation}
    theirs = transform.image_transform(size, is_train=False, resize_mode=mode, **config)
    ours = Preprocessing.from_open_clip({**config, "resize_mode": mode}, size)
    for picture in pictures:
        np.testing.assert_array_equal(ours.apply(picture), theirs(picture).numpy())
        grey = picture.convert("L")
        np.testing.assert_array_equal(ours.apply(grey), theirs(grey).numpy())


@pytest.mark.parametrize("size", [64, 63])
def test_equals_transformers_clip(pictures, size):
    library = pytest.importorskip("transformers")
    processor = library.CLIPImageProcessorPil(
        size={"shortest_edge": size + 5}, crop_size={"height": size, "width": size}
    )
    ours = Preprocessing.from_transformers(processor.to_dict())
    assert ours.output_size == (size, size)
    for picture in pictures:
        theirs = processor(picture, return_tensors="np")["pixel_values"][0]
        np.testing.assert_allclose(ours.apply(picture), theirs, atol=1e-6)


def test_equals_transformers_siglip(pictures):
    library = pytest.importorskip("transformers")
    processor = library.SiglipImageProcessorPil(size={"height": 48, "width": 48})
    ours = Preprocessing.from_transformers(processor.to_dict())
    for picture in pictures:
        theirs = processor(picture, return_tensors="np")["pixel_values"][0]
        np.testing.assert_allclose(ours.apply(picture), theirs, atol=1e-6)


def test_openai_is_that_of_open_clip_tags():
    library = pytest.importorskip("open_clip")
    for model, size in [("RN50", 224), ("ViT-B-32", 224), ("ViT-B-16", 224), ("ViT-L-14", 224)]:
        tag = library.get_pretrained_cfg(model, "openai")
        assert Preprocessing.from_open_clip(tag, size) == Preprocessing.openai(224)


def test_round_trip_and_canonical_form():
    ours = Preprocessing.openai(224)
    assert Preprocessing.from_dict(ours.as_dict()) == ours
    assert str(ours) == (
        "rgb; resize shortest 224x224 bicubic; crop 224x224 even; "
        "mean 0.48145466 0.4578275 0.40821073; std 0.26862954 0.26130258 0.27577711"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"resize": "longest"},
        {"size": [224, 200]},
        {"crop": [300, 300]},
        {"crop": None},
        {"std": [0.1, 0.0, 0.1]},
        {"mean": [float("nan")] * 3},
        {"interpolation": "cubic"},
        {"origin": "up"},
        {"size": [224.0, 224.0]},
        {"extra": 1},
    ],
)
def test_bad_settings_are_refused(change):
    with pytest.raises(EncoderError):
        Preprocessing.from_dict(Preprocessing.openai(224).as_dict() | change)


def test_incomplete_settings_of_a_model_are_not_filled_in():
    with pytest.raises(EncoderError, match="lacks std, interpolation"):
        Preprocessing.from_open_clip({"mean": [0.5] * 3, "resize_mode": "shortest"}, 224)


def test_an_image_too_narrow_to_resize_is_refused():
    image = pytest.importorskip("PIL.Image")
    with pytest.raises(ImageError, match="too narrow"):
        Preprocessing.openai(224).apply(image.new("RGB", (2, 100_000)))


@pytest.mark.parametrize("value", [10**5000, [10**5000] * 2, [[[]]], {"a": 1}], ids=range(4))
def test_a_setting_that_cannot_be_written_out_is_named(value):
    with pytest.raises(EncoderError, match="preprocessing cannot be used"):
        Preprocessing(value, "shortest", (64, 64), (0.5,) * 3, (0.5,) * 3)
