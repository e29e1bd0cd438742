"""Where the tasks of a reproduction come from: images with the encoder's options, or finished tasks."""

import json
from dataclasses import replace

import numpy as np
import pytest

import fairerclip.encoders.loading
from fairerclip.data import load_task, save_task, simulate
from fairerclip.data.provenance import Provenance
from fairerclip.encoders import ModelChoice
from fairerclip.errors import DatasetAbsentError, ParameterError
from fairerclip.study.paper.official_tasks import OfficialImages
from fairerclip.study.paper.task_finder import find_tasks
from fairerclip.study.paper.task_source import TaskSource, whole_training

SIDE = 8


def picture(file, rng, shade=0):
    """A plain colour at random with some noise, redder by the shade: any encoder tells such pictures apart."""
    image = pytest.importorskip("PIL.Image")
    pixels = rng.integers(0, 220, size=3) + rng.integers(0, 35, size=(SIDE, SIDE, 3))
    pixels[..., 0] = np.minimum(pixels[..., 0] + 60 * shade, 255)
    file.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(pixels.astype(np.uint8)).save(file)


def birds(root, n=180):
    """Waterbirds: every class on every background in every split."""
    rng = np.random.default_rng(5)
    lines = ["img_id,img_filename,y,split,place,place_filename"]
    for i in range(n):
        picture(root / "bird" / f"{i}.png", rng, i % 2)
        lines.append(f"{i},bird/{i}.png,{i % 2},{(i // 4) % 3},{(i // 2) % 2},p.jpg")
    (root / "metadata.csv").write_text("\n".join(lines))


