"""What the readers share: the index they return, and reading lists without trusting them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.checks import check_range
from fairerclip.data.io import bounded_text as text
from fairerclip.data.io.bounded_text import csv_records, text_array
from fairerclip.errors import DatasetAbsentError, DatasetError, ParameterError

Ints = NDArray[np.int64]
Strings = NDArray[np.str_]

SPLITS = ("train", "val", "test")
SPLIT_CODES = {"0": "train", "1": "val", "2": "test"}
SHOWN = 5
MAX_LINES = 400_000
"""CelebA, the longest list, has 202,601."""
_DRIVE = re.compile(r"[A-Za-z]:")


@dataclass(frozen=True, eq=False)
class DatasetIndex:
    """A data set's images, splits, classes and groups, as its own files give them.

    Attributes
    ----------
    name : str
        Of the data set, with the target where there are several.
    root : pathlib.Path
        The folder that `ids` are relative to.
    ids : ndarray of shape (n,)
        Paths of the images, with ``/``, the same in every layout.
    split : ndarray of shape (n,)
        ``train``, ``val`` or ``test``.
    y : ndarray of shape (n,) or None
        Classes as indices of `class_names`; None where the data set has no target.
    class_names : tuple of str
        In the order of the prompts.
    sensitive : dict of str to (ndarray of shape (n,), tuple of str)
        Codes and names of each sensitive attribute's values.
    prompts : str or None
        Name of the prompt set that fits; None where none is shipped for this target.
    notes : tuple of str
        Where counts differ from the published ones, and splits that are ours.
    """

    name: str
    root: Path
    ids: Strings
    split: Strings
    y: Ints | None
    class_names: tuple[str, ...]
    sensitive: dict[str, tuple[Ints, tuple[str, ...]]] = field(default_factory=dict)
    prompts: str | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    def paths(self, split: str | None = None) -> list[Path]:
        """Paths of the images of one split, or of all."""
        chosen = self.ids if split is None else self.ids[self.split == split]
        return [self.root / str(one) for one in chosen]

    def counts(self) -> dict[str, int]:
        """Rows of each split."""
        return {split: int((self.split == split).sum()) for split in SPLITS}


@dataclass(frozen=True)
class Origin:
    """Where a data set comes from and what it looks like on disk, for messages."""

    title: str
    where: str
    tree: str

    def missing(self, root: Path, found: str) -> DatasetAbsentError:
        """Make the error for a data set that is not there."""
        return DatasetAbsentError(
            f"{self.title} is not at {root}: {found}. Get it from {self.where}. Expected:\n{self.tree}"
        )


def as_folder(root: str | os.PathLike[str], origin: Origin) -> Path:
    """Take the root as a path, or say what should be there."""
    path = Path(root)
    if not os.path.isdir(path):  # unlike Path.is_dir, false for names that no file can have
        raise origin.missing(path, "that is a file" if os.path.exists(path) else "there is no such folder")
    return path


def first_with(folders: Iterable[Path], names: Sequence[str]) -> tuple[Path, Path] | None:
    """Find the first folder that holds one of the files, and that file."""
    for folder in folders:
        for name in names:
            if (folder / name).is_file():
                return folder, folder / name
    return None


def read_columns(file: Path, columns: Sequence[str]) -> dict[str, list[str]]:
    """Columns of a CSV file by name, without the spaces around values.

    Raises
    ------
    DatasetError
        The file cannot be read, a column is missing, or a row has too few or too many fields.
    """
    rows = csv_rows(file)
    _, header = next(rows, (0, []))
    places = columns_of(header, columns, file)
    table: dict[str, list[str]] = {column: [] for column in columns}
    for line, row in rows:
        if len(row) != len(header):
            raise DatasetError(f"{file}, line {line}: expected {len(header)} fields, got {len(row)}")
        for column, place in places.items():
            table[column].append(row[place].strip())
    if not table[columns[0]]:
        raise DatasetError(f"{file}: expected rows below the header, got none")
    return table


def columns_of(header: Sequence[str], columns: Sequence[str], file: Path) -> dict[str, int]:
    """Place of each column in the header."""
    names = [name.strip() for name in header]
    absent = [column for column in columns if column not in names]
    if absent:
        came = ", ".join(names[:50]) or "no header"
        raise DatasetError(f"{file}: expected the columns {', '.join(absent)}, got {came}")
    twice = [column for column in columns if names.count(column) > 1]
    if twice:
        raise DatasetError(f"{file}: expected each column once, got {', '.join(twice)} twice")
    return {column: names.index(column) for column in columns}


def csv_rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and rows of a CSV file; empty rows are left out."""
    for count, record in enumerate(csv_records(file, DatasetError, strict=False)):
        _check_count(count, file)
        yield record


