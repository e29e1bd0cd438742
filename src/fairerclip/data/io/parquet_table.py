"""Writing of tables as parquet with pyarrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairerclip._util.extras import require
from fairerclip._util.files import atomic_file


def write_parquet(columns: Mapping[str, Sequence[Any]], path: Path, *, overwrite: bool = False) -> None:
    """Write columns of numbers or text as one parquet file; a column of several types becomes text."""
    pa = require("pyarrow", "parquet", "writing parquet")
    pq = require("pyarrow.parquet", "parquet", "writing parquet")
    table = pa.table({_text(name): pa.array(_of_one_type(values)) for name, values in columns.items()})
    with atomic_file(path, overwrite=overwrite) as handle:
        pq.write_table(table, handle)


def _of_one_type(values: Sequence[Any]) -> list[Any]:
    if len({type(value) for value in values}) > 1 or any(isinstance(value, str) for value in values):
        return [_text(str(value)) for value in values]
    return list(values)


def _text(value: str) -> str:
    """Return text without lone surrogates, which occur in names of files that are not valid text."""
    return value.encode(errors="backslashreplace").decode()
