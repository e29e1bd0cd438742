"""A list of images is read by the names of its columns: SubpopBench, Waterbirds of WILDS, and one's own."""

import pytest

from fairerclip.data.datasets import read_dataset
from fairerclip.data.datasets.metadata import read
from fairerclip.errors import DatasetError, ParameterError

ROWS = [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1), (0, 1, 0), (1, 2, 1)]  # y, split, a
BIRDS = {
    "sensitive": {"background": "a"},
    "class_names": ["landbird", "waterbird"],
    "value_names": {"background": ["land background", "water background"]},
}


def lines(rows=ROWS):
    return [f"{i},birds/{i}.jpg,{split},{y},{a}" for i, (y, split, a) in enumerate(rows)]


def tree(root, rows=None, header="id,filename,split,y,a", name="metadata_waterbirds.csv"):
    root.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(
        "\n".join([header, *(lines() if rows is None else rows)]) + "\n", encoding="utf-8"
    )
    return root


def test_a_list_of_subpopbench_is_read_as_it_is(tmp_path):
    index = read(tree(tmp_path))
    assert index.name == "metadata_waterbirds"
    assert index.ids.tolist() == [f"birds/{i}.jpg" for i in range(6)]
    assert index.split.tolist() == [("train", "val", "test")[split] for _, split, _ in ROWS]
    assert (index.y.tolist(), index.class_names) == ([y for y, _, _ in ROWS], ("0", "1"))
    assert index.sensitive["a"][0].tolist() == [a for _, _, a in ROWS]
    assert (index.prompts, index.notes, index.root) == (None, (), tmp_path)


def test_names_and_the_folder_of_images_are_those_given(tmp_path):
    index = read(tree(tmp_path), images="waterbird_complete95_forest2water2", **BIRDS)
    assert index.class_names == ("landbird", "waterbird")
    assert index.sensitive["background"][1] == ("land background", "water background")
    assert index.root == tmp_path / "waterbird_complete95_forest2water2"
    with pytest.raises(DatasetError, match="6 of 6 images are not under"):
        read(tmp_path, images="waterbird_complete95_forest2water2", check_images=True)


def test_waterbirds_of_wilds_gives_what_its_own_reader_gives(tmp_path):
    rows = [f"{i},00{y}.B/{i}.jpg,{y},{split},{a},p.jpg" for i, (y, split, a) in enumerate(ROWS)]
    tree(tmp_path, rows, "img_id,img_filename,y,split,place,place_filename", "metadata.csv")
    ours = read(tmp_path, filename="img_filename", **(BIRDS | {"sensitive": {"background": "place"}}))
    theirs = read_dataset("waterbirds", tmp_path)
    for name in ("ids", "split", "y"):
        assert getattr(ours, name).tolist() == getattr(theirs, name).tolist()
    assert ours.class_names == theirs.class_names
    assert ours.sensitive["background"][0].tolist() == theirs.sensitive["background"][0].tolist()
    assert ours.sensitive["background"][1] == theirs.sensitive["background"][1]


def test_celeba_of_wilds_is_read_by_the_reader_of_celeba(tmp_path):
    folder = tmp_path / "celebA_v1.0"
    folder.mkdir()
    (folder / "list_attr_celeba.csv").write_text(
        "image_id,Blond_Hair,Male\n000001.jpg,1,-1\n000002.jpg,-1,1\n"
    )
    (folder / "list_eval_partition.csv").write_text("image_id,partition\n000001.jpg,0\n000002.jpg,2\n")
    index = read_dataset("celeba", tmp_path)
    assert (index.y.tolist(), index.split.tolist()) == ([1, 0], ["train", "test"])
    assert index.root == folder / "img_align_celeba"


def test_text_values_and_split_names_are_taken(tmp_path):
    rows = ["0,a.jpg,train,dog,night", "1,b.jpg,Val,cat,day", "2,c.jpg,test,dog,day"]
    index = read(tree(tmp_path, rows), class_names=["dog", "cat"])
    assert (index.y.tolist(), index.class_names) == ([0, 1, 0], ("dog", "cat"))
    assert index.sensitive["a"][1] == ("day", "night")
    assert index.split.tolist() == ["train", "val", "test"]


