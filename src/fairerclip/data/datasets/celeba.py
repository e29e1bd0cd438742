"""Reader of CelebA: 202,599 photographs of faces with forty attributes (Liu et al. 2015)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairerclip._util.files import reading
from fairerclip.data.datasets import common
from fairerclip.data.datasets.common import DatasetIndex, Ints, Origin, Strings
from fairerclip.data.io.bounded_text import nearest
from fairerclip.data.simulate import CELEBA_ROWS, CHEEKBONES, HAIR, SEXES
from fairerclip.errors import DatasetError, LabelError

FOLDERS = ("CelebA", "celeba", "celeba-dataset", "celebA_v1.0")
ATTRIBUTES = "list_attr_celeba"
PARTITION = "list_eval_partition"
IMAGES = "img_align_celeba"
ID_COLUMN, SPLIT_COLUMN = "image_id", "partition"
SEX = "sex"
VALUES = {"-1": 0, "1": 1}
PUBLISHED = {split: sum(rows) for split, rows in CELEBA_ROWS.items()}
ORIGIN = Origin(
    "CelebA",
    "the CelebA project page of MMLAB (Liu et al., Deep Learning Face Attributes in the Wild, ICCV 2015) "
    "or as the Kaggle data set celeba-dataset",
    "  Anno/list_attr_celeba.txt          or   list_attr_celeba.csv\n"
    "  Eval/list_eval_partition.txt            list_eval_partition.csv\n"
    "  Img/img_align_celeba/000001.jpg …       img_align_celeba/img_align_celeba/000001.jpg …",
)


@dataclass(frozen=True)
class CelebaTarget:
    """A target: its attribute, the class names of -1 and 1, and the name of its prompt set ("" if none)."""

    attribute: str
    names: tuple[str, str]
    prompts: str


PRESETS = {
    "blond": CelebaTarget("Blond_Hair", (HAIR[0], HAIR[1]), "celeba-blond"),
    "cheekbones": CelebaTarget("High_Cheekbones", (CHEEKBONES[0], CHEEKBONES[1]), "celeba-cheekbones"),
    "attractive": CelebaTarget("Attractive", ("unattractive", "attractive"), "celeba-attractive"),
}


@reading(DatasetError)
def read(
    root: str | os.PathLike[str],
    *,
    target: str = "blond",
    sensitive: str | Sequence[str] = "Male",
    check_images: bool = False,
) -> DatasetIndex:
    """Read the lists of CelebA.

    Parameters
    ----------
    root : path-like
        Folder in the MMLAB or the Kaggle layout, or the folder above it.
    target : str
        ``blond``, ``cheekbones``, ``attractive``, or any attribute; case, spaces and ``_`` do not matter.
        Class 1 is always the value 1 of the attribute: for ``cheekbones``, high.
    sensitive : str or sequence of str
        One or more attributes. ``Male`` (or ``sex``) is named ``sex`` with values ``female`` and ``male``.
    check_images : bool
        Raise if an image is not on disk.

    Returns
    -------
    DatasetIndex
        `ids` are ``000001.jpg`` … in both layouts. One pass over the lists; memory for the requested columns.

    Raises
    ------
    LabelError
        There is no such attribute (the message names similar ones), or the target is also sensitive.
    DatasetError
        The data set is absent, or its lists are damaged or in another form.
    """
    folder = common.as_folder(root, ORIGIN)
    homes = [folder, *(folder / name for name in FOLDERS)]
    home, attributes = _list_file(homes, "Anno", ATTRIBUTES, folder)
    _, partition = _list_file([home], "Eval", PARTITION, folder)
    preset = PRESETS.get(_key(target))
    requested = [sensitive] if isinstance(sensitive, str) else list(sensitive)
    aliases = {_key(SEX): "Male"}
    wanted = [preset.attribute if preset else target, *(aliases.get(_key(name), name) for name in requested)]
    columns, names, table = _attributes(attributes, wanted)
    ids = common.image_ids(names, attributes)
    split = _splits(partition, ids)
    goal = preset or _target(columns[0])
    y, values = table[0], {_named(column): code for column, code in zip(columns[1:], table[1:], strict=True)}
    images = _images(home, str(ids[0]))
    if check_images:
        common.check_images(images, ids, ORIGIN.title)
    return DatasetIndex(
        f"celeba-{_key(target) if preset else columns[0].lower()}",
        images,
        ids,
        split,
        y,
        goal.names,
        {name: (code, _value_names(name)) for name, code in values.items()},
        goal.prompts or None,
        _notes(split, y, columns[0], values),
    )


def _list_file(homes: Iterable[Path], folder: str, stem: str, root: Path) -> tuple[Path, Path]:
    names = [f"{folder}/{stem}.txt", f"{stem}.txt", f"{stem}.csv", f"{folder}/{stem}.csv"]
    location = common.first_with(homes, names)
    if location is None:
        raise ORIGIN.missing(root, f"there is no {stem}.txt or {stem}.csv")
    return location


def _attributes(file: Path, wanted: Sequence[str]) -> tuple[list[str], list[str], list[Ints]]:
    """Return the columns of the wanted attributes, image names (n,), and codes (n,) of each column."""
    if file.suffix == ".csv":
        _, header = next(common.csv_rows(file), (0, []))
        columns = _resolve(wanted, [name.strip() for name in header if name.strip() != ID_COLUMN])
        table = common.read_columns(file, (ID_COLUMN, *columns))
        names = table[ID_COLUMN]
    else:
        lines = common.text_lines(file)
        if len(lines) < 3 or not (lines[0].strip().isascii() and lines[0].strip().isdecimal()):
            raise DatasetError(
                f"{file}: expected the number of images, the attributes, and rows, got other text"
            )
        columns = _resolve(wanted, lines[1].split())
        names, table = _text_rows(file, lines, columns)
    return columns, names, [common.coded(table[column], VALUES, file, column) for column in columns]


def _text_rows(
    file: Path, lines: Sequence[str], columns: Sequence[str]
) -> tuple[list[str], dict[str, list[str]]]:
    header, rows = lines[1].split(), lines[2:]
    declared = lines[0].strip()  # compared as text: Python refuses to parse a number of 5,000 digits
    if declared.lstrip("0") != str(len(rows)):
        raise DatasetError(
            f"{file}: expected the {declared:.20} images that line 1 declares, got {len(rows)}"
        )
    places = {column: place + 1 for column, place in common.columns_of(header, columns, file).items()}
    names: list[str] = []
    table: dict[str, list[str]] = {column: [] for column in columns}
    for number, line in enumerate(rows):
        fields = line.split()
        if len(fields) != len(header) + 1:
            raise DatasetError(f"{file}, row {number}: expected {len(header) + 1} fields, got {len(fields)}")
        names.append(fields[0])
        for column, place in places.items():
            table[column].append(fields[place])
    return names, table


def _resolve(wanted: Sequence[str], attributes: Sequence[str]) -> list[str]:
    """Return the wanted attributes as the file spells them; the first is the target."""
    known = {_key(name): name for name in attributes}
    columns = []
    for name in wanted:
        if _key(name) not in known:
            close = [known[key] for key in nearest(_key(name), known, 3)]
            hint = f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(attributes)}"
            raise LabelError(f"CelebA has no attribute {name!r}; {hint}")
        columns.append(known[_key(name)])
    if len(set(columns)) != len(columns):
        raise LabelError(f"expected a target and other sensitive attributes, got {', '.join(columns)}")
    return columns


def _splits(file: Path, ids: Strings) -> Strings:
    """Return the split (n,) of each image, in the order of `ids`."""
    if file.suffix == ".csv":
        table = common.read_columns(file, (ID_COLUMN, SPLIT_COLUMN))
        names, values = table[ID_COLUMN], table[SPLIT_COLUMN]
    else:
        rows = [line.split() for line in common.text_lines(file)]
        bad = next((i for i, row in enumerate(rows) if len(row) != 2), None)
        if bad is not None:
            raise DatasetError(
                f"{file}, row {bad}: expected an image and 0, 1 or 2, got {' '.join(rows[bad])!r}"
            )
        names, values = [row[0] for row in rows], [row[1] for row in rows]
    common.image_ids(names, file)
    splits = dict(zip(names, common.splits_of(values, file, SPLIT_COLUMN), strict=True))
    absent = [str(image) for image in ids if str(image) not in splits]
    if absent or len(splits) != len(ids):
        raise DatasetError(
            f"{file}: expected the {len(ids)} images of the attribute list, got {len(splits)}; "
            f"{len(absent)} are missing{': ' + ', '.join(absent[: common.SHOWN]) if absent else ''}"
        )
    return np.array([splits[str(image)] for image in ids], dtype=np.str_)


def _images(home: Path, first: str) -> Path:
    """Return the folder of the images; in Kaggle's archive it lies inside a folder of the same name."""
    folders = [home / "Img" / IMAGES, home / "Img" / IMAGES / IMAGES, home / IMAGES / IMAGES, home / IMAGES]
    with_images = [folder for folder in folders if (folder / first).is_file()]
    existing = [folder for folder in folders if folder.is_dir()]
    return (with_images or existing or [home / IMAGES])[0]


def _notes(split: Strings, y: Ints, target: str, values: dict[str, Ints]) -> tuple[str, ...]:
    if target == PRESETS["blond"].attribute and SEX in values:
        return common.group_notes(split, y, values[SEX], (HAIR, SEXES), CELEBA_ROWS)
    return common.total_notes({name: int((split == name).sum()) for name in PUBLISHED}, PUBLISHED)


def _target(column: str) -> CelebaTarget:
    """Return the preset of an attribute, or a target without prompts for any other attribute."""
    preset = next((preset for preset in PRESETS.values() if preset.attribute == column), None)
    positive = column.replace("_", " ").lower()
    return preset or CelebaTarget(column, (f"not {positive}", positive), "")


def _named(column: str) -> str:
    return SEX if column == "Male" else column.lower()


def _value_names(name: str) -> tuple[str, ...]:
    positive = name.replace("_", " ")
    return SEXES if name == SEX else (f"not {positive}", positive)


def _key(name: str) -> str:
    return "".join(name.lower().replace("_", " ").replace("-", " ").split())
