"""Damaged and hostile settings of models: whatever is in the file, only our own errors leave a reader."""

from __future__ import annotations

import base64
import copy
import json
import os
import random

import pytest
from clip_settings import CLIP, MANIFEST, OPEN_CLIP, OPENAI, PROCESSOR, TOKENIZER

from fairerclip.encoders import Preprocessing, load, onnx, tokens, transformers
from fairerclip.encoders import open_clip as open_clip_loader
from fairerclip.encoders import weight_files as weights
from fairerclip.encoders.tokenizer_rules import check_tokenizer
from fairerclip.errors import EncoderError, FairerClipError

pytest.importorskip("PIL")
CASES = 200
JUNK = [
    None,
    True,
    -1,
    0,
    3,
    2**31,
    2**63,
    10**400,
    1e308,
    -0.5,
    5e-324,
    float("nan"),
    float("inf"),
    "",
    "a",
    "\ud800",
    "\0",
    "x" * 5000,
    [],
    [[]],
    {},
    {"a": {}},
    [1, 2],
    [1, 2, 3],
    [10**400] * 3,
    [True, None, "a"],
    [[0.5] * 3],
    [0] * 500,
    {"height": "a", "width": 3},
    {"shortest_edge": [224]},
]


def places(value, above=()):
    """Paths to every value of a document."""
    yield above
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, below in entries:
        yield from places(below, (*above, key))


def mutated(document, rng):
    """The document with one to three changes: a value replaced or removed, a key added, text cut or flipped."""
    out = copy.deepcopy(document)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        path = rng.choice(list(places(out)))
        target = out
        for key in path[:-1]:
            target = target[key]
        action = rng.randrange(4)
        if not path:
            found = out if action else copy.deepcopy(rng.choice(JUNK))
            if isinstance(found, dict):
                found[rng.choice(["auto_map", "\ud800", "", "x" * 300])] = copy.deepcopy(rng.choice(JUNK))
            out = found
        elif action == 0:
            del target[path[-1]]
        else:
            target[path[-1]] = copy.deepcopy(rng.choice(JUNK))
        if not isinstance(out, dict):
            break
    raw = json.dumps(out).encode()
    if rng.random() < 0.1:
        at = rng.randrange(len(raw) + 1)
        raw = rng.choice([raw[:at], raw[:at] + bytes([rng.randrange(256)]) + raw[at + 1 :]])
    return raw


def read_open_clip(path):
    config = open_clip_loader.read_config(path)
    Preprocessing.from_open_clip(
        config.get("preprocess_cfg", {}), config["model_cfg"]["vision_cfg"].get("image_size", 224)
    )


def read_tokenizer(path):
    pytest.importorskip("tokenizers")
    tokens.Tokens(tokens.read_tokenizer(path), 8, 0).ids(["ab a", "é 鳥"])


READERS = {
    "preprocessing": (Preprocessing.from_json, OPENAI, "p.json"),
    "open_clip": (read_open_clip, OPEN_CLIP, "open_clip_config.json"),
    "transformers": (transformers.read_config, CLIP, "config.json"),
    "processor": (
        lambda path: transformers.read_settings(path.parent),
        PROCESSOR,
        "preprocessor_config.json",
    ),
    "onnx": (onnx.read_settings, MANIFEST, "preprocess.json"),
    "tokenizer": (read_tokenizer, TOKENIZER, "tokenizer.json"),
    "shards": (
        lambda path: weights.transformers_files(path.parent),
        {"metadata": {"total_size": 1}, "weight_map": {"a": "m.safetensors", "b": "m.safetensors"}},
        "model.safetensors.index.json",
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_only_our_errors_leave_a_reader(reader, tmp_path):
    read, document, name = READERS[reader]
    path = tmp_path / name
    (tmp_path / "m.safetensors").write_bytes(b"")
    path.write_text(json.dumps(document))
    read(path)
    rng = random.Random(20)
    refused, message = 0, ""
    for case in range(CASES):
        raw = mutated(document, rng)
        path.write_bytes(raw)
        try:
            read(path)
        except FairerClipError as error:
            refused += 1
            message = str(error)
        except BaseException as error:
            raise AssertionError(
                f"case {case}: {type(error).__name__}: {error} left {raw[:2000]!r}"
            ) from error
        assert "\n" not in message
        assert len(message) < 1000
        message.encode()
    assert refused > CASES // 3  # the changes matter


def test_a_panic_of_the_tokenizers_library_is_our_error(tmp_path):
    pytest.importorskip("tokenizers")
    damaged = TOKENIZER | {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(damaged))
    with pytest.raises(EncoderError, match="tokenizer.json is not a tokenizer"):  # it is a BaseException
        tokens.read_tokenizer(tmp_path / "tokenizer.json")


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def chain(*steps):
    return {"normalizer": {"type": "Sequence", "normalizers": list(steps)}}


def template(single, ids):
    special = {"e": {"id": "e", "ids": [1] * ids, "tokens": ["e"] * ids}}
    return {
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": TOKENIZER["post_processor"]["pair"],
            "special_tokens": special,
        }
    }


A = {"Sequence": {"id": "A", "type_id": 0}}
E = {"SpecialToken": {"id": "e", "type_id": 0}}
CHARSMAP = base64.b64encode(bytes(4) + b"a" * 2000 + b"\0").decode()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (chain(*[replace({"String": "a"}, "a" * 10)] * 8), "at most 1,000 characters of one"),
        (chain(*[replace({"Regex": ""}, "aaa")] * 6), "at most 1,000 characters of one"),
        (chain(*[{"type": "ByteLevel"}] * 6), "at most 1,000 characters of one"),
        (chain(*[{"type": "Prepend", "prepend": "a" * 40}] * 2), "at most 1,000 characters of one"),
        (chain({"type": "Precompiled", "precompiled_charsmap": CHARSMAP}), "at most 1,000 characters of one"),
        (chain(*[{"type": "Lowercase"}] * 100), "at most 64 steps"),
        (chain({"type": "Python"}), "normalizer of a known type, got 'Python'"),
        ({"pre_tokenizer": {"type": "Wasm"}}, "pre_tokenizer of a known type, got 'Wasm'"),
        (template([A, *[E] * 2000], 2000), "adds at most 4,096 ids"),
        (template([A] * 2000, 1), "the prompt once"),
        ({"post_processor": {"type": "X"}}, "post_processor of a known type, got 'X'"),
        (
            {"added_tokens": [TOKENIZER["added_tokens"][0] | {"content": "a" * 300_000}]},
            "at most 200,000 characters together",
        ),
    ],
)
def test_a_tokenizer_that_makes_much_of_little_is_refused(change, message, tmp_path):
    pytest.importorskip("tokenizers")
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(TOKENIZER | change))
    with pytest.raises(EncoderError, match=message):
        tokens.read_tokenizer(file)


