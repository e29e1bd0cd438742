"""A task file is checked once, on the way in, and comes back from disk as it was."""

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from fairerclip.data import Sensitive, Split, Task, load_task, save_task, simulate
from fairerclip.data.io.npz import write_npz
from fairerclip.errors import OutputExistsError, ParameterError, TaskFileError, UnknownArrayWarning

REAL = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
REAL_SHAPES = {  # rows of train, val, test; width; classes; attributes
    "waterbirds_clip_rn50_256": ((256, None, None), 1024, 2, {"s": 2}),
    "celeba_blond": ((3150, 1050, 2800), 512, 2, {"s": 2}),
    "celeba_cheekbones": ((3150, 1050, 2800), 512, 2, {"s": 2}),
    "celeba_attractive": ((3150, 1050, 2800), 512, 2, {"s": 2}),
    "pacs": ((1474, 1001, 2496), 512, 7, {"s": 4}),
    "fairface": ((16777, 3191, 4996), 512, 10, {"sex": 2, "race": 7, "age": 9}),
}


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
    X = np.array([[0.5, -2, 0, 0, 1]] * 6, dtype=dtype)
    task = load_task(write({"image_train": X, "y_train": np.ones(6, dtype=np.uint8)}))
    assert task.train.X.dtype == task.text_target.dtype == np.float32
    assert np.array_equal(task.train.X, X)
    assert task.train.y.dtype == task.train.sensitive().dtype == np.int64


def test_fortran_ordered_images_keep_their_rows(write):
    X = np.asfortranarray(np.arange(1.0, 31).reshape(6, 5))
    task = load_task(write({"image_train": X}))
    assert np.array_equal(task.train.X, X)
    assert task.train.X.flags.c_contiguous


def broken(key, row, value):
    array = good_arrays()[key].copy()
    array[row] = value
    return {key: array}