def celebrities(root, n=144):
    """CelebA in the MMLAB layout: each of the three targets with either sex in every split."""
    rng = np.random.default_rng(7)
    body, parts = [], []
    for i in range(n):
        name = f"{i + 1:06d}.jpg"
        picture(root / "Img" / "img_align_celeba" / name, rng, i % 2)
        values = (i % 2, (i // 2) % 2, (i // 4) % 2, (i // 8) % 2)  # attractive, blond, cheekbones, male
        body.append(f"{name} " + " ".join("1" if v else "-1" for v in values))
        parts.append(f"{name} {(i // 16) % 3}")
    (root / "Anno").mkdir()
    (root / "Eval").mkdir()
    head = [str(n), "Attractive Blond_Hair High_Cheekbones Male"]
    (root / "Anno" / "list_attr_celeba.txt").write_text("\n".join([*head, *body]))
    (root / "Eval" / "list_eval_partition.txt").write_text("\n".join(parts))


class RandomEncoder:
    """An encoder of these pictures and of words, drawn at random."""

    width = 12

    def __init__(self, name):
        self.name = name
        self.provenance = Provenance(name, None, "none", "test", True, 12)
        self._map = np.random.default_rng(len(name)).normal(size=(3 * SIDE**2, 12))

    def preprocess(self, picture):
        return np.asarray(picture, dtype=np.float32).transpose(2, 0, 1) - 128

    def encode_images(self, pixels):
        Z = pixels.reshape(len(pixels), -1) @ self._map
        return (Z / np.linalg.norm(Z, axis=1, keepdims=True)).astype(np.float32)

    def encode_text(self, prompts):
        Z = np.stack([np.random.default_rng(list(p.encode())).normal(size=12) for p in prompts])
        return (Z / np.linalg.norm(Z, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def loaded(monkeypatch):
    """Encoders at random; yields what each was loaded with, and the images that were encoded."""
    calls, encoded = [], []

    class Counted(RandomEncoder):
        def encode_images(self, pixels):
            encoded.append(len(pixels))
            return super().encode_images(pixels)

    def load(name, **options):
        calls.append((name, options))
        return Counted(name)

    monkeypatch.setattr(fairerclip.encoders.loading, "load", load)
    return calls, encoded


def real(name, **options):
    return replace(simulate(name, **options), simulated=False)


def test_targets_of_one_dataset_have_files_of_their_own_and_share_embeddings(loaded, tmp_path):
    celebrities(tmp_path / "celeba", 48)
    told = []
    images = OfficialImages(
        tmp_path, tmp_path / "w", [ModelChoice("M")], progress=lambda *arguments: told.append(arguments)
    )
    source = TaskSource("data", images=images)
    tasks = {name: source.tasks(name)[0].task for name in ("blond", "cheekbones", "attractive")}
    for name, task in tasks.items():
        again = load_task(tmp_path / "w" / "tasks" / "M" / f"{name}.npz")
        assert again.class_names == task.class_names
        assert np.array_equal(again.train.y, task.train.y)
    assert len({task.class_names for task in tasks.values()}) == 3
    assert sum(loaded[1]) == 48
    assert len(loaded[0]) == 1
    assert told[-1] == ("embedding celeba, M", 48, 48)


def test_a_dataset_is_absent_only_where_there_is_nothing_of_it(tmp_path):
    images = OfficialImages(tmp_path, tmp_path / "w")
    assert isinstance(images.problem("waterbirds"), DatasetAbsentError)
    (tmp_path / "CelebA").mkdir()
    birds(tmp_path / "waterbirds", 4)
    (tmp_path / "waterbirds" / "metadata.csv").write_text("a,b\n1,2\n")
    source = TaskSource("data", images=OfficialImages(tmp_path, tmp_path / "w"))
    absent = {name: source.absent(name) for name in ("waterbirds", "blond", "cfd", "fairface", "pacs")}
    assert absent == {"waterbirds": False, "blond": False, "cfd": True, "fairface": True, "pacs": True}


def test_finished_tasks_are_found_by_name_and_encoder(tmp_path):
    bird, blond = real("waterbirds", scale=0.03, width=32), real("celeba", scale=0.002, width=32)
    (tmp_path / "RN50").mkdir()
    save_task(bird, tmp_path / "waterbirds.npz")
    save_task(bird, tmp_path / "waterbirds-ViT-L-14.safetensors")
    save_task(blond, tmp_path / "RN50" / "celeba_blond.npz")
    (tmp_path / "fairface_queries.npz").write_bytes(b"of another name")
    found = find_tasks(tmp_path, encoders=True)
    assert {name: [task.encoder for task in tasks] for name, tasks in found.items()} == {
        "waterbirds": [None, "ViT-L-14"],
        "blond": ["RN50"],
    }
    source = TaskSource("data", tmp_path)
    assert [task.backbone for task in source.tasks("waterbirds")] == [None, "ViT-L/14"]
    assert source.absent("cfd")
    save_task(blond, tmp_path / "RN50" / "blond.npz")
    with pytest.raises(ParameterError, match="RN50"):
        TaskSource("data", tmp_path)


@pytest.mark.slow
def test_finished_tasks_are_headed_as_real_and_simulated_ones_refused(run, small, tmp_path):
    folder = tmp_path / "tasks"
    folder.mkdir()
    save_task(real("waterbirds", scale=0.03, width=32), folder / "waterbirds-RN50.npz")
    arguments = ("--tasks", folder, "--quick", "--jobs", "1", "--json", "-o")
    code, out, err = run("reproduce", "heatmaps", *arguments, tmp_path / "o")
    assert code == 0, err
    result = json.loads(out)["results"][0]
    assert (result["kind"], list(result["results"])) == ("data", ["waterbirds RN50"])
    save_task(simulate("celeba", scale=0.002, width=32), folder / "blond.npz")
    code, _, err = run("reproduce", "ablation-no-labels", *arguments, tmp_path / "p")
    assert code == 1
    assert "simulated" in err
    assert not (tmp_path / "p" / "ablation-no-labels.md").exists()


def test_fairface_is_fitted_on_the_whole_official_training_list():
    task = real("gallery", scale=0.05, width=48)
    ids = {
        name: np.array([f"{name}/{k}.jpg" for k in range(len(split))]) for name, split in task.splits.items()
    }
    ids["val"] = np.char.replace(ids["val"], "val/", "train/v")
    named = replace(task, splits={name: replace(split, ids=ids[name]) for name, split in task.splits.items()})
    whole, _ = whole_training("fairface", named)
    assert set(whole.splits) == {"train", "test"}
    assert np.array_equal(whole.train.X, np.concatenate([task.train.X, task.val.X]))
    assert all(np.array_equal(whole.train.s[k][len(task.train) :], task.val.s[k]) for k in task.train.s)
    assert whole_training("blond", named) == (named, "")
    assert whole_training("fairface", task)[0] is task
