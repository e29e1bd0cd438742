"""UTKFace is read from its file names; names without a label are left out and named."""

import pytest

from fairerclip.data.datasets.fairface import AGES
from fairerclip.data.datasets.utkface import RACES, read
from fairerclip.data.prompts import load_prompts
from fairerclip.errors import DatasetError, ParameterError

NAMES = [
    f"{age}_{i % 2}_{i % 5}_2017010922{i:07d}.jpg.chip.jpg"
    for i, age in enumerate((0, 2, 3, 9, 10, 19, 20, 29, 30, 45, 59, 60, 69, 70, 116))
]
ODD = ["61_1_20170109142408075.jpg.chip.jpg", "53__0_20170116184028385.jpg", "117_0_1_20170109220000001.jpg"]
UNTIDY = ["24_0_1_20170116220224657 .jpg.chip.jpg", "55_0_0_20170116232725357jpg.chip.jpg"]


def tree(root, names=NAMES, folder="UTKFace"):
    (root / folder).mkdir(parents=True, exist_ok=True)
    for name in names:
        (root / folder / name).write_bytes(b"")
    return root


def by_name(index, attribute):
    codes, names = index.sensitive[attribute]
    return {str(image): names[code] for image, code in zip(index.ids, codes, strict=True)}


def test_labels_are_those_of_the_file_names(tmp_path):
    index = read(tree(tmp_path), check_images=True)
    assert (index.y, index.class_names, index.prompts) == (None, (), None)
    assert sorted(index.ids) == sorted(NAMES)
    assert index.root == tmp_path / "UTKFace"
    sex, race, age = (by_name(index, name) for name in ("sex", "race", "age"))
    for i, name in enumerate(NAMES):
        assert sex[name] == ("male", "female")[i % 2]
        assert race[name] == RACES[i % 5]
    assert [age[name] for name in NAMES] == [
        *("0-2", "0-2", "3-9", "3-9", "10-19", "10-19", "20-29", "20-29", "30-39", "40-49", "50-59", "60-69"),
        *("60-69", "more than 70", "more than 70"),
    ]
    assert all(path.is_file() for path in index.paths())
    assert load_prompts("age").sensitive_names("age") == AGES


@pytest.mark.parametrize(
    ("folders", "root", "first"),
    [
        ([""], "", NAMES[0]),
        (["utkface_aligned_cropped/UTKFace"], "utkface_aligned_cropped/UTKFace", NAMES[0]),
        (["crop_part1"], "crop_part1", NAMES[0]),
        (["part1", "part2", "part3"], "", f"part1/{NAMES[0]}"),
        (["part2", "part3"], "", f"part2/{NAMES[0]}"),
    ],
)
def test_every_form_of_the_images_is_read(tmp_path, folders, root, first):
    for folder in folders:
        tree(tmp_path, folder=folder)
    index = read(tmp_path)
    assert index.root == tmp_path / root
    assert first in index.ids
    assert len(index) == len(folders) * len(NAMES)
    assert all(path.is_file() for path in index.paths())


def test_one_form_is_read_if_there_are_several_and_what_is_left_out_is_noted(tmp_path):
    tree(tree(tmp_path, [*NAMES, *ODD, *UNTIDY]), NAMES[:5], "crop_part1")
    (tmp_path / "UTKFace" / "20_0_0_20170109220000009.jpg").symlink_to(
        tmp_path
    )  # a link to a folder is no image
    index = read(tmp_path)
    assert sorted(index.ids) == sorted([*NAMES, *UNTIDY])
    notes = " ".join(index.notes)
    for fact in ("crop_part1", "3 images", "117_0_1_", "23708"):
        assert fact in notes


def test_the_split_is_seeded(tmp_path):
    index = read(tree(tmp_path), seed=3, sensitive="race")
    assert list(index.sensitive) == ["race"]
    assert index.counts() == {"train": 7, "val": 2, "test": 6}
    assert read(tmp_path, seed=3).split.tolist() == index.split.tolist()
    assert read(tmp_path, seed=4).split.tolist() != index.split.tolist()
    assert read(tmp_path, shares=(0, 0, 1)).counts()["test"] == len(NAMES)
    for bad in ({"sensitive": "hair"}, {"shares": (0.5, 0.1, 0.1)}):
        with pytest.raises(ParameterError, match=next(iter(bad))):
            read(tmp_path, **bad)


def test_another_collection_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="20 of 35"):
        read(tree(tmp_path, [*NAMES, *(f"photo{i}.jpg" for i in range(20))]))
    with pytest.raises(DatasetError, match="UTKFace"):
        read(tree(tmp_path / "empty", ["readme.txt"]))
