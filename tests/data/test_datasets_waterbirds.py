"""Waterbirds is read from its official layout, and everything else is refused by name."""

import pytest

from fairerclip.data.datasets import DATASETS, read_dataset
from fairerclip.data.datasets.waterbirds import read
from fairerclip.data.prompts import load_prompts
from fairerclip.errors import DatasetError, ParameterError

HEADER = "img_id,img_filename,y,split,place,place_filename"
ROWS = [  # y, split, place
    *((0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1)),
    *((0, 1, 0), (1, 1, 1), (0, 2, 1), (1, 2, 0)),
]


def lines(rows=ROWS):
    return [
        f"{i},00{y}.Bird/Bird_{i:04d}.jpg,{y},{split},{place},/x/y/{i}.jpg"
        for i, (y, split, place) in enumerate(rows)
    ]


def tree(folder, rows=None, header=HEADER, images=True):
    folder.mkdir(parents=True, exist_ok=True)
    rows = lines() if rows is None else rows
    (folder / "metadata.csv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    if images:
        for row in lines():
            image = folder / row.split(",")[1]
            image.parent.mkdir(exist_ok=True)
            image.write_bytes(b"")
    return folder


def test_labels_splits_and_groups_are_those_of_the_list(tmp_path):
    index = read(tree(tmp_path / "birds"), check_images=True)
    assert index.y.tolist() == [y for y, _, _ in ROWS]
    codes, names = index.sensitive["background"]
    assert codes.tolist() == [place for _, _, place in ROWS]
    assert index.split.tolist() == [("train", "val", "test")[split] for _, split, _ in ROWS]
    assert index.ids[0] == "000.Bird/Bird_0000.jpg"
    assert index.paths("val")[0] == tmp_path / "birds" / "000.Bird" / "Bird_0004.jpg"
    assert (len(index), index.counts()) == (8, {"train": 4, "val": 2, "test": 2})
    assert names == ("land background", "water background")


def test_class_and_value_names_are_those_of_the_default_prompts(tmp_path):
    index = read(tree(tmp_path))
    prompts = load_prompts(index.prompts)
    assert prompts.class_names == index.class_names
    assert prompts.sensitive_names("background") == index.sensitive["background"][1]


@pytest.mark.parametrize("name", ["waterbird_complete95_forest2water2", "waterbirds_v1.0"])
def test_the_parent_of_the_official_folder_will_do(tmp_path, name):
    tree(tmp_path / name)
    assert read(tmp_path).root == tmp_path / name
    assert read(str(tmp_path / name)).root == tmp_path / name
    assert read_dataset("waterbirds", tmp_path).name == "waterbirds"


def published():
    counts = {0: (3498, 184, 56, 1057), 1: (467, 466, 133, 133), 2: (2255, 2255, 642, 642)}
    return [
        (group // 2, split, group % 2)
        for split, rows in counts.items()
        for group, n in enumerate(rows)
        for _ in range(n)
    ]


def test_the_published_counts_leave_no_note(tmp_path):
    index = read(tree(tmp_path, rows=lines(published()), images=False))
    assert index.notes == ()
    assert index.counts() == {"train": 4795, "val": 1199, "test": 5794}


def test_other_counts_are_noted_by_split(tmp_path):
    index = read(tree(tmp_path, rows=lines(published()[1:]), images=False))
    (note,) = index.notes
    assert note.startswith("train has 3497 / 184 / 56 / 1057 rows in the groups landbird × land background, ")
    assert note.endswith("3498 / 184 / 56 / 1057 were published.")


def replace(row, column, value):
    fields = lines()[row].split(",")
    fields[column] = value
    return [*lines()[:row], ",".join(fields), *lines()[row + 1 :]]


BAD = {
    "wrong class": (replace(2, 2, "2"), "row 2: y: expected one of 0, 1, got '2'"),
    "class as text": (replace(2, 2, "duck"), "got 'duck'"),
    "wrong split": (replace(3, 3, "train"), "split: expected one of 0, 1, 2, got 'train'"),
    "wrong place": (replace(0, 4, ""), "place: expected one of 0, 1, got ''"),
    "image twice": (replace(1, 1, "000.Bird/Bird_0000.jpg"), "expected each image once"),
    "path out of the root": (replace(1, 1, "../../secret.jpg"), "row 1: expected a path inside the data set"),
    "path out in the middle": (replace(1, 1, "a/../../secret.jpg"), "inside the data set"),
    "absolute path": (replace(1, 1, "/etc/passwd"), "inside the data set"),
    "drive": (replace(1, 1, "C:/x.jpg"), "inside the data set"),
    "backslashes": (replace(1, 1, "a\\b.jpg"), "plain path"),
    "backslashes out": (replace(1, 1, "..\\b.jpg"), "inside the data set"),
    "empty path": (replace(1, 1, ""), "plain path"),
    "a field too few": (["0,a.jpg,0,0,0"], "line 2: expected 6 fields, got 5"),
    "long path": (replace(1, 1, "x" * 5000 + ".jpg"), "row 1 has 5,004"),
    "no rows": ([], "expected rows below the header"),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_a_bad_list_is_refused_with_row_and_reason(tmp_path, case):
    rows, message = BAD[case]
    with pytest.raises(DatasetError, match=message):
        read(tree(tmp_path, rows=rows), check_images=True)


def test_a_missing_column_is_named(tmp_path):
    with pytest.raises(DatasetError, match="expected the columns place, got img_id"):
        read(tree(tmp_path, header=HEADER.replace(",place,", ",where,")))
    with pytest.raises(DatasetError, match="got y twice"):
        read(tree(tmp_path, header="y,img_filename,y,split,place,z"))


def test_text_of_another_encoding_is_refused(tmp_path):
    (tmp_path / "metadata.csv").write_bytes(HEADER.encode() + b"\n0,\xff\xfe.jpg,0,0,0,x\n")
    with pytest.raises(DatasetError, match="UTF-8"):
        read(tmp_path)


def test_missing_images_are_counted_only_when_asked(tmp_path):
    folder = tree(tmp_path)
    (folder / "000.Bird" / "Bird_0001.jpg").unlink()
    assert len(read(folder)) == 8
    with pytest.raises(DatasetError, match=r"1 of 8 images are not under .*: 000.Bird/Bird_0001.jpg"):
        read(folder, check_images=True)


def test_an_absent_data_set_says_where_to_get_it_and_what_is_expected(tmp_path):
    for root, reason in ((tmp_path, "there is no metadata.csv"), (tmp_path / "none", "no such folder")):
        with pytest.raises(
            DatasetError, match=rf"{reason}. Get it from .*Sagawa(.|\n)*Expected:\n.*waterbird"
        ):
            read(root)
    with pytest.raises(DatasetError, match="no such folder"):
        read(tmp_path / ("x" * 5000))
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="that is a file"):
        read(tmp_path / "file")


def test_an_unknown_data_set_is_answered_with_the_nearest(tmp_path):
    with pytest.raises(ParameterError, match="did you mean 'celeba'"):
        read_dataset("celebA2", tmp_path)
    assert sorted(DATASETS) == ["celeba", "cfd", "facet", "fairface", "metadata", "utkface", "waterbirds"]
