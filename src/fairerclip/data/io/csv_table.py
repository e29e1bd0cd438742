"""Tables as CSV that no spreadsheet takes for formulas."""

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
"""What a spreadsheet takes for the start of a formula, also in its wide form and behind what is not seen."""


_UNSEEN = {"Cc", "Cf", "Mn", "Zs", "Zl", "Zp"}  # control and zero-width characters, spaces and line ends


_ENDS = ("\t", "\r", "\n")  # some programs begin a new cell here


_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")


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
