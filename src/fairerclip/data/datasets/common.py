"""Common parts of the readers of data sets: the index that they return, and safe reading of lists."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

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
SPLIT_NAMES = {**SPLIT_CODES, "valid": "val", "validation": "val", "dev": "val", "eval": "test"}
"""Values of a split column of one's own besides train, val and test."""
SHARES = (0.5, 0.1, 0.4)
"""Shares of train, val and test of a data set without an official split."""
SHOWN = 5
MAX_LINES = 400_000
"""Most lines of a list; the longest, that of CelebA, has 202,601."""
_DRIVE = re.compile(r"[A-Za-z]:")


@dataclass(frozen=True, eq=False)
class DatasetIndex:
    """Images, splits, classes and sensitive values of a data set, read from its lists.

    Attributes
    ----------
    name : str
        Name of the data set, followed by the target if it has several.
    root : pathlib.Path
        Folder to which `ids` are relative.
    ids : ndarray of shape (n,)
        Paths of the images, with ``/``, the same in every layout.
    split : ndarray of shape (n,)
        ``train``, ``val`` or ``test``.
    y : ndarray of shape (n,) or None
        Classes as indices of `class_names`; None if the data set has no target.
    class_names : tuple of str
        Names of the classes, in the order of the prompts.
    sensitive : dict of str to (ndarray of shape (n,), tuple of str)
        Codes and value names of each sensitive attribute.
    prompts : str or None
        Name of the prompt set of this target; None if the package has none.
    notes : tuple of str
        Notes on counts that differ from the published ones, and on splits that are not official.
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
        """Return the paths of the images of one split, or of all."""
        chosen = self.ids if split is None else self.ids[self.split == split]
        return [self.root / str(image) for image in chosen]

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each split."""
        return {split: int((self.split == split).sum()) for split in SPLITS}


@dataclass(frozen=True)
class Origin:
    """Source of a data set and its layout on disk, for messages."""

    title: str
    where: str
    tree: str

    def missing(self, root: Path, reason: str) -> DatasetAbsentError:
        """Return the error for a data set that is absent."""
        return DatasetAbsentError(
            f"{self.title} is not at {root}: {reason}. Get it from {self.where}. Expected:\n{self.tree}"
        )


def as_folder(root: str | os.PathLike[str], origin: Origin) -> Path:
    """Return the root as a path; raise, with the expected layout, if it is not a folder."""
    path = Path(root)
    if not os.path.isdir(path):  # unlike Path.is_dir, returns False for invalid names
        raise origin.missing(path, "that is a file" if os.path.exists(path) else "there is no such folder")
    return path


def first_with(folders: Iterable[Path], names: Sequence[str]) -> tuple[Path, Path] | None:
    """Return the first folder that holds one of the files, and that file; None if there is none."""
    for folder in folders:
        for name in names:
            if (folder / name).is_file():
                return folder, folder / name
    return None


def read_columns(file: Path, columns: Sequence[str]) -> dict[str, list[str]]:
    """Read columns of a CSV file by name, without the spaces around values.

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
    """Return the place of each column in the header; raise if one is absent or repeated."""
    names = [name.strip() for name in header]
    absent = [column for column in columns if column not in names]
    if absent:
        came = ", ".join(names[:50]) or "no header"
        raise DatasetError(f"{file}: expected the columns {', '.join(absent)}, got {came}")
    repeated = [column for column in columns if names.count(column) > 1]
    if repeated:
        raise DatasetError(f"{file}: expected each column once, got {', '.join(repeated)} twice")
    return {column: names.index(column) for column in columns}


def csv_rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield line numbers and rows of a CSV file, without empty rows."""
    for count, record in enumerate(csv_records(file, DatasetError, strict=False)):
        _check_count(count, file)
        yield record


def text_lines(file: Path) -> list[str]:
    """Return the lines of a text file that are not empty."""
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
    """Return image paths (n,) as an array; raise if one is repeated or not inside the data set."""
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
    """Return the codes (n,) of a column's values; raise, with the row, if a value has no code."""
    coded_values = np.array([codes.get(value, -1) for value in values], dtype=np.int64)
    unknown = np.flatnonzero(coded_values < 0)
    if unknown.size:
        row = int(unknown[0])
        raise DatasetError(
            f"{file}, row {row}: {column}: expected one of {shown(list(codes))}, got {values[row]!r} "
            f"({unknown.size} such rows)"
        )
    return coded_values


