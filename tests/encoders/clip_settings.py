"""Settings of models as their files hold them, each the smallest that is taken."""

import json

import pytest

from fairerclip.encoders import Preprocessing

tokenizers = pytest.importorskip("tokenizers")

OPENAI = Preprocessing.openai(64).as_dict()
OPEN_CLIP = {
    "model_cfg": {
        "embed_dim": 8,
        "quick_gelu": True,
        "vision_cfg": {"image_size": 32, "layers": 1, "width": 8, "patch_size": 16, "head_width": 4},
        "text_cfg": {
            "context_length": 8,
            "vocab_size": 49408,
            "width": 8,
            "heads": 2,
            "layers": 1,
            "tokenizer_kwargs": {"clean": "lower"},
            "norm_kwargs": {"eps": 1e-6},
        },
    },
    "preprocess_cfg": {
        "size": [32, 32],
        "mean": [0.5, 0.5, 0.5],
        "std": [0.5, 0.5, 0.5],
        "interpolation": "bicubic",
        "resize_mode": "shortest",
    },
}
TOWER = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
CLIP = {
    "model_type": "clip",
    "projection_dim": 8,
    "architectures": ["CLIPModel"],
    "text_config": {**TOWER, "vocab_size": 16, "max_position_embeddings": 8, "hidden_act": "gelu"},
    "vision_config": {**TOWER, "image_size": 32, "patch_size": 16},
}
PROCESSOR = {
    "image_processor_type": "CLIPImageProcessor",
    "size": {"shortest_edge": 32},
    "crop_size": {"height": 32, "width": 32},
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "resample": 3,
    "do_resize": True,
    "rescale_factor": 1 / 255,
}
MANIFEST = {"format_version": 1, "model": "m", "width": 8, "context": 8, "pad_id": 0, "preprocessing": OPENAI}


def _tokenizer():
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            vocab={"<pad>": 0, "e": 1, "a": 2, "b": 3, "ab": 4},
            merges=[("a", "b")],
            unk_token="e",  # noqa: S106
        )
    )
    spaces = tokenizers.normalizers.Replace(tokenizers.Regex("\\s+"), " ")
    made.normalizer = tokenizers.normalizers.Sequence([tokenizers.normalizers.Lowercase(), spaces])
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split(" ", "isolated")
    made.post_processor = tokenizers.processors.TemplateProcessing(single="$A e", special_tokens=[("e", 1)])
    made.add_special_tokens(["<pad>"])
    made.enable_truncation(4)
    made.enable_padding(length=8, pad_id=0, pad_token="<pad>")  # noqa: S106
    return json.loads(made.to_str())


TOKENIZER = _tokenizer()
