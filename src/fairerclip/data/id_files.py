"""Reading of the ids of rows from a file of their own, for embeddings that have none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.files import reading
from fairerclip.data.io.bounded_text import MAX_CHARACTERS, TextColumn, text_lines
from fairerclip.data.io.strict_json import read_strict_json
from fairerclip.data.label_table import read_labels
from fairerclip.errors import JoinError

TABLES = (".csv", ".tsv", ".parquet")
MAX_JSON_BYTES, MAX_JSON_IDS = 16 * 1024**2, 1_000_000
_BLOCK = 65_536


@reading(JoinError)
def read_id_list(path: Any, *, id_column: str | None = None, rows: int | None = None) -> NDArray[np.str_]:
    r"""Read one id for each row of embeddings, in the order of the rows.

    Parameters
    ----------
    path : path-like
        ``.txt`` with one id per line, ``.json`` with a list of texts or whole numbers, or a ``.csv``, ``.tsv`` or
        ``.parquet`` with a header.
    id_column : str or None
        Column of ids of a table.
    rows : int or None
        Number of rows of embeddings, if known; a file with another number of ids is refused.

    Returns
    -------
    ndarray of shape (n,) of str
        The ids. Memory: the ids twice.

    Raises
    ------
    JoinError
        The file cannot be read, an id is empty, or there are not as many ids as rows.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = Path(folder.name) / "ids.txt"
    >>> _ = file.write_text("a.jpg\nb.jpg\n")
    >>> read_id_list(file).tolist()
    ['a.jpg', 'b.jpg']
    >>> folder.cleanup()
    """
    file = Path(path)
    ending = file.suffix.lower()
    if ending in TABLES:
        if id_column is None:
            raise JoinError(f"{file}: expected the name of the column of ids (--id, in Python id_column=)")
        ids = read_labels(file, id_column=id_column, columns=[]).known_ids
    elif ending == ".txt":
        ids = _from_text(file, rows)
    elif ending == ".json":
        ids = _from_json(file)
    else:
        raise JoinError(
            f"{file}: expected ids in .txt (one per line), .json (a list), {', '.join(TABLES)}; got "
            f"{file.suffix or 'no ending'}"
        )
    if not len(ids):
        raise JoinError(f"{file}: expected an id for each row, found none")
    if rows is not None and len(ids) != rows:
        raise JoinError(f"{file}: expected an id for each of the {rows:,} rows, got {len(ids):,} ids")
    return ids


def _from_text(file: Path, rows: int | None) -> NDArray[np.str_]:
    ids, block = TextColumn(str(file), "an id", JoinError), []
    for number, line in enumerate(text_lines(file, JoinError, limit=MAX_CHARACTERS + 2), 1):
        name = line.removesuffix("\n").removesuffix("\r")
        if not name.strip():
            raise JoinError(f"{file}: expected an id in every line, line {number} is empty")
        if rows is not None and number > rows:  # a file without an end must not be read to the end
            raise JoinError(f"{file}: expected an id for each of the {rows:,} rows, got more ids")
        block.append(name)
        if len(block) == _BLOCK:
            ids.add(block)
            block = []
    ids.add(block)
    return ids.array()


def _from_json(file: Path) -> NDArray[np.str_]:
    values = read_strict_json(file, JoinError, limit=MAX_JSON_BYTES, values=MAX_JSON_IDS)
    if not isinstance(values, list):
        raise JoinError(f"{file}: expected a list of ids, got {type(values).__name__}")
    bad = next((k for k, value in enumerate(values) if not _is_id(value)), None)
    if bad is not None:
        raise JoinError(f"{file}: expected ids as texts or whole numbers, entry {bad} is {values[bad]!r:.80}")
    ids = TextColumn(str(file), "an id", JoinError)
    ids.add([str(value) for value in values])
    return ids.array()


def _is_id(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value.strip())
    return isinstance(value, int) and not isinstance(value, bool)
