"""ONNX folders: written by us, run without torch, nothing outside the files."""

from __future__ import annotations

import numpy as np
import pytest
from clip_inputs import PROMPTS

from fairerclip.encoders import export_onnx, load
from fairerclip.errors import EncoderError

pytest.importorskip("torch")
pytest.importorskip("PIL")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("tokenizers")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def source(open_clip_folder):
    return load(f"open_clip:{open_clip_folder}")


def test_same_weights_through_onnx(source, onnx_folder, pictures):
    ours = load(f"onnx:{onnx_folder}")
    batch = np.stack([source.preprocess(picture) for picture in pictures])
    np.testing.assert_array_equal(batch[0], ours.preprocess(pictures[0]))
    np.testing.assert_allclose(ours.encode_images(batch), source.encode_images(batch), atol=1e-4)
    np.testing.assert_allclose(ours.encode_text(PROMPTS), source.encode_text(PROMPTS), atol=1e-4)
    np.testing.assert_array_equal(ours.encode_images(batch), ours.encode_images(batch))
    np.testing.assert_allclose(ours.encode_images(batch[:1]), ours.encode_images(batch)[:1], atol=1e-5)
    assert ours.provenance.model == source.provenance.model
    assert ours.provenance.preprocessing == source.provenance.preprocessing


@pytest.mark.parametrize("which", ["clip_folder", "siglip_folder"])
def test_transformers_models_through_onnx(which, request, pictures, tmp_path):
    pytest.importorskip("transformers")
    source = load(f"transformers:{request.getfixturevalue(which)}")
    ours = load(f"onnx:{export_onnx(source, tmp_path / 'model')}")
    batch = np.stack([source.preprocess(picture) for picture in pictures])
    prompts = ["a photo of a bird on water", "a man"]
    np.testing.assert_allclose(ours.encode_images(batch), source.encode_images(batch), atol=1e-4)
    np.testing.assert_allclose(ours.encode_text(prompts), source.encode_text(prompts), atol=1e-4)


def test_only_the_cpu_and_only_short_prompts(onnx_folder):
    with pytest.raises(EncoderError):
        load(f"onnx:{onnx_folder}", device="cuda")
    with pytest.raises(EncoderError):
        load(f"onnx:{onnx_folder}").encode_text(["bird " * 80])
