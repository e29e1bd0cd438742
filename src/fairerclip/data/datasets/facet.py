"""Reader of FACET: people with occupations, for evaluation only (Gustafson et al. 2023)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fairerclip._util.files import reading
from fairerclip.data.datasets import common
from fairerclip.data.datasets.common import DatasetIndex, Ints, Origin
from fairerclip.errors import DatasetError

NAME = "facet"
LIST = "annotations/annotations.csv"
FOLDERS = ("imgs_1", "imgs_2", "imgs_3")
TARGET = "class1"
CLASSES = (
    "astronaut",
    "backpacker",
    "ballplayer",
    "bartender",
    "basketball_player",
    "boatman",
    "carpenter",
    "cheerleader",
    "climber",
    "computer_user",
    "craftsman",
    "dancer",
    "disk_jockey",
    "doctor",
    "drummer",
    "electrician",
    "farmer",
    "fireman",
    "flutist",
    "gardener",
    "guard",
    "guitarist",
    "gymnast",
    "hairdresser",
    "horseman",
    "judge",
    "laborer",
    "lawman",
    "lifeguard",
    "machinist",
    "motorcyclist",
    "nurse",
    "painter",
    "patient",
    "prayer",
    "referee",
    "repairman",
    "reporter",
    "retailer",
    "runner",
    "sculptor",
    "seller",
    "singer",
    "skateboarder",
    "soccer_player",
    "soldier",
    "speaker",
    "student",
    "teacher",
    "tennis_player",
    "trumpeter",
    "waiter",
)
"""The occupations, as the list spells them."""
GENDERS = ("feminine", "masculine", "non-binary")
AGES = ("young", "middle", "older")
TONES = ("light", "medium", "dark")
TONE_STARTS = (3.5, 6.5)
"""Mean tones on the Monk scale from 1 to 10 at which the second and the third group begin."""
FLAGS = {
    "gender": tuple(f"gender_presentation_{name}" for name in ("fem", "masc", "non_binary")),
    "age": tuple(f"age_presentation_{name}" for name in AGES),
    "skin_tone": tuple(f"skin_tone_{tone}" for tone in range(1, 11)),
}
VALUES: dict[str, tuple[str, ...]] = {"gender": GENDERS, "age": AGES, "skin_tone": TONES}
ORIGIN = Origin(
    "FACET",
    "the FACET project of Meta AI (Gustafson et al., FACET: Fairness in Computer Vision Evaluation Benchmark, ICCV "
    "2023), for evaluation in research only",
    "  annotations/annotations.csv     person_id,filename,class1,class2,bounding_box,gender_presentation_masc,…\n"
    "  imgs_1/*.jpg  imgs_2/*.jpg  imgs_3/*.jpg",
)


@reading(DatasetError)
def read(
    root: str | os.PathLike[str],
    *,
    shares: tuple[float, float, float] = common.SHARES,
    seed: int = 0,
    sensitive: str | tuple[str, ...] = ("gender", "age", "skin_tone"),
    check_images: bool = False,
) -> DatasetIndex:
    """Read the annotations of FACET, of the images with one annotated person.

    Parameters
    ----------
    root : path-like
        Folder with ``annotations`` and the folders of images.
    shares : tuple of three floats
        Shares of train, val and test; FACET is for evaluation and has no split.
    seed : int
        Seed of the split, which does not depend on the order of rows.
    sensitive : tuple of str
        Any of ``gender``, ``age`` and ``skin_tone``, all as annotators perceived them.
    check_images : bool
        No effect: images are always searched on disk, since the list does not name their folders. The parameter
        exists because the other readers have it.

    Returns
    -------
    DatasetIndex
        Classes are the 52 occupations of ``class1``. A sensitive value that annotators did not name, or of which they
        named several, is −1 (missing). Tones are in groups by their mean on the Monk scale: 1 to 3 light, 4 to 6
        medium, 7 to 10 dark. Images with several annotated people are left out, because ids are images; `notes` counts
        them.

    Raises
    ------
    DatasetError
        The data set is absent, its list is damaged or in another form, or images are missing.
    ParameterError
        An option is out of range.
    """
    del check_images
    requested = common.choose(sensitive, FLAGS, "sensitive")
    home = common.as_folder(root, ORIGIN)
    file = home / LIST
    if not file.is_file():
        raise ORIGIN.missing(home, f"there is no {LIST}")
    columns = [column for name in requested for column in FLAGS[name]]
    table = common.read_columns(file, ("filename", TARGET, *columns))
    alone, left_out = _alone(table["filename"], file)
    names = [table["filename"][row] for row in alone]
    common.image_ids(names, file)
    y = common.coded(table[TARGET], {name: code for code, name in enumerate(CLASSES)}, file, TARGET)[alone]
    flags = {column: _counts(table[column], file, column) for column in columns}
    values = {name: (_codes(name, flags)[alone], VALUES[name]) for name in requested}
    ids = common.image_ids(_located(names, home), file)
    split = common.seeded_split(names, shares, seed)
    note = common.split_note(shares, seed, "FACET is for evaluation and has no official one")
    notes = (note, *_notes(left_out, len(alone), values))
    return DatasetIndex(NAME, home, ids, split, y, CLASSES, values, NAME, notes)


def _alone(images: Sequence[str], file: Path) -> tuple[list[int], int]:
    """Return the rows of images with one annotated person, and the number of other images."""
    people = Counter(images)
    rows = [row for row, name in enumerate(images) if people[name] == 1]
    if not rows:
        raise DatasetError(f"{file}: expected images with one annotated person, got none")
    return rows, len(people) - len(rows)


def _counts(values: Sequence[str], file: Path, column: str) -> Ints:
    """Return how many annotators marked a column (n,); raise, with the row, if a value is not a small number."""
    return common.coded(values, {str(count): count for count in range(100)}, file, column)


def _codes(name: str, flags: Mapping[str, Ints]) -> Ints:
    """Return the code (n,) of each row's value; −1 if none or several are marked."""
    marked = np.stack([flags[column] for column in FLAGS[name]], axis=1)  # (n, values)
    total = marked.sum(axis=1)
    if name == "skin_tone":
        tone = marked @ np.arange(1, marked.shape[1] + 1) / np.maximum(total, 1)
        return np.where(total > 0, np.searchsorted(TONE_STARTS, tone, side="right"), -1).astype(np.int64)
    return np.where((marked > 0).sum(axis=1) == 1, marked.argmax(axis=1), -1).astype(np.int64)


def _located(names: Sequence[str], home: Path) -> list[str]:
    """Return the path of each image relative to the root; the list has file names alone."""
    places: dict[str, str] = {}
    for folder in (name for name in FOLDERS if os.path.isdir(home / name)):
        for name in sorted(os.listdir(home / folder)):
            path = f"{folder}/{name}"
            if places.setdefault(name, path) != path:
                raise DatasetError(f"{home}: expected each image once, got {places[name]} and {path}")
    absent = [name for name in names if name not in places]
    if len(absent) == len(names):
        raise ORIGIN.missing(home, f"there is no image of the list under {', '.join(FOLDERS)}")
    if absent:
        raise DatasetError(f"{home}: no file of {len(absent)} of {len(names)} images: {common.shown(absent)}")
    return [places[name] for name in names]


def _notes(left_out: int, kept: int, values: Mapping[str, tuple[Ints, tuple[str, ...]]]) -> list[str]:
    notes = []
    if left_out:
        notes.append(
            f"{left_out} of {left_out + kept} images with several annotated people are left out; {kept} are kept."
        )
    notes += [
        f"{int((codes < 0).sum())} images have no single value of {name}."
        for name, (codes, _) in values.items()
        if (codes < 0).any()
    ]
    return notes
