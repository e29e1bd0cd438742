"""Our preprocessing is the libraries' own."""

from __future__ import annotations

import numpy as np
import pytest

from fairerclip.encoders import Preprocessing
from fairerclip.errors import EncoderError

pytest.importorskip("PIL")

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("mode", ["shortest", "squash"])
@pytest.mark.parametrize(("interpolation", "size"), [("bicubic", 63), ("bilinear", 64)])
def test_equals_open_clip_exactly(pictures, mode, interpolation, size):
    transform = pytest.importorskip("open_clip.transform")
    config = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4), "interpolation": interpolation}
    theirs = transform.image_transform(size, is_train=False, resize_mode=mode, **config)
    ours = Preprocessing.from_open_clip({**config, "resize_mode": mode}, size)
    for picture in (*pictures, pictures[0].convert("L")):
        np.testing.assert_array_equal(ours.apply(picture), theirs(picture).numpy())


@pytest.mark.parametrize(
    "change",
    [
        {"std": [0.1, 0.0, 0.1]},
        {"extra": 1},
    ],
)
def test_bad_settings_are_refused(change):
    with pytest.raises(EncoderError):
        Preprocessing.from_dict(Preprocessing.openai(224).as_dict() | change)


def test_incomplete_settings_of_a_model_are_not_filled_in():
    with pytest.raises(EncoderError):
        Preprocessing.from_open_clip({"mean": [0.5] * 3, "resize_mode": "shortest"}, 224)


def test_equals_transformers(pictures):
    library = pytest.importorskip("transformers")
    for processor in (
        library.CLIPImageProcessorPil(size={"shortest_edge": 68}, crop_size={"height": 63, "width": 63}),
        library.SiglipImageProcessorPil(size={"height": 48, "width": 48}),
    ):
        ours = Preprocessing.from_transformers(processor.to_dict())
        for picture in pictures:
            theirs = processor(picture, return_tensors="np")["pixel_values"][0]
            np.testing.assert_allclose(ours.apply(picture), theirs, atol=1e-6)


def test_openai_is_that_of_open_clip_tags_and_is_read_as_written():
    library, ours = pytest.importorskip("open_clip"), Preprocessing.openai(224)
    for model in ("RN50", "ViT-L-14"):
        assert Preprocessing.from_open_clip(library.get_pretrained_cfg(model, "openai"), 224) == ours
    assert Preprocessing.from_dict(ours.as_dict()) == ours
