"""Reader of CFD's norming data: a workbook or its CSV export, with the column names of either version."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairerclip._util.extras import require
from fairerclip._util.files import reading
from fairerclip.data.datasets import common
from fairerclip.data.io import npz
from fairerclip.errors import DatasetError, TaskFileError

SCHEMES = (
    ("Model", "EthnicitySelf", "GenderSelf", "Attractive"),  # versions 2.5 and 3
    ("Target", "Race", "Gender", "Attractive"),  # versions 2.0.x
)
MAX_HEADER_ROW = 40  # version 3 has a title and remarks above the header
MAX_ROWS = 5_000  # the main set has some 600 people
MAX_COLUMNS = 256
MAX_SHEETS = 16
MAX_SHEET = 16 * 1024**2  # decompressed bytes of one sheet, or of the texts of all sheets
MAX_PART = 256 * 1024  # decompressed bytes of any other part; openpyxl makes an object of every style
_MODEL = re.compile(r"(?:CFD-)?([A-Z])([A-Z])-(\d{3})(?:-\d+)?")
_CODE = re.compile(r"[A-Z]\d{3}")
_SEXES = {"f": "F", "female": "F", "m": "M", "male": "M"}
_CORE = "ABLW"


@dataclass(frozen=True)
class Model:
    """One person of the database, from the norming data."""

    name: str  # WF-001
    race: str  # A, B, L or W
    sex: str  # F or M
    attractive: float


@reading(DatasetError)
def read_norming(file: Path) -> tuple[list[Model], int]:
    """Read the people of the main set, and count those of the other sets, which are left out.

    Parameters
    ----------
    file : pathlib.Path
        The workbook (``.xlsx``) or a sheet of it saved as ``.csv``.

    Returns
    -------
    models : list of Model
        People of the main set, in the order of the file.
    others : int
        Number of rows of the multiracial and Indian sets.

    Raises
    ------
    DatasetError
        No sheet has a header with the columns of either version, a value is invalid, or a person occurs twice.
    """
    if not file.is_file():
        raise DatasetError(f"{file}: expected the norming data of CFD, got no such file")
    if file.suffix.lower() == ".csv":
        rows = [row for _, row in _limited(common.csv_rows(file), file)]
        table = _below_header(rows)
    else:
        table = _from_workbook(file)
    if table is None:
        wanted = " or ".join(", ".join(scheme) for scheme in SCHEMES)
        raise DatasetError(
            f"{file}: expected a header with {wanted} in the first {MAX_HEADER_ROW} rows, got none"
        )
    return _models(*table, file)


def _from_workbook(file: Path) -> tuple[tuple[int, ...], list[list[str]]] | None:
    """Return the places of the columns and the rows below the header, of the first sheet with a header."""
    openpyxl = require("openpyxl", "excel", "reading the norming workbook of CFD (or save its sheet as .csv)")
    _check_archive(file)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # openpyxl warns of styles and validations it does not know
        try:
            with closing(openpyxl.load_workbook(file, read_only=True, data_only=True)) as book:
                if len(book.worksheets) > MAX_SHEETS:
                    raise DatasetError(
                        f"{file}: expected at most {MAX_SHEETS} sheets, got {len(book.worksheets)}"
                    )
                for sheet in book.worksheets:
                    cells = enumerate(
                        sheet.iter_rows(max_row=MAX_ROWS + 1, max_col=MAX_COLUMNS, values_only=True)
                    )
                    table = _below_header([list(map(_text, row)) for _, row in _limited(cells, file)])
                    if table is not None:
                        return table
        except DatasetError:
            raise
        except Exception as error:  # noqa: BLE001 - a damaged workbook fails in many ways
            raise DatasetError(
                f"{file}: cannot be read as a workbook: {type(error).__name__}: {error}"
            ) from None
    return None


def _check_archive(file: Path) -> None:
    """Raise if a file is not a zip archive, or would decompress to far more than norming data need."""
    try:
        sizes = npz.member_sizes(file)
    except TaskFileError as error:
        raise DatasetError(f"{error} (expected a workbook, .xlsx)") from None
    for name, size in sizes.items():
        limit = MAX_SHEET if name.startswith("xl/worksheets/") or name == "xl/sharedStrings.xml" else MAX_PART
        if size > limit:
            raise DatasetError(
                f"{file}: expected {name!r:.80} of at most {limit:,} bytes decompressed, got {size:,}"
            )


def _limited(rows: Iterable[tuple[int, Any]], file: Path) -> Iterator[tuple[int, Any]]:
    for count, row in enumerate(rows):
        if count >= MAX_ROWS:
            raise DatasetError(f"{file}: expected at most {MAX_ROWS} rows, got more")
        yield row


def _below_header(rows: Sequence[Sequence[str]]) -> tuple[tuple[int, ...], list[list[str]]] | None:
    for number, row in enumerate(rows[:MAX_HEADER_ROW]):
        cells = [cell.strip() for cell in row]
        for scheme in SCHEMES:
            if all(name in cells for name in scheme):
                places = tuple(cells.index(name) for name in scheme)
                return places, [[cell.strip() for cell in below] for below in rows[number + 1 :]]
    return None


def _models(places: tuple[int, ...], rows: list[list[str]], file: Path) -> tuple[list[Model], int]:
    models: dict[str, Model] = {}
    others = 0
    for number, row in enumerate(rows):
        name, race, sex, rating = (row[place] if place < len(row) else "" for place in places)
        # Version 3 repeats the header as codes (S001, R013, …); notes may follow the last person.
        if not (race or sex or rating) or _CODE.fullmatch(sex) or _CODE.fullmatch(rating):
            continue
        at = f"{file}, row {number} below the header"
        match = _MODEL.fullmatch(name)
        if match is None:
            raise DatasetError(f"{at}: expected a person such as WF-001, got {name!r}")
        if match[1] not in _CORE:
            others += 1
            continue
        model = Model(f"{match[1]}{match[2]}-{match[3]}", race, _sex(sex, at), _rating(rating, at))
        if race not in tuple(_CORE):
            raise DatasetError(f"{at}: expected a race of {', '.join(_CORE)}, got {race!r}")
        if model.name in models:
            raise DatasetError(f"{at}: expected each person once, got {model.name} again")
        models[model.name] = model
    if not models:
        raise DatasetError(f"{file}: expected people below the header, got none")
    return list(models.values()), others


def _sex(value: str, at: str) -> str:
    if value.lower() not in _SEXES:
        raise DatasetError(f"{at}: expected a sex of F or M, got {value!r}")
    return _SEXES[value.lower()]


def _rating(value: str, at: str) -> float:
    try:
        rating = float(value)
    except ValueError:
        rating = math.nan
    if not math.isfinite(rating):
        raise DatasetError(f"{at}: expected a number under Attractive, got {value!r}")
    return rating


def _text(cell: object) -> str:
    return "" if cell is None else str(cell)
