"""Images on disk → embed → task → fit → apply, through the command line and real encoders."""

import csv
import json

import numpy as np
import pytest

from fairerclip.data import load_task

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]

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


def test_images_become_a_model_that_applies_to_new_images(done, folder, tmp_path, open_clip_folder):
    name, emb, task = f"open_clip:{open_clip_folder}", tmp_path / "emb", tmp_path / "task.npz"
    prompts = ("--prompts", folder / "prompts.json")
    embed = ("embed", folder / "images", "--model", name, "-o", emb, "--json")
    embedded = json.loads(done(*embed, *prompts))
    assert (embedded["done"], embedded["skipped"], embedded["prompts"]) == (48, 1, 4)
    again = json.loads(done(*embed))
    assert (again["done"], again["already"]) == (0, 49)
    labels = ("--labels", folder / "labels.csv", "--id", "file", "--target", "colour", "--sensitive", "tone")
    done("task", "embeddings", emb, *labels, "--split", "part", *prompts, "-o", task)
    assert {name: len(rows) for name, rows in load_task(task).splits.items()} == {
        "train": 24,
        "val": 12,
        "test": 12,
    }
    fitted = json.loads(done("fit", task, "-o", tmp_path / "m", "--labels", "all", "--json"))
    # Even a random encoder tells red from blue; its prompts say nothing, which the labelled rows find out.
    assert fitted["reports"]["FairerCLIP"]["average"] >= 0.75
    applied = json.loads(done("apply", tmp_path / "m", emb, "-o", tmp_path / "p.csv", "--json"))
    assert applied["rows"] == 48
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    assert {row["id"] for row in rows} == {f"{i:02d}.png" for i in range(48)}