WILDS = [
    "0,a.jpg,train,0,0",
    "1,b.jpg,ID_val,1,1",
    "2,c.jpg,val,0,1",
    "3,d.jpg,id_test,1,0",
    "4,e.jpg,test,1,1",
]


def test_split_names_map_other_names_and_leave_rows_out(tmp_path):
    index = read(tree(tmp_path, WILDS), split_names={"id_val": "val", "val": "test", "Id_Test": None})
    assert index.ids.tolist() == ["a.jpg", "b.jpg", "c.jpg", "e.jpg"]
    assert index.split.tolist() == ["train", "val", "test", "test"]
    assert (index.y.tolist(), index.sensitive["a"][0].tolist()) == ([0, 1, 0, 1], [0, 1, 1, 1])
    assert index.notes == ("1 rows are left out by split_names.",)
    named = {"id_val": "val", "id_test": "test"}
    assert read(tmp_path, target=None, split_names=named).counts() == {"train": 1, "val": 2, "test": 2}


def test_a_list_without_splits_or_target_is_a_gallery_with_a_random_split(tmp_path):
    index = read(
        tree(tmp_path, [f"{i}.jpg,{i % 2}" for i in range(10)], "filename,a"), split=None, target=None, seed=2
    )
    assert (index.y, index.class_names) == (None, ())
    assert index.counts() == {"train": 5, "val": 1, "test": 4}
    assert index.notes == ("The split is random (0.5 / 0.1 / 0.4, seed 2): no column of splits was named.",)


def test_whole_numbers_may_have_a_point_and_are_sorted_as_numbers(tmp_path):
    codes, names = read(tree(tmp_path / "a", [f"{line}.0" for line in lines()])).sensitive["a"]
    assert (codes.tolist(), names) == ([a for _, _, a in ROWS], ("0", "1"))
    rows = [f"{i},{i}.jpg,0,{i},{i % 3 - 1}" for i in range(12)]
    index = read(tree(tmp_path / "b", rows), value_names={"a": ["-1", "0", "1"]})
    assert index.class_names == tuple(str(i) for i in range(12))
    assert index.sensitive["a"][0].tolist() == [0, 1, 2] * 4


def test_one_of_several_lists_is_chosen(tmp_path):
    tree(tree(tmp_path), name="metadata_celeba.csv")
    with pytest.raises(DatasetError, match="file="):
        read(tmp_path)
    assert read(tmp_path, file="metadata_celeba.csv").name == "metadata_celeba"
    with pytest.raises(DatasetError, match=r"list.csv"):
        read(tmp_path, file="list.csv")
    with pytest.raises(DatasetError, match=r"metadata\*.csv"):
        read(tree(tmp_path / "other", name="rows.csv"))


@pytest.mark.parametrize(
    ("column", "value"),
    [(3, "2"), (4, ""), (4, "nan"), (4, "-1"), (2, "3"), (2, "ID_val"), (1, "birds/0.jpg"), (1, "../x.jpg")],
)
def test_a_bad_row_is_refused_with_its_number(tmp_path, column, value):
    rows = [line.split(",") for line in lines()]
    rows[3][column] = value
    with pytest.raises(DatasetError, match="row 3"):
        read(tree(tmp_path, [",".join(row) for row in rows]), class_names=["landbird", "waterbird"])


@pytest.mark.parametrize(
    "options",
    [
        *({"sensitive": "y"}, {"sensitive": []}, {"value_names": {"b": ["x", "y"]}}),
        *({"class_names": ["x", ""]}, {"class_names": ["x"], "target": None}),
        *({"split_names": {"id_val": "valid"}}, {"split_names": {"id_val": "val"}, "split": None}),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path, options):
    with pytest.raises(ParameterError, match=next(iter(options)).removesuffix("s")):
        read(tree(tmp_path), **options)


def test_missing_columns_and_rows_are_named(tmp_path):
    with pytest.raises(DatasetError, match="place"):
        read(tree(tmp_path), sensitive="place")
    with pytest.raises(DatasetError, match="rows"):
        read(tree(tmp_path / "none", []))
    named = dict.fromkeys(("train", "val", "test", "id_val", "id_test"))
    with pytest.raises(DatasetError, match="all 5 rows"):
        read(tree(tmp_path / "all", WILDS), split_names=named)
