"""FairFace is read with either margin; its val part is the test split, and val is held out of train."""

import random

import numpy as np
import pytest

from fairerclip.data.datasets.fairface import AGES, PUBLISHED_VAL, RACES, read
from fairerclip.data.prompts import load_prompts
from fairerclip.errors import DatasetError, ParameterError

HEADER = "file,age,gender,race,service_test"
N_TRAIN, N_VAL = 40, 14


def rows(part, n):
    return [
        f"{part}/{i + 1}.jpg,{AGES[i % 9]},{('Male', 'Female')[i % 2]},{RACES[i % 7]},{i % 3 == 0}"
        for i in range(n)
    ]


def tree(root, train=None, val=None, folders=("",), header=HEADER):
    root.mkdir(exist_ok=True)
    lists = {"train": rows("train", N_TRAIN) if train is None else train, "val": val or rows("val", N_VAL)}
    for part, lines in lists.items():
        (root / f"fairface_label_{part}.csv").write_text("\n".join([header, *lines]) + "\n")
        for folder in folders:
            (root / folder / part).mkdir(parents=True, exist_ok=True)
            for i in range(N_TRAIN if part == "train" else N_VAL):
                (root / folder / part / f"{i + 1}.jpg").write_bytes(b"")
    return root


def test_values_and_splits_are_those_of_the_lists(tmp_path):
    index = read(tree(tmp_path), check_images=True)
    assert index.y is None
    assert index.class_names == ()
    sex, names = index.sensitive["sex"]
    assert [names[code] for code in sex[:3]] == ["male", "female", "male"]
    assert index.sensitive["race"][0][:8].tolist() == [0, 1, 2, 3, 4, 5, 6, 0]
    assert index.sensitive["age"][0][:10].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 0]
    assert index.counts() == {"train": 36, "val": 4, "test": 14}
    assert {name.split("/")[0] for name in index.ids[index.split == "test"]} == {"val"}
    assert {name.split("/")[0] for name in index.ids[index.split != "test"]} == {"train"}


def test_value_names_are_those_of_the_default_prompts(tmp_path):
    index = read(tree(tmp_path))
    prompts = load_prompts(index.prompts)
    for name, (_, names) in index.sensitive.items():
        assert prompts.sensitive_names(name) == names
        assert load_prompts(name).sensitive_names(name) == names


def test_the_held_out_part_depends_on_the_seed_and_not_on_the_order_of_rows(tmp_path):
    shuffled = rows("train", N_TRAIN)
    random.Random(1).shuffle(shuffled)
    indices = [
        read(tree(tmp_path / "a")),
        read(tree(tmp_path / "b", train=shuffled)),
        read(tmp_path / "a", seed=1),
    ]
    same, shuffled_too, other = [set(index.ids[index.split == "val"]) for index in indices]
    assert same == shuffled_too != other
    assert read(tmp_path / "a", val_share=0).counts()["val"] == 0


def test_the_held_out_part_is_stated(tmp_path):
    note = read(tree(tmp_path), val_share=0.2, seed=3).notes[0]
    assert note.startswith("val is 8 rows held out of the official train part (share 0.2, seed 3)")


def full_val():
    by_race = [race for race, n in PUBLISHED_VAL["race"].items() for _ in range(n)]
    n_female = PUBLISHED_VAL["sex"]["female"]
    return [
        f"val/{i + 1}.jpg,20-29,{'Female' if i < n_female else 'Male'},{race},True"
        for i, race in enumerate(by_race)
    ]


def test_the_published_counts_leave_only_the_note_on_the_split(tmp_path):
    root = tree(tmp_path, train=rows("train", 86_744), val=full_val())
    assert len(read(root).notes) == 1
    assert read(root).counts() == {"train": 78070, "val": 8674, "test": 10954}


def test_other_counts_are_noted(tmp_path):
    notes = read(tree(tmp_path)).notes
    assert "the official train part has 40 rows; 86744 were published." in notes
    assert "female in the official val part has 7 rows; 5162 were published." in notes