ones = np.ones
BAD = {
    "NaN": (broken("image_val", (1, 2), np.nan), r"image_val.*finite.*rows: 1$"),
    "infinity": (broken("image_train", [2, 4], np.inf), r"image_train.*2 rows: 2, 4$"),
    "NaN in a text": (broken("text_target", 0, np.nan), "text_target.*rows: 0"),
    "too large for float32": ({"image_val": np.full((3, 5), 1e300)}, "image_val.*in float32"),
    "all-zero row": (broken("image_test", 3, 0), "image_test.*zeros only in 1 rows: 3"),
    "no rows": ({"image_val": ones((0, 5))}, r"image_val.*at least one row.*\(0, 5\)"),
    "one axis": ({"image_val": ones(3)}, r"image_val.*\(n, p\).*shape \(3,\)"),
    "integer images": ({"image_val": ones((3, 5), dtype=int)}, "image_val.*floats.*int64"),
    "width of a split": ({"image_val": ones((3, 4))}, "image_val: expected width 5.*got 4"),
    "width of the text": ({"text_target": ones((2, 4))}, "text_target: expected width 5.*got 4"),
    "width of the sensitive text": (
        {"text_sensitive": ones((2, 6))},
        "text_sensitive: expected width 5.*got 6",
    ),
    "y too short": ({"y_train": np.zeros(5, dtype=int)}, r"y_train: expected 6 integers.*\(5,\)"),
    "y of floats": ({"y_train": np.zeros(6)}, "y_train.*integers.*float64"),
    "y of two axes": ({"y_train": np.zeros((6, 1), dtype=int)}, r"y_train.*\(6, 1\)"),
    "y beyond the classes": (
        broken("y_train", 4, 2),
        r"y_train: expected -1 \(unknown\) or 0 to 1, got \[2\].*4$",
    ),
    "y below -1": (broken("y_train", 0, -2), r"y_train.*got \[-2\].*rows: 0$"),
    "y beyond 64 bits": ({"y_val": np.full(3, 2**63, dtype=np.uint64)}, "y_val.*64 bits"),
    "s too long": ({"s_val": np.zeros(4, dtype=int)}, "s_val: expected 3 integers"),
    "s beyond its names": (broken("s_test", 0, 7), r"s_test.*0 to 1, got \[7\]"),
    "ids too short": ({"ids_val": np.array(["a"])}, "ids_val: expected 3 strings"),
    "ids of floats": ({"ids_val": np.zeros(3)}, "ids_val.*float64"),
    "too many class names": (
        {"class_names": np.array(["a", "b", "c"])},
        "2 in text_target.*3 in class_names",
    ),
    "too few prompts": ({"target_prompts": np.array(["a"])}, "1 in target_prompts"),
    "too many sensitive names": ({"sensitive_names": np.array(list("abc"))}, "3 in sensitive_names"),
    "names of numbers": ({"class_names": np.arange(2)}, "class_names: expected strings"),
    "simulated of text": ({"simulated": np.array("yes")}, "'simulated'.*kind 'b'"),
    "name of numbers": ({"name": np.arange(3)}, "'name'.*kind 'U'"),
    "misspelled split": ({"image_trian": ones((2, 5))}, "'image_trian'; did you mean 'image_train'"),
    "misspelled in capitals": ({"Class_Name": np.array(["a"])}, "did you mean 'class_names'"),
    "misspelled sensitive": ({"text_senstive": ones((2, 5))}, "did you mean 'text_sensitive'"),
    "a named attribute called s": (
        {"s_s_train": np.zeros(6, dtype=int)},
        "an attribute called 's', which is reserved",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_array_is_refused_by_file_key_and_row(write, what):
    changes, message = BAD[what]
    with pytest.raises(TaskFileError, match=f"task.npz: .*{message}"):
        load_task(write(changes))


def test_many_bad_rows_are_counted_and_the_first_shown(write):
    with pytest.raises(TaskFileError, match=r"20 rows: 0, 1, 2, 3, 4, …$"):
        load_task(write({"image_train": np.full((20, 5), np.nan)}))


def test_file_without_images_lists_what_came(write):
    with pytest.raises(TaskFileError, match="image_train, image_val or image_test.*X_train, y_train"):
        load_task(write(base={"X_train": np.eye(3), "y_train": np.arange(3)}))
    with pytest.raises(TaskFileError, match="got the arrays: none"):
        load_task(write(base={}))


def test_labels_of_a_split_without_images_are_refused(write):
    with pytest.raises(TaskFileError, match="expected image_val with y_val, ids_val, s_val"):
        load_task(write(drop=["image_val"]))


def test_misspelled_key_of_a_named_attribute_is_found(write):
    with pytest.raises(TaskFileError, match="did you mean 's_weather_train'"):
        load_task(
            write({"s_weather_test": np.zeros(4, dtype=int), "s_weather_trian": np.zeros(6, dtype=int)})
        )


def test_unknown_keys_are_kept_and_named_in_a_warning(write):
    with pytest.warns(UnknownArrayWarning, match=r"task.npz: nothing uses the array 'notes'$"):
        task = load_task(write({"notes": np.array([1, 3])}))
    assert task.extra["notes"].tolist() == [1, 3]
    with pytest.warns(UnknownArrayWarning, match=r"'labels_train'; did you mean 's_train'\?$"):
        load_task(write({"labels_train": np.arange(6)}))
    with pytest.warns(UnknownArrayWarning, match=r"'zzz4', and 2 more$"):
        load_task(write({f"zzz{k}": np.arange(6) for k in range(7)}))


def test_saving_does_not_repeat_the_warning_of_loading(tmp_path, write):
    with pytest.warns(UnknownArrayWarning):
        task = load_task(write({"notes": np.array([1, 3])}))
    save_task(task, tmp_path / "copy.npz")


def test_the_small_training_set_of_reproduce_is_no_unknown_array(write):
    task = load_task(write({"small_train": np.array([1, 3])}))
    assert task.extra["small_train"].tolist() == [1, 3]


def test_an_attribute_whose_name_is_near_another_is_named_in_a_warning(write):
    sex = {f"s_sex_{split}": np.arange(n) % 2 for split, n in (("train", 6), ("val", 3), ("test", 4))}
    wrong = {**sex, "s_sexx_train": sex["s_sex_train"]}
    for changes in (wrong, {key: wrong[key] for key in wrong if key != "s_sex_train"}):
        with pytest.warns(
            UnknownArrayWarning, match=r"attribute 'sexx'; did you mean 's_sex_train'\?$"
        ) as told:
            task = load_task(write(changes))
        assert len(told) == 1
        assert set(task.sensitive) == {"s", "sex", "sexx"}
    twice = {key.replace("sex", "sex2"): values for key, values in sex.items()}
    load_task(write(sex | twice))  # as many arrays: an attribute of its own


def test_commands_show_unknown_arrays_in_one_line(run, write):
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, _, err = run("path", write({"notes": np.arange(2)}), "--split", "holdout")
    assert code == 2
    assert len(err.strip().splitlines()) == 2, "the warning, and the error on the split"
    assert "warning: UnknownArrayWarning:" in err
    assert "nothing uses the array 'notes'" in err


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


def test_missing_names_are_made_up(write):
    drop = ["class_names", "sensitive_names", "sensitive_prompts", "target_prompts"]
    task = load_task(write(drop=drop))
    assert task.class_names == task.target_prompts == ("class 0", "class 1")
    assert task.sensitive["s"].names == ("group 0", "group 1")
    assert load_task(write(drop=drop[:1])).class_names == ("a cat", "a dog"), "prompts stand in for names"


def test_labels_stand_in_for_texts_and_one_of_them_is_needed(write):
    no_text = ["text_target", "target_prompts", "class_names"]
    task = load_task(write(drop=no_text))
    assert task.text_target is None
    assert task.class_names == ("class 0", "class 1")
    with pytest.raises(TaskFileError, match="text_target or labels"):
        load_task(write(drop=[*no_text, "y_train", "y_val", "y_test"]))
    assert load_task(write(drop=["y_train", "y_val", "y_test"])).train.y is None
    base = {"image_train": np.eye(3), "y_train": np.full(3, -1)}
    with pytest.raises(TaskFileError, match="-1 only"):
        load_task(write(base=base))


def test_stray_large_label_makes_no_millions_of_names(write):
    base = {"image_train": np.eye(3), "y_train": np.array([0, 1, 2**40])}
    with pytest.raises(TaskFileError, match="below the 3 rows, got 1099511627776"):
        load_task(write(base=base))


def test_absent_split_and_attribute_are_named_with_those_there_are(write):
    drop = ["image_val", "y_val", "s_val", "ids_val"]
    task = load_task(write({"s_sex_train": np.zeros(6, dtype=int)}, drop=drop))
    with pytest.raises(TaskFileError, match="no split 'val'; it has train, test"):
        _ = task.val
    for owner in (task.sensitive_attribute, task.train.sensitive):
        with pytest.raises(ParameterError, match="name of a sensitive attribute.*'s', 'sex'|'sex', 's'"):
            owner()
        with pytest.raises(ParameterError, match="no sensitive attribute 'age'"):
            owner("age")
    assert task.sensitive_attribute("sex").name == "sex"
    with pytest.raises(ParameterError, match="has: none"):
        Split(np.eye(2, dtype=np.float32)).sensitive()


@pytest.mark.parametrize("name", ["task.pt", "task.pkl", "task"])
def test_other_formats_are_refused_by_name(tmp_path, write, name):
    task = load_task(write())
    with pytest.raises(TaskFileError, match=r"expected a task file \(.npz, .safetensors\)"):
        load_task(tmp_path / name)
    if name != "task":  # without an ending a folder is written
        with pytest.raises(TaskFileError, match=r"expected a task file \(.npz, .safetensors\)"):
            save_task(task, tmp_path / name)


def test_absent_file_is_named(tmp_path):
    with pytest.raises(TaskFileError, match="gone.npz: expected a file"):
        load_task(tmp_path / "gone.npz")


@pytest.mark.parametrize("compress", [False, True])
def test_saving_and_loading_is_the_identity(tmp_path, write, compress):
    changes = {"s_sex_train": np.arange(6) % 2, "small_train": np.array([1, 3]), "simulated": np.array(True)}
    for drop in ([], ["text_target", "y_val"], ["s_train", "s_val", "s_test", "text_sensitive", "ids_test"]):
        task = load_task(write(changes, drop=drop))
        back = load_task(save_task(task, tmp_path / "copy.npz", overwrite=True, compress=compress))
        assert back.simulated
        assert same(task, back)


def test_name_survives_the_file(tmp_path, write):
    task = load_task(write({"name": np.array("Vögel (simulated)")}))
    assert load_task(save_task(task, tmp_path / "other.npz")).name == "Vögel (simulated)"


def test_saving_keeps_an_existing_file(tmp_path, write):
    path = write()
    with pytest.raises(OutputExistsError, match="exists"):
        save_task(load_task(path), path)


def test_saving_checks_what_loading_would(tmp_path):
    X, y, path = np.eye(3, dtype=np.float32), np.array([0, 1, 5]), tmp_path / "a.npz"
    names = ("cat", "dog")
    bad = [
        (Task("t", {"train": Split(X, y)}, None, names, names), "y_train"),
        (Task("t", {"holdout": Split(X)}, X, names, names), "got split 'holdout'"),
        (Task("t", {"train": Split(X, y % 2, {"sex": y % 2})}, None, names, names), "attributes"),
        (
            Task("t", {"train": Split(X, y % 2)}, None, names, names, extra={"y_train": y}),
            "that the format does not use, got y_train",
        ),
    ]
    for task, message in bad:
        with pytest.raises(TaskFileError, match=message):
            save_task(task, path)
    assert not path.exists()


def test_importing_the_package_loads_no_heavy_library():
    heavy = ("sklearn", "torch", "pandas", "scipy")
    code = f"import sys, fairerclip.data; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_simulate_is_the_function_whoever_imports_first():
    code = "import fairerclip.data.simulate; from fairerclip.data import simulate; print(callable(simulate))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


@pytest.mark.real
@pytest.mark.skipif(not REAL.is_dir(), reason=f"no real embeddings in {REAL}")
@pytest.mark.parametrize("name", REAL_SHAPES)
def test_real_file_loads_and_comes_back(tmp_path, name):
    path = REAL / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"no {path}")
    rows, width, n_classes, attributes = REAL_SHAPES[name]
    task = load_task(path)
    assert [len(task.splits[k]) if k in task.splits else None for k in ("train", "val", "test")] == list(rows)
    assert (task.width, task.n_classes) == (width, n_classes)
    assert {key: len(a.names) for key, a in task.sensitive.items()} == attributes
    assert not task.simulated
    assert set(task.extra) == ({"small_train"} if name == "celeba_attractive" else set())
    assert same(task, load_task(save_task(task, tmp_path / "copy.npz")))


@pytest.mark.parametrize("key", ["class_names", "sensitive_names"])
def test_an_empty_name_is_refused(tmp_path, key):
    # Where labels are names, "" stands for an unknown label: rows of such a class would be dropped.
    file = save_task(simulate("waterbirds", scale=0.05, width=48), tmp_path / "t.npz")
    arrays = dict(np.load(file))
    arrays[key] = np.array(["", "b"])
    np.savez(tmp_path / "e.npz", **arrays)
    with pytest.raises(TaskFileError, match=f"{key}: entry 0 is empty"):
        load_task(tmp_path / "e.npz")
