"""Encoders through three libraries: same weights, same embeddings; from disk, offline, deterministic."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from clip_inputs import PROMPTS

from fairerclip.encoders import Preprocessing, load
from fairerclip.errors import EncoderError, ShapeError

pytest.importorskip("torch")
pytest.importorskip("PIL")
from safetensors.torch import load_file, save_file

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ours(open_clip_folder):
    return load(f"open_clip:{open_clip_folder}")


@pytest.fixture(scope="module")
def batch(ours, pictures):
    return np.stack([ours.preprocess(picture) for picture in pictures])


def _unit(rows):
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert rows.dtype == np.float32


def test_open_clip_encoder_is_the_library_itself(ours, open_clip_folder, pictures, batch):
    import open_clip
    import torch

    model = open_clip.create_model(f"local-dir:{open_clip_folder}").eval()
    transform = open_clip.transform.image_transform(64, is_train=False)
    with torch.no_grad():
        images = model.encode_image(torch.stack([transform(p) for p in pictures]), normalize=True)
        texts = model.encode_text(open_clip.tokenize(PROMPTS), normalize=True)
    np.testing.assert_allclose(ours.encode_images(batch), images.numpy(), atol=1e-6)
    np.testing.assert_allclose(ours.encode_text(PROMPTS), texts.numpy(), atol=1e-6)
    assert ours.width == 32
    _unit(ours.encode_text(PROMPTS))


@pytest.mark.parametrize("which", ["clip", "siglip"])
def test_transformers_encoder_is_the_library_itself(which, request, pictures):
    library = pytest.importorskip("transformers")
    import torch

    folder = request.getfixturevalue(f"{which}_folder")
    encoder = load(f"transformers:{folder}")
    model = library.AutoModel.from_pretrained(folder).eval()
    kind, length, prompts = {
        "clip": (library.CLIPImageProcessorPil, 77, PROMPTS),
        "siglip": (library.SiglipImageProcessorPil, 16, ["a photo of a bird on water", "a man"]),
    }[which]
    tokenizer = library.AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer(prompts, padding="max_length", max_length=length, return_tensors="pt")
    pixels = kind.from_pretrained(folder)(pictures, return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        out = model(input_ids=tokens["input_ids"], pixel_values=pixels)
    batch = np.stack([encoder.preprocess(picture) for picture in pictures])
    np.testing.assert_allclose(encoder.encode_images(batch), out.image_embeds.numpy(), atol=1e-5)
    np.testing.assert_allclose(encoder.encode_text(prompts), out.text_embeds.numpy(), atol=1e-5)


def test_deterministic_and_the_same_in_any_batch(ours, batch):
    whole = ours.encode_images(batch)
    np.testing.assert_array_equal(whole, ours.encode_images(batch))
    apart = np.concatenate([ours.encode_images(one[None]) for one in batch])
    np.testing.assert_allclose(whole, apart, atol=1e-5)
    texts = ours.encode_text(PROMPTS * 60)  # more than one slice
    np.testing.assert_allclose(texts, np.tile(ours.encode_text(PROMPTS), (60, 1)), atol=1e-5)
    assert ours.encode_text([]).shape == (0, 32)


def test_preprocessing_that_cannot_be_known_is_an_error(open_clip_folder, clip_folder, tmp_path):
    folder = shutil.copytree(open_clip_folder, tmp_path / "o")
    config = json.loads((folder / "open_clip_config.json").read_text())
    del config["preprocess_cfg"]
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    with pytest.raises(EncoderError):
        load(f"open_clip:{folder}")
    given = load(f"open_clip:{folder}", preprocessing=Preprocessing.openai(64))
    assert given.provenance == load(f"open_clip:{open_clip_folder}").provenance
    other = shutil.copytree(clip_folder, tmp_path / "t")
    (other / "preprocessor_config.json").unlink()
    with pytest.raises(EncoderError):
        load(f"transformers:{other}")


def test_missing_tensors_are_not_left_random(clip_folder, open_clip_folder, tmp_path):
    for library, source, file, lost in (
        ("transformers", clip_folder, "model.safetensors", "visual_projection.weight"),
        ("open_clip", open_clip_folder, "open_clip_model.safetensors", "ln_final.weight"),
    ):
        folder = shutil.copytree(source, tmp_path / library)
        state = load_file(folder / file)
        del state[lost]
        save_file(state, folder / file, metadata={"format": "pt"})
        with pytest.raises(EncoderError, match=lost):
            load(f"{library}:{folder}")


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("ViT-B-32", None),
        ("open_clip:ViT-B-32", "nowhere"),
        ("transformers:nobody/nothing", None),
        ("onnx:" + "x" * 5000, None),
    ],
)
def test_names_that_cannot_be_used(name, weights, tmp_path, monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants")
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(EncoderError):
        load(name, weights=weights)


def test_only_safetensors_are_read(open_clip_folder, clip_folder, tmp_path, monkeypatch):
    import torch

    file = tmp_path / "weights.pt"
    file.write_bytes(b"anything")
    with pytest.raises(EncoderError, match="pickle"):
        load("ViT-B/32", weights=file)
    shutil.copy(open_clip_folder / "open_clip_config.json", tmp_path)
    (tmp_path / "open_clip_pytorch_model.bin").write_bytes(b"")
    with pytest.raises(EncoderError, match="pickle"):
        load(f"open_clip:{tmp_path}")
    other = shutil.copytree(clip_folder, tmp_path / "t")
    (other / "model.safetensors").rename(other / "pytorch_model.bin")
    with pytest.raises(EncoderError, match="pickle"):
        load(f"transformers:{other}")
    calls = []
    monkeypatch.setattr(torch, "load", lambda *args, **kwargs: calls.append(args))
    load(f"open_clip:{open_clip_folder}")
    load(f"transformers:{clip_folder}")
    assert calls == []


def test_wrong_pixels_prompts_and_shapes_are_refused(ours, batch, open_clip_folder):
    with pytest.raises(ShapeError):
        ours.encode_images(batch[:, :, :32])
    with pytest.raises(EncoderError):
        ours.encode_text("a photo")
    with pytest.raises(EncoderError, match="77"):
        ours.encode_text(["bird " * 80])
    with pytest.raises(EncoderError, match="embed_dim"):
        load("open_clip:ViT-B-32", weights=open_clip_folder)
