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


def test_same_weights_through_transformers(ours, clip_folder, batch):
    pytest.importorskip("transformers")
    theirs = load(f"transformers:{clip_folder}")
    np.testing.assert_allclose(theirs.encode_images(batch), ours.encode_images(batch), atol=1e-4)
    np.testing.assert_allclose(theirs.encode_text(PROMPTS), ours.encode_text(PROMPTS), atol=1e-4)
    assert theirs.provenance.weights != ours.provenance.weights  # other files, other names of tensors
    assert "floor" in theirs.provenance.preprocessing
    assert theirs.provenance.library.startswith("transformers ")


def test_transformers_encoder_is_the_library_itself(clip_folder, pictures):
    library = pytest.importorskip("transformers")
    import torch

    encoder = load(f"transformers:{clip_folder}")
    model = library.CLIPModel.from_pretrained(clip_folder).eval()
    processor = library.CLIPImageProcessorPil.from_pretrained(clip_folder)
    tokens = library.AutoTokenizer.from_pretrained(clip_folder)(PROMPTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        out = model(**tokens, pixel_values=processor(pictures, return_tensors="pt")["pixel_values"])
    batch = np.stack([encoder.preprocess(picture) for picture in pictures])
    np.testing.assert_allclose(encoder.encode_images(batch), out.image_embeds.numpy(), atol=1e-5)
    np.testing.assert_allclose(encoder.encode_text(PROMPTS), out.text_embeds.numpy(), atol=1e-5)


def test_siglip_through_transformers(siglip_folder, pictures):
    library = pytest.importorskip("transformers")
    import torch

    encoder = load(f"transformers:{siglip_folder}")
    prompts = ["a photo of a bird on water", "a man"]
    model = library.SiglipModel.from_pretrained(siglip_folder).eval()
    processor = library.SiglipImageProcessorPil.from_pretrained(siglip_folder)
    tokens = library.AutoTokenizer.from_pretrained(siglip_folder)(
        prompts, padding="max_length", max_length=16, return_tensors="pt"
    )
    with torch.no_grad():
        out = model(
            input_ids=tokens["input_ids"],
            pixel_values=processor(pictures, return_tensors="pt")["pixel_values"],
        )
    batch = np.stack([encoder.preprocess(picture) for picture in pictures])
    np.testing.assert_allclose(encoder.encode_images(batch), out.image_embeds.numpy(), atol=1e-5)
    np.testing.assert_allclose(encoder.encode_text(prompts), out.text_embeds.numpy(), atol=1e-5)
    assert encoder.provenance.model == "siglip-64x2-p16-48"


def test_deterministic_and_the_same_in_any_batch(ours, batch):
    whole = ours.encode_images(batch)
    np.testing.assert_array_equal(whole, ours.encode_images(batch))
    apart = np.concatenate([ours.encode_images(one[None]) for one in batch])
    np.testing.assert_allclose(whole, apart, atol=1e-5)
    texts = ours.encode_text(PROMPTS * 60)  # more than one slice
    np.testing.assert_allclose(texts, np.tile(ours.encode_text(PROMPTS), (60, 1)), atol=1e-5)
    assert ours.encode_text([]).shape == (0, 32)


def test_loading_twice_gives_the_same_encoder_and_provenance(ours, open_clip_folder, batch):
    again = load(f"open_clip:{open_clip_folder}")
    assert again.provenance == ours.provenance
    assert len(again.provenance.weights) == 64
    np.testing.assert_array_equal(again.encode_images(batch), ours.encode_images(batch))
    assert not any(p.requires_grad for p in again.towers.model.parameters())
    assert not again.towers.model.training


def test_no_pickle_is_read(open_clip_folder, clip_folder, monkeypatch):
    import torch

    calls = []
    monkeypatch.setattr(torch, "load", lambda *args, **kwargs: calls.append(args))
    load(f"open_clip:{open_clip_folder}")
    load(f"transformers:{clip_folder}")
    assert calls == []


@pytest.mark.parametrize("ending", [".pt", ".bin", ".pth"])
def test_a_pickle_says_how_to_convert_it(tmp_path, ending):
    file = tmp_path / f"weights{ending}"
    file.write_bytes(b"anything")
    with pytest.raises(EncoderError, match="pickle.*convert it once.*docs/how-to/encoders.md"):
        load("ViT-B/32", weights=file)


def test_a_folder_with_pickles_only_is_refused(open_clip_folder, clip_folder, tmp_path):
    shutil.copy(open_clip_folder / "open_clip_config.json", tmp_path)
    (tmp_path / "open_clip_pytorch_model.bin").write_bytes(b"")
    with pytest.raises(EncoderError, match="pickle"):
        load(f"open_clip:{tmp_path}")
    shutil.copy(open_clip_folder / "open_clip_model.safetensors", tmp_path / "model.safetensors")
    with pytest.raises(EncoderError, match="must hold open_clip_model.safetensors"):
        load(f"open_clip:{tmp_path}")  # open_clip itself would choose the .bin
    other = shutil.copytree(clip_folder, tmp_path / "t")
    (other / "model.safetensors").rename(other / "pytorch_model.bin")
    with pytest.raises(EncoderError, match="pickle"):
        load(f"transformers:{other}")


def test_preprocessing_that_cannot_be_known_is_an_error(open_clip_folder, clip_folder, tmp_path):
    folder = shutil.copytree(open_clip_folder, tmp_path / "o")
    config = json.loads((folder / "open_clip_config.json").read_text())
    del config["preprocess_cfg"]
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    with pytest.raises(EncoderError, match="the preprocessing of images for .* is unknown.*preprocessing="):
        load(f"open_clip:{folder}")
    given = load(f"open_clip:{folder}", preprocessing=Preprocessing.openai(64))
    assert given.provenance == load(f"open_clip:{open_clip_folder}").provenance
    other = shutil.copytree(clip_folder, tmp_path / "t")
    (other / "preprocessor_config.json").unlink()
    with pytest.raises(EncoderError, match="images is unknown: expected preprocessor_config.json in"):
        load(f"transformers:{other}")


def test_missing_tensors_are_not_left_random(clip_folder, open_clip_folder, tmp_path):
    from safetensors.torch import load_file, save_file

    other = shutil.copytree(clip_folder, tmp_path / "t")
    state = load_file(other / "model.safetensors")
    del state["visual_projection.weight"]
    save_file(state, other / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(EncoderError, match="lack 1 tensors, such as visual_projection.weight"):
        load(f"transformers:{other}")
    folder = shutil.copytree(open_clip_folder, tmp_path / "o")
    state = load_file(folder / "open_clip_model.safetensors")
    del state["ln_final.weight"]
    save_file(state, folder / "open_clip_model.safetensors")
    with pytest.raises(EncoderError, match="ln_final.weight"):
        load(f"open_clip:{folder}")


def test_a_damaged_file_is_one_clear_error(open_clip_folder, tmp_path):
    folder = shutil.copytree(open_clip_folder, tmp_path / "o")
    (folder / "open_clip_model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(EncoderError, match="expected a header"):
        load(f"open_clip:{folder}")


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        ("ViT-B-32", None, "none of RN50"),
        ("open_clip:", None, "none of RN50"),
        ("clip:x", None, "none of RN50"),
        ("open_clip:ViT-X", None, "neither an architecture"),
        ("open_clip:ViT-B-32", None, "needs weights=.*known tags: openai"),
        ("open_clip:ViT-B-32", "nowhere", "neither a path nor a known tag"),
        ("transformers:nobody/nothing", None, "download=True"),
        ("transformers:/nowhere/at/all", None, "neither a folder nor"),
        ("ViT-B/16", None, "not in the local cache.*hf download.*download=True"),
        ("onnx:/nowhere", None, "lacks image.onnx"),
        ("open_clip:" + "x" * 5000, None, "neither an architecture"),
        ("open_clip:ViT-B-32", "x" * 5000, "neither a path nor a known tag"),
        ("transformers:a/b\0", None, "neither a folder nor"),
        ("onnx:" + "x" * 5000, None, "lacks image.onnx"),
        ("onnx:/nowhere", "x", "leave weights='x' out"),
    ],
)
def test_names_that_cannot_be_used(name, weights, message, tmp_path, monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants")
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(EncoderError, match=message):
        load(name, weights=weights)


def test_the_hub_switch_is_put_back(open_clip_folder):
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    load(f"open_clip:{open_clip_folder}")
    assert constants.HF_HUB_OFFLINE is before


def test_a_torchvision_that_does_not_fit_is_said(monkeypatch):
    import fairerclip._util.extras

    def broken(wanted):
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(fairerclip._util.extras, "import_module", broken)
    with pytest.raises(EncoderError, match="cannot be imported.*torchvision that belongs to torch"):
        load("ViT-B/32")


def test_wrong_pixels_and_prompts_are_refused(ours, batch):
    with pytest.raises(ShapeError, match=r"\(b, 3, 64, 64\)"):
        ours.encode_images(batch[:, :, :32])
    with pytest.raises(ShapeError, match="float64"):
        ours.encode_images(batch.astype(np.float64))
    with pytest.raises(EncoderError, match="list of non-empty strings"):
        ours.encode_text("a photo")
    with pytest.raises(EncoderError, match="at most 77 tokens, got one of 82"):
        ours.encode_text(["bird " * 80])
    with pytest.raises(EncoderError, match="non-empty"):
        ours.encode_text([" "])


@pytest.mark.parametrize("device", ["nonsense", "meta2", "xla"])
def test_a_device_that_is_not_there_is_refused(open_clip_folder, clip_folder, device):
    for name in (f"open_clip:{open_clip_folder}", f"transformers:{clip_folder}"):
        with pytest.raises(EncoderError, match="cannot compute on device"):
            load(name, device=device)


def test_another_shape_than_the_name_says_is_refused(open_clip_folder):
    with pytest.raises(EncoderError, match="embed_dim = 32 and ViT-B-32 has 512"):
        load("open_clip:ViT-B-32", weights=open_clip_folder)


def test_a_model_of_another_kind_is_refused(clip_folder, tmp_path):
    other = shutil.copytree(clip_folder, tmp_path / "t")
    config = json.loads((other / "config.json").read_text()) | {"model_type": "bert"}
    (other / "config.json").write_text(json.dumps(config))
    with pytest.raises(EncoderError, match="type 'bert'; expected one of clip, siglip"):
        load(f"transformers:{other}")


def test_a_text_tower_of_transformers_is_the_library_itself(
    open_clip_folder, clip_folder, tmp_path, monkeypatch
):
    """Its shape is that of the repository in the cache, its weights and its tokenizer are those of the folder."""
    import open_clip
    import torch
    import transformers
    from huggingface_hub import constants
    from safetensors.torch import save_file

    snapshot = tmp_path / "hub" / "models--roberta-base" / "snapshots" / ("0" * 40)
    transformers.RobertaConfig(
        vocab_size=49408, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    ).save_pretrained(snapshot)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    folder = shutil.copytree(clip_folder, tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((open_clip_folder / "open_clip_config.json").read_text())
    config["model_cfg"]["text_cfg"] = {
        "hf_model_name": "roberta-base",
        "hf_tokenizer_name": "roberta-base",
        "hf_proj_type": "mlp",
        "hf_pooler_type": "mean_pooler",
        "context_length": 20,
    }
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    torch.manual_seed(0)
    text = config["model_cfg"]["text_cfg"] | {"hf_model_pretrained": False}
    model = open_clip.CustomTextCLIP(**config["model_cfg"] | {"text_cfg": text}).eval()
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    ours = load(f"open_clip:{folder}")
    with torch.no_grad():
        tokens = open_clip.get_tokenizer(f"local-dir:{folder}")(PROMPTS)
        theirs = model.encode_text(tokens, normalize=True).numpy()
    np.testing.assert_allclose(ours.encode_text(PROMPTS), theirs, atol=1e-6)


def test_a_model_that_also_writes_captions_is_the_library_itself(open_clip_folder, tmp_path):
    import open_clip
    import torch
    from safetensors.torch import save_file

    config = json.loads((open_clip_folder / "open_clip_config.json").read_text())
    text = {"context_length": 76, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 1}
    config["model_cfg"] |= {
        "custom_text": True,
        "text_cfg": text | {"embed_cls": True, "output_tokens": True},
        "multimodal_cfg": text | {"attn_pooler_heads": 2, "dim_head": 64, "n_queries": 4},
    }
    vision = {
        "attentional_pool": True,
        "attn_pooler_heads": 2,
        "attn_pooler_queries": 4,
        "output_tokens": True,
    }
    config["model_cfg"]["vision_cfg"] |= vision
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    parts = {key: value for key, value in config["model_cfg"].items() if key != "custom_text"}
    torch.manual_seed(0)
    model = open_clip.CoCa(**parts).eval()
    save_file({k: v.clone() for k, v in model.state_dict().items()}, tmp_path / "open_clip_model.safetensors")
    ours = load(f"open_clip:{tmp_path}")
    pixels = np.random.default_rng(0).normal(size=(2, 3, 64, 64)).astype(np.float32)
    with torch.no_grad():
        images = model.encode_image(torch.from_numpy(pixels)).numpy()
        texts = model.encode_text(open_clip.tokenize(PROMPTS, context_length=76)).numpy()
    np.testing.assert_allclose(ours.encode_images(pixels), images, atol=1e-6)
    np.testing.assert_allclose(ours.encode_text(PROMPTS), texts, atol=1e-6)


def test_an_architecture_keeps_its_activation_where_the_tag_does_not_say_it(open_clip_folder):
    """As laion2b_s12b_b32k of roberta-ViT-B-32."""
    import open_clip

    from fairerclip.encoders import open_clip as loader

    config = json.loads((open_clip_folder / "open_clip_config.json").read_text())["model_cfg"]
    source = loader._Source("x", config, None, open_clip_folder / "open_clip_model.safetensors", {}, False)
    model = loader._build(open_clip, source, quick_gelu=False)
    assert config["quick_gelu"]
    assert any(type(module).__name__ == "QuickGELU" for module in model.modules())
