"""CFD is read from the workbook of either version or its CSV export; no person is in two splits."""

import csv
import random
import re
import zipfile

import numpy as np
import pytest

import fairerclip.data.datasets.norming as norming
from fairerclip.data.datasets.cfd import read
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


def test_a_csv_export_will_do_and_names_may_carry_the_prefix_of_the_files(tmp_path):
    photographs(tmp_path, [row[0] for row in people()], folder="images")
    named = [[f"CFD-{row[0]}", *row[1:]] for row in people()]
    with (tmp_path / "CFD_attributes.csv").open("w", newline="") as handle:
        csv.writer(handle).writerows([["CFD"], NEW, [c or "" for c in CODES], *named])
    assert len(read(tmp_path)) == 40
    assert len(read(tmp_path, workbook=tmp_path / "CFD_attributes.csv")) == 40


def test_only_known_attributes_and_shares_are_taken(tmp_path):
    tree(tmp_path)
    assert read(tmp_path, sensitive=("sex", "race")).sensitive["race"][0][:5].tolist() == [0, 1, 2, 3, 0]
    for bad in ({"sensitive": "age"}, {"shares": (0.5, 0.1, 0.5)}, {"shares": (float("nan"), 0.1, 0.4)}):
        with pytest.raises(ParameterError, match=next(iter(bad))):
            read(tmp_path, **bad)


def test_the_split_is_drawn_by_seed_and_person_whatever_the_order_of_rows(tmp_path):
    rows = people()
    random.Random(1).shuffle(rows)
    one = read(tree(tmp_path / "a"))
    assert one.counts() == {"train": 20, "val": 4, "test": 16}
    assert len(set(one.ids)) == 40
    same, shuffled, other = (
        set(index.ids[index.split == "train"])
        for index in (one, read(tree(tmp_path / "b", rows=rows)), read(tmp_path / "a", seed=1))
    )
    assert same == shuffled != other


@pytest.mark.parametrize(
    ("place", "value"),
    [(2, "X"), (1, "Q"), (5, ""), (5, "high"), (5, "nan"), (0, "AF-001"), (0, "../../x")],
)
def test_bad_norming_data_are_refused_with_the_value(tmp_path, place, value):
    rows = people()
    rows[1][place] = value
    with pytest.raises(DatasetError, match=re.escape(repr(value)) if value != "AF-001" else value):
        read(tree(tmp_path, rows=rows))


def test_files_that_cannot_be_used_are_refused(tmp_path, monkeypatch):
    with pytest.raises(DatasetError, match="Norming Data"):
        read(tmp_path)
    with pytest.raises(DatasetError, match="Attractive"):
        read(tree(tmp_path / "column", header=[*NEW[:5], "Pretty", NEW[6]]))
    root = tree(tmp_path / "cfd")
    for limit in ("MAX_SHEET", "MAX_ROWS"):
        monkeypatch.setattr(norming, limit, 10)
        with pytest.raises(DatasetError, match="at most 10 "):
            read(root)
        monkeypatch.undo()
    workbook(root, people(), name="CFD 2.5 Norming Data and Codebook.xlsx")
    (root / f"~${BOOK}").write_bytes(b"")  # what Excel leaves while a workbook is open
    with pytest.raises(DatasetError, match="workbook="):
        read(root)
    assert len(read(root, workbook=root / BOOK)) == 40
    (root / BOOK).write_bytes(b"not a workbook")
    with pytest.raises(DatasetError, match="xlsx"):
        read(root, workbook=root / BOOK)
    with zipfile.ZipFile(root / BOOK, "w") as archive:
        archive.writestr("nothing", "x")
    with pytest.raises(DatasetError, match="workbook"):
        read(root, workbook=root / BOOK)


def test_missing_and_doubled_photographs_are_named(tmp_path):
    root = tree(tmp_path)
    photo = root / "Images/CFD/AF-001/CFD-AF-001-003-N.jpg"
    photo.with_name("CFD-AF-001-009-N.JPG").write_bytes(b"")
    with pytest.raises(DatasetError, match="AF-001"):
        read(root)
    photo.with_name("CFD-AF-001-009-N.JPG").unlink()
    photo.unlink()
    with pytest.raises(DatasetError, match="AF-001"):
        read(root)
