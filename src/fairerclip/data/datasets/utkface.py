"""Reader of UTKFace: faces with age, sex and race in their file names, without a target (Zhang et al. 2017)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fairerclip._util.files import reading
from fairerclip.data.datasets import common
from fairerclip.data.datasets.common import DatasetIndex, Ints, Origin
from fairerclip.data.datasets.fairface import AGES
from fairerclip.data.simulate import SEXES
from fairerclip.errors import DatasetError

NAME = "utkface"
RACES = ("White", "Black", "Asian", "Indian", "Others")
OLDEST = 116
AGE_STARTS = (0, 3, 10, 20, 30, 40, 50, 60, 70)
"""First age of each band; the bands are those of FairFace."""
SEX_CODES = {"0": SEXES.index("male"), "1": SEXES.index("female")}
LABELLED = re.compile(r"(\d{1,3})_([01])_([0-4])_\d+ ?\.?jpg(?:\.chip\.jpg)?", re.IGNORECASE | re.ASCII)
"""Two official names lack a dot or have a space before it; their labels are complete."""
FOLDERS: tuple[tuple[str, ...], ...] = (("UTKFace",), ("part1", "part2", "part3"), ("crop_part1",))
"""Folders of one form of the images each, the preferred one first: aligned, in the wild, and an earlier part."""
INNER = ("", "utkface_aligned_cropped")
PUBLISHED_IMAGES = 23_708
MOST_ODD = 0.01
"""Largest share of images without complete labels that is taken for UTKFace."""
ORIGIN = Origin(
    "UTKFace",
    "the UTKFace project page of Zhang, Song and Qi (Age Progression/Regression by Conditional Adversarial "
    "Autoencoder, CVPR 2017), for research that is not commercial",
    "  UTKFace/26_1_3_20170117175041574.jpg.chip.jpg …    age_sex_race_time, aligned and cropped\n"
    "  or part1/ part2/ part3/26_1_3_20170117175041574.jpg …  in the wild\n"
    "  or crop_part1/26_1_3_20170117175041574.jpg.chip.jpg …",
)


@reading(DatasetError)
def read(
    root: str | os.PathLike[str],
    *,
    shares: tuple[float, float, float] = common.SHARES,
    seed: int = 0,
    sensitive: str | tuple[str, ...] = ("sex", "race", "age"),
    check_images: bool = False,
) -> DatasetIndex:
    """Read the file names of UTKFace.

    Parameters
    ----------
    root : path-like
        Folder with ``UTKFace``, ``part1`` to ``part3`` or ``crop_part1``, or the folder of the images itself. The
        first of these forms that is there is read.
    shares : tuple of three floats
        Shares of train, val and test; there is no official split.
    seed : int
        Seed of the split, which does not depend on the order of files.
    sensitive : tuple of str
        Any of ``sex``, ``race`` and ``age``.
    check_images : bool
        No effect: the images on disk are the list. The parameter exists because the other readers have it.

    Returns
    -------
    DatasetIndex
        Without `y` and prompts. Ages are in the bands of FairFace. Images whose names lack a label are left out;
        `notes` names them.

    Raises
    ------
    DatasetError
        The data set is absent, or more than one in 100 names are in another form.
    ParameterError
        An option is out of range.
    """
    del check_images
    requested = common.choose(sensitive, ("sex", "race", "age"), "sensitive")
    home, form, others = _images(common.as_folder(root, ORIGIN))
    names = _listed(home, form)
    rows, odd = _labelled(names, home)
    ids = common.image_ids([row[0] for row in rows], home)
    split = common.seeded_split([row[0] for row in rows], shares, seed)
    _, ages, sexes, races = zip(*rows, strict=True)
    values = {
        "sex": (np.array([SEX_CODES[sex] for sex in sexes], dtype=np.int64), SEXES),
        "race": (np.array([int(race) for race in races], dtype=np.int64), RACES),
        "age": (_bands(ages), AGES),
    }
    chosen = {name: values[name] for name in requested}
    note = common.split_note(shares, seed, "UTKFace has no official one")
    notes = (note, *_notes(names, odd, form, others))
    return DatasetIndex(NAME, home, ids, split, None, (), chosen, None, notes)


def _labelled(names: Sequence[str], home: Path) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return name, age, sex and race of each image, and the names that lack a label; raise if these are many."""
    rows, odd = [], []
    for name in names:
        match = LABELLED.fullmatch(name.rsplit("/", 1)[-1])
        if match and int(match[1]) <= OLDEST:
            rows.append((name, *match.groups()))
        else:
            odd.append(name)
    if not rows or len(odd) > max(MOST_ODD * len(names), 5):
        raise DatasetError(
            f"{home}: expected names such as 26_1_3_20170117175041574.jpg (age, sex, race, time), got "
            f"{common.shown(odd)} ({len(odd)} of {len(names)} images)"
        )
    return rows, odd


def _bands(ages: Sequence[str]) -> Ints:
    years = np.array([int(age) for age in ages], dtype=np.int64)
    return np.searchsorted(AGE_STARTS, years, side="right").astype(np.int64) - 1


def _images(folder: Path) -> tuple[Path, tuple[str, ...], list[str]]:
    """Return the folder that ids are relative to, the folders of images below it, and forms that are not read."""
    present = []
    for inner in INNER:
        for form in FOLDERS:
            there = tuple(name for name in form if os.path.isdir(folder / inner / name))
            if there:
                present.append((folder / inner, there))
    if not present:
        return folder, ("",), []
    home, form = present[0]
    others = [str((other / name).relative_to(folder)) for other, names in present[1:] for name in names]
    return (home / form[0], ("",), others) if len(form) == 1 else (home, form, others)


def _listed(home: Path, form: Sequence[str]) -> list[str]:
    """Return the names of all images, relative to the root."""
    names = []
    for part in form:
        for name in sorted(os.listdir(home / part)):
            if name.lower().endswith("jpg") and name[0] != "." and os.path.isfile(home / part / name):
                names.append(f"{part}/{name}" if part else name)
            if len(names) > common.MAX_LINES:
                raise DatasetError(f"{home}: expected at most {common.MAX_LINES:,} images, got more")
    if not names:
        raise ORIGIN.missing(home, "there is no .jpg image")
    return names


def _notes(
    names: Sequence[str], odd: Sequence[str], form: Sequence[str], others: Sequence[str]
) -> tuple[str, ...]:
    notes = []
    if odd:
        notes.append(f"{len(odd)} images whose names lack a label are left out: {common.shown(odd)}.")
    if others:
        notes.append(f"Images under {', '.join(others)} are not read: they are another form of the data set.")
    if len(form) == 1 and len(names) != PUBLISHED_IMAGES:
        notes.append(f"There are {len(names)} images; {PUBLISHED_IMAGES} were published aligned and cropped.")
    return tuple(notes)
