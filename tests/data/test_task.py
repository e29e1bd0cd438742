"""A task file is checked once, on the way in, and comes back from disk as it was."""

import numpy as np
import pytest

from fairerclip.data import Sensitive, Split, Task, load_task, save_task
from fairerclip.data.io.npz import write_npz
from fairerclip.errors import OutputExistsError, ParameterError, TaskFileError, UnknownArrayWarning


def good_arrays():
    rng = np.random.default_rng(0)
    rows = {"train": 6, "val": 3, "test": 4}
    arrays = {f"image_{k}": rng.standard_normal((n, 5)).astype(np.float32) for k, n in rows.items()}
    for split, n in rows.items():
        arrays[f"y_{split}"] = (np.arange(n) % 3 - 1).astype(np.int8)
        arrays[f"s_{split}"] = np.arange(n) % 2
        arrays[f"ids_{split}"] = np.array([f"{split}/{i}.jpg" for i in range(n)])
    arrays |= {"text_target": rng.standard_normal((2, 5)), "text_sensitive": rng.standard_normal((2, 5))}
    arrays |= {"class_names": np.array(["cat", "dog"]), "target_prompts": np.array(["a cat", "a dog"])}
    arrays |= {
        "sensitive_names": np.array(["day", "night"]),
        "sensitive_prompts": np.array(["at day", "at night"]),
    }
    return arrays


@pytest.fixture
def write(tmp_path):
    def _write(changes=None, drop=(), base=None):
        arrays = {k: v for k, v in (good_arrays() if base is None else base).items() if k not in drop}
        return write_npz(tmp_path / "task.npz", arrays | (changes or {}), overwrite=True)

    return _write


def same(a, b):
    """Equal in every array, name and dtype."""
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, Task | Split | Sensitive):
        return type(a) is type(b) and same(vars(a), vars(b))
    return type(a) is type(b) and a == b


def test_good_file_is_read_whole(write):
    task = load_task(write())
    assert list(task.splits) == ["train", "val", "test"]
    assert (task.name, task.n_classes, task.width, task.simulated) == ("task", 2, 5, False)
    assert task.train.X.shape == (6, 5)
    assert len(task.val) == 3
    assert task.train.y.tolist() == [-1, 0, 1, -1, 0, 1], "unknown stays -1"
    assert task.test.sensitive().tolist() == [0, 1, 0, 1]
    assert task.train.ids[2] == "train/2.jpg"
    assert task.class_names == ("cat", "dog")
    assert task.target_prompts == ("a cat", "a dog")
    attribute = task.sensitive_attribute()
    assert (attribute.name, attribute.names, attribute.prompts) == (
        "s",
        ("day", "night"),
        ("at day", "at night"),
    )
    assert attribute.text.shape == (2, 5)
    assert task.extra == {}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_any_float_becomes_float32_and_any_integer_int64(write, dtype):
    X = np.asarray(np.arange(1.0, 31).reshape(6, 5), dtype=dtype, order="F")
    task = load_task(write({"image_train": X, "y_train": np.ones(6, dtype=np.uint8)}))
    assert task.train.X.dtype == task.text_target.dtype == np.float32
    assert np.array_equal(task.train.X, X)
    assert task.train.X.flags.c_contiguous
    assert task.train.y.dtype == task.train.sensitive().dtype == np.int64


def test_named_attributes_are_kept_apart(write):
    changes = {
        "s_sex_train": np.arange(6) % 2,
        "s_skin_tone_train": np.arange(6) % 3,
        "text_sensitive_age": np.eye(4, 5),
    }
    changes["sensitive_names_sex"] = np.array(["female", "male"])
    task = load_task(write(changes))
    assert sorted(task.sensitive) == ["age", "s", "sex", "skin_tone"]
    assert task.train.sensitive("skin_tone").tolist() == [0, 1, 2, 0, 1, 2]
    assert task.sensitive["skin_tone"].names == ("skin_tone 0", "skin_tone 1", "skin_tone 2")
    assert task.sensitive["sex"].prompts == ("female", "male"), "names stand in for prompts"
    assert task.sensitive["age"].text.shape == (4, 5)
    assert "age" not in task.train.s, "an attribute may have prompts only"


@pytest.mark.parametrize(("name", "compress"), [("c.npz", False), ("c.npz", True), ("c.safetensors", False)])
def test_saving_and_loading_is_the_identity(tmp_path, write, name, compress):
    changes = {"s_sex_train": np.arange(6) % 2, "small_train": np.array([1, 3]), "simulated": np.array(True)}
    changes["name"] = np.array("Vögel (simulated)")
    for drop in ([], ["text_target", "y_val"], ["s_train", "s_val", "s_test", "text_sensitive", "ids_test"]):
        task = load_task(write(changes, drop=drop))
        back = load_task(save_task(task, tmp_path / name, overwrite=True, compress=compress))
        assert (back.simulated, back.name) == (True, "Vögel (simulated)")
        assert same(task, back)


