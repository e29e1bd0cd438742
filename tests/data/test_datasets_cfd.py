"""CFD is read from the workbook of either version or its CSV export; no person is in two splits."""

import csv
import random
import zipfile

import numpy as np
import pytest

import fairerclip.data.datasets.norming as norming
from fairerclip.data.datasets.cfd import read
from fairerclip.data.prompts import load_prompts
from fairerclip.errors import DatasetError, ParameterError

openpyxl = pytest.importorskip("openpyxl")

NEW = ["Model", "EthnicitySelf", "GenderSelf", "AgeSelf", "Afraid", "Attractive", "Babyfaced"]
OLD = ["Target", "Race", "Gender", "Age", "Afraid", "Attractive", "Babyfaced"]
CODES = [None, "S001", "S002", "S003", "R011", "R013", "R014"]
BOOK = "CFD 3.0 Norming Data and Codebook.xlsx"


def people(n=40):
    found = []
    for i in range(n):
        race, sex = "ABLW"[i % 4], "FM"[i // 4 % 2]
        found.append([f"{race}{sex}-{i + 1:03d}", race, sex, 25.5, 2.0, 1 + (i * 7 % 40) ** 2 / 320, 3.0])
    return found


def workbook(root, rows, header=NEW, above=(), below=(), name=BOOK, first_sheet=True):
    book = openpyxl.Workbook()
    sheet = book.active
    if not first_sheet:
        sheet.append(["Read me first"])
        sheet = book.create_sheet("CFD U.S. Norming Data")
    for row in (*above, header, *below, *rows):
        sheet.append(row)
    book.save(root / name)
    book.close()


def photographs(root, names, folder="Images/CFD"):
    for name in names:
        home = root / folder / name
        home.mkdir(parents=True)
        for end in ("003-N", "004-A", "005-HC"):
            (home / f"CFD-{name}-{end}.jpg").write_bytes(b"")


def tree(root, rows=None, **options):
    root.mkdir(exist_ok=True)
    rows = people() if rows is None else rows
    photographs(root, [row[0].removeprefix("CFD-") for row in people()])
    workbook(root, rows, **options)
    return root


LAYOUTS = {
    "3.0": {
        "above": [["Chicago Face Database"], [], ["remarks"]],
        "below": [CODES],
        "first_sheet": False,
    },
    "codes above": {"above": [["title"], CODES]},
    "2.0.3": {"header": OLD, "name": "CFD 2.0.3 Norming Data and Codebook.xlsx"},
}


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_every_version_gives_the_same_index(tmp_path, layout):
    index = read(tree(tmp_path, **LAYOUTS[layout]))
    assert index.ids.tolist() == [f"Images/CFD/{row[0]}/CFD-{row[0]}-003-N.jpg" for row in people()]
    rating = np.array([row[5] for row in people()])
    assert index.y.tolist() == (rating > rating.mean()).astype(int).tolist()
    assert 0 < index.y.sum() < 20  # the ratings are skewed: the mean is not the median
    codes, names = index.sensitive["sex"]
    assert [names[code][0].upper() for code in codes] == [row[2] for row in people()]
    assert index.class_names == ("unattractive", "attractive")
    assert index.paths()[0].is_file()


def test_a_csv_export_will_do(tmp_path):
    photographs(tmp_path, [row[0] for row in people()], folder="images")
    with (tmp_path / "CFD_attributes.csv").open("w", newline="") as handle:
        csv.writer(handle).writerows([["CFD"], NEW, [c or "" for c in CODES], *people()])
    index = read(tmp_path)
    assert len(index) == 40
    assert read(tmp_path, workbook=tmp_path / "CFD_attributes.csv").ids.tolist() == index.ids.tolist()


def test_names_of_people_may_carry_the_prefix_of_the_files(tmp_path):
    rows = [[f"CFD-{row[0]}", *row[1:]] for row in people()]
    assert len(read(tree(tmp_path, rows=rows))) == 40


def test_class_and_value_names_are_those_of_the_default_prompts(tmp_path):
    index = read(tree(tmp_path))
    prompts = load_prompts(index.prompts)
    assert prompts.class_names == index.class_names
    assert prompts.sensitive_names("sex") == index.sensitive["sex"][1]
    assert read(tmp_path, sensitive=("sex", "race")).sensitive["race"][0][:5].tolist() == [0, 1, 2, 3, 0]
    with pytest.raises(ParameterError, match="among sex, race"):
        read(tmp_path, sensitive="age")


def person(path):
    return path.rsplit("/", 1)[1].split("-N")[0]


def test_no_person_is_in_two_splits(tmp_path):
    root = tree(tmp_path)
    for seed in range(5):
        index = read(root, seed=seed)
        parts = [{person(one) for one in index.ids[index.split == name]} for name in ("train", "val", "test")]
        assert [len(part) for part in parts] == [20, 4, 16]
        assert len(set.union(*parts)) == 40


def test_the_split_depends_on_the_seed_and_not_on_the_order_of_rows(tmp_path):
    shuffled = people()
    random.Random(1).shuffle(shuffled)
    indices = [
        read(tree(tmp_path / "a")),
        read(tree(tmp_path / "b", rows=shuffled)),
        read(tmp_path / "a", seed=1),
    ]
    same, shuffled_too, other = [set(index.ids[index.split == "train"]) for index in indices]
    assert same == shuffled_too != other


def test_597_people_leave_only_the_note_on_the_split_and_298_train_rows(tmp_path):
    rows = people(597)
    photographs(tmp_path, [row[0] for row in rows])
    workbook(tmp_path, rows)
    index = read(tmp_path)
    assert index.counts() == {"train": 298, "val": 60, "test": 239}
    (note,) = index.notes
    assert note.startswith("The split is random (0.5 / 0.1 / 0.4, seed 0)")


def test_another_number_of_people_and_other_sets_are_noted(tmp_path):
    root = tree(
        tmp_path, rows=[*people(), ["MF-300", "M", "F", 20, 2, 3, 3], ["IM-601", "I", "M", 20, 2, 3, 3]]
    )
    notes = read(root).notes
    assert notes[1:] == (
        "There are 40 people; 597 were published.",
        "2 people of the sets CFD-MR and CFD-INDIA were left out.",
    )


def changed(place, value):
    rows = people()
    rows[1][place] = value
    return rows


BAD = {
    "wrong sex": (changed(2, "X"), "row 1 below the header: expected a sex of F or M, got 'X'"),
    "wrong race": (changed(1, "Q"), "expected a race of A, B, L, W, got 'Q'"),
    "no rating": (changed(5, None), "expected a number under Attractive, got ''"),
    "rating as text": (changed(5, "high"), "got 'high'"),
    "rating not finite": (changed(5, "nan"), "got 'nan'"),
    "person twice": (changed(0, "AF-001"), "expected each person once, got AF-001 again"),
    "path as person": (changed(0, "../../x"), "expected a person such as WF-001, got '../../x'"),
    "nobody": ([], "expected people below the header"),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_bad_norming_data_are_refused_with_row_and_reason(tmp_path, case):
    rows, message = BAD[case]
    with pytest.raises(DatasetError, match=message):
        read(tree(tmp_path, rows=rows))


def test_a_missing_column_is_named(tmp_path):
    with pytest.raises(
        DatasetError, match="expected a header with Model, EthnicitySelf, GenderSelf, Attractive or"
    ):
        read(tree(tmp_path, header=[*NEW[:5], "Pretty", NEW[6]]))


def test_a_file_that_is_no_workbook_or_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    root = tree(tmp_path)
    monkeypatch.setattr(norming, "MAX_SHEET", 100)
    with pytest.raises(DatasetError, match="at most 100 bytes decompressed"):
        read(root)
    monkeypatch.undo()
    (root / BOOK).write_bytes(b"not a workbook")
    with pytest.raises(DatasetError, match="expected a workbook, .xlsx"):
        read(root)
    with zipfile.ZipFile(root / BOOK, "w") as archive:
        archive.writestr("nothing", "x")
    with pytest.raises(DatasetError, match="cannot be read as a workbook"):
        read(root)


def test_too_many_rows_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(norming, "MAX_ROWS", 10)
    with pytest.raises(DatasetError, match="at most 10 rows"):
        read(tree(tmp_path))


def test_several_workbooks_ask_for_a_choice(tmp_path):
    root = tree(tmp_path)
    workbook(root, people(), name="CFD 2.5 Norming Data and Codebook.xlsx")
    (root / f"~${BOOK}").write_bytes(b"")  # what Excel leaves while a workbook is open
    with pytest.raises(DatasetError, match="choose with workbook="):
        read(root)
    assert len(read(root, workbook=root / BOOK)) == 40
    with pytest.raises(DatasetError, match="no such file"):
        read(root, workbook=root / "none.xlsx")


def test_missing_and_doubled_photographs_are_named(tmp_path):
    root = tree(tmp_path)
    photo = root / "Images/CFD/AF-001/CFD-AF-001-003-N.jpg"
    photo.with_name("CFD-AF-001-009-N.JPG").write_bytes(b"")
    with pytest.raises(DatasetError, match="expected one neutral photograph of AF-001, got"):
        read(root)
    photo.with_name("CFD-AF-001-009-N.JPG").unlink()
    photo.unlink()
    with pytest.raises(DatasetError, match="no neutral photograph of 1 of 40 people: AF-001"):
        read(root)


def test_an_absent_data_set_says_where_to_get_it_and_what_is_expected(tmp_path):
    with pytest.raises(
        DatasetError, match=r"Norming Data and Codebook.xlsx'. Get it from the CFD project page"
    ):
        read(tmp_path)
    workbook(tmp_path, people())
    with pytest.raises(DatasetError, match=r"no neutral photograph(.|\n)*CFD-WF-001-003-N.jpg"):
        read(tmp_path)


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.5, 0.1, 0.5), (1.5, -0.5, 0.0), (float("nan"), 0.1, 0.4)])
def test_bad_shares_are_refused(tmp_path, shares):
    with pytest.raises(ParameterError, match="three numbers from 0 to 1 with sum 1"):
        read(tree(tmp_path), shares=shares)
