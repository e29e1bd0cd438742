from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fairerclip.data import load_task, save_task
from fairerclip.data.io import tensors
from fairerclip.data.simulate import waterbirds
from fairerclip.errors import TaskFileError


@pytest.fixture
def task():
    return waterbirds(scale=0.01, width=48)


def test_a_task_written_by_the_library_is_read(tmp_path):
    X = np.eye(4, dtype=np.float16)
    arrays = {"image_train": X, "y_train": np.array([0, 1, 1, -1], dtype=np.int8)}
    save_file(arrays, tmp_path / "t.safetensors", metadata={"class_names": '["cat", "dog"]', "format": "pt"})
    task = load_task(tmp_path / "t.safetensors")
    assert task.class_names == ("cat", "dog")
    assert task.train.y.tolist() == [0, 1, 1, -1]


@pytest.mark.parametrize(
    "metadata",
    [
        *({"class_names": "cat"}, {"class_names": "[1]"}, {"y_train": '"x"'}),
        {"format": "fairerclip-task", "format_version": "2"},
    ],
)
def test_metadata_that_cannot_be_used_is_refused(tmp_path, metadata):
    arrays = {"image_train": np.eye(4), "y_train": np.arange(4)}
    save_file(arrays, tmp_path / "t.safetensors", metadata=metadata)
    with pytest.raises(TaskFileError):
        load_task(tmp_path / "t.safetensors")


def test_what_could_not_be_read_is_not_written(tmp_path, task, monkeypatch):
    with pytest.raises(TaskFileError, match="compressed"):
        save_task(task, tmp_path / "t.safetensors", compress=True)
    monkeypatch.setattr(tensors, "MAX_TEXTS", 1)
    with pytest.raises(TaskFileError, match="npz"):
        save_task(task, tmp_path / "t.safetensors")
    for name in ("t.pt", "folder"):
        with pytest.raises(TaskFileError, match="safetensors"):
            save_task(task, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_equal_tasks_make_equal_safetensors_that_the_library_reads(tmp_path, task):
    one, two = (save_task(task, tmp_path / name) for name in ("a.safetensors", "b.safetensors"))
    assert one.read_bytes() == two.read_bytes()
    np.testing.assert_array_equal(load_file(one)["image_train"], task.train.X)