def text_lines(file: Path) -> list[str]:
    """Lines of a text file that are not empty."""
    lines = []
    for count, line in enumerate(text.text_lines(file, DatasetError)):
        _check_count(count, file)
        if line.strip():
            lines.append(line.rstrip("\r\n"))
    return lines


def _check_count(count: int, file: Path) -> None:
    if count >= MAX_LINES:
        raise DatasetError(f"{file}: expected at most {MAX_LINES:,} lines, got more")


def image_ids(values: Sequence[str], file: Path) -> Strings:
    """Check image paths (n,): inside the data set, and each once."""
    ids = text_array(values, str(file), "a path", DatasetError)
    seen: set[str] = set()
    for row, value in enumerate(values):
        parts = value.replace("\\", "/").split("/")
        if value.startswith(("/", "\\")) or _DRIVE.match(value) or ".." in parts or not value.isprintable():
            raise DatasetError(f"{file}, row {row}: expected a path inside the data set, got {value!r}")
        if "\\" in value or not all(part not in ("", ".") for part in parts):
            raise DatasetError(f"{file}, row {row}: expected a plain path with /, got {value!r}")
        if value in seen:
            raise DatasetError(f"{file}, row {row}: expected each image once, got {value!r} again")
        seen.add(value)
    return ids


def coded(values: Sequence[str], codes: Mapping[str, int], file: Path, column: str) -> Ints:
    """Codes (n,) of a column's values; one that is not among them is an error with its row."""
    found = np.array([codes.get(value, -1) for value in values], dtype=np.int64)
    if (found < 0).any():
        row = int(np.flatnonzero(found < 0)[0])
        raise DatasetError(
            f"{file}, row {row}: {column}: expected one of {', '.join(codes)}, got {values[row]!r} "
            f"({int((found < 0).sum())} such rows)"
        )
    return found


def splits_of(values: Sequence[str], file: Path, column: str) -> Strings:
    """Splits (n,) from the usual 0, 1, 2."""
    numbers = coded(values, {code: i for i, code in enumerate(SPLIT_CODES)}, file, column)
    return np.array(SPLITS, dtype=np.str_)[numbers]


def check_images(root: Path, ids: Strings, name: str) -> None:
    """Refuse a data set some of whose images are not on disk."""
    absent = [str(one) for one in ids if not os.path.isfile(root / str(one))]
    if absent:
        more = ", …" if len(absent) > SHOWN else ""
        raise DatasetError(
            f"{name}: {len(absent)} of {len(ids)} images are not under {root}: {', '.join(absent[:SHOWN])}{more}; "
            "unpack the images again, or check the root"
        )


def group_notes(
    split: Strings,
    y: Ints,
    s: Ints,
    names: tuple[tuple[str, ...], tuple[str, ...]],
    published: Mapping[str, Sequence[int]],
) -> tuple[str, ...]:
    """Sentences for the splits whose class × value counts are not the published ones."""
    cells = list(product(range(len(names[0])), range(len(names[1]))))
    labels = ", ".join(f"{names[0][c]} × {names[1][v]}" for c, v in cells)
    notes = []
    for name, expected in published.items():
        there = split == name
        came = [int((there & (y == c) & (s == v)).sum()) for c, v in cells]
        if came != list(expected):
            notes.append(
                f"{name} has {_listed(came)} rows in the groups {labels}; {_listed(expected)} were published."
            )
    return tuple(notes)


def total_notes(counts: Mapping[str, int], published: Mapping[str, int]) -> tuple[str, ...]:
    """Sentences for the counts that are not the published ones."""
    return tuple(
        f"{name} has {counts.get(name, 0)} rows; {expected} were published."
        for name, expected in published.items()
        if counts.get(name, 0) != expected
    )


def seeded_order(names: Sequence[str], seed: int) -> Ints:
    """Random order of rows (n,) that depends on their names and the seed, not on their order in a file."""
    check_range("seed", seed)
    by_name = np.argsort(np.array(names, dtype=np.str_), kind="stable")
    order: Ints = by_name[np.random.default_rng(seed).permutation(len(by_name))].astype(np.int64)
    return order


def choose(names: str | Iterable[str], there: Iterable[str], what: str) -> tuple[str, ...]:
    """Check the sensitive attributes asked for: known ones, each once."""
    asked, known = ((names,) if isinstance(names, str) else tuple(names)), tuple(there)
    if len(set(asked)) != len(asked) or any(name not in known for name in asked):
        raise ParameterError(f"{what} must be distinct names among {', '.join(known)}, got {_shown(asked)}")
    return asked


def _listed(counts: Sequence[int]) -> str:
    return " / ".join(map(str, counts))


def _shown(names: Sequence[Any]) -> str:
    return ", ".join(map(str, names))
