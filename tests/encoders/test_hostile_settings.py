"""Damaged and hostile settings of models: whatever is in the file, only our own errors leave a reader."""

import json

import pytest
from clip_settings import CLIP, MANIFEST, OPEN_CLIP, OPENAI, PROCESSOR, TOKENIZER
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from damage import damaged
from fairerclip.encoders import Preprocessing, onnx, tokens, transformers
from fairerclip.encoders import open_clip as open_clip_loader
from fairerclip.encoders import weight_files as weights
from fairerclip.encoders.tokenizer_rules import check_tokenizer
from fairerclip.errors import EncoderError, FairerClipError

pytest.importorskip("PIL")
pytest.importorskip("tokenizers")

pytestmark = pytest.mark.slow


def read_open_clip(path):
    config = open_clip_loader.read_config(path)
    size = config["model_cfg"]["vision_cfg"].get("image_size", 224)
    Preprocessing.from_open_clip(config.get("preprocess_cfg", {}), size)


def read_tokenizer(path):
    tokens.Tokens(tokens.read_tokenizer(path), 8, 0).ids(["ab a", "é 鳥"])


SHARDS = {"metadata": {"total_size": 1}, "weight_map": {"a": "m.safetensors", "b": "m.safetensors"}}
READERS = {
    "p.json": (Preprocessing.from_json, OPENAI),
    "open_clip_config.json": (read_open_clip, OPEN_CLIP),
    "config.json": (transformers.read_config, CLIP),
    "preprocessor_config.json": (lambda path: transformers.read_settings(path.parent), PROCESSOR),
    "preprocess.json": (onnx.read_settings, MANIFEST),
    "tokenizer.json": (read_tokenizer, TOKENIZER),
    "model.safetensors.index.json": (lambda path: weights.transformers_files(path.parent), SHARDS),
}


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_only_our_errors_leave_a_reader(name, data, tmp_path):
    read, document = READERS[name]
    (tmp_path / "m.safetensors").write_bytes(b"")
    good = json.dumps(document).encode()
    (tmp_path / name).write_bytes(good)
    read(tmp_path / name)
    (tmp_path / name).write_bytes(data.draw(damaged(good)))
    try:
        read(tmp_path / name)
    except FairerClipError as error:
        message = str(error)
        assert "\n" not in message
        assert len(message) < 1000
        message.encode()


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def chain(*steps):
    return {"normalizer": {"type": "Sequence", "normalizers": list(steps)}}


@pytest.mark.parametrize(
    "change",
    [
        chain(*[replace({"String": "a"}, "a" * 10)] * 8),
        {"pre_tokenizer": {"type": "Wasm"}},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},  # the library panics
    ],
    ids=["text that grows", "unknown type", "panic"],
)
def test_a_tokenizer_that_makes_much_of_little_is_refused(change, tmp_path):
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(TOKENIZER | change))
    with pytest.raises(EncoderError):
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
    pieces = {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Removed", "invert": True}
    split = {"type": "Sequence", "pretokenizers": [pieces, {"type": "ByteLevel", "add_prefix_space": False}]}
    roberta = {"type": "RobertaProcessing", "sep": ["e", 1], "cls": ["e", 1]}
    for change in (
        chain(*siglip) | {"pre_tokenizer": metaspace},
        chain(*clip) | {"pre_tokenizer": split, "post_processor": roberta},
    ):
        check_tokenizer(TOKENIZER | change, "tokenizer.json")
