"""FACET is read from its annotations, for images with one annotated person."""

import csv

import pytest

from fairerclip.data.datasets.facet import FLAGS, read
from fairerclip.errors import DatasetError, ParameterError

HEADER = [
    *("person_id", "filename", "class1", "class2", "bounding_box"),
    *FLAGS["gender"],
    "gender_presentation_na",
    *FLAGS["skin_tone"],
    "skin_tone_na",
    *FLAGS["age"],
    "age_presentation_na",
]
BOX = '{"x": 1, "y": 2, "width": 30, "height": 40}'


def person(number, image, job, *, gender="fem", tones=(2,), age="middle", **other):
    row = dict.fromkeys(HEADER, "0")
    row |= {"person_id": str(number), "filename": image, "class1": job, "class2": "", "bounding_box": BOX}
    row[f"gender_presentation_{gender}"] = "1"
    row[f"age_presentation_{age}"] = "1"
    for tone in tones:
        row[f"skin_tone_{tone}"] = str(int(row[f"skin_tone_{tone}"]) + 1)
    return row | other


PEOPLE = [
    person(1, "a.jpg", "nurse", gender="fem", tones=(3, 3, 4), age="young"),  # mean 3.33
    person(2, "b.jpg", "nurse", gender="masc", tones=(3, 4), age="older"),  # mean 3.5
    person(3, "c.jpg", "disk_jockey", gender="non_binary", tones=(6,), age="middle"),
    person(4, "d.jpg", "disk_jockey", gender="na", tones=(6, 7), age="na"),  # mean 6.5
    person(5, "e.jpg", "judge", gender="masc", tones=(), gender_presentation_fem="1", skin_tone_na="3"),
    person(6, "f.jpg", "judge", tones=(10,)),
    person(7, "f.jpg", "nurse"),
]


def tree(root, people=PEOPLE, header=HEADER, images=("a", "b", "c", "d", "e", "f")):
    (root / "annotations").mkdir(parents=True, exist_ok=True)
    with (root / "annotations" / "annotations.csv").open("w", newline="") as handle:
        writer = csv.DictWriter(handle, header, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(people)
    for i, name in enumerate(images):
        (root / f"imgs_{i % 3 + 1}").mkdir(exist_ok=True)
        (root / f"imgs_{i % 3 + 1}" / f"{name}.jpg").write_bytes(b"")
    return root


def test_occupations_and_perceived_attributes_are_those_of_the_annotations(tmp_path):
    index = read(tree(tmp_path), check_images=True)
    assert index.ids.tolist() == [
        "imgs_1/a.jpg",
        "imgs_2/b.jpg",
        "imgs_3/c.jpg",
        "imgs_1/d.jpg",
        "imgs_2/e.jpg",
    ]
    jobs = [index.class_names[code] for code in index.y]
    assert jobs == ["nurse", "nurse", "disk_jockey", "disk_jockey", "judge"]
    assert len(index.class_names) == 52
    assert index.sensitive["gender"][0].tolist() == [0, 1, 2, -1, -1]
    assert index.sensitive["gender"][1] == ("feminine", "masculine", "non-binary")
    assert index.sensitive["age"][0].tolist() == [0, 2, 1, -1, 1]
    assert index.sensitive["skin_tone"][0].tolist() == [0, 1, 1, 2, -1]
    assert index.sensitive["skin_tone"][1] == ("light", "medium", "dark")
    assert all(path.is_file() for path in index.paths())


def test_one_attribute_needs_its_columns_alone(tmp_path):
    header = [name for name in HEADER if not name.startswith(("skin", "age"))]
    index = read(tree(tmp_path, header=header), sensitive="gender", seed=1)
    assert list(index.sensitive) == ["gender"]
    with pytest.raises(DatasetError, match="age_presentation_young"):
        read(tmp_path, sensitive="age")
    with pytest.raises(ParameterError, match="sex"):
        read(tmp_path, sensitive="sex")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("skin_tone_2", "many"), ("gender_presentation_fem", "-1"), ("class1", ""), ("class1", "wizard")),
        *(("filename", "../a.jpg"), ("filename", "/etc/passwd"), ("filename", "x.jpg")),
    ],
)
def test_a_bad_list_is_refused_with_the_value(tmp_path, column, value):
    with pytest.raises(DatasetError, match=value or "class1"):
        read(tree(tmp_path, [PEOPLE[0] | {column: value}, *PEOPLE[1:]]))


def test_absent_lists_and_images_and_doubled_ones_are_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"annotations.csv"):
        read(tmp_path)
    with pytest.raises(DatasetError, match="imgs_1"):
        read(tree(tmp_path / "lists", images=()))
    with pytest.raises(DatasetError, match="none"):
        read(tree(tmp_path / "crowd", PEOPLE[5:]))
    (tree(tmp_path) / "imgs_2" / "a.jpg").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"imgs_2/a.jpg"):
        read(tmp_path)
