"""Reading of parquet with pyarrow: one column of embeddings in blocks, and columns of text.

pyarrow is imported in this module only, when a file is opened; its exceptions become errors of this package.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.extras import require
from fairerclip.data.io.bounded_text import MAX_CHARACTERS, TextColumn
from fairerclip.data.io.remote_path import Location
from fairerclip.errors import FairerClipError, StoreError

Array = NDArray[Any]
Ints = NDArray[np.integer]

BATCH_ROWS = 4096
"""Rows decoded at once, which bounds memory for any size of row group."""
TEXT_ROWS = 32_768
"""Rows of columns of text that are decoded at once; each block copies the dictionary of its row group."""
MAX_FOOTER_BYTES, MAX_FOOTER_ITEMS = 16 * 1024**2, 100_000
"""Most bytes of one text of the footer, and most items of one list, such as that of the columns."""
RATIO, FREE_BYTES = 80, 16 * 1024**2
"""A row group, ids and embeddings may each take, decompressed, RATIO times the size of the file plus FREE_BYTES."""
ROWS_PER_BYTE, FREE_ROWS = 8, 200_000
"""A file may have ROWS_PER_BYTE rows per byte plus FREE_ROWS; ids differ, so honest files need more bytes per row."""
MATRIX_NAMES = ("embedding", "embeddings")
ID_NAMES = ("id", "image_path", "path", "key", "uid")
"""Columns used as ids if none is named; the first that exists is taken."""


@contextmanager
def _damage(file: Location, error: type[FairerClipError]) -> Iterator[None]:
    pa = require("pyarrow", "parquet", "reading parquet")
    try:
        yield
    except FairerClipError:
        raise
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        OverflowError,
        MemoryError,
        *_of_storage(file),
    ) as problem:
        raise error(
            f"{file}: expected a readable parquet file, got {type(problem).__name__}: {problem}"
        ) from problem


def _of_storage(file: Location) -> tuple[type[Exception], ...]:
    """Return the exceptions that only reading this file can raise: file systems of fsspec have their own."""
    return () if isinstance(file, Path) else (Exception,)


def open_parquet(
    file: Location, error: type[FairerClipError] = StoreError, *, dictionaries: Sequence[str] = ()
) -> Any:
    """Return a ``pyarrow.parquet.ParquetFile`` with a checked footer.

    The columns in ``dictionaries`` are read as dictionaries: each distinct text is stored once.
    """
    pq = require("pyarrow.parquet", "parquet", "reading parquet")
    if not file.is_file():
        raise error(f"{file}: expected a regular file, found nothing or something else at this path")
    with _damage(file, error):
        # memory_map without pre_buffer: a row group is read page by page and not kept in memory as a whole.
        opened = pq.ParquetFile(
            file if isinstance(file, Path) else file.open(),
            memory_map=isinstance(file, Path),
            pre_buffer=False,
            read_dictionary=list(dictionaries),
            thrift_string_size_limit=MAX_FOOTER_BYTES,
            thrift_container_size_limit=MAX_FOOTER_ITEMS,
        )
        _check_size(file, opened.metadata, error)
        return opened


def _check_size(file: Location, footer: Any, error: type[FairerClipError]) -> None:
    """Raise if row groups decompress to far more than the size of the file: a page is decompressed as a whole.

    The entries of single columns in the footer are not read: pyarrow aborts the process if they are damaged.
    """
    for group in range(footer.num_row_groups):
        size = footer.row_group(group).total_byte_size
        if size > unpacked_limit(file):
            raise error(
                f"{file}: expected row group {group} to decompress to at most {unpacked_limit(file):,} bytes, got "
                f"{size:,}; if you trust the file, write it without compression"
            )
    most = FREE_ROWS + ROWS_PER_BYTE * file.stat().st_size
    if footer.num_rows > most:
        raise error(
            f"{file}: expected at most {most:,} rows in a file of this size, got {footer.num_rows:,}; if you trust the "
            "file, write it without compression"
        )


def unpacked_limit(file: Location) -> int:
    """Return the most bytes that a file may decompress to."""
    return FREE_BYTES + RATIO * file.stat().st_size


def is_text_or_integer(kind: Any) -> bool:
    """Return whether a column type can hold ids or categories: text, integers, booleans, or dictionaries of these."""
    pa = require("pyarrow", "parquet", "reading parquet")
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
    )


def text_batches(
    file: Location, columns: Sequence[str], error: type[FairerClipError]
) -> Iterator[list[list[str | None]]]:
    """Yield columns as text, block by block; null is None. Raise unless they hold text, integers or booleans."""
    opened = open_parquet(file, error)
    check_once(file, opened, columns, error)
    for name in columns:
        kind = opened.schema_arrow.field(name).type
        if not is_text_or_integer(kind):
            raise error(f"{file}: expected column {name!r} to hold text or integers, got {kind}")
    # Read as dictionaries: a text that the file stores once and uses a million times is not copied a million times.
    with_dictionaries = open_parquet(file, error, dictionaries=columns)
    with _damage(file, error):
        for batch in with_dictionaries.iter_batches(batch_size=TEXT_ROWS, columns=list(columns)):
            texts = []
            for name in columns:
                column, places = _used(batch.column(batch.schema.get_field_index(name)))
                if (longest := _longest(column)) > 4 * MAX_CHARACTERS:
                    raise error(
                        f"{file}: expected texts of at most {MAX_CHARACTERS:,} characters in {name!r}, got one of "
                        f"{longest:,} bytes"
                    )
                words = [None if word is None else str(word) for word in column.to_pylist()]
                texts.append(words if places is None else [None if k is None else words[k] for k in places])
            del batch, column  # so that the dictionary is not in memory twice
            yield texts


def _used(column: Any) -> tuple[Any, list[int | None] | None]:
    """Return the words of a column and the place (rows,) of each row's word, or the column itself and None.

    Of a dictionary, only the words of these rows: that of a column of ids grows with every block of a row group.
    """
    pa = require("pyarrow", "parquet", "reading parquet")
    if not pa.types.is_dictionary(column.type):
        return column, None
    indices = column.indices
    known = indices.drop_null().to_numpy()
    if len(known) and not (0 <= known.min() and known.max() < len(column.dictionary)):
        raise pa.ArrowInvalid("indices outside of the dictionary")  # a damaged file
    used, places = np.unique(known, return_inverse=True)
    words = column.dictionary.take(pa.array(used))
    words.validate(full=True)
    found: list[int | None] = places.tolist()
    if indices.null_count:
        rows = iter(found)
        found = [next(rows) if valid else None for valid in indices.is_valid().to_pylist()]
    return words, found


def _longest(column: Any) -> int:
    """Return the bytes of the longest text of a column; 0 for numbers and booleans, which are short."""
    pa = require("pyarrow", "parquet", "reading parquet")
    pc = require("pyarrow.compute", "parquet", "reading parquet")
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return 0
    return int(pc.max(pc.binary_length(column)).as_py() or 0)


def check_once(file: Location, opened: Any, columns: Sequence[str], error: type[FairerClipError]) -> None:
    """Raise if one of these columns is absent or occurs twice."""
    names = opened.schema_arrow.names
    for name in columns:
        if names.count(name) != 1:
            raise error(
                f"{file}: expected one column {name!r}, got {names.count(name)}; it has {', '.join(names[:20])}"
            )


def read_ids(file: Location, column: str) -> Array:
    """Read one column as ids (n,) of str; raise `StoreError` if one is null."""
    ids = TextColumn(str(file), "an id", StoreError, limit=unpacked_limit(file))
    row = 0
    for (values,) in text_batches(file, [column], StoreError):
        if None in values:
            raise StoreError(
                f"{file}: expected an id in every row of {column!r}, got none in row {row + values.index(None)}"
            )
        ids.add([str(value) for value in values])
        row += len(values)
    return ids.array()


def id_column(file: Location, opened: Any, given: str | None) -> str | None:
    """Return the name of the id column: the given one, which must exist, or the first of `ID_NAMES`, or None."""
    names = opened.schema_arrow.names
    if given is not None:
        if given not in names:
            raise StoreError(f"{file}: no id column {given!r}; it has {', '.join(names[:20])}")
        return given
    return next((name for name in ID_NAMES if name in names), None)


def matrix_column(file: Location, opened: Any, key: str | None) -> str:
    """Return the name of the column of embeddings: ``key``, or ``embedding``, or the only list of floats."""
    pa = require("pyarrow", "parquet", "reading parquet")
    schema = opened.schema_arrow

    def is_rows(kind: Any) -> bool:
        lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
        return any(test(kind) for test in lists) and bool(pa.types.is_floating(kind.value_type))

    rows = [field.name for field in schema if is_rows(field.type)]
    candidates = [key] if key is not None else [n for n in MATRIX_NAMES if n in rows][:1] or rows
    if len(candidates) != 1 or candidates[0] not in rows:
        columns = ", ".join(f"{field.name}: {field.type}" for field in list(schema)[:20])
        raise StoreError(
            f"{file}: expected {'column ' + repr(key) if key else 'one column'} of lists of floats, found "
            f"{columns or 'no columns'}; name one with key="
        )
    return candidates[0]


class ParquetRows:
    """Embeddings of one file; a read of the following rows continues where the last read stopped.

    Threads may share one object: they read one after the other.

    Parameters
    ----------
    file : pathlib.Path or RemotePath
        A parquet file.
    key : str or None
        Column of embeddings.
    """

    def __init__(self, file: Location, key: str | None) -> None:
        self.file = file
        self._opened = open_parquet(file)
        self._column = matrix_column(file, self._opened, key)
        check_once(file, self._opened, [self._column], StoreError)
        meta = self._opened.metadata
        counts = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
        self._starts = np.cumsum([0, *counts])
        self.rows = int(meta.num_rows)
        self._reading = threading.Lock()  # one stream, so one reader at a time
        self._stream: Iterator[Any] = iter(())
        self._held: tuple[int, Array] | None = None  # first row and rows of the batch decoded last
        kind = self._opened.schema_arrow.field(self._column).type
        self.dtype = np.dtype(kind.value_type.to_pandas_dtype())
        self.width: int | None = None
        if self.rows:
            self.width = self._first_width()
            if (size := self.rows * self.width * self.dtype.itemsize) > unpacked_limit(file):
                raise StoreError(
                    f"{file}: expected at most {unpacked_limit(file):,} bytes of embeddings from a file of this size, "
                    f"got {size:,}; a decompression bomb?"
                )
            self._at(0)  # raises at once if rows of the first batch have other widths

    def _first_width(self) -> int:
        """Return the width of the first row, decoded alone: a batch of unknown width may have any size."""
        with _damage(self.file, StoreError):
            batch = next(self._opened.iter_batches(1, columns=[self._column]), None)
            if batch is None:
                raise StoreError(f"{self.file}: expected {self.rows} rows, found none")
            return int(self._matrix(batch.column(0), 0).shape[1])

    def ids(self, given: str | None) -> str | None:
        """Return the name of the id column of this file, or None."""
        return id_column(self.file, self._opened, given)

    def read(self, start: int, stop: int) -> Array:
        """Return rows start to stop (m, p), as on disk."""
        return self.take(np.arange(start, stop))

    def take(self, rows: Ints) -> Array:
        """Return rows (m, p) by sorted row numbers, as on disk."""
        out = np.empty((len(rows), self.width or 0), dtype=self.dtype)
        at = 0
        with self._reading:
            while at < len(rows):
                first, block = self._at(int(rows[at]))
                end = at + int(np.searchsorted(rows[at:], first + len(block)))
                out[at:end] = block[rows[at:end] - first]
                at = end
        return out

    def _at(self, row: int) -> tuple[int, Array]:
        """Return the decoded batch that holds a row, after the number of its first row."""
        group = int(np.searchsorted(self._starts, row, side="right")) - 1
        held = self._held
        if held is None or row < held[0] or self._starts[group] > held[0] + len(held[1]):
            groups = range(group, len(self._starts) - 1)
            self._stream = self._opened.iter_batches(BATCH_ROWS, row_groups=groups, columns=[self._column])
            held = (int(self._starts[group]), np.empty((0, self.width or 0), dtype=self.dtype))
        self._held = None  # after an error, the stream is not at the end of the batch decoded last
        with _damage(self.file, StoreError):
            while row >= held[0] + len(held[1]):
                batch = next(self._stream, None)
                if batch is None:
                    raise StoreError(
                        f"{self.file}: expected {self.rows} rows, found {held[0] + len(held[1])}"
                    )
                start = held[0] + len(held[1])
                held = (start, self._matrix(batch.column(0), start))
        self._held = held
        return held

    def _matrix(self, column: Any, start: int) -> Array:
        pa = require("pyarrow", "parquet", "reading parquet")
        if column.null_count:
            raise StoreError(
                f"{self.file}: expected an embedding in every row, got {column.null_count} nulls"
            )
        if pa.types.is_fixed_size_list(column.type):
            lengths = np.full(len(column), column.type.list_size)
        else:
            lengths = np.diff(column.offsets.to_numpy(zero_copy_only=False))
        width = self.width if self.width is not None else int(lengths[0])
        odd = np.flatnonzero(lengths != width)
        if odd.size or width == 0:
            row = int(odd[0]) if odd.size else 0
            raise StoreError(
                f"{self.file}: expected rows of one width, row {start + row} of {self._column!r} has "
                f"{lengths[row]} values, row 0 has {width}"
            )
        flat = column.flatten()
        if flat.null_count:
            raise StoreError(
                f"{self.file}: expected numbers in {self._column!r}, got {flat.null_count} nulls"
            )
        values: Array = flat.to_numpy(zero_copy_only=False).reshape(len(column), width)
        return values


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key under which ``part_2`` comes before ``part_10``.

    Examples
    --------
    >>> sorted(["p10.npy", "p2.npy"], key=natural)
    ['p2.npy', 'p10.npy']
    """
    runs = itertools.groupby(name, key=lambda c: c in "0123456789")
    pieces = [(digits, "".join(run)) for digits, run in runs]
    return tuple((0, int(text), text) if digits else (1, 0, text) for digits, text in pieces)
