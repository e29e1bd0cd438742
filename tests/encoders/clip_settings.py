"""Settings of models as their files hold them, each the smallest that is taken."""

from fairerclip.encoders import Preprocessing

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
TOKENIZER = {
    "version": "1.0",
    "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
    "padding": {
        "strategy": {"Fixed": 8},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<pad>",
    },
    "added_tokens": [
        {
            "id": 0,
            "content": "<pad>",
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
    ],
    "normalizer": {
        "type": "Sequence",
        "normalizers": [
            {"type": "Lowercase"},
            {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "},
        ],
    },
    "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated", "invert": False},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "e", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"e": {"id": "e", "ids": [1], "tokens": ["e"]}},
    },
    "decoder": None,
    "model": {
        "type": "BPE",
        "dropout": None,
        "unk_token": "e",
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "vocab": {"<pad>": 0, "e": 1, "a": 2, "b": 3, "ab": 4},
        "merges": ["a b"],
    },
}
