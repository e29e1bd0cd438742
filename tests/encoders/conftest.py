"""Small CLIP models at random initialisation, saved and loaded as users would."""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
import pytest

MODEL_CFG = {
    "embed_dim": 32,
    "quick_gelu": True,
    "vision_cfg": {"image_size": 64, "layers": 2, "width": 64, "patch_size": 16, "head_width": 32},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 2},
}
PREPROCESS_CFG = {
    "mean": [0.48145466, 0.4578275, 0.40821073],
    "std": [0.26862954, 0.26130258, 0.27577711],
    "interpolation": "bicubic",
    "resize_mode": "shortest",
}


def _shim():
    """Let a torchvision whose compiled operators do not fit this torch be imported."""
    try:
        import torch
    except ImportError:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import torchvision  # noqa: F401
    except ImportError:
        return None
    except RuntimeError:
        for name in [n for n in sys.modules if n.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for op in ("nms", "qnms"):
            library.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return library
    return None


SHIM = _shim()


@pytest.fixture(scope="session")
def pictures():
    """Pillow images of awkward sizes."""
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    sizes = [(500, 375), (375, 501), (64, 64), (63, 65), (640, 67), (90, 333)]
    return [
        image.fromarray(rng.integers(256, size=(9, 11, 3), dtype=np.uint8)).resize(size) for size in sizes
    ]


@pytest.fixture(scope="session")
def open_clip_folder(tmp_path_factory):
    """A small CLIP as open_clip stores it: config and safetensors."""
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("open_clip")
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("models") / "open_clip"
    folder.mkdir()
    torch.manual_seed(0)
    model = library.CLIP(**MODEL_CFG)
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    config = {"model_cfg": MODEL_CFG, "preprocess_cfg": PREPROCESS_CFG}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    return folder


def _to_transformers(state):
    """open_clip's names to those of transformers' CLIPModel."""
    out = {}
    whole = {
        "visual.class_embedding": "vision_model.embeddings.class_embedding",
        "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
        "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
        "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
        "positional_embedding": "text_model.embeddings.position_embedding.weight",
        "logit_scale": "logit_scale",
    }
    parts = {
        "visual.ln_pre": "vision_model.pre_layrnorm",
        "visual.ln_post": "vision_model.post_layernorm",
        "ln_final": "text_model.final_layer_norm",
        "visual.transformer.resblocks": "vision_model.encoder.layers",
        "transformer.resblocks": "text_model.encoder.layers",
        "ln_1": "layer_norm1",
        "ln_2": "layer_norm2",
        "mlp.c_fc": "mlp.fc1",
        "mlp.c_proj": "mlp.fc2",
        "attn": "self_attn",
    }
    for name, value in state.items():
        if name in whole:
            out[whole[name]] = value
        elif name in ("visual.proj", "text_projection"):
            key = "visual_projection" if name.startswith("visual") else "text_projection"
            out[f"{key}.weight"] = value.T.contiguous()
        elif ".in_proj_" in name:
            stem, kind = name.split(".in_proj_")
            for old, new in parts.items():
                stem = (
                    stem.replace(old, new) if old != "transformer.resblocks" or "vision" not in stem else stem
                )
            for letter, part in zip("qkv", value.chunk(3), strict=True):
                out[f"{stem}.{letter}_proj.{kind}"] = part.contiguous()
        else:
            for old, new in parts.items():
                name = (
                    name.replace(old, new) if old != "transformer.resblocks" or "vision" not in name else name
                )
            out[name] = value
    return out


def clip_tokenizer():
    """transformers' CLIP tokenizer with open_clip's vocabulary."""
    from open_clip.tokenizer import SimpleTokenizer
    from transformers import CLIPTokenizer

    simple = SimpleTokenizer()
    vocab = dict(simple.encoder)
    vocab["<|startoftext|>"] = vocab.pop("<start_of_text>")
    vocab["<|endoftext|>"] = vocab.pop("<end_of_text>")
    merges = sorted(simple.bpe_ranks, key=simple.bpe_ranks.get)
    return CLIPTokenizer(vocab=vocab, merges=merges)


@pytest.fixture(scope="session")
def clip_folder(open_clip_folder, tmp_path_factory):
    """The same weights as transformers stores them."""
    library = pytest.importorskip("transformers")
    from safetensors.torch import load_file

    config = library.CLIPConfig(
        projection_dim=32,
        text_config={
            "vocab_size": 49408,
            "hidden_size": 64,
            "intermediate_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "max_position_embeddings": 77,
            "projection_dim": 32,
            "eos_token_id": 49407,
            "bos_token_id": 49406,
        },
        vision_config={
            "hidden_size": 64,
            "intermediate_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 64,
            "patch_size": 16,
            "projection_dim": 32,
        },
    )
    model = library.CLIPModel(config)
    state = _to_transformers(load_file(open_clip_folder / "open_clip_model.safetensors"))
    found = model.load_state_dict(state, strict=False)
    assert not found.unexpected_keys
    assert all(key.endswith("position_ids") for key in found.missing_keys)
    folder = tmp_path_factory.mktemp("models") / "clip"
    model.save_pretrained(folder)
    clip_tokenizer().save_pretrained(folder)
    processor = library.CLIPImageProcessorPil(
        size={"shortest_edge": 64}, crop_size={"height": 64, "width": 64}
    )
    processor.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def siglip_folder(tmp_path_factory):
    """A small SigLIP with a small word-level tokenizer."""
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    torch.manual_seed(0)
    shape = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    config = library.SiglipConfig(
        text_config={**shape, "vocab_size": 64, "max_position_embeddings": 16, "projection_size": 64},
        vision_config={**shape, "image_size": 48, "patch_size": 16},
    )
    folder = tmp_path_factory.mktemp("models") / "siglip"
    library.SiglipModel(config).save_pretrained(folder)
    words = ["<pad>", "</s>", "<unk>", "a", "photo", "of", "man", "woman", "bird", "on", "water"]
    raw = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token=words[2])
    )
    raw.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    raw.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    library.PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token=words[0], eos_token=words[1], unk_token=words[2]
    ).save_pretrained(folder)
    library.SiglipImageProcessorPil(size={"height": 48, "width": 48}).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def onnx_folder(open_clip_folder, tmp_path_factory):
    """The open_clip model as an ONNX folder."""
    for name in ("onnx", "onnxruntime", "tokenizers"):
        pytest.importorskip(name)
    from fairerclip.encoders import export_onnx, load

    return export_onnx(load(f"open_clip:{open_clip_folder}"), tmp_path_factory.mktemp("onnx") / "model")
