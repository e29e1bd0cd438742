"""FairFace is read with either margin; its val part is the test split, and val is held out of train."""

import random

import pytest

from fairerclip.data.datasets.fairface import AGES, RACES, read
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


@pytest.mark.parametrize(
    ("folder", "margin"),
    [("fairface-img-margin025-trainval", "0.25"), ("margin125", "1.25"), ("", None)],
)
def test_the_images_are_found_under_the_root_or_a_margin_folder(tmp_path, folder, margin):
    root = tree(tmp_path, folders=(folder,))
    assert read(root, check_images=True).root == root / folder
    if margin:
        assert read(root, margin=margin).root == root / folder


def test_with_both_margins_one_must_be_chosen(tmp_path):
    root = tree(tmp_path, folders=("margin025", "margin125"))
    with pytest.raises(DatasetError, match="both margins"):
        read(root)
    assert read(root, margin="1.25").root.name == "margin125"
    with pytest.raises(DatasetError, match="margin125"):
        read(tree(tmp_path / "one", folders=("margin025",)), margin="1.25")


@pytest.mark.parametrize("bad", [{"margin": "0.5"}, {"sensitive": "gender"}, {"val_share": 1}, {"seed": 0.5}])
def test_options_out_of_range_are_named(tmp_path, bad):
    with pytest.raises(ParameterError, match=next(iter(bad))):
        read(tree(tmp_path), **bad)


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("train/2.jpg,3-9,female,Black,True", "'female'"),
        ("train/2.jpg,9-Mar,Female,Black,True", "'9-Mar'"),
        ("train/2.jpg,3-9,Female,Latino,True", "'Latino'"),
        ("train/1.jpg,3-9,Female,Black,True", "once"),
        ("val/2.jpg,3-9,Female,Black,True", "'val/2.jpg'"),
        ("train/../../2.jpg,3-9,Female,Black,True", "inside"),
        ("train/2.jpg,3-9,Female", "line 3"),
    ],
)
def test_a_bad_list_is_refused(tmp_path, line, fact):
    with pytest.raises(DatasetError, match=fact):
        read(tree(tmp_path, train=[rows("train", 1)[0], line]))


def test_missing_columns_images_and_lists_are_named(tmp_path):
    with pytest.raises(DatasetError, match="gender"):
        read(tree(tmp_path / "column", header=HEADER.replace("gender", "sex")))
    root = tree(tmp_path)
    (root / "val" / "3.jpg").unlink()
    assert "86744" in " ".join(read(root).notes)
    with pytest.raises(DatasetError, match=r"val/3.jpg"):
        read(root, check_images=True)
    (root / "fairface_label_val.csv").unlink()
    with pytest.raises(DatasetError, match=r"fairface_label_val.csv"):
        read(root)
