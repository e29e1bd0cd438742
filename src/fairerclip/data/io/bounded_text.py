"""Reading of text from files with limits on memory and time: arrays, lines, CSV, similar names.

In a numpy array of text every row has the width of the longest entry, so a single long id can take gigabytes; difflib
needs minutes for two long names.
"""

from __future__ import annotations

import csv
import difflib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fairerclip.errors import FairerClipError

Strings = NDArray[np.str_]

MAX_CHARACTERS = 4096
"""Most characters of one id or name: the length limit of paths."""
PADDED_FREE_BYTES = 64 * 1024**2
PADDED_RATIO = 16
"""An array of text larger than the free bytes may take at most this many times the bytes of its characters."""
MAX_LINE = 1024**2
"""Most characters of one line of a table or list, or of one record with quoted line ends."""
COMPARED_CHARACTERS, COMPARED_NAMES = 100, 2000
"""Most characters and most names that `nearest` compares."""


class TextColumn:
    """Column of text that is added block by block and becomes one array; raises before it takes too much memory.

    ``limit`` is the most characters of all rows, for files that may be compressed.

    Examples
    --------
    >>> from fairerclip.errors import StoreError
    >>> column = TextColumn("a.csv", "an id", StoreError)
    >>> column.add(["a", "b"])
    >>> column.add(["cc"])
    >>> column.array().tolist()
    ['a', 'b', 'cc']
    """

    def __init__(
        self, where: str, what: str, error: type[FairerClipError], *, limit: int | None = None
    ) -> None:
        self._where, self._what, self._error, self._limit = where, what, error, limit
        self._values: list[str] = []
        self._longest = self._characters = 0

    def add(self, values: Sequence[str]) -> None:
        """Add a block of text; raise, with the row, if a text is too long or cannot be stored in an array."""
        for number, value in enumerate(values):
            if len(value) > MAX_CHARACTERS:
                raise self._error(
                    f"{self._where}: expected {self._what} of at most {MAX_CHARACTERS} characters, row "
                    f"{len(self._values) + number} has {len(value):,}: {value[:40]!r}…"
                )
        together = "".join(values)
        if not together.isascii() or "\0" in together:
            self._check_characters(values)
        self._characters += len(together) + len(values)  # an empty text takes memory too
        self._longest = max(self._longest, max(map(len, values), default=0))
        if self._limit is not None and self._characters > self._limit:
            raise self._error(
                f"{self._where}: expected at most {self._limit:,} characters from a file of this size, got more; a "
                "decompression bomb?"
            )
        rows = len(self._values) + len(values)
        padded = 4 * rows * self._longest
        if padded > max(PADDED_FREE_BYTES, 4 * PADDED_RATIO * self._characters):
            raise self._error(
                f"{self._where}: expected texts of similar length, got {self._what} of {self._longest:,} characters "
                f"among {rows:,} rows of {self._characters // rows:,} on average, which would take "
                f"{padded:,} bytes; shorten the long ones"
            )
        self._values += values

    def _check_characters(self, values: Sequence[str]) -> None:
        """Raise if numpy would silently drop or change characters: NUL at the end, or half a surrogate pair."""
        for number, value in enumerate(values):
            if value.endswith("\0") or any("\ud800" <= c <= "\udfff" for c in value):
                raise self._error(
                    f"{self._where}: expected {self._what} in Unicode that does not end in NUL, row "
                    f"{len(self._values) + number} is "
                    f"{value[:40]!r}"
                )

    def array(self) -> Strings:
        """Return all texts as one array (n,)."""
        return np.array(self._values, dtype=np.str_) if self._values else np.empty(0, dtype="<U1")


def text_array(values: Sequence[str], where: str, what: str, error: type[FairerClipError]) -> Strings:
    """Return texts as an array (n,); ``what`` names an entry in messages.

    Examples
    --------
    >>> from fairerclip.errors import StoreError
    >>> text_array(["a", "b" * 5000], "ids.csv", "an id", StoreError)
    Traceback (most recent call last):
    ...
    fairerclip.errors.StoreError: ids.csv: expected an id of at most 4096 characters, row 1 has 5,000: ...
    """
    column = TextColumn(where, what, error)
    column.add(values)
    return column.array()


def text_lines(file: Path, error: type[FairerClipError], *, limit: int = MAX_LINE) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, with their ends; raise ``error`` if one has more than ``limit`` characters."""
    try:
        if not file.is_file():  # opening a pipe would wait until somebody writes to it
            raise error(f"{file}: expected a regular file, found nothing or something else at this path")
        with file.open(encoding="utf-8-sig", newline="") as handle:
            while line := handle.readline(limit + 1):
                if len(line) > limit:
                    raise error(f"{file}: expected lines of at most {limit:,} characters, got a longer one")
                yield line
    except (OSError, ValueError) as problem:  # ValueError: not UTF-8, or the name holds a NUL
        if isinstance(problem, error):
            raise
        raise error(
            f"{file}: expected readable text in UTF-8, got {getattr(problem, 'strerror', None) or problem}"
        ) from None


def csv_records(
    file: Path, error: type[FairerClipError], *, delimiter: str = ",", strict: bool = True
) -> Iterator[tuple[int, list[str]]]:
    """Yield line numbers and fields of a table, without blank lines; raise ``error`` if it is damaged."""
    record_characters = 0

    def lines() -> Iterator[str]:
        nonlocal record_characters
        for line in text_lines(file, error):
            record_characters += len(line)
            if record_characters > MAX_LINE:
                raise error(
                    f"{file}: expected records of at most {MAX_LINE:,} characters, got a longer one; is a quote open?"
                )
            yield line

    reader = csv.reader(lines(), delimiter=delimiter, strict=strict)
    try:
        for fields in reader:
            record_characters = 0
            if fields:
                yield reader.line_num, fields
    except csv.Error as problem:
        raise error(f"{file}, line {reader.line_num}: expected a table, got {problem}") from None


def nearest(name: str, known: Iterable[str], count: int = 1, cutoff: float = 0.5) -> list[str]:
    """Return the known names most similar to a misspelled one, the most similar first; case does not matter.

    Examples
    --------
    >>> nearest("Sexx", ["age", "sex"])
    ['sex']
    """
    if len(name) > COMPARED_CHARACTERS:
        return []
    short = [other for other in known if len(other) <= COMPARED_CHARACTERS][:COMPARED_NAMES]
    lower = {other.lower(): other for other in short}
    return [lower[match] for match in difflib.get_close_matches(name.lower(), list(lower), count, cutoff)]
