from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fairerclip.data import load_task, save_task
from fairerclip.data.io import tensors
from fairerclip.data.simulate import waterbirds
from fairerclip.data.task import Split, Task
from fairerclip.errors import OutputExistsError, TaskFileError


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


TOML = """
name = "my birds"
target_prompts = ["a landbird", "a waterbird"]
text_target = "text.npy"
[sensitive.place]
prompts = ["on land", "on water"]
text = "place.npy"
[images]
store = "emb.npz"
[labels]
file = "tables/labels.csv"
id = "image"
target = "bird"
sensitive = ["place"]
split = "part"
split_values = { train = "0", test = "2" }
"""


@pytest.fixture
def folder(tmp_path):
    """Six birds whose table is in another order than their embeddings."""
    root = tmp_path / "birds"
    (root / "tables").mkdir(parents=True)
    X = np.eye(6, dtype=np.float32)
    np.savez(root / "emb.npz", embeddings=X, ids=np.array([f"{i}.jpg" for i in range(6)]))
    np.save(root / "text.npy", X[:2])
    np.save(root / "place.npy", X[2:4])
    lines = [
        f"{i}.jpg,{'land' if i % 2 else 'water'},{'' if i == 3 else i // 3},{0 if i < 4 else 2}"
        for i in range(6)
    ]
    (root / "tables" / "labels.csv").write_text("image,bird,place,part\n" + "\n".join(lines[::-1]))
    (root / "task.toml").write_text(TOML)
    return root


def test_a_folder_is_split_by_a_column_and_joined_by_id(folder):
    task = load_task(folder)
    assert task.name == "my birds"
    assert task.class_names == ("land", "water")
    assert task.train.ids.tolist() == ["0.jpg", "1.jpg", "2.jpg", "3.jpg"]
    np.testing.assert_array_equal(task.train.X, np.eye(6)[:4])
    assert task.train.y.tolist() == [1, 0, 1, 0]
    assert task.train.sensitive("place").tolist() == [0, 0, 0, -1]
    assert task.test.sensitive("place").tolist() == [1, 1]
    assert task.sensitive["place"].prompts == ("on land", "on water")
    assert list(task.splits) == ["train", "test"]


def change(folder, old, new):
    text = (folder / "task.toml").read_text()
    assert old in text
    (folder / "task.toml").write_text(text.replace(old, new))


def test_class_names_give_the_order_of_the_classes(folder):
    change(folder, 'name = "my', 'class_names = ["water", "land"]\nname = "my')
    assert load_task(folder).train.y.tolist() == [0, 1, 0, 1]
    change(folder, '["water", "land"]', '["sea", "land"]')
    with pytest.raises(TaskFileError, match="values land, water, the names are sea, land"):
        load_task(folder)


def test_splits_may_be_files_with_labels_as_arrays(folder):
    np.save(folder / "y.npy", np.array([0, 1, 0, 1, 0, -1]))
    np.save(folder / "s.npy", np.array([0, 1, 0, 1, 0, 1]))
    (folder / "task.toml").write_text(
        '[splits.val]\nstore = "emb.npz"\ny = "y.npy"\ns = { place = "s.npy" }\n[sensitive.place]\nnames=["a","b"]'
    )
    task = load_task(folder)
    assert task.name == "birds"
    assert task.val.y.tolist() == [0, 1, 0, 1, 0, -1]
    assert task.val.sensitive("place").tolist() == [0, 1, 0, 1, 0, 1]


def test_splits_may_be_files_with_labels_from_a_table(folder):
    change(folder, "[images]", "[splits.train]")
    change(folder, 'split = "part"\nsplit_values = { train = "0", test = "2" }\n', "")
    task = load_task(folder)
    assert len(task.train) == 6
    assert task.train.y.tolist() == [1, 0, 1, 0, 1, 0]


