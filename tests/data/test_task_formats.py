from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fairerclip.data import load_task, save_task
from fairerclip.data.io import tensors
from fairerclip.data.simulate import waterbirds
from fairerclip.data.task import Split, Task
from fairerclip.errors import TaskFileError


@pytest.fixture
def task():
    return waterbirds(scale=0.01, width=48)


def assert_same(one, two):
    assert (one.name, one.simulated, one.class_names, one.target_prompts) == (
        two.name,
        two.simulated,
        two.class_names,
        two.target_prompts,
    )
    assert list(one.sensitive) == list(two.sensitive)
    for name in one.sensitive:
        assert one.sensitive[name].names == two.sensitive[name].names
        np.testing.assert_array_equal(one.sensitive[name].text, two.sensitive[name].text)
    np.testing.assert_array_equal(one.text_target, two.text_target)
    assert list(one.splits) == list(two.splits)
    for split in one.splits:
        a, b = one.split(split), two.split(split)
        np.testing.assert_array_equal(a.X, b.X)
        np.testing.assert_array_equal(a.y, b.y)
        for name in a.s:
            np.testing.assert_array_equal(a.s[name], b.s[name])
        np.testing.assert_array_equal(a.ids, b.ids)


def test_a_task_comes_back_from_safetensors_as_from_npz(tmp_path, task):
    npz = load_task(save_task(task, tmp_path / "t.npz"))
    tensors = load_task(save_task(task, tmp_path / "t.safetensors"))
    assert_same(npz, tensors)
    assert_same(task, tensors)


def test_equal_tasks_make_equal_safetensors_that_the_library_reads(tmp_path, task):
    one, two = (save_task(task, tmp_path / name) for name in ("a.safetensors", "b.safetensors"))
    assert one.read_bytes() == two.read_bytes()
    np.testing.assert_array_equal(load_file(one)["image_train"], task.train.X)


def test_a_task_written_by_the_library_is_read(tmp_path):
    X = np.eye(4, dtype=np.float16)
    arrays = {"image_train": X, "y_train": np.array([0, 1, 1, -1], dtype=np.int8)}
    save_file(arrays, tmp_path / "t.safetensors", metadata={"class_names": '["cat", "dog"]', "format": "pt"})
    task = load_task(tmp_path / "t.safetensors")
    assert task.class_names == ("cat", "dog")
    assert task.train.y.tolist() == [0, 1, 1, -1]


@pytest.mark.parametrize("metadata", [{"class_names": "cat"}, {"class_names": "[1]"}, {"y_train": '"x"'}])
def test_metadata_that_is_no_text_is_refused(tmp_path, metadata):
    save_file(
        {"image_train": np.eye(4), "y_train": np.arange(4)}, tmp_path / "t.safetensors", metadata=metadata
    )
    with pytest.raises(TaskFileError):
        load_task(tmp_path / "t.safetensors")


def test_safetensors_are_not_compressed_and_later_versions_not_guessed(tmp_path, task):
    with pytest.raises(TaskFileError, match="not compressed"):
        save_task(task, tmp_path / "t.safetensors", compress=True)
    save_file(
        {"image_train": np.eye(4), "y_train": np.arange(4)},
        tmp_path / "t.safetensors",
        metadata={"format": "fairerclip-task", "format_version": "2"},
    )
    with pytest.raises(TaskFileError, match="format_version 1"):
        load_task(tmp_path / "t.safetensors")


@pytest.mark.parametrize("name", ["t.npz", "t.safetensors"])
def test_other_wordings_come_back_from_every_form(tmp_path, task, name):
    back = load_task(save_task(task, tmp_path / name))
    np.testing.assert_array_equal(back.variants.text, task.variants.text)
    assert back.variants.templates == task.variants.templates
    assert back.variants.text.dtype == np.float32
    bare = load_task(save_task(replace(task, variants=None), tmp_path / f"bare-{name}"))
    assert bare.variants is None


def test_wordings_need_no_names_and_any_precision(tmp_path, task):
    arrays = {"image_test": task.test.X, "text_target": task.text_target}
    arrays["text_target_variants"] = task.variants.text.astype(np.float64) * 3
    np.savez(tmp_path / "t.npz", **arrays)
    back = load_task(tmp_path / "t.npz")
    assert back.variants.templates == tuple(f"wording {i}" for i in range(1, 6))
    np.testing.assert_allclose(back.variants.text, 3 * task.variants.text, rtol=1e-6)


V = np.ones((3, 2, 48), dtype=np.float32)
NAMED = np.array(["a {}", "b {}", "c {}"])


@pytest.mark.parametrize(
    ("variants", "templates", "message"),
    [
        (V[0], None, r"expected floats \(m, 2, 48\)"),
        (V[:, :1], None, r"got float32 of shape \(3, 1, 48\)"),
        (V[:, :, :40], None, "as wide as the images"),
        (V.astype(int), None, "expected floats"),
        (V[:0], None, "expected 1 to 1000 wordings, got 0"),
        (np.ones((1001, 2, 48), dtype=np.float16), None, "got 1001"),
        (np.where(np.arange(48) == 7, np.nan, V), NAMED, "NaN or infinity"),
        (V * np.array([1, 0, 1])[:, None, None].astype(np.float32), NAMED, "zeros only in 2 rows: 2, 3"),
        (V, NAMED[:2], "text for each of the 3 wordings, got 2"),
        (V, np.array(["a {}", " ", "c {}"]), "1 of them empty"),
        (V, np.arange(3), "target_templates: expected strings"),
        (None, NAMED, "expected text_target_variants with target_templates"),
    ],
)
def test_wordings_that_do_not_fit_are_refused(tmp_path, task, variants, templates, message):
    arrays = {"image_test": task.test.X, "text_target": task.text_target}
    given = {"text_target_variants": variants, "target_templates": templates}
    np.savez(
        tmp_path / "t.npz", **arrays, **{key: value for key, value in given.items() if value is not None}
    )
    with pytest.raises(TaskFileError, match=message):
        load_task(tmp_path / "t.npz")


def test_a_task_with_bad_wordings_is_not_written(tmp_path, task):
    short = replace(task.variants, templates=task.variants.templates[:2])
    with pytest.raises(TaskFileError, match="target_templates"):
        save_task(replace(task, variants=short), tmp_path / "t.npz")
    assert not (tmp_path / "t.npz").exists()


def test_what_could_not_be_read_is_not_written(tmp_path, monkeypatch):
    names = tuple(f"class {i} " + "x" * 100 for i in range(6000))
    rows = Split(np.eye(2, dtype=np.float32), np.array([0, 1]))
    wide = Task("t", {"train": rows}, None, names, names)
    with pytest.raises(TaskFileError, match="folder"):
        save_task(wide, tmp_path / "folder")
    monkeypatch.setattr(tensors, "MAX_TEXTS", 1000)
    with pytest.raises(TaskFileError, match="'target_prompts' of at most 1,000 texts, got more; write .npz"):
        save_task(wide, tmp_path / "t.safetensors")
    assert list(tmp_path.iterdir()) == []
