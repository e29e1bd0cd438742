"""Images on disk → embed → task → fit → apply, through the command line and real encoders."""

import copy
import csv
import json

import numpy as np
import pytest

from fairerclip.data import load_task

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
)

PROMPTS = {
    "name": "colours",
    "version": 1,
    "source": {"kind": "ours", "citation": "made for this test"},
    "classes": {"red": ["a red picture."], "blue": ["a blue picture."]},
    "sensitive": {"tone": {"dark": ["a dark picture."], "light": ["a light picture."]}},
}


@pytest.fixture
def done(run):
    """A command's standard output, once it has succeeded."""

    def call(*arguments):
        code, out, err = run(*arguments)
        assert code == 0, err
        return out

    return call


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Red and blue pictures, dark and light, with labels and a file that is no picture."""
    image = pytest.importorskip("PIL.Image")
    root = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    (root / "images").mkdir()
    rows = []
    for i in range(48):
        colour, tone = ("red", "blue")[i % 2], ("dark", "light")[(i // 2) % 2]
        pixels = rng.integers(0, 60, size=(40, 50, 3)) + (0 if tone == "dark" else 120)
        pixels[..., 0 if colour == "red" else 2] += 70
        image.fromarray(pixels.astype(np.uint8)).save(root / "images" / f"{i:02d}.png")
        rows.append([f"{i:02d}.png", colour, tone, ("train", "train", "val", "test")[i // 4 % 4]])
    (root / "images" / "broken.jpg").write_bytes(b"\xff\xd8 not a picture")
    with (root / "labels.csv").open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["file", "colour", "tone", "part"])
        writer.writerows(rows)
    (root / "prompts.json").write_text(json.dumps(PROMPTS))
    return root


@pytest.fixture(scope="session")
def vit_b_32(tmp_path_factory):
    """open_clip's ViT-B/32, of two layers for speed, at random initialisation, saved as a model folder."""
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("open_clip")
    from safetensors.torch import save_file

    torch.manual_seed(0)
    architecture = copy.deepcopy(library.get_model_config("ViT-B-32"))
    architecture["vision_cfg"]["layers"] = architecture["text_cfg"]["layers"] = 2
    model = library.CLIP(**architecture)
    place = tmp_path_factory.mktemp("models") / "vit_b_32"
    place.mkdir()
    save_file(
        {k: v.contiguous() for k, v in model.state_dict().items()}, place / "open_clip_model.safetensors"
    )
    config = {
        "model_cfg": architecture,
        "preprocess_cfg": {
            "mean": [0.48145466, 0.4578275, 0.40821073],
            "std": [0.26862954, 0.26130258, 0.27577711],
            "interpolation": "bicubic",
            "resize_mode": "shortest",
        },
    }
    (place / "open_clip_config.json").write_text(json.dumps(config))
    return place


@pytest.mark.parametrize(
    ("fixture", "model"), [("vit_b_32", "open_clip:{}"), ("clip_folder", "transformers:{}")]
)
def test_images_become_a_model_that_applies_to_new_images(done, folder, tmp_path, request, fixture, model):
    name = model.format(request.getfixturevalue(fixture))
    emb, task = tmp_path / "emb", tmp_path / "task.npz"
    embedded = json.loads(
        done(
            "embed",
            folder / "images",
            "--model",
            name,
            "-o",
            emb,
            "--prompts",
            folder / "prompts.json",
            "--json",
        )
    )
    assert (embedded["done"], embedded["skipped"], embedded["prompts"]) == (48, 1, 4)
    again = json.loads(done("embed", folder / "images", "--model", name, "-o", emb, "--json"))
    assert (again["done"], again["already"]) == (0, 49)
    labels = ("--labels", folder / "labels.csv", "--id", "file", "--target", "colour", "--sensitive", "tone")
    done(
        "task",
        "embeddings",
        emb,
        *labels,
        "--split",
        "part",
        "--prompts",
        folder / "prompts.json",
        "-o",
        task,
    )
    made = load_task(task)
    assert {split: len(made.split(split)) for split in ("train", "val", "test")} == {
        "train": 24,
        "val": 12,
        "test": 12,
    }
    fitted = json.loads(done("fit", task, "-o", tmp_path / "m", "--labels", "all", "--json"))
    # Even a random encoder tells red from blue; its prompts say nothing, which the labelled rows find out.
    assert (fitted["tuning"]["rows"], fitted["tuning"]["validation_rows"]) == (24 + 12, 12)
    assert fitted["reports"]["FairerCLIP"]["average"] >= 0.75
    applied = json.loads(done("apply", tmp_path / "m", emb, "-o", tmp_path / "p.csv", "--json"))
    assert applied["rows"] == 48
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    assert {row["id"] for row in rows} == {f"{i:02d}.png" for i in range(48)}
    assert "colour" not in (tmp_path / "m" / "fairerclip.json").read_text()