def test_embeddings_without_a_label_are_an_error_until_told_otherwise(folder):
    file = folder / "tables" / "labels.csv"
    file.write_text("\n".join(file.read_text().splitlines()[:-1]))
    with pytest.raises(TaskFileError, match=r"1 embeddings have no label: 0.jpg.*unmatched"):
        load_task(folder)
    change(folder, 'split = "part"', 'split = "part"\nunmatched = "drop"')
    assert load_task(folder).train.ids.tolist() == ["1.jpg", "2.jpg", "3.jpg"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"text.npy"', '"../text.npy"', "inside the folder"),
        ('"text.npy"', '"/etc/passwd"', "inside the folder"),
        ('"text.npy"', '"a\\\\b"', "relative path"),
        ('"text.npy"', '"none.npy"', "found nothing"),
        ('"text.npy"', "3", "relative path"),
        ("text_target", "text_targt", "did you mean 'text_target'"),
        ('store = "emb.npz"', 'stor = "emb.npz"', "did you mean 'store'"),
        ("[images]", "[images", "expected TOML"),
        ('split = "part"\n', "", "needs .labels. with a column split"),
        ('{ train = "0", test = "2" }', '{ train = "0" }', "got also"),
        ('target = "bird"', 'target = "brid"', "did you mean 'bird'"),
        ('["a landbird", "a waterbird"]', '"a bird"', "target_prompts to be list"),
        ("[sensitive.place]", "[splits.dev]\n[sensitive.place]", "got both or neither"),
        ('sensitive = ["place"]', 'sensitive = "place"', "sensitive to be list"),
        ('split = "part"', "split = 3", "split to be str"),
        ('store = "emb.npz"', 'store = "emb.npz"\nkey = 3', "key to be str"),
        ("[images]", "[splits.dev]", "splits train, val, test"),
        ('["on land", "on water"]', '["on land"]', "1 prompts"),
    ],
)
def test_a_folder_that_cannot_be_used_says_why(folder, old, new, words):
    change(folder, old, new)
    with pytest.raises(TaskFileError, match=words):
        load_task(folder)


@pytest.mark.skipif(os.name == "nt", reason="links need rights")
@pytest.mark.parametrize("what", ["text.npy", "tables", "task.toml"])
def test_symbolic_links_are_refused(folder, what):
    (folder / what).rename(folder.parent / what)
    (folder / what).symlink_to(folder.parent / what)
    with pytest.raises(TaskFileError, match="symbolic link"):
        load_task(folder)


def test_a_folder_without_task_toml_is_refused(tmp_path):
    with pytest.raises(TaskFileError, match=r"task.toml"):
        load_task(tmp_path)


def test_hostile_names_survive_a_folder(tmp_path):
    task = waterbirds(scale=0.02, width=32)
    odd = 'a "quoted" \\ name\n[splits.test]\nx = 1\x7f \t \u2603 = '
    strange = replace(task, name=odd, class_names=(odd, "waterbird"))
    back = load_task(save_task(strange, tmp_path / "task"))
    assert back.name == odd
    assert back.class_names == (odd, "waterbird")
    assert back.simulated
    np.testing.assert_array_equal(back.test.X, task.test.X)
    with pytest.raises(OutputExistsError, match="remove it first"):
        save_task(task, tmp_path / "task", overwrite=True)


def test_a_folder_has_no_place_for_unknown_arrays(tmp_path):
    task = replace(waterbirds(scale=0.02, width=32), extra={"odd": np.arange(3)})
    with pytest.raises(TaskFileError, match="cannot hold the extra arrays odd"):
        save_task(task, tmp_path / "task")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["t.npz", "t.safetensors", "t"])
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


def test_a_folder_may_hold_wordings_and_only_inside(folder):
    np.save(folder / "wordings.npy", np.ones((3, 2, 6)))
    change(folder, 'name = "my', 'text_target_variants = "wordings.npy"\nname = "my')
    change(folder, 'name = "my', 'target_templates = ["a {}", "b {}", "c {}"]\nname = "my')
    task = load_task(folder)
    assert task.variants.text.shape == (3, 2, 6)
    assert task.variants.templates == ("a {}", "b {}", "c {}")
    change(folder, '"wordings.npy"', '"../wordings.npy"')
    with pytest.raises(TaskFileError, match="inside the folder"):
        load_task(folder)


def test_a_task_with_bad_wordings_is_not_written(tmp_path, task):
    short = replace(task.variants, templates=task.variants.templates[:2])
    with pytest.raises(TaskFileError, match="target_templates"):
        save_task(replace(task, variants=short), tmp_path / "t.npz")
    assert not (tmp_path / "t.npz").exists()


def test_what_could_not_be_read_is_not_written(tmp_path, monkeypatch):
    names = tuple(f"class {i} " + "x" * 100 for i in range(6000))
    rows = Split(np.eye(2, dtype=np.float32), np.array([0, 1]))
    wide = Task("t", {"train": rows}, None, names, names)
    with pytest.raises(TaskFileError, match="at most 524,288 bytes for task.toml, got .*; write .npz"):
        save_task(wide, tmp_path / "folder")
    monkeypatch.setattr(tensors, "MAX_TEXTS", 1000)
    with pytest.raises(TaskFileError, match="'target_prompts' of at most 1,000 texts, got more; write .npz"):
        save_task(wide, tmp_path / "t.safetensors")
    assert list(tmp_path.iterdir()) == []
