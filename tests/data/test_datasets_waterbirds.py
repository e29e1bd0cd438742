"""Waterbirds is read from its official layout, and everything else is refused by name."""

import pytest

from fairerclip.data.datasets import read_dataset
from fairerclip.data.datasets.waterbirds import read
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


@pytest.mark.parametrize("name", ["waterbird_complete95_forest2water2", "waterbirds_v1.0"])
def test_the_parent_of_the_official_folder_will_do(tmp_path, name):
    tree(tmp_path / name)
    assert read(tmp_path).root == tmp_path / name
    assert read(str(tmp_path / name)).root == tmp_path / name
    assert read_dataset("waterbirds", tmp_path).name == "waterbirds"


def test_the_published_counts_leave_no_note_and_others_do(tmp_path):
    counts = {0: (3498, 184, 56, 1057), 1: (467, 466, 133, 133), 2: (2255, 2255, 642, 642)}
    rows = [
        (group // 2, split, group % 2)
        for split, groups in counts.items()
        for group, n in enumerate(groups)
        for _ in range(n)
    ]
    index = read(tree(tmp_path, rows=lines(rows), images=False))
    assert index.notes == ()
    assert index.counts() == {"train": 4795, "val": 1199, "test": 5794}
    (note,) = read(tree(tmp_path, rows=lines(rows[1:]), images=False)).notes
    assert note.startswith("train has 3497 / 184 / 56 / 1057 rows")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *((2, "2"), (2, "duck"), (3, "train"), (4, ""), (1, "000.Bird/Bird_0000.jpg"), (1, "x" * 5000)),
        *((1, path) for path in ("../../a.jpg", "a/../../a.jpg", "/etc/passwd", "C:/x.jpg", "a\\b.jpg", "")),
    ],
)
def test_a_bad_row_is_refused_with_its_number(tmp_path, column, value):
    rows = [line.split(",") for line in lines()]
    rows[1][column] = value
    with pytest.raises(DatasetError, match="row 1"):
        read(tree(tmp_path, rows=[",".join(row) for row in rows]), check_images=True)


@pytest.mark.parametrize(
    "content",
    [
        HEADER.replace(",place,", ",where,") + "\n0,a.jpg,0,0,0,x\n",
        "y,img_filename,y,split,place,z\n0,a.jpg,0,0,0,x\n",
        HEADER + "\n0,a.jpg,0,0,0\n",
        HEADER + "\n",
        HEADER + "\n0,\udcff.jpg,0,0,0,x\n",
    ],
    ids=["column missing", "column twice", "a field too few", "no rows", "not UTF-8"],
)
def test_a_bad_table_is_refused(tmp_path, content):
    (tmp_path / "metadata.csv").write_text(content, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(DatasetError, match=r"metadata.csv"):
        read(tmp_path)


def test_missing_images_lists_and_folders_are_named(tmp_path):
    root = tree(tmp_path / "birds")
    (root / "000.Bird" / "Bird_0001.jpg").unlink()
    assert len(read(root)) == 8
    with pytest.raises(DatasetError, match=r"000.Bird/Bird_0001.jpg"):
        read(root, check_images=True)
    for absent in (tmp_path / "none", tmp_path / ("x" * 5000)):
        with pytest.raises(DatasetError, match="Sagawa"):
            read(absent)
    with pytest.raises(ParameterError, match="celeba"):
        read_dataset("celebA2", tmp_path)
