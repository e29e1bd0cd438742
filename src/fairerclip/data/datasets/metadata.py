"""Reader of one list of images with splits, classes and sensitive values, as WILDS and SubpopBench write them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.files import reading
from fairerclip.data.datasets import common
from fairerclip.data.datasets.common import DatasetIndex, Ints, Origin, Strings
from fairerclip.errors import DatasetError, ParameterError

NAME = "metadata"
PATTERN = "metadata*.csv"
LEFT_OUT = ""
"""Split of rows that are left out."""
EMPTY = frozenset(("", "nan", "NaN", "<NA>"))
"""What lists have for unknown values."""
MOST_VALUES = 1000
"""Most different values of a column."""
ORIGIN = Origin(
    "The list of images",
    "its authors, or write it yourself",
    "  metadata.csv          (or metadata_NAME.csv, or the name that you give) with a header, for example\n"
    "                        id,filename,split,y,a                         (SubpopBench)\n"
    "                        img_id,img_filename,y,split,place,place_filename   (Waterbirds of WILDS)\n"
    "  images, at the paths that the list gives",
)

_WHOLE = re.compile(r"-?[0-9]{1,9}\.0+")

Named = str | Sequence[str] | Mapping[str, str]


@reading(DatasetError)
def read(
    root: str | os.PathLike[str],
    *,
    file: str | os.PathLike[str] | None = None,
    images: str | os.PathLike[str] = "",
    filename: str = "filename",
    split: str | None = "split",
    target: str | None = "y",
    sensitive: Named = "a",
    class_names: Sequence[str] | None = None,
    value_names: Mapping[str, Sequence[str]] | None = None,
    split_names: Mapping[str, str | None] | None = None,
    shares: tuple[float, float, float] = common.SHARES,
    seed: int = 0,
    check_images: bool = False,
) -> DatasetIndex:
    """Read a list of images in CSV, whose columns you name.

    Parameters
    ----------
    root : path-like
        Folder of the list.
    file : path-like, optional
        The list, relative to the root; by default ``metadata.csv``, or the only ``metadata*.csv``.
    images : path-like
        Folder to which the paths of the list are relative, itself relative to the root; by default the root.
    filename : str
        Column of image paths.
    split : str or None
        Column with 0, 1, 2 or train, val, test, or with the values of ``split_names``; None for a random split.
    target : str or None
        Column of classes; None for a gallery.
    sensitive : str, sequence of str, or mapping from attribute to column
        Columns of sensitive attributes; a mapping gives them other names.
    class_names : sequence of str, optional
        Names of the classes 0, 1, …, or the order of classes that the list has as text. By default the values of the
        column, sorted.
    value_names : mapping from attribute to sequence of str, optional
        The same for sensitive attributes.
    split_names : mapping from value to "train", "val", "test" or None, optional
        Split of values of the column of splits that have other names, such as ``{"id_val": "val", "id_test": None}``;
        rows of a value with None are left out. Case does not matter.
    shares : tuple of three floats
        Shares of train, val and test of a random split.
    seed : int
        Seed of a random split, which does not depend on the order of rows.
    check_images : bool
        Raise if an image is not on disk.

    Returns
    -------
    DatasetIndex
        Without prompts: give a prompt file with the same names.

    Raises
    ------
    DatasetError
        The list is absent, damaged, or lacks a column.
    ParameterError
        An option does not fit the others.
    """
    attributes, named = _attributes(sensitive), dict(value_names or {})
    columns = [name for name in (filename, target, *attributes.values(), split) if name is not None]
    _check(columns, attributes, named, target, class_names)
    known = _known_splits(split, split_names)
    home = common.as_folder(root, ORIGIN)
    path = _list_file(home, file)
    table = common.read_columns(path, columns)
    ids = common.image_ids(table[filename], path)
    y, classes = (None, ()) if target is None else _coded(table[target], class_names, path, target)
    values = {
        name: _coded(table[column], named.get(name), path, column) for name, column in attributes.items()
    }
    place = home / images
    if check_images:
        common.check_images(place, ids, path.name)
    if split is not None:
        splits = _splits(table[split], known, path, split)
        index = DatasetIndex(path.stem, place, ids, splits, y, classes, values)
        return _without(index, splits == LEFT_OUT)
    drawn = common.seeded_split(table[filename], shares, seed)
    notes = (common.split_note(shares, seed, "no column of splits was named"),)
    return DatasetIndex(path.stem, place, ids, drawn, y, classes, values, notes=notes)


def _attributes(sensitive: Named) -> dict[str, str]:
    """Return the column of each sensitive attribute."""
    if isinstance(sensitive, Mapping):
        return dict(sensitive)
    columns = [sensitive] if isinstance(sensitive, str) else list(sensitive)
    if len(set(columns)) != len(columns):
        raise ParameterError(f"sensitive must name different columns, got {', '.join(columns)}")
    return {column: column for column in columns}


def _check(
    columns: Sequence[str],
    attributes: Mapping[str, str],
    named: Mapping[str, Sequence[str]],
    target: str | None,
    class_names: Sequence[str] | None,
) -> None:
    if not attributes:
        raise ParameterError("sensitive must name at least one column")
    if len(set(columns)) != len(columns):
        raise ParameterError(
            f"filename, target, sensitive and split must name different columns, got {', '.join(columns)}"
        )
    unknown = [name for name in named if name not in attributes]
    if unknown:
        raise ParameterError(f"value_names are for {', '.join(attributes)}; got {unknown[0]!r}")
    if class_names is not None and target is None:
        raise ParameterError("class_names are given without a target")
    for role, names in (("class_names", class_names), *named.items()):
        if names is not None and (len(set(names)) != len(names) or not all(names)):
            raise ParameterError(f"{role} must be different names, got {', '.join(names)}")


def _list_file(home: Path, file: str | os.PathLike[str] | None) -> Path:
    """Return the list of a folder; raise if it is not there, or if none is named and there are several."""
    if file is not None:
        if not (home / file).is_file():
            raise ORIGIN.missing(home, f"there is no {Path(file).name}")
        return home / file
    if (home / "metadata.csv").is_file():
        return home / "metadata.csv"
    files = sorted(path for path in home.glob(PATTERN) if path.is_file())
    if not files:
        raise ORIGIN.missing(home, f"there is no {PATTERN}")
    if len(files) > 1:
        raise DatasetError(
            f"{home}: expected one list {PATTERN}, got {common.shown([path.name for path in files])}; choose with file="
        )
    return files[0]


def _coded(
    values: Sequence[str], names: Sequence[str] | None, file: Path, column: str
) -> tuple[Ints, tuple[str, ...]]:
    """Return codes (n,) and names of a column; given names stand for 0, 1, … or are the values themselves."""
    found = set(values)
    if empty := found & EMPTY:
        row = next(row for row, value in enumerate(values) if value in empty)
        came = repr(values[row]) if values[row] else "an empty field"
        raise DatasetError(f"{file}, row {row}: {column}: expected a value, got {came}; leave such rows out")
    if all(
        _WHOLE.fullmatch(value) for value in found
    ):  # as pandas writes whole numbers of a column with gaps
        values = [value.partition(".")[0] for value in values]
        found = set(values)
    if names is None and "-1" in found and len(found) > 2:
        raise DatasetError(
            f"{file}, row {values.index('-1')}: {column}: expected a value, got -1 beside {len(found) - 1} others; "
            "leave the row out if its value is unknown, or name all values"
        )
    if len(found) > MOST_VALUES:
        raise DatasetError(
            f"{file}: {column}: expected at most {MOST_VALUES} different values, got {len(found)}"
        )
    if names is None:
        numbers = all(value.isascii() and value.isdecimal() and len(value) < 10 for value in found)
        names = sorted(found, key=int) if numbers else sorted(found)
        codes = {name: code for code, name in enumerate(names)}
    else:
        codes = {name: code for code, name in enumerate(names)}
        if not found <= set(codes):
            codes = {str(code): code for code in range(len(names))}
    return common.coded(values, codes, file, column), tuple(names)


def _known_splits(split: str | None, given: Mapping[str, str | None] | None) -> dict[str, str]:
    """Return the split of each value of the column, with `LEFT_OUT` for rows to leave out."""
    known = {**common.SPLIT_NAMES, **{name: name for name in common.SPLITS}}
    if given is None:
        return known
    if split is None:
        raise ParameterError("split_names are given without a column of splits")
    wrong = [name for name in given.values() if name is not None and name not in common.SPLITS]
    if wrong:
        raise ParameterError(
            f"split_names: expected {', '.join(common.SPLITS)} or None (none on the command line), got {wrong[0]!r:.80}"
        )
    return known | {value.lower(): LEFT_OUT if name is None else name for value, name in given.items()}


def _splits(values: Sequence[str], known: Mapping[str, str], file: Path, column: str) -> Strings:
    lower = [value.lower() for value in values]
    unknown = sorted(set(lower) - set(known))
    if unknown:
        row = next(row for row, value in enumerate(lower) if value not in known)
        raise DatasetError(
            f"{file}, row {row}: {column}: expected one of {', '.join(known)}, got {values[row]!r:.80}; say which "
            f"splits {common.shown(unknown)} are: split_names={{{unknown[0]!r:.80}: 'val'}}, or on the command line "
            f"--split-names {unknown[0]:.80}=val (None and none leave rows out)"
        )
    return np.array([known[value] for value in lower], dtype=np.str_)


def _without(index: DatasetIndex, left_out: NDArray[np.bool_]) -> DatasetIndex:
    """Return an index without some rows, and with a note on them."""
    if not left_out.any():
        return index
    kept = ~left_out
    if not kept.any():
        raise DatasetError(f"{index.name}: split_names leave out all {len(kept)} rows")
    return replace(
        index,
        ids=index.ids[kept],
        split=index.split[kept],
        y=None if index.y is None else index.y[kept],
        sensitive={name: (codes[kept], names) for name, (codes, names) in index.sensitive.items()},
        notes=(*index.notes, f"{int(left_out.sum())} rows are left out by split_names."),
    )
