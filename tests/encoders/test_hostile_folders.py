"""A model's folder is data: nothing in it runs, leads elsewhere, or decides how much memory is taken."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest
from clip_inputs import PROMPTS

from fairerclip.encoders import load
from fairerclip.encoders.config import OPEN_CLIP, TRANSFORMERS, TRANSFORMERS_IGNORED, checked
from fairerclip.errors import EncoderError

pytest.importorskip("torch")
pytest.importorskip("PIL")
pytest.importorskip("transformers")

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


@pytest.fixture
def hostile(request, tmp_path):
    """A copy of a model's folder with a Python file that leaves a mark when it runs."""

    def make(library):
        fixture = {"transformers": "clip_folder"}.get(library, f"{library}_folder")
        folder = tmp_path / "model"
        shutil.copytree(request.getfixturevalue(fixture), folder, copy_function=os.link)
        if library == "open_clip":  # with a tokenizer of transformers in it
            for name in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copy(request.getfixturevalue("clip_folder") / name, folder)
        (folder / "evil.py").write_text(
            "from pathlib import Path\n"
            f"Path({str(tmp_path / 'marker')!r}).write_text('ran')\n"
            "from transformers import CLIPTokenizer as Evil\n"
        )
        return folder

    yield make
    assert not (tmp_path / "marker").exists(), "a Python file of the folder was run"


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
            text(hf_tokenizer_name="x", tokenizer_kwargs={"trust_remote_code": True}),
            "trust_remote_code",
        ),
        ("open_clip", OPEN_CLIP_CONFIG, text(tokenizer_kwargs={"bpe_path": "/etc/passwd"}), "bpe_path"),
        ("open_clip", OPEN_CLIP_CONFIG, text(hf_model_name="./evil"), "hf_model_name"),
        ("open_clip", OPEN_CLIP_CONFIG, vision(timm_model_name="local-dir:/tmp"), "timm_model_name"),
        ("open_clip", OPEN_CLIP_CONFIG, vision(timm_model_name="hf-hub:a/b"), "timm_model_name"),
        ("open_clip", OPEN_CLIP_CONFIG, {"auto_map": AUTO_MAP}, "auto_map"),
        ("transformers", "config.json", {"auto_map": AUTO_MAP}, "auto_map"),
        ("transformers", "config.json", {"trust_remote_code": True}, "trust_remote_code"),
        ("transformers", "config.json", {"quantization_config": {}}, "quantization_config"),
        (
            "transformers",
            "config.json",
            {"text_config": {"attn_implementation": "a/b"}},
            "attn_implementation",
        ),
        ("transformers", "config.json", {"vision_config": {"hidden_act": "os.system"}}, "hidden_act"),
        ("transformers", "preprocessor_config.json", {"auto_map": AUTO_MAP}, "auto_map"),
        ("transformers", "tokenizer_config.json", {"auto_map": AUTO_MAP}, "auto_map"),
        ("onnx", "preprocess.json", {"auto_map": AUTO_MAP}, "auto_map"),
        ("onnx", "preprocess.json", {"preprocessing": {"trust_remote_code": True}}, "trust_remote_code"),
    ],
)
def test_a_configuration_that_leads_to_code_is_refused_by_its_key(hostile, library, file, change, key):
    folder = hostile(library)
    edit(folder / "tokenizer_config.json", {"auto_map": AUTO_MAP})
    edit(folder / file, change)
    if file != "tokenizer_config.json" and library == "transformers":
        (folder / "tokenizer_config.json").unlink()
    with pytest.raises(EncoderError, match=key) as caught:
        load(f"{library}:{folder}").encode_text(["a bird"])
    assert "\n" not in str(caught.value)


def test_a_tokenizer_with_code_is_refused_by_its_key(hostile):
    folder = hostile("open_clip")
    edit(folder / OPEN_CLIP_CONFIG, text(hf_tokenizer_name="somebody/clip"))
    edit(folder / "tokenizer_config.json", {"auto_map": AUTO_MAP})
    with pytest.raises(EncoderError, match="tokenizer_config.json: unknown key 'auto_map'"):
        load(f"open_clip:{folder}")


