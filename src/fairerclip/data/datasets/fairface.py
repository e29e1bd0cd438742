"""Reader of FairFace: faces labelled with sex, race and age, without a target (Kärkkäinen and Joo 2021)."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from fairerclip._util.files import reading
from fairerclip.data.datasets import common
from fairerclip.data.datasets.common import DatasetIndex, Origin, Strings
from fairerclip.data.simulate import SEXES
from fairerclip.errors import DatasetError, ParameterError

NAME = "fairface"
LISTS = {"train": "fairface_label_train.csv", "val": "fairface_label_val.csv"}  # official names of the parts
COLUMNS = ("file", "age", "gender", "race")
MARGINS = {
    "0.25": ("fairface-img-margin025-trainval", "margin025", "0.25"),
    "1.25": ("fairface-img-margin125-trainval", "margin125", "1.25"),
}
MARKER = "train/1.jpg"
RACES = ("White", "Black", "East Asian", "Southeast Asian", "Indian", "Middle Eastern", "Latino_Hispanic")
AGES = ("0-2", "3-9", "10-19", "20-29", "30-39", "40-49", "50-59", "60-69", "more than 70")
PUBLISHED_ROWS = {"train": 86_744, "val": 10_954}
PUBLISHED_VAL = {
    "sex": {"female": 5_162, "male": 5_792},
    "race": dict(zip(RACES, (2_085, 1_556, 1_550, 1_415, 1_516, 1_209, 1_623), strict=True)),
}
CODES = {
    "sex": ("gender", {"Female": 0, "Male": 1}, SEXES),
    "race": ("race", {name: i for i, name in enumerate(RACES)}, RACES),
    "age": ("age", {name: i for i, name in enumerate(AGES)}, AGES),
}
ORIGIN = Origin(
    "FairFace",
    "the FairFace project of Kärkkäinen and Joo (FairFace, WACV 2021)",
    "  fairface_label_train.csv            file,age,gender,race,service_test\n"
    "  fairface_label_val.csv\n"
    "  train/1.jpg …  val/1.jpg …          or both under fairface-img-margin025-trainval/ (margin 0.25)\n"
    "                                      or fairface-img-margin125-trainval/ (margin 1.25)",
)


@reading(DatasetError)
def read(
    root: str | os.PathLike[str],
    *,
    margin: str | None = None,
    val_share: float = 0.1,
    seed: int = 0,
    sensitive: str | tuple[str, ...] = ("sex", "race", "age"),
    check_images: bool = False,
) -> DatasetIndex:
    """Read the lists of FairFace.

    Parameters
    ----------
    root : path-like
        Folder with ``fairface_label_train.csv`` and ``fairface_label_val.csv``.
    margin : {"0.25", "1.25"}, optional
        Margin of the images to use; needed only if both are on disk.
    val_share : float
        Share of the official train part that is held out as ``val``, in [0, 1). The official val part is
        ``test``, since the official test part is not public.
    seed : int
        Seed of the held-out part, which does not depend on the order of rows.
    sensitive : tuple of str
        Any of ``sex``, ``race`` and ``age``.
    check_images : bool
        Raise if an image is not on disk.

    Returns
    -------
    DatasetIndex
        Without `y`. Codes are in the order female, male; White, Black, …; 0-2, 3-9, ….

    Raises
    ------
    DatasetError
        The data set is absent, or its lists are damaged or in another form.
    ParameterError
        An option is out of range.
    """
    if not 0 <= val_share < 1:
        raise ParameterError(f"val_share must be in [0, 1), got {val_share!r}")
    requested = common.choose(sensitive, CODES, "sensitive")
    home = common.as_folder(root, ORIGIN)
    tables, ids = _lists(home)
    rows = {part: len(table["file"]) for part, table in tables.items()}
    split, held = _split(tables["train"]["file"], rows["val"], val_share, seed)
    values = {name: _values(tables, name, home) for name in requested}
    images = _images(home, margin)
    if check_images:
        common.check_images(images, ids, ORIGIN.title)
    notes = (
        _split_note(held, val_share, seed),
        *common.total_notes(
            {f"the official {part} part": count for part, count in rows.items()},
            {f"the official {part} part": count for part, count in PUBLISHED_ROWS.items()},
        ),
        *_value_notes(split, values),
    )
    return DatasetIndex(NAME, images, ids, split, None, (), values, NAME, notes)


def _lists(home: Path) -> tuple[dict[str, dict[str, list[str]]], Strings]:
    """Return the columns of the official train and val lists, and the image paths (n,) of both together."""
    tables, ids = {}, []
    for part, name in LISTS.items():
        if not (home / name).is_file():
            raise ORIGIN.missing(home, f"there is no {name}")
        tables[part] = common.read_columns(home / name, COLUMNS)
        ids.append(common.image_ids(tables[part]["file"], home / name))
        _check_part(tables[part]["file"], part, home / name)
    return tables, np.concatenate(ids)


def _values(
    tables: dict[str, dict[str, list[str]]], name: str, home: Path
) -> tuple[common.Ints, tuple[str, ...]]:
    """Return the codes (n,) of a sensitive attribute in both lists together, and the names of its values."""
    column, codes, names = CODES[name]
    parts = [common.coded(table[column], codes, home / LISTS[part], column) for part, table in tables.items()]
    return np.concatenate(parts), names


def _check_part(files: list[str], part: str, file: Path) -> None:
    outside = next((image for image in files if not image.startswith(f"{part}/")), None)
    if outside is not None:
        raise DatasetError(f"{file}: expected images under {part}/, got {outside!r}")


def _split(train: list[str], n_test: int, val_share: float, seed: int) -> tuple[Strings, int]:
    """Return the split (n,) of the train list followed by the test list, and the number of rows held out."""
    held = round(val_share * len(train))
    order = common.seeded_order(train, seed)
    split = np.full(len(train) + n_test, "train", dtype="<U5")
    split[order[:held]] = "val"
    split[len(train) :] = "test"
    return split, held


def _split_note(held: int, val_share: float, seed: int) -> str:
    train = (
        f"val is {held} rows held out of the official train part (share {val_share:g}, seed {seed})"
        if held
        else "train is the whole official train part, and there is no val"
    )
    return f"{train}; test is the official val part."


def _images(home: Path, margin: str | None) -> Path:
    """Return the folder that holds ``train/1.jpg``: the root, or a folder named after the margin."""
    if margin is not None and margin not in MARGINS:
        raise ParameterError(f"margin must be one of {', '.join(MARGINS)}, got {margin!r}")
    by_margin = {
        name: home / folder
        for name, folders in MARGINS.items()
        for folder in reversed(folders)
        if (home / folder / MARKER).is_file()
    }
    if margin is not None:
        if margin in by_margin:
            return by_margin[margin]
        if (home / MARKER).is_file() and not by_margin:
            return home
        raise ORIGIN.missing(home, f"there is no {MARKER} under {' or '.join(MARGINS[margin])}")
    if (home / MARKER).is_file() or not by_margin:
        return home
    if len(by_margin) > 1:
        raise DatasetError(f"{home} holds images of both margins; choose with margin='0.25' or margin='1.25'")
    return next(iter(by_margin.values()))


def _value_notes(split: Strings, values: dict[str, tuple[common.Ints, tuple[str, ...]]]) -> tuple[str, ...]:
    notes: list[str] = []
    for name, published in PUBLISHED_VAL.items():
        if name in values:
            codes, names = values[name]
            rows = np.bincount(codes[split == "test"], minlength=len(names))
            counts = {
                f"{value} in the official val part": int(n) for value, n in zip(names, rows, strict=True)
            }
            expected = {f"{value} in the official val part": n for value, n in published.items()}
            notes.extend(common.total_notes(counts, expected))
    return tuple(notes)
