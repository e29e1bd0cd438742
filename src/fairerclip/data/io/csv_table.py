"""Writing of tables as CSV in which spreadsheets find no formulas."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairerclip._util.files import atomic_file

FORMULA_STARTS = ("=", "+", "-", "@")
"""Characters at which a spreadsheet starts a formula, also in their full-width form and after invisible characters."""
_INVISIBLE = {"Cc", "Cf", "Mn", "Zs", "Zl", "Zp"}  # control and zero-width characters, spaces and line ends
_ENDS = ("\t", "\r", "\n")  # some programs begin a new cell here
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")


def csv_bytes(rows: Sequence[Mapping[str, Any]], *, header: bool = True) -> bytes:
    """Return rows as CSV; text that a spreadsheet would run as a formula gets an apostrophe in front.

    Without ``header`` they are further rows of a table that has begun.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [])
    if header:
        writer.writerow({name: defused(name) for name in writer.fieldnames})
    writer.writerows({k: defused(v) for k, v in row.items()} for row in rows)
    # Lone surrogates occur in names of files that are not valid text.
    return text.getvalue().encode(errors="backslashreplace")


def defused(value: Any) -> Any:
    r"""Return a cell that no spreadsheet runs: text that starts like a formula gets an apostrophe in front.

    Numbers stay as they are, and so does text that is a plain number, such as an id: it is not a formula, and users
    must be able to look up rows by it.

    Examples
    --------
    >>> [defused(cell) for cell in ("=A1", "\n =A1", "＝A1", "-1+A1", "a=b", "-12", -12)]
    ["'=A1", "'\n =A1", "'＝A1", "'-1+A1", 'a=b', '-12', -12]
    """
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return value
    first = next((c for c in value if unicodedata.category(c) not in _INVISIBLE), "")
    is_formula = value.startswith(_ENDS) or unicodedata.normalize("NFKC", first).startswith(FORMULA_STARTS)
    return "'" + value if is_formula else value


def write_table(rows: Sequence[Mapping[str, Any]], path: Path, *, overwrite: bool = False) -> None:
    """Write a table as CSV."""
    with atomic_file(path, overwrite=overwrite) as handle:
        handle.write(csv_bytes(rows))
