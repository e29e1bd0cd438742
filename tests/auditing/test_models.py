import json

import numpy as np
import pytest

import fairerclip.encoders.loading
from fairerclip.auditing.many_models import KnownModel, audit_tasks, draw, read_models
from fairerclip.data import load_task, save_task, simulate
from fairerclip.data.provenance import Provenance
from fairerclip.data.task_files import task_files
from fairerclip.errors import LabelError, ParameterError, TaskFileError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One dataset through three models: the same rows, other embeddings."""
    root = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("small", "medium", "large")):
        save_task(simulate("waterbirds", scale=0.1, width=48, seed=seed), root / f"{name}.npz")
    return root


def test_models_stand_side_by_side_with_the_best_worst_group_first(folder):
    rows = audit_tasks(task_files([folder]))
    assert {row.label for row in rows} == {"small", "medium", "large"}
    worst = [row.report.worst.accuracy for row in rows]
    assert worst == sorted(worst, reverse=True)


def test_what_cannot_be_audited_is_said(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(TaskFileError):
        task_files([tmp_path / "empty"])
    save_task(simulate("gallery", scale=0.1, width=48), tmp_path / "g.npz")
    with pytest.raises(LabelError):
        audit_tasks([tmp_path / "g.npz"], ["sex"])
    save_task(simulate("waterbirds", scale=0.05, width=48), tmp_path / "other.npz")
    with pytest.raises(LabelError, match="cannot be compared"):
        audit_tasks([folder / "small.npz", tmp_path / "other.npz"])
    with pytest.raises(ParameterError, match="ends in"):
        draw(audit_tasks([folder / "small.npz"]), tmp_path / "a.gif")
    for text in ('{"small": {"colour": 1}}', '{"small": {"parameters": -5}}', '{"small": {}, "small": {}}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(TaskFileError):
            read_models(tmp_path / "bad.json")
    with pytest.raises(ParameterError, match="smal"):
        audit_tasks([folder / "small.npz"], about={"smal": KnownModel()})


def test_a_dataset_through_several_models_from_the_command_line(run, tmp_path, monkeypatch):
    image = pytest.importorskip("PIL.Image")
    root = tmp_path / "birds"
    (root / "bird").mkdir(parents=True)
    lines = ["img_id,img_filename,y,split,place,place_filename"]
    for i in range(24):
        image.new("RGB", (8, 8), (i * 10, 5 * i, 0)).save(root / "bird" / f"{i}.jpg")
        lines.append(f"{i},bird/{i}.jpg,{i % 2},2,{(i // 2) % 2},p.jpg")
    (root / "metadata.csv").write_text("\n".join(lines))

    class Random:
        width = 6

        def __init__(self, name):
            self.name = name
            self.provenance = Provenance(name, None, "none", "test", True, 6)
            self._map = np.random.default_rng(len(name)).normal(size=(3 * 64, 6))

        def preprocess(self, picture):
            return np.asarray(picture, dtype=np.float32).transpose(2, 0, 1) - 100

        def encode_images(self, pixels):
            Z = pixels.reshape(len(pixels), -1) @ self._map
            return (Z / np.linalg.norm(Z, axis=1, keepdims=True)).astype(np.float32)

        def encode_text(self, prompts):
            Z = np.stack([np.random.default_rng(sum(p.encode())).normal(size=6) for p in prompts])
            return (Z / np.linalg.norm(Z, axis=1, keepdims=True)).astype(np.float32)

    monkeypatch.setattr(fairerclip.encoders.loading, "load", lambda name, **options: Random(name))
    arguments = ("audit", "--dataset", "waterbirds", "--root", root, "--work", tmp_path / "w")
    models = ("--model", "open_clip:A", "--model", "open_clip:BB", "--json")
    code, out, err = run(*arguments, *models)
    assert code == 0, err
    assert {m["model"] for m in json.loads(out)["models"]} == {"open_clip-A", "open_clip-BB"}
    shard = tmp_path / "w" / "open_clip-A.store" / "shards" / "00000.npy"
    before = shard.stat().st_mtime_ns
    mine = {"name": "m", "version": 1, "source": {"kind": "ours", "citation": "test"}}
    mine |= {"classes": {"landbird": ["x"], "waterbird": ["y"]}}
    (tmp_path / "p.json").write_text(json.dumps(mine))
    assert run(*arguments, *models, "--prompts", tmp_path / "p.json")[0] == 0
    assert load_task(tmp_path / "w" / "open_clip-A.npz").target_prompts == ("x", "y")  # today's prompts
    assert shard.stat().st_mtime_ns == before
    assert run(*arguments, "--model", "open_clip:A", "--model", "open_clip:A")[0] == 2
    assert run(*arguments, "--stores", tmp_path / "w", "--prompts", tmp_path / "p.json", "--json")[0] == 0
