"""Damaged and hostile settings of models: whatever is in the file, only our own errors leave a reader."""

import copy
import json

import pytest
from clip_settings import CLIP, MANIFEST, OPEN_CLIP, OPENAI, PROCESSOR, TOKENIZER
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairerclip.encoders import Preprocessing, onnx, tokens, transformers
from fairerclip.encoders import open_clip as open_clip_loader
from fairerclip.encoders import weight_files as weights
from fairerclip.encoders.tokenizer_rules import check_tokenizer
from fairerclip.errors import EncoderError, FairerClipError

pytest.importorskip("PIL")
pytest.importorskip("tokenizers")

pytestmark = pytest.mark.slow
NUMBERS = [-1, 0, 3, 2**63, 10**400, 1e308, -0.5, float("nan"), float("inf")]
TEXTS = ["", "a", "\ud800", "\0", "x" * 5000]
TABLES = [[], [[]], {}, {"a": {}}, [1, 2, 3], [10**400] * 3, [True, None, "a"], {"height": "a", "width": 3}]
JUNK = [None, True, *NUMBERS, *TEXTS, *TABLES]


def places(value, above=()):
    """Paths to every value of a document."""
    yield above
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, below in entries:
        yield from places(below, (*above, key))


def mutated(document, draw):
    """The document with a value replaced or removed or with a key added, as JSON that may be cut off."""
    out = copy.deepcopy(document)
    *above, last = draw(st.sampled_from(list(places(out))[1:]))
    target = out
    for key in above:
        target = target[key]
    action = draw(st.sampled_from(["remove", "replace", "replace", "add"]))
    if action == "remove":
        del target[last]
    elif action == "add" and isinstance(target, dict):
        target[draw(st.sampled_from(["auto_map", "\ud800", "", "x" * 300]))] = draw(st.sampled_from(JUNK))
    else:
        target[last] = draw(st.sampled_from(JUNK))
    raw = json.dumps(out).encode()
    return raw[: draw(st.integers(0, len(raw)))] if draw(st.integers(0, 9)) == 0 else raw


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
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_only_our_errors_leave_a_reader(name, data, tmp_path):
    read, document = READERS[name]
    (tmp_path / "m.safetensors").write_bytes(b"")
    (tmp_path / name).write_text(json.dumps(document))
    read(tmp_path / name)
    (tmp_path / name).write_bytes(mutated(document, data.draw))
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
        chain(*[{"type": "Lowercase"}] * 100),
        {"pre_tokenizer": {"type": "Wasm"}},
        {
            "post_processor": {
                **TOKENIZER["post_processor"],
                "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 2000,
            }
        },
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},  # the library panics
    ],
    ids=["text that grows", "many steps", "unknown type", "many copies", "panic"],
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