def test_tokenizers_of_published_models_keep_to_the_rules():
    siglip = [
        {"type": "Lowercase"},
        replace({"Regex": "[!-/:-@\\[-`{-~]"}, ""),
        replace({"Regex": "\\s+"}, " "),
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Precompiled", "precompiled_charsmap": None},
        replace({"Regex": " {2,}"}, "\u2581"),
    ]
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    clip = [{"type": "NFC"}, replace({"Regex": "\\s+"}, " "), {"type": "Lowercase"}]
    split = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Removed", "invert": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        ],
    }
    roberta = {"type": "RobertaProcessing", "sep": ["e", 1], "cls": ["e", 1]}
    gemma = chain(replace({"String": " "}, "\u2581"))
    for change in (
        chain(*siglip) | {"pre_tokenizer": metaspace},
        chain(*clip) | {"pre_tokenizer": split, "post_processor": roberta},
        gemma | {"pre_tokenizer": None},
    ):
        check_tokenizer(TOKENIZER | change, "tokenizer.json")


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_may_not_be_read_is_our_error(reader, tmp_path, monkeypatch):
    read, document, name = READERS[reader]
    (tmp_path / "m.safetensors").write_bytes(b"")
    (tmp_path / name).write_text(json.dumps(document))

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(EncoderError, match="Permission denied"):
        read(tmp_path / name)
    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(EncoderError, match="Permission denied"):
        weights.open_clip_file(tmp_path)


@pytest.fixture(scope="module")
def small_open_clip(tmp_path_factory):
    """A small open_clip folder."""
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("open_clip")
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("small")
    torch.manual_seed(0)
    config = copy.deepcopy(OPEN_CLIP["model_cfg"])
    save_file(library.CLIP(**config).state_dict(), folder / "open_clip_model.safetensors")
    (folder / "open_clip_config.json").write_text(json.dumps(OPEN_CLIP))
    load(f"open_clip:{folder}")  # nothing is wrong with it
    return folder


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("vision_cfg", {"head_width": 60_000}),
        ("vision_cfg", {"patch_size": None}),
        ("vision_cfg", {"patch_size": 33}),
        ("vision_cfg", {"layers": 0}),
        ("vision_cfg", {"layers": [1, 1, 1, 1]}),
        ("vision_cfg", {"image_size": [32, 64]}),
        ("vision_cfg", {"output_tokens": True}),
        ("vision_cfg", {"pool_type": "none"}),
        ("vision_cfg", {"attentional_pool": "cascade"}),
        ("vision_cfg", {"mlp_ratio": 0}),
        ("vision_cfg", {"timm_model_name": "no_such_model"}),
        ("text_cfg", {"heads": 3}),
        ("text_cfg", {"layers": 0}),
        ("text_cfg", {"context_length": 1}),
        ("text_cfg", {"act_kwargs": {"approximate": "tanh"}}),  # QuickGELU takes none
        ("text_cfg", {"proj_type": "none"}),
        ("text_cfg", {"tokenizer_kwargs": {"strip_sep_token": True}}),
        ("text_cfg", {"hf_tokenizer_name": "a/b"}),
        ("text_cfg", {"hf_model_name": "roberta-base"}),
        ("multimodal_cfg", {"width": 8}),
    ],
)
def test_a_configuration_of_allowed_values_that_do_not_fit_is_our_error(small_open_clip, part, change):
    file = small_open_clip / "open_clip_config.json"
    config = copy.deepcopy(OPEN_CLIP)
    config["model_cfg"].setdefault(part, {}).update(change)
    file.write_text(json.dumps(config))
    with pytest.raises(FairerClipError) as caught:
        load(f"open_clip:{small_open_clip}")
    assert "\n" not in str(caught.value)