def broken(key, row, value):
    array = good_arrays()[key].copy()
    array[row] = value
    return {key: array}


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        (broken("image_val", (1, 2), np.nan), "image_val.*rows: 1$"),
        ({"image_train": np.full((20, 5), np.nan)}, r"20 rows: 0, 1, 2, 3, 4, …$"),
        ({"image_val": np.full((3, 5), 1e300)}, "image_val"),
        (broken("image_test", 3, 0), "image_test.*rows: 3"),
        ({"image_val": np.ones(3)}, "image_val"),
        ({"image_val": np.ones((3, 5), dtype=int)}, "image_val"),
        ({"image_val": np.ones((3, 4))}, "image_val"),
        ({"text_target": np.ones((2, 4))}, "text_target"),
        ({"y_train": np.zeros(5, dtype=int)}, "y_train"),
        ({"y_train": np.zeros(6)}, "y_train"),
        (broken("y_train", 4, 2), "y_train.*rows: 4$"),
        ({"y_val": np.full(3, 2**63, dtype=np.uint64)}, "y_val"),
        (broken("s_test", 0, 7), "s_test"),
        ({"ids_val": np.array(["a"])}, "ids_val"),
        ({"class_names": np.array(["a", "b", "c"])}, "class_names"),
        ({"class_names": np.array(["", "b"])}, "class_names"),  # "" stands for an unknown label
        ({"sensitive_names": np.array(["a", ""])}, "sensitive_names"),
        ({"name": np.arange(3)}, "'name'"),
        ({"image_trian": np.ones((2, 5))}, "'image_train'"),
        ({"s_s_train": np.zeros(6, dtype=int)}, "'s'"),
        (
            {"s_sun_test": np.zeros(4, dtype=int), "s_sun_trian": np.zeros(6, dtype=int)},
            "'s_sun_train'",
        ),
    ],
)
def test_a_bad_array_is_refused_by_file_and_key(write, changes, fact):
    with pytest.raises(TaskFileError, match=f"task.npz: .*{fact}"):
        load_task(write(changes))


@pytest.mark.parametrize(
    ("base", "fact"),
    [
        ({}, "none"),
        ({"X_train": np.eye(3), "y_train": np.arange(3)}, "X_train"),
        ({"image_train": np.eye(3), "y_val": np.arange(3)}, "image_val"),
        ({"image_train": np.eye(3)}, "text_target"),
        ({"image_train": np.eye(3), "y_train": np.full(3, -1)}, "-1"),
        (
            {"image_train": np.eye(3), "y_train": np.array([0, 1, 2**40])},
            "1099511627776",
        ),  # not as many names
    ],
)
def test_arrays_that_make_no_task_are_refused(write, base, fact):
    with pytest.raises(TaskFileError, match=fact):
        load_task(write(base=base))


def test_unknown_keys_are_kept_and_named_in_a_warning(tmp_path, write):
    with pytest.warns(UnknownArrayWarning, match="'notes'$"):
        task = load_task(write({"notes": np.array([1, 3]), "small_train": np.array([1])}))
    assert task.extra["notes"].tolist() == [1, 3]
    save_task(task, tmp_path / "copy.npz")  # no second warning
    with pytest.warns(UnknownArrayWarning, match="'s_train'"):
        load_task(write({"labels_train": np.arange(6)}))


def test_names_that_are_missing_are_made_up_or_those_of_the_prompts(write):
    drop = ["class_names", "sensitive_names", "sensitive_prompts", "target_prompts", "text_target"]
    for without in (drop, drop[:-1]):
        task = load_task(write(drop=without))
        assert task.class_names == task.target_prompts == ("class 0", "class 1")
        assert task.sensitive["s"].names == ("group 0", "group 1")
    assert load_task(write(drop=drop[:1])).class_names == ("a cat", "a dog")
    assert load_task(write(drop=["y_train", "y_val", "y_test"])).train.y is None


def test_absent_files_splits_and_attributes_are_named(tmp_path, write):
    drop = ["image_val", "y_val", "s_val", "ids_val"]
    task = load_task(write({"s_sex_train": np.zeros(6, dtype=int)}, drop=drop))
    with pytest.raises(TaskFileError, match="'val'"):
        _ = task.val
    for owner in (task.sensitive_attribute, task.train.sensitive):
        with pytest.raises(ParameterError, match="'sex'"):
            owner()
        with pytest.raises(ParameterError, match="'age'"):
            owner("age")
    assert task.sensitive_attribute("sex").name == "sex"
    with pytest.raises(ParameterError, match="none"):
        Split(np.eye(2, dtype=np.float32)).sensitive()
    for name in ("task.pt", "task.pkl", "task", "gone.npz"):
        with pytest.raises(TaskFileError, match=name):
            load_task(tmp_path / name)
    with pytest.raises(OutputExistsError):
        save_task(task, tmp_path / "task.npz")


X, Y = np.eye(3, dtype=np.float32), np.array([0, 1, 5])


@pytest.mark.parametrize(
    ("splits", "text", "extra", "fact"),
    [
        ({"train": Split(X, Y)}, None, {}, "y_train"),
        ({"holdout": Split(X)}, X, {}, "'holdout'"),
        ({"train": Split(X, Y % 2, {"sex": Y % 2})}, None, {}, "attributes"),
        ({"train": Split(X, Y % 2)}, None, {"y_train": Y}, "y_train"),
    ],
)
def test_saving_checks_what_loading_would(tmp_path, splits, text, extra, fact):
    names = ("cat", "dog")
    with pytest.raises(TaskFileError, match=fact):
        save_task(Task("t", splits, text, names, names, extra=extra), tmp_path / "a.npz")
    assert not (tmp_path / "a.npz").exists()


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("name", ["waterbirds_clip_rn50_256", "celeba_attractive", "pacs"])
def test_a_real_file_loads_and_comes_back(tmp_path, real_data, name):
    task = load_task(real_data / f"{name}.npz")
    assert not task.simulated
    assert set(task.extra) == ({"small_train"} if name == "celeba_attractive" else set())
    assert same(task, load_task(save_task(task, tmp_path / "copy.npz")))
