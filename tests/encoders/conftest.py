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
    """A small CLIP as transformers stores it."""
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("transformers")
    size = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {**size, "vocab_size": 49408, "max_position_embeddings": 77, "projection_dim": 32}
    vision = {**size, "image_size": 64, "patch_size": 16, "projection_dim": 32}
    ends = {"eos_token_id": 49407, "bos_token_id": 49406}
    torch.manual_seed(0)
    config = library.CLIPConfig(projection_dim=32, text_config={**text, **ends}, vision_config=vision)
    folder = tmp_path_factory.mktemp("models") / "clip"
    library.CLIPModel(config).save_pretrained(folder)
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
