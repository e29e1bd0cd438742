"""Rules for model configurations: the known keys, with the type and range of each value.

A configuration comes from an untrusted folder, and the libraries that read it run the Python files, fetch the
repositories and allocate the sizes that it names. So only the keys listed here are passed to a library. A key that is
neither used nor known to be harmless is an error that names it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from fairerclip.errors import EncoderError

MAX_LAYERS = 200
MAX_WIDTH = 65_536
MAX_VOCABULARY = 4_000_000
MAX_CONTEXT = 4096
MAX_IMAGE_EDGE = 4096


@dataclass(frozen=True)
class Rule:
    """Requirement on a value: a description for messages, and a test."""

    expected: str
    holds: Callable[[Any], bool]

    def __or__(self, other: Rule) -> Rule:
        return Rule(
            f"{self.expected} or {other.expected}", lambda value: self.holds(value) or other.holds(value)
        )


Rules = Mapping[str, "Rule | Rules"]


def is_whole(value: Any) -> TypeGuard[int]:
    """Return whether the value is an integer; True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Return whether the value is a finite number within the range of floats.

    Examples
    --------
    >>> is_number(0.5), is_number(True), is_number(10**400), is_number(float("nan"))
    (True, False, False, False)
    """
    try:
        return (is_whole(value) or isinstance(value, float)) and math.isfinite(value)
    except OverflowError:
        return False


def _whole(low: int, high: int) -> Rule:
    return Rule(f"an integer from {low} to {high}", lambda v: is_whole(v) and low <= v <= high)


def _real(low: float, high: float) -> Rule:
    return Rule(f"a number from {low} to {high}", lambda v: is_number(v) and low <= v <= high)


def _one_of(*values: Any) -> Rule:
    # The type is compared as well: 1 == True.
    words = "null" if values == (None,) else f"one of {', '.join(map(repr, values))}"
    return Rule(words, lambda v: any(type(v) is type(a) and v == a for a in values))


def _list_of(rule: Rule, length: int | None = None) -> Rule:
    return Rule(
        f"a list of {'' if length is None else f'{length} times '}{rule.expected}",
        lambda v: isinstance(v, list | tuple) and len(v) == (length or len(v)) and all(map(rule.holds, v)),
    )


def _matching(pattern: str, words: str) -> Rule:
    compiled = re.compile(pattern)
    return Rule(words, lambda v: isinstance(v, str) and compiled.fullmatch(v) is not None)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FLAG = _one_of(True, False)
_NULL = _one_of(None)
_WIDTH = _whole(1, MAX_WIDTH)
_LAYERS = _whole(0, MAX_LAYERS)
_HEADS = _whole(1, 1024)
_TOKEN = _whole(-1, MAX_VOCABULARY)
_VOCABULARY = _whole(1, MAX_VOCABULARY)
_CONTEXT = _whole(1, MAX_CONTEXT)
_EDGE = _whole(1, MAX_IMAGE_EDGE)
_SIZE = _EDGE | _list_of(_EDGE, 2)
_SHARE = _real(0, 1)
_RATIO = _real(0, 100)
_SCALE = _real(-1000, 1000)
_CHANNELS = _list_of(_real(-1000, 1000), 3)
_CLEAN = _one_of("canonicalize", "lower", "whitespace")

_BLOCK: Rules = {
    "width": _WIDTH,
    "mlp_ratio": _RATIO,
    "ls_init_value": _SHARE | _NULL,
    "final_ln_after_pool": _FLAG,
    "output_tokens": _FLAG,
    "act_kwargs": _NULL | Rule('{"approximate": "tanh"}', lambda v: v == {"approximate": "tanh"}),
    "norm_kwargs": _NULL
    | Rule(
        '{"eps": a number}', lambda v: isinstance(v, dict) and set(v) == {"eps"} and _SHARE.holds(v["eps"])
    ),
    "block_type": _one_of("default", "custom", None),
    "qk_norm": _FLAG,
    "scaled_cosine_attn": _FLAG,
    "scale_heads": _FLAG,
    "scale_attn_inner": _FLAG,
    "scale_attn": _FLAG,
    "scale_fc": _FLAG,
}
_TEXT_MODELS = (
    "roberta-base",
    "xlm-roberta-base",
    "xlm-roberta-large",
    "google/mt5-base",
    "google/mt5-xl",
    "facebook/nllb-200-distilled-600M",
    "facebook/nllb-200-distilled-1.3B",
    "microsoft/BiomedNLP-PubMedBERT-base-uncased-abstract",
    "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract",
)
"""Hub names of the text models that published open_clip models use; others could bring a configuration of their own."""

OPEN_CLIP: Rules = {
    "model_cfg": {
        "embed_dim": _WIDTH,
        "quick_gelu": _FLAG,
        "custom_text": _FLAG,
        "init_logit_scale": _SCALE,
        "init_logit_bias": _SCALE | _NULL,
        "nonscalar_logit_scale": _FLAG,
        "vision_cfg": {
            **_BLOCK,
            "layers": _LAYERS | _list_of(_LAYERS, 4),
            "head_width": _WIDTH,
            "patch_size": _EDGE | _NULL,
            "image_size": _SIZE,
            "patch_dropout": _SHARE,
            "attentional_pool": _one_of(True, False, "parallel", "cascade"),
            "attn_pooler_queries": _whole(1, 4096),
            "attn_pooler_heads": _HEADS,
            "no_ln_pre": _FLAG,
            "pos_embed_type": _one_of("learnable", "sin_cos_2d"),
            "pool_type": _one_of("tok", "avg", "none"),
            # No colon and no slash: timm would load from the place that follows local-dir: or hf-hub:.
            "timm_model_name": _matching(r"[a-z0-9_]+(\.[a-z0-9_]+)?", "the name of an architecture of timm")
            | _NULL,
            "timm_model_pretrained": _FLAG,
            "timm_pool": _one_of("avg", "token", "map", "abs_attn", "rot_attn", ""),
            "timm_proj": _one_of("linear", "mlp", "none", "", None),
            "timm_proj_bias": _FLAG,
            "timm_drop": _SHARE,
            "timm_drop_path": _SHARE | _NULL,
        },
        "text_cfg": {
            **_BLOCK,
            "context_length": _CONTEXT,
            "vocab_size": _VOCABULARY,
            "hf_tokenizer_name": _matching(r"[\w./-]{0,200}", "the name of a repository") | _NULL,
            "tokenizer_mode": _NULL,
            "tokenizer_kwargs": {"clean": _CLEAN, "strip_sep_token": _FLAG},
            "heads": _HEADS,
            "layers": _LAYERS,
            "embed_cls": _FLAG,
            "pad_id": _TOKEN,
            "eos_id": _TOKEN,
            "no_causal_mask": _FLAG,
            "pool_type": _one_of("first", "last", "argmax", "eos", "none"),
            "proj_bias": _FLAG,
            "proj_type": _one_of("linear", "none"),
            "hf_model_name": _one_of(*_TEXT_MODELS) | _NULL,
            "hf_model_pretrained": _FLAG,
            "hf_proj_type": _one_of("linear", "mlp", None),
            "hf_pooler_type": _one_of(
                "mean_pooler", "max_pooler", "cls_pooler", "cls_last_hidden_state_pooler", None
            ),
        },
        "multimodal_cfg": {
            **_BLOCK,
            "context_length": _CONTEXT,
            "vocab_size": _VOCABULARY,
            "heads": _HEADS,
            "layers": _LAYERS,
            "attn_pooler_heads": _HEADS,
            "dim_head": _WIDTH,
            "n_queries": _whole(1, 4096),
        },
    },
    "preprocess_cfg": {
        "size": _SIZE,
        "mode": _one_of("RGB"),
        "mean": _CHANNELS | _SCALE,
        "std": _CHANNELS | _SCALE,
        "interpolation": _one_of("bicubic", "bilinear"),
        "resize_mode": _one_of("shortest", "squash"),
        "fill_color": _whole(0, 255) | _list_of(_whole(0, 255), 3),
    },
}
"""Rules of ``open_clip_config.json``."""

_ACTIVATION = _one_of("quick_gelu", "gelu", "gelu_pytorch_tanh", "gelu_new", "gelu_fast", "relu", "silu")
_TOWER: Rules = {
    "hidden_size": _WIDTH,
    "intermediate_size": _WIDTH,
    "num_hidden_layers": _LAYERS,
    "num_attention_heads": _HEADS,
    "hidden_act": _ACTIVATION,
    "layer_norm_eps": _SHARE,
    "attention_dropout": _SHARE,
    "initializer_range": _SHARE,
    "initializer_factor": _RATIO,
}
_TEXT_TOWER: Rules = {
    **_TOWER,
    "vocab_size": _VOCABULARY,
    "max_position_embeddings": _CONTEXT,
    "pad_token_id": _TOKEN | _NULL,
    "bos_token_id": _TOKEN | _NULL,
    "eos_token_id": _TOKEN | _NULL,
}
_VISION_TOWER: Rules = {**_TOWER, "num_channels": _one_of(3), "image_size": _EDGE, "patch_size": _EDGE}
_CLIP_TEXT: Rules = {**_TEXT_TOWER, "projection_dim": _WIDTH}
_CLIP_VISION: Rules = {**_VISION_TOWER, "projection_dim": _WIDTH}

TRANSFORMERS: Mapping[str, Rules] = {
    "clip": {
        "projection_dim": _WIDTH,
        "logit_scale_init_value": _SCALE,
        "initializer_factor": _RATIO,
        "text_config": _CLIP_TEXT,
        "vision_config": _CLIP_VISION,
        "text_config_dict": _CLIP_TEXT,
        "vision_config_dict": _CLIP_VISION,
    },
    "siglip": {
        "initializer_factor": _RATIO,
        "text_config": {**_TEXT_TOWER, "projection_size": _WIDTH},
        "vision_config": {**_VISION_TOWER, "vision_use_head": _one_of(True)},
    },
}
"""Rules of ``config.json``, by its ``model_type``."""

TRANSFORMERS_IGNORED = _names(
    """
    model_type architectures transformers_version torch_dtype dtype _name_or_path _commit_hash
    _attn_implementation_autoset id2label label2id problem_type finetuning_task task_specific_params tokenizer_class
    prefix dropout gradient_checkpointing use_cache return_dict output_hidden_states output_attentions torchscript
    use_bfloat16 tf_legacy_loss pruned_heads tie_word_embeddings chunk_size_feed_forward is_encoder_decoder is_decoder
    cross_attention_hidden_size add_cross_attention tie_encoder_decoder max_length min_length do_sample early_stopping
    num_beams num_beam_groups diversity_penalty temperature top_k top_p typical_p epsilon_cutoff eta_cutoff
    repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids
    num_return_sequences output_scores return_dict_in_generate forced_bos_token_id forced_eos_token_id
    remove_invalid_values exponential_decay_length_penalty suppress_tokens begin_suppress_tokens sep_token_id
    decoder_start_token_id
    """
)
"""Keys that transformers writes into any ``config.json`` and that have no effect on a CLIP model."""

IMAGE_PROCESSOR: Rules = {
    "do_resize": _FLAG,
    "do_center_crop": _FLAG | _NULL,
    "do_rescale": _FLAG,
    "do_normalize": _FLAG,
    "do_pad": _one_of(False, None),
    "size": _EDGE
    | Rule("a size", lambda v: _is_size(v, ("shortest_edge",)) or _is_size(v, ("height", "width"))),
    "crop_size": _EDGE | _NULL | Rule("a height and a width", lambda v: _is_size(v, ("height", "width"))),
    "resample": _whole(0, 5),
    "rescale_factor": _SHARE,
    "image_mean": _CHANNELS,
    "image_std": _CHANNELS,
}
"""Rules of ``preprocessor_config.json``."""

IMAGE_PROCESSOR_IGNORED = _names(
    """
    image_processor_type feature_extractor_type processor_class do_convert_rgb default_to_square data_format
    input_data_format device return_tensors disable_grouping pad_size image_seq_length _valid_processor_keys
    """
)

TOKENIZER_IGNORED = _names(
    """
    add_bos_token add_eos_token add_prefix_space added_tokens_decoder additional_special_tokens backend bos_token
    chat_template clean_up_tokenization_spaces cls_token do_basic_tokenize do_lower_case eos_token errors extra_ids
    extra_special_tokens is_fast is_local legacy legacy_behaviour local_files_only mask_token max_len max_length
    model_input_names model_max_length name_or_path never_split pad_to_multiple_of pad_token_type_id processor_class
    sp_model_kwargs spaces_between_special_tokens special_tokens_map_file split_special_tokens src_lang stride
    strip_accents tgt_lang tokenize_chinese_chars tokenizer_class tokenizer_file trim_offsets truncation_side
    truncation_strategy unk_token use_default_system_prompt use_fast vocab_file wordpieces_prefix
    """
)
"""Keys of ``tokenizer_config.json`` that ``tokenizer.json`` repeats, or that have no effect on a CLIP model."""

_ADDED_TOKEN = Rule(
    "a token", lambda v: isinstance(v, str) or (isinstance(v, dict) and isinstance(v.get("content"), str))
)
TOKENIZER: Rules = {
    "pad_token": _ADDED_TOKEN | _NULL,
    "sep_token": _ADDED_TOKEN | _NULL,
    "padding_side": _one_of("right"),
}
"""Rules of ``tokenizer_config.json`` and ``special_tokens_map.json``."""


def _is_size(value: Any, keys: Collection[str]) -> bool:
    return isinstance(value, dict) and set(value) == set(keys) and all(map(_EDGE.holds, value.values()))


def checked(values: Any, rules: Rules, where: str, ignored: Collection[str] = frozenset()) -> dict[str, Any]:
    """Return the values of known keys; raise, with its name, on an unknown key or a value that breaks its rule.

    Parameters
    ----------
    values : object
        Content of a JSON file.
    rules : mapping
        For each key its rule, or the rules of the object under it; null means that the object is left out.
    where : str
        Name of the file in messages.
    ignored : collection of str
        Keys that may occur at any depth and are left out of the result.

    Examples
    --------
    >>> checked({"embed_dim": 512, "auto_map": {}}, {"embed_dim": _WIDTH}, "config.json")
    Traceback (most recent call last):
    ...
    fairerclip.errors.EncoderError: config.json: unknown key 'auto_map'; a configuration may hold only keys that ...
    """
    if not isinstance(values, dict):
        raise EncoderError(f"{where}: expected a JSON object, got {type(values).__name__}")
    unknown = [key for key in values if key not in rules and key not in ignored]
    if unknown:
        raise EncoderError(
            f"{where}: unknown key{'s' * (len(unknown) > 1)} {', '.join(f'{key!r:.60}' for key in unknown[:5])}; a "
            "configuration may hold only keys that are known to load no code, no other files and nothing from the "
            "network: remove it if the model does not need it"
        )
    accepted: dict[str, Any] = {}
    for key, value in values.items():
        rule = rules.get(key)
        if rule is None or (value is None and not isinstance(rule, Rule)):
            continue
        if not isinstance(rule, Rule):
            accepted[key] = checked(value, rule, f"{where}: {key}", ignored)
        elif rule.holds(value):
            accepted[key] = value
        else:
            raise EncoderError(f"{where}: expected {key} to be {rule.expected}, got {value!r:.120}")
    return accepted
