"""Reading of labels from a table with one row per id; categories become integer codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.files import reading
from fairerclip._util.types import Ints
from fairerclip.data.coded_labels import smallest_type
from fairerclip.data.io.bounded_text import TextColumn, csv_records, nearest
from fairerclip.data.io.parquet import open_parquet, text_batches, unpacked_limit
from fairerclip.errors import JoinError, LabelError

MISSING = -1
MAX_CATEGORIES = 10_000
"""Most distinct values of a category; a column with more holds ids or quantities."""
_BLOCK = 65_536


@dataclass(frozen=True, eq=False)
class Column:
    """A categorical column: codes (n,) of 1 or 2 bytes, -1 where the value is missing, and the names of the codes."""

    name: str
    codes: Ints
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class LabelTable:
    """Ids (n,), None without an id column, and the requested categorical columns."""

    ids: NDArray[np.str_] | None
    columns: dict[str, Column]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())).codes if self.ids is None else self.ids)

    @property
    def known_ids(self) -> NDArray[np.str_]:
        """The ids (n,); raise if the table was read without its id column."""
        if self.ids is None:
            raise JoinError("expected labels with ids, got a table that was read without an id column")
        return self.ids


@reading(JoinError)
def read_labels(
    path: Any,
    *,
    id_column: str | None,
    columns: Sequence[str],
    allow_constant: Sequence[str] = (),
    progress: Callable[[int, int | None], None] | None = None,
) -> LabelTable:
    r"""Read ids and categorical columns from a CSV, TSV or parquet file.

    Parameters
    ----------
    path : path-like
        ``.csv``, ``.tsv`` or ``.parquet`` with a header.
    id_column : str or None
        Column of ids, present in every row; None for labels that are in the order of the embeddings.
    columns : sequence of str
        Columns of text or integers; an empty field is missing (-1). Names are sorted as text, or as numbers
        if all of them are numbers.
    allow_constant : sequence of str
        Columns that may have one value only, such as the split column.
    progress : callable, optional
        Called with the number of rows that have been read, and None.

    Returns
    -------
    LabelTable
        Memory: the ids, and 1 byte per label up to 127 values, then 2 bytes; rows are read in blocks.

    Raises
    ------
    JoinError
        The file cannot be read, or has no such column.
    LabelError
        A column has one value only, or more than 10,000.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = Path(folder.name) / "labels.csv"
    >>> _ = file.write_text("image,age\na.jpg,10\nb.jpg,9\nc.jpg,\n")
    >>> table = read_labels(file, id_column="image", columns=["age"])
    >>> table.columns["age"].names, table.columns["age"].codes.tolist()
    (('9', '10'), [1, 0, -1])
    >>> folder.cleanup()
    """
    file = Path(path)
    wanted = list(dict.fromkeys(name for name in (id_column, *columns) if name is not None))
    batches, limit = _label_batches(file, wanted)
    encoders = {name: _ColumnEncoder(name, file) for name in columns}
    ids = TextColumn(str(file), "an id", JoinError, limit=limit)
    row = 0
    for batch in batches:
        by_name = dict(zip(wanted, batch, strict=True))
        if id_column is not None:
            ids.add(_no_blank(by_name[id_column], file, id_column, row))
        for name, encoder in encoders.items():
            encoder.update(by_name[name])
        row += len(batch[0])
        if progress is not None:
            progress(row, None)
    if not row:
        raise JoinError(f"{file}: expected rows after the header, found none")
    return LabelTable(
        None if id_column is None else ids.array(),
        {name: encoder.finalise(name in allow_constant) for name, encoder in encoders.items()},
    )


def _no_blank(ids: Sequence[str | None], file: Path, column: str, first: int) -> list[str]:
    """Return the ids of a block whose first row has this number; raise if one is empty."""
    blank = next((row for row, name in enumerate(ids, first) if not name), None)
    if blank is not None:
        raise JoinError(f"{file}: expected an id in every row of {column!r}, row {blank} has none")
    return [str(name) for name in ids]


def _label_batches(file: Path, wanted: list[str]) -> tuple[Iterator[list[list[str | None]]], int | None]:
    """Return the columns of a file in blocks, and the most characters of ids that it may hold, if limited."""
    if not wanted:
        raise JoinError(f"{file}: expected an id column or columns of labels, got neither")
    ending = file.suffix.lower()
    if ending == ".parquet":
        _check_columns(open_parquet(file, JoinError).schema_arrow.names, wanted, file)
        return text_batches(file, wanted, JoinError), unpacked_limit(file)
    if ending in (".csv", ".tsv"):
        return _csv_batches(file, wanted), None
    raise JoinError(f"{file}: expected .csv, .tsv or .parquet, got {file.suffix or 'no ending'}")


class _ColumnEncoder:
    """Codes of one column, given in the order in which values occur and sorted by name at the end.

    Memory: 1 byte per row up to 127 values, then 2 bytes.
    """

    def __init__(self, name: str, file: Path) -> None:
        self._name, self._file = name, file
        self._codes: dict[str, int] = {}
        self._parts: list[NDArray[Any]] = []

    def update(self, values: Sequence[str | None]) -> None:
        """Add the values (b,) of a block; None and "" are missing."""
        codes = self._codes
        part = np.empty(len(values), dtype=np.int32)
        for i, value in enumerate(values):
            part[i] = MISSING if not value else codes.setdefault(value, len(codes))
        self._parts.append(part.astype(smallest_type(len(codes))))
        if len(codes) > MAX_CATEGORIES:
            raise LabelError(
                f"{self._file}: column {self._name!r} has more than {MAX_CATEGORIES:,} distinct values; labels are "
                "categories: divide a quantity into bins first"
            )

    def finalise(self, allow_constant: bool) -> Column:
        """Return the column with codes in the order of the names; raise if it has one value only."""
        if len(self._codes) < (1 if allow_constant else 2):
            came = f"the value {next(iter(self._codes))!r} only" if self._codes else "missing values only"
            raise LabelError(
                f"{self._file}: column {self._name!r} has {came}; a label needs at least two values"
            )
        names = sorted(self._codes, key=_order(self._codes))
        kind = smallest_type(len(names))
        rank = np.empty(len(names) + 1, dtype=kind)
        rank[MISSING] = MISSING
        rank[[self._codes[name] for name in names]] = np.arange(len(names))
        return Column(self._name, np.concatenate([rank[part] for part in self._parts]), tuple(names))


def _order(names: Any) -> Any:
    try:
        if all(np.isfinite(float(name)) for name in names):
            return lambda name: (float(name), name)
    except ValueError:
        pass
    return str


def _csv_batches(file: Path, wanted: list[str]) -> Iterator[list[list[str | None]]]:
    records = csv_records(file, JoinError, delimiter="\t" if file.suffix.lower() == ".tsv" else ",")
    _, header = next(records, (0, []))
    _check_columns(header, wanted, file)
    places = [header.index(name) for name in wanted]
    out: list[list[str | None]] = [[] for _ in wanted]
    for line, fields in records:
        if len(fields) != len(header):
            raise JoinError(
                f"{file}, line {line}: expected {len(header)} fields as in the header, got {len(fields)}"
            )
        for values, place in zip(out, places, strict=True):
            values.append(fields[place])
        if len(out[0]) >= _BLOCK:
            yield out
            out = [[] for _ in wanted]
    if out[0]:
        yield out


def _check_columns(header: Sequence[str], wanted: Sequence[str], file: Path) -> None:
    for name in wanted:
        if name not in header:
            near = nearest(name, header)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            names = ", ".join(f"{column:.60}" for column in header[:50])
            raise JoinError(f"{file}: no column {name!r}{hint} It has: {names or 'no columns'}")
        if list(header).count(name) > 1:
            raise JoinError(f"{file}: expected column {name!r} once, got it {list(header).count(name)} times")