def test_code_does_not_run_through_the_command_line(hostile, tmp_path, run):
    from PIL import Image

    (tmp_path / "images").mkdir()
    Image.new("RGB", (70, 70)).save(tmp_path / "images" / "a.png")
    folder = hostile("open_clip")
    edit(
        folder / OPEN_CLIP_CONFIG,
        text(hf_tokenizer_name="x", tokenizer_kwargs={"trust_remote_code": True}),
    )
    edit(folder / "tokenizer_config.json", {"auto_map": AUTO_MAP})
    code, _, err = run("embed", tmp_path / "images", "--model", f"open_clip:{folder}", "-o", tmp_path / "emb")
    assert code != 0
    assert "trust_remote_code" in err
    assert "Traceback" not in err
    assert not (tmp_path / "emb").exists()


def test_python_files_beside_a_good_model_do_not_run(hostile, request):
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


def test_a_tokenizer_in_another_form_is_refused(siglip_folder, tmp_path):
    folder = shutil.copytree(siglip_folder, tmp_path / "m", copy_function=os.link)
    (folder / "tokenizer.json").rename(folder / "spiece.model")
    with pytest.raises(EncoderError, match="holds no tokenizer.json.*docs/how-to/encoders.md"):
        load(f"transformers:{folder}")


@pytest.mark.parametrize(
    ("library", "file"),
    [
        ("open_clip", OPEN_CLIP_CONFIG),
        ("open_clip", "open_clip_model.safetensors"),
        ("transformers", "config.json"),
        ("transformers", "model.safetensors"),
        ("transformers", "tokenizer.json"),
        ("onnx", "image.onnx"),
        ("onnx", "preprocess.json"),
    ],
)
def test_a_link_out_of_the_folder_is_refused(hostile, tmp_path, library, file):
    folder = hostile(library)
    (folder / file).rename(tmp_path / file)
    (folder / file).symlink_to(tmp_path / file)
    with pytest.raises(EncoderError, match=f"{file} is a link to a place outside its folder"):
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
    ("library", "file", "change", "message"),
    [
        ("open_clip", OPEN_CLIP_CONFIG, {"model_cfg": {"embed_dim": 10**9}}, "embed_dim"),
        ("open_clip", OPEN_CLIP_CONFIG, text(width=65_536, vocab_size=4_000_000), "do not belong together"),
        ("open_clip", OPEN_CLIP_CONFIG, vision(width=65_536, layers=50), "do not belong together"),
        ("transformers", "config.json", {"text_config": {"hidden_size": 10**9}}, "hidden_size"),
        (
            "transformers",
            "config.json",
            {"text_config": {"hidden_size": 65_536, "vocab_size": 4_000_000}},
            "do not belong together",
        ),
    ],
)
def test_sizes_are_checked_against_the_weights_before_memory_is_taken(
    hostile, library, file, change, message
):
    folder = hostile(library)
    edit(folder / file, change)
    with pytest.raises(EncoderError, match=message):  # the second would take a terabyte
        load(f"{library}:{folder}")


def test_a_folder_with_the_name_of_a_text_model_is_not_taken_for_it(hostile, tmp_path, monkeypatch):
    folder = hostile("open_clip")
    edit(folder / OPEN_CLIP_CONFIG, text(hf_model_name="roberta-base", hf_tokenizer_name="roberta-base"))
    (tmp_path / "roberta-base").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EncoderError, match="roberta-base has the name of a hub repository"):
        load(f"open_clip:{folder}")


def test_open_clips_own_configurations_are_allowed():
    library = pytest.importorskip("open_clip")
    names = library.list_models()
    assert len(names) > 100
    for name in names:
        config = library.get_model_config(name)
        assert checked({"model_cfg": config}, OPEN_CLIP, name)["model_cfg"] == config


