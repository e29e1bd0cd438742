"""Grids in, tables out: what commands and reports share."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.data.npz import write_npz
from fairerclip.errors import ParameterError
from fairerclip.files import atomic_file, check_free

GRID_VALUES = 10_000
"""Most values of a grid."""
FORMULA_STARTS = ("=", "+", "-", "@")
"""What a spreadsheet takes for the start of a formula, also in its wide form and behind what is not seen."""
_UNSEEN = {"Cc", "Cf", "Mn", "Zs", "Zl", "Zp"}  # control and zero-width characters, spaces and line ends
_ENDS = ("\t", "\r", "\n")  # some programs begin a new cell here
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")


def parse_grid(text: str | None, name: str) -> list[float] | None:
    """``START:STOP:COUNT`` or comma-separated numbers.

    Examples
    --------
    >>> parse_grid("0:1:3", "taus")
    [0.0, 0.5, 1.0]
    >>> parse_grid("0.2,0.7", "taus")
    [0.2, 0.7]
    """
    if text is None:
        return None
    try:
        if ":" in text:
            start, stop, count = text.split(":")
            values = np.linspace(float(start), float(stop), min(int(count), GRID_VALUES + 1)).tolist()
        else:
            values = [float(v) for v in text.split(",")]
    except ValueError:
        values = []
    if not values:
        raise ParameterError(f"{name} expects START:STOP:COUNT or comma-separated numbers; got {text!r:.60}")
    if len(values) > GRID_VALUES:
        raise ParameterError(f"{name} expects at most {GRID_VALUES:,} values; got {text!r:.60}")
    return [float(v) for v in values]


def front(table: Sequence[Mapping[str, Any]], x: str = "average", y: str = "worst_group") -> list[int]:
    """Which rows of a path's table no other row beats on both counts, by rising ``x``."""
    solved = [g for g, row in enumerate(table) if row["failure"] is None]
    best: list[int] = []
    for g in sorted(solved, key=lambda g: (-table[g][x], -table[g][y], g)):
        if not best or table[g][y] > table[best[-1]][y]:
            best.append(g)
    return best[::-1]


def csv_bytes(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Rows as CSV; text that a spreadsheet would run as a formula is quoted with an apostrophe."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [])
    writer.writerow({name: defused(name) for name in writer.fieldnames})
    writer.writerows({k: defused(v) for k, v in row.items()} for row in rows)
    return text.getvalue().encode(
        errors="backslashreplace"
    )  # lone surrogates: of file names that are no text


def defused(value: Any) -> Any:
    r"""A cell that no spreadsheet runs: text that starts like a formula gets an apostrophe in front.

    Numbers stay as they are, and so does text that is a plain number, such as an id: a number runs nothing, and what
    looks rows up by it must find it.

    Examples
    --------
    >>> [defused(cell) for cell in ("=A1", "\n =A1", "＝A1", "-1+A1", "a=b", "-12", -12)]
    ["'=A1", "'\n =A1", "'＝A1", "'-1+A1", 'a=b', '-12', -12]
    """
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return value
    first = next((c for c in value if unicodedata.category(c) not in _UNSEEN), "")
    runs = value.startswith(_ENDS) or unicodedata.normalize("NFKC", first).startswith(FORMULA_STARTS)
    return "'" + value if runs else value


def write_table(rows: Sequence[Mapping[str, Any]], path: Path, *, overwrite: bool = False) -> None:
    """Write a table as CSV."""
    with atomic_file(path, overwrite=overwrite) as handle:
        handle.write(csv_bytes(rows))


def check_predictions_path(path: Path, overwrite: bool) -> None:
    """Refuse an ending that `write_predictions` does not write, and a path that is taken."""
    if path.suffix not in (".npz", ".csv"):
        raise ParameterError(f"the output must end in .npz or .csv; got {path.name!r}")
    check_free(path, overwrite)


def write_predictions(result: Mapping[str, NDArray[Any]], path: Path, *, overwrite: bool = False) -> None:
    """Write what `apply_model` gave: everything as ``.npz``, or a row per image as ``.csv``.

    The columns of scores and ranks of a table carry the names of the prompts.
    """
    check_predictions_path(path, overwrite)
    if path.suffix == ".npz":
        plain = {k: v.astype(str) if v.dtype.kind == "O" else v for k, v in result.items()}
        write_npz(path, plain, overwrite=overwrite)
        return
    columns: dict[str, list[Any]] = {"row": list(range(len(result["score"])))}
    if "id" in result:
        columns["id"] = [str(i) for i in result["id"]]
    if "prediction" in result:
        columns["prediction"] = [_plain(label) for label in result["prediction"]]
    for kind in ("rank", "score"):
        if kind in result:
            names = [f"{kind}: {name}" for name in result["names"]]
            columns |= zip(names, result[kind].T.tolist(), strict=True)
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    write_table(rows, path, overwrite=overwrite)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
