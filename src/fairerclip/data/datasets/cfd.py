"""Reader of the Chicago Face Database: portraits of 597 people with ratings (Ma et al. 2015)."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np

from fairerclip._util.files import reading
from fairerclip.data.datasets import common
from fairerclip.data.datasets.common import DatasetIndex, Origin, Strings
from fairerclip.data.datasets.norming import Model, read_norming
from fairerclip.data.simulate import SEXES
from fairerclip.errors import DatasetError

NAME = "cfd"
CLASSES = ("unattractive", "attractive")
RACES = ("Asian", "Black", "Latino", "White")
PUBLISHED_MODELS = 597
NEUTRAL = re.compile(r"CFD-([ABLW][FM]-\d{3})-\d{3}-N\.jpe?g", re.IGNORECASE)
SEX_CODES = {"F": 0, "M": 1}
RACE_CODES = {letter: i for i, letter in enumerate("ABLW")}
ORIGIN = Origin(
    "The Chicago Face Database",
    "the CFD project page of the University of Chicago, on request (Ma, Correll and Wittenbrink, "
    "The Chicago Face Database, Behavior Research Methods 2015)",
    "  CFD … Norming Data and Codebook.xlsx     (or its first data sheet saved as .csv)\n"
    "  Images/CFD/WF-001/CFD-WF-001-003-N.jpg   (-N is the neutral photograph)\n"
    "  …",
)


@reading(DatasetError)
def read(
    root: str | os.PathLike[str],
    *,
    workbook: str | os.PathLike[str] | None = None,
    shares: tuple[float, float, float] = common.SHARES,
    seed: int = 0,
    sensitive: str | tuple[str, ...] = ("sex",),
    check_images: bool = False,
) -> DatasetIndex:
    """Read the norming data of CFD and find the neutral photograph of each person.

    Parameters
    ----------
    root : path-like
        Folder with the workbook and the images, of version 2.x or 3.
    workbook : path-like, optional
        The workbook or its CSV export, if it is in another folder or there are several.
    shares : tuple of three floats
        Shares of train, val and test; there is no official split and the paper's is not published.
    seed : int
        Seed of the split, which does not depend on the order of rows.
    sensitive : tuple of str
        Any of ``sex`` and ``race``.
    check_images : bool
        No effect: photographs are always searched on disk, since their names hold a number that the workbook
        does not give. The parameter exists because the other readers have it.

    Returns
    -------
    DatasetIndex
        Class 1 is a rating of attractiveness above the mean of all. One row per person, so that no person
        is in two splits.

    Raises
    ------
    DatasetError
        The data set is absent, the norming data are damaged or in another form, or photographs are missing.
    MissingExtraError
        The norming data are a workbook and openpyxl is not installed.
    ParameterError
        An option is out of range.
    """
    del check_images
    requested = common.choose(sensitive, ("sex", "race"), "sensitive")
    home = common.as_folder(root, ORIGIN)
    file = Path(workbook) if workbook is not None else _norming_file(home)
    models, others = read_norming(file)
    names = [model.name for model in models]
    ids = _image_ids(names, home)
    rating = np.array([model.attractive for model in models])
    y = (rating > rating.mean()).astype(np.int64)
    values = {
        "sex": (np.array([SEX_CODES[model.sex] for model in models], dtype=np.int64), SEXES),
        "race": (np.array([RACE_CODES[model.race] for model in models], dtype=np.int64), RACES),
    }
    split = common.seeded_split(names, shares, seed)
    chosen = {name: values[name] for name in requested}
    return DatasetIndex(
        NAME, home, ids, split, y, CLASSES, chosen, NAME, _notes(models, others, shares, seed)
    )


def _norming_file(home: Path) -> Path:
    folders = [home, *sorted(path for path in home.iterdir() if path.is_dir())]
    for pattern in ("*norming*.xlsx", "*norming*.csv", "*cfd*.xlsx", "*cfd*.csv"):
        stem, suffix = pattern.strip("*").split("*")
        files = [
            path
            for folder in folders
            for path in sorted(folder.iterdir())
            if path.suffix.lower() == suffix and stem in path.name.lower() and path.name[0] not in "~."
        ]
        if len(files) > 1:
            listed = ", ".join(str(path.relative_to(home)) for path in files)
            raise DatasetError(
                f"{home}: expected one list of norming data, got {listed}; choose with workbook="
            )
        if files:
            return files[0]
    raise ORIGIN.missing(home, "there is no 'CFD … Norming Data and Codebook.xlsx'")


def _image_ids(names: list[str], home: Path) -> Strings:
    """Return the path of the neutral photograph of each person (n,), relative to the root."""
    photos = _photographs(home)
    absent = [name for name in names if name not in photos]
    if len(absent) == len(names):
        raise ORIGIN.missing(home, "there is no neutral photograph CFD-…-N.jpg of any person in the list")
    if absent:
        raise DatasetError(
            f"{home}: no neutral photograph of {len(absent)} of {len(names)} people: {common.shown(absent)}"
        )
    return common.image_ids([photos[name] for name in names], home)


def _photographs(home: Path) -> dict[str, str]:
    """Return the paths of all neutral photographs by person, relative to the root."""
    photos: dict[str, str] = {}
    for folder, _, files in os.walk(home):
        for name in sorted(files):
            match = NEUTRAL.fullmatch(name)
            if not match:
                continue
            model, path = match[1].upper(), (Path(folder) / name).relative_to(home).as_posix()
            if model in photos:
                raise DatasetError(
                    f"{home}: expected one neutral photograph of {model}, got {photos[model]} and {path}; "
                    "keep one copy of the images under the root"
                )
            photos[model] = path
    return photos


def _notes(
    models: list[Model], others: int, shares: tuple[float, float, float], seed: int
) -> tuple[str, ...]:
    notes = [common.split_note(shares, seed, "CFD has no official one and the paper's is not published")]
    if len(models) != PUBLISHED_MODELS:
        notes.append(f"There are {len(models)} people; {PUBLISHED_MODELS} were published.")
    if others:
        notes.append(f"{others} people of the sets CFD-MR and CFD-INDIA were left out.")
    return tuple(notes)
