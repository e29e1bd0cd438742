"""A model's folder is data: nothing in it runs, leads elsewhere, or decides how much memory is taken."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil

import numpy as np
import pytest
from clip_inputs import PROMPTS

from fairerclip.encoders import load
from fairerclip.encoders.config import OPEN_CLIP, checked
from fairerclip.errors import EncoderError
from watched_python import PAYLOAD, Evil, Watch

pytest.importorskip("torch")
pytest.importorskip("PIL")
pytest.importorskip("transformers")

pytestmark = pytest.mark.slow

AUTO_MAP = {"AutoTokenizer": ["evil.Evil", "evil.Evil"], "AutoModel": "evil.Evil", "AutoConfig": "evil.Evil"}
OPEN_CLIP_CONFIG = "open_clip_config.json"


def merged(values, change):
    """The values with those of the change, tables merged."""
    both = [key for key in change if isinstance(change[key], dict) and isinstance(values.get(key), dict)]
    return values | change | {key: merged(values[key], change[key]) for key in both}


def edit(file, change):
    values = json.loads(file.read_text()) if file.is_file() else {}
    text = json.dumps(merged(values, change))
    file.unlink(missing_ok=True)  # the copy is a hard link
    file.write_text(text)


@pytest.fixture(scope="module")
def watch():
    return Watch()


@pytest.fixture
def hostile(request, tmp_path, watch):
    """A copy of a model's folder with files that are code, which nothing may run from there on."""
    watched = contextlib.ExitStack()

    def make(library):
        fixture = {"transformers": "clip_folder"}.get(library, f"{library}_folder")
        folder = tmp_path / "model"
        shutil.copytree(request.getfixturevalue(fixture), folder, copy_function=os.link)
        if library == "open_clip":  # with a tokenizer of transformers in it
            for name in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copy(request.getfixturevalue("clip_folder") / name, folder)
        for name in ("evil.py", "__init__.py", "torch.py", "tokenizers.py", "modeling_clip.py"):
            (folder / name).write_text(PAYLOAD)
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Evil()))
        watched.enter_context(watch.on(tmp_path))
        return folder

    with watched:
        yield make


def text(**change):
    return {"model_cfg": {"text_cfg": change}}


def vision(**change):
    return {"model_cfg": {"vision_cfg": change}}


