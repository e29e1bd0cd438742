"""Writing of tables as parquet with pyarrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from fairerclip._util.extras import require
from fairerclip._util.files import atomic_file

GROUP_ROWS = 131_072
"""Rows of a row group of a table that is written block by block; that many are in memory."""


def write_parquet(columns: Mapping[str, Sequence[Any]], path: Path, *, overwrite: bool = False) -> None:
    """Write columns of numbers or text as one parquet file; a column of several types becomes text."""
    pa = require("pyarrow", "parquet", "writing parquet")
    pq = require("pyarrow.parquet", "parquet", "writing parquet")
    table = pa.table({_text(name): pa.array(_of_one_type(values)) for name, values in columns.items()})
    with atomic_file(path, overwrite=overwrite) as handle:
        pq.write_table(table, handle)


class ParquetBlocks:
    """A parquet file that is written block by block, in row groups.

    Parameters
    ----------
    handle : binary file
        Where to write.
    examples : mapping from name to values
        The columns, each with examples of all types of its values; a column of several types becomes text.
    """

    def __init__(self, handle: IO[bytes], examples: Mapping[str, Sequence[Any]]) -> None:
        self._pa = require("pyarrow", "parquet", "writing parquet")
        pq = require("pyarrow.parquet", "parquet", "writing parquet")
        kinds = {_text(name): self._pa.array(_of_one_type(values)).type for name, values in examples.items()}
        self._schema = self._pa.schema(kinds)
        self._writer = pq.ParquetWriter(handle, self._schema)
        self._waiting: list[Any] = []

    def add(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Add a block of rows: values (b,) of every column, in the order of the examples."""
        pa = self._pa
        arrays = [
            pa.array([_text(str(v)) for v in values] if pa.types.is_string(field.type) else list(values))
            for field, values in zip(self._schema, columns.values(), strict=True)
        ]
        self._waiting.append(pa.table(arrays, schema=self._schema))
        if sum(len(table) for table in self._waiting) >= GROUP_ROWS:
            self._write()

    def close(self) -> None:
        """Write what waits, and the end of the file."""
        self._write()
        self._writer.close()

    def _write(self) -> None:
        if self._waiting:
            table = self._pa.concat_tables(self._waiting)
            self._writer.write_table(table, row_group_size=len(table))
            self._waiting = []


def _of_one_type(values: Sequence[Any]) -> list[Any]:
    if len({type(value) for value in values}) > 1 or any(isinstance(value, str) for value in values):
        return [_text(str(value)) for value in values]
    return list(values)


def _text(value: str) -> str:
    """Return text without lone surrogates, which occur in names of files that are not valid text."""
    return value.encode(errors="backslashreplace").decode()