@pytest.mark.parametrize(
    ("folder", "margin"),
    [("fairface-img-margin025-trainval", "0.25"), ("margin125", "1.25"), ("0.25", "0.25"), ("", None)],
)
def test_the_images_are_found_under_the_root_or_a_margin_folder(tmp_path, folder, margin):
    root = tree(tmp_path, folders=(folder,))
    assert read(root, check_images=True).root == root / folder
    if margin:
        assert read(root, margin=margin).root == root / folder


def test_with_both_margins_one_must_be_chosen(tmp_path):
    root = tree(tmp_path, folders=("margin025", "margin125"))
    with pytest.raises(DatasetError, match="both margins; choose"):
        read(root)
    assert read(root, margin="1.25").root.name == "margin125"


def test_a_margin_that_is_not_there_is_an_error(tmp_path):
    root = tree(tmp_path, folders=("margin025",))
    with pytest.raises(DatasetError, match="no train/1.jpg under fairface-img-margin125"):
        read(root, margin="1.25")
    with pytest.raises(ParameterError, match="margin must be one of 0.25, 1.25"):
        read(root, margin="0.5")


def test_only_the_asked_attributes_are_given(tmp_path):
    root = tree(tmp_path)
    assert list(read(root, sensitive="race").sensitive) == ["race"]
    with pytest.raises(
        ParameterError, match="sensitive must be distinct names among sex, race, age, got gender"
    ):
        read(root, sensitive="gender")


@pytest.mark.parametrize("share", [-0.1, 1, np.nan])
def test_a_share_out_of_range_is_refused(tmp_path, share):
    with pytest.raises(ParameterError, match=r"val_share must be in \[0, 1\)"):
        read(tmp_path, val_share=share)


@pytest.mark.parametrize("seed", [-1, 0.5, True])
def test_a_bad_seed_is_refused(tmp_path, seed):
    with pytest.raises(ParameterError, match="seed must be a whole number"):
        read(tree(tmp_path), seed=seed)


BAD = {
    "wrong sex": ("train/2.jpg,3-9,female,Black,True", "gender: expected one of Female, Male, got 'female'"),
    "age made a date": ("train/2.jpg,9-Mar,Female,Black,True", "age: expected one of 0-2, .*got '9-Mar'"),
    "wrong race": ("train/2.jpg,3-9,Female,Latino,True", "race: expected one of White, .*got 'Latino'"),
    "image twice": ("train/1.jpg,3-9,Female,Black,True", "expected each image once"),
    "other part": ("val/2.jpg,3-9,Female,Black,True", "expected images under train/, got 'val/2.jpg'"),
    "path out": ("train/../../2.jpg,3-9,Female,Black,True", "inside the data set"),
    "short row": ("train/2.jpg,3-9,Female", "line 3: expected 5 fields, got 3"),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_a_bad_list_is_refused_with_row_and_reason(tmp_path, case):
    line, message = BAD[case]
    with pytest.raises(DatasetError, match=message):
        read(tree(tmp_path, train=[rows("train", 1)[0], line]))


def test_a_missing_column_or_list_is_named(tmp_path):
    with pytest.raises(DatasetError, match="expected the columns gender"):
        read(tree(tmp_path, header=HEADER.replace("gender", "sex")))
    (tmp_path / "fairface_label_val.csv").unlink()
    (tmp_path / "fairface_label_train.csv").write_text("\n".join([HEADER, *rows("train", 3)]))
    with pytest.raises(
        DatasetError, match="there is no fairface_label_val.csv. Get it from the FairFace project"
    ):
        read(tmp_path)


def test_missing_images_are_counted_only_when_asked(tmp_path):
    root = tree(tmp_path)
    (root / "val" / "3.jpg").unlink()
    assert len(read(root)) == N_TRAIN + N_VAL
    with pytest.raises(DatasetError, match="1 of 54 images are not under .*: val/3.jpg"):
        read(root, check_images=True)