def test_every_field_of_open_clips_towers_is_known():
    library = pytest.importorskip("open_clip")
    from dataclasses import fields

    for part, kind in (("vision_cfg", library.CLIPVisionCfg), ("text_cfg", library.CLIPTextCfg)):
        assert {field.name for field in fields(kind)} == set(OPEN_CLIP["model_cfg"][part])


@pytest.mark.parametrize(("kind", "name"), [("clip", "CLIPConfig"), ("siglip", "SiglipConfig")])
def test_what_transformers_writes_itself_is_allowed(kind, name):
    import transformers

    config = getattr(transformers, name)()
    found = checked(
        json.loads(config.to_json_string(use_diff=False)), TRANSFORMERS[kind], name, TRANSFORMERS_IGNORED
    )
    assert getattr(transformers, name)(**found).to_dict() == config.to_dict()


def test_a_configuration_as_openai_published_it_is_allowed(clip_folder, tmp_path):
    """With what older versions of transformers wrote into each part."""
    folder = shutil.copytree(clip_folder, tmp_path / "m", copy_function=os.link)
    old = {
        "_name_or_path": "",
        "bad_words_ids": None,
        "id2label": {"0": "A"},
        "torchscript": False,
        "top_p": 1.0,
    }
    edit(
        folder / "config.json",
        {
            "text_config": old,
            "vision_config": {**old, "dropout": 0.0},
            "text_config_dict": json.loads((folder / "config.json").read_text())["text_config"],
            "vision_config_dict": None,
            "torch_dtype": "float32",
        },
    )
    (folder / "preprocessor_config.json").unlink()
    edit(
        folder / "preprocessor_config.json",
        {
            "crop_size": 64,
            "do_center_crop": True,
            "do_normalize": True,
            "do_resize": True,
            "feature_extractor_type": "CLIPFeatureExtractor",
            "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_std": [0.26862954, 0.26130258, 0.27577711],
            "resample": 3,
            "size": 64,
        },
    )
    assert load(f"transformers:{folder}").provenance == load(f"transformers:{clip_folder}").provenance


@pytest.fixture
def words_folder(tmp_path):
    """A tokenizer with BERT's special tokens, as transformers stores it."""
    import tokenizers
    import transformers

    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "a", "photo", "of", "bird", "the", "1990s"]
    vocabulary = {word: number for number, word in enumerate(words)}
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token=words[3]))
    raw.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    raw.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    special = {"pad_token": "[PAD]", "sep_token": "[SEP]", "cls_token": "[CLS]", "unk_token": "[UNK]"}
    folder = tmp_path / "words"
    transformers.PreTrainedTokenizerFast(tokenizer_object=raw, **special).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    "settings",
    [{}, {"clean": "canonicalize"}, {"strip_sep_token": True}, {"clean": "lower", "strip_sep_token": True}],
)
def test_a_tokenizer_of_the_hub_gives_the_ids_that_open_clip_gives(
    words_folder, settings, tmp_path, monkeypatch
):
    """Of a named architecture, from the local cache."""
    library = pytest.importorskip("open_clip")
    from huggingface_hub import constants

    from fairerclip.encoders import open_clip

    cache = tmp_path / "hub" / "models--somebody--words"
    shutil.copytree(words_folder, cache / "snapshots" / ("0" * 40))
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    config = {
        "text_cfg": {
            "context_length": 12,
            "hf_tokenizer_name": "somebody/words",
            "tokenizer_kwargs": settings,
        }
    }
    source = open_clip._Source("words", config, None, tmp_path, None, False)
    ours = open_clip._tokenizer(library, source, download=False)
    theirs = library.tokenizer.HFTokenizer(str(words_folder), context_length=12, **settings)
    prompts = ["A photo of the_bird, a bird!", "the  1990s", "a [SEP] bird"]
    np.testing.assert_array_equal(ours.ids(prompts), theirs(prompts).numpy())
    config["text_cfg"]["hf_tokenizer_name"] = "somebody/else"
    with pytest.raises(EncoderError, match="the tokenizer of somebody/else is not in the local cache"):
        open_clip._tokenizer(library, source, download=False)