def splits_of(values: Sequence[str], file: Path, column: str) -> Strings:
    """Return the splits (n,) that the codes 0, 1 and 2 stand for."""
    numbers = coded(values, {code: i for i, code in enumerate(SPLIT_CODES)}, file, column)
    return np.array(SPLITS, dtype=np.str_)[numbers]


def check_images(root: Path, ids: Strings, name: str) -> None:
    """Raise if an image of the data set is not on disk."""
    absent = [str(image) for image in ids if not os.path.isfile(root / str(image))]
    if absent:
        raise DatasetError(
            f"{name}: {len(absent)} of {len(ids)} images are not under {root}: {shown(absent)}; "
            "unpack the images again, or check the root"
        )


def group_notes(
    split: Strings,
    y: Ints,
    s: Ints,
    names: tuple[tuple[str, ...], tuple[str, ...]],
    published: Mapping[str, Sequence[int]],
) -> tuple[str, ...]:
    """Return notes on the splits whose counts of class × value differ from the published ones."""
    cells = list(product(range(len(names[0])), range(len(names[1]))))
    labels = ", ".join(f"{names[0][c]} × {names[1][v]}" for c, v in cells)
    notes = []
    for name, expected in published.items():
        in_split = split == name
        counts = [int((in_split & (y == c) & (s == v)).sum()) for c, v in cells]
        if counts != list(expected):
            notes.append(
                f"{name} has {_listed(counts)} rows in the groups {labels}; {_listed(expected)} were published."
            )
    return tuple(notes)


def total_notes(counts: Mapping[str, int], published: Mapping[str, int]) -> tuple[str, ...]:
    """Return notes on the counts that differ from the published ones."""
    return tuple(
        f"{name} has {counts.get(name, 0)} rows; {expected} were published."
        for name, expected in published.items()
        if counts.get(name, 0) != expected
    )


def seeded_order(names: Sequence[str], seed: int) -> Ints:
    """Return a random order of rows (n,) that depends on their names and the seed, not on their order in a file."""
    check_range("seed", seed)
    by_name = np.argsort(np.array(names, dtype=np.str_), kind="stable")
    order: Ints = by_name[np.random.default_rng(seed).permutation(len(by_name))].astype(np.int64)
    return order


def seeded_split(names: Sequence[str], shares: tuple[float, float, float], seed: int) -> Strings:
    """Return a random split (n,) by ``shares`` of train, val and test, for a data set without an official one."""
    parts = tuple(shares)
    if len(parts) != 3 or not all(0 <= share <= 1 for share in parts) or not math.isclose(sum(parts), 1):
        raise ParameterError(f"shares must be three numbers from 0 to 1 with sum 1, got {shares!r}")
    n_train, n_val = int(parts[0] * len(names)), round(parts[1] * len(names))
    order = seeded_order(names, seed)
    split = np.full(len(names), "test", dtype="<U5")
    split[order[:n_train]] = "train"
    split[order[n_train : n_train + n_val]] = "val"
    return split


def split_note(shares: tuple[float, float, float], seed: int, reason: str) -> str:
    """Return the note on a random split."""
    return f"The split is random ({' / '.join(f'{share:g}' for share in shares)}, seed {seed}): {reason}."


def choose(names: str | Iterable[str], available: Iterable[str], parameter: str) -> tuple[str, ...]:
    """Return the requested names as a tuple; raise if one is unknown or repeated."""
    requested, known = ((names,) if isinstance(names, str) else tuple(names)), tuple(available)
    if len(set(requested)) != len(requested) or any(name not in known for name in requested):
        listed = ", ".join(map(str, requested))
        raise ParameterError(f"{parameter} must be distinct names among {', '.join(known)}, got {listed}")
    return requested


def _listed(counts: Sequence[int]) -> str:
    return " / ".join(map(str, counts))


def shown(names: Sequence[str]) -> str:
    """Return the first names for a message."""
    return ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