@pytest.mark.parametrize(
    ("library", "file", "change", "key"),
    [
        (
            "open_clip",
            OPEN_CLIP_CONFIG,
            text(tokenizer_kwargs={"trust_remote_code": True}),
            "trust_remote_code",
        ),
        ("open_clip", OPEN_CLIP_CONFIG, vision(timm_model_name="hf-hub:a/b"), "timm_model_name"),
        ("transformers", "config.json", {"auto_map": AUTO_MAP}, "auto_map"),
        ("transformers", "tokenizer_config.json", {"auto_map": AUTO_MAP}, "auto_map"),
        ("onnx", "preprocess.json", {"auto_map": AUTO_MAP}, "auto_map"),
    ],
)
def test_a_configuration_that_leads_to_code_is_refused_by_its_key(hostile, library, file, change, key):
    folder = hostile(library)
    edit(folder / file, change)
    with pytest.raises(EncoderError, match=key) as caught:
        load(f"{library}:{folder}").encode_text(["a bird"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("library", ["transformers", "onnx"])
def test_a_good_model_with_code_beside_it_embeds(hostile, library):
    encoder = load(f"{library}:{hostile(library)}")
    encoder.encode_text(["a bird"])
    encoder.encode_images(np.zeros((1, 3, 64, 64), np.float32))


def test_the_tokenizer_of_a_folder_is_taken_and_no_other(hostile, request):
    folder = hostile("open_clip")
    edit(folder / OPEN_CLIP_CONFIG, text(hf_tokenizer_name="somebody/clip"))
    encoder = load(f"open_clip:{folder}")  # the tokenizer is that of the folder, not somebody's
    theirs = load(f"transformers:{request.getfixturevalue('clip_folder')}")
    assert encoder.tokenizer.pad_id == 49407
    np.testing.assert_array_equal(encoder.tokenizer.ids(PROMPTS), theirs.tokenizer.ids(PROMPTS))


def test_the_two_files_of_older_clip_folders_are_the_same_tokenizer(clip_folder, tmp_path):
    folder = shutil.copytree(clip_folder, tmp_path / "old", copy_function=os.link)
    parts = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(parts["vocab"]))
    lines = ["#version: 0.2", *(m if isinstance(m, str) else " ".join(m) for m in parts["merges"])]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n")
    theirs = load(f"transformers:{clip_folder}").tokenizer
    np.testing.assert_array_equal(load(f"transformers:{folder}").tokenizer.ids(PROMPTS), theirs.ids(PROMPTS))


@pytest.mark.parametrize(
    ("library", "file"),
    [("open_clip", OPEN_CLIP_CONFIG), ("transformers", "model.safetensors"), ("onnx", "image.onnx")],
)
def test_a_link_out_of_the_folder_is_refused(hostile, tmp_path, library, file):
    folder = hostile(library)
    (folder / file).rename(tmp_path / file)
    (folder / file).symlink_to(tmp_path / file)
    with pytest.raises(EncoderError, match=file):
        load(f"{library}:{folder}")


def test_links_of_the_hugging_face_cache_are_followed(open_clip_folder, tmp_path):
    folder, blobs = tmp_path / "models--a--b" / "snapshots" / "0", tmp_path / "models--a--b" / "blobs"
    folder.mkdir(parents=True)
    blobs.mkdir()
    for file in open_clip_folder.iterdir():
        os.link(file, blobs / file.name)
        (folder / file.name).symlink_to(f"../../blobs/{file.name}")
    assert load(f"open_clip:{folder}").provenance == load(f"open_clip:{open_clip_folder}").provenance


@pytest.mark.parametrize(
    ("library", "file", "change"),
    [
        ("open_clip", OPEN_CLIP_CONFIG, text(width=65_536, vocab_size=4_000_000)),  # a terabyte
        ("transformers", "config.json", {"text_config": {"hidden_size": 65_536, "vocab_size": 4_000_000}}),
    ],
)
def test_sizes_are_checked_against_the_weights_before_memory_is_taken(hostile, library, file, change):
    folder = hostile(library)
    edit(folder / file, change)
    with pytest.raises(EncoderError):
        load(f"{library}:{folder}")


def test_open_clips_own_configurations_are_allowed():
    library = pytest.importorskip("open_clip")
    names = library.list_models()
    assert len(names) > 100
    for name in names:
        config = library.get_model_config(name)
        assert checked({"model_cfg": config}, OPEN_CLIP, name)["model_cfg"] == config


def test_a_configuration_as_openai_published_it_is_allowed(clip_folder, tmp_path):
    """With what older versions of transformers wrote into each part."""
    folder = shutil.copytree(clip_folder, tmp_path / "m", copy_function=os.link)
    old = {"_name_or_path": "", "bad_words_ids": None, "id2label": {"0": "A"}, "torchscript": False}
    parts = {"text_config": old, "vision_config": {**old, "dropout": 0.0}, "vision_config_dict": None}
    edit(folder / "config.json", {**parts, "torch_dtype": "float32"})
    processor = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").unlink()
    kept = {name: processor[name] for name in ("image_mean", "image_std", "resample")}
    old = {"crop_size": 64, "size": 64, "do_resize": True, "feature_extractor_type": "CLIPFeatureExtractor"}
    edit(folder / "preprocessor_config.json", {**kept, **old, "do_center_crop": True, "do_normalize": True})
    assert load(f"transformers:{folder}").provenance == load(f"transformers:{clip_folder}").provenance
