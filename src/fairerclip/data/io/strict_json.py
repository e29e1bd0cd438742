"""JSON that is read strictly: each key once, no NaN, no more bytes and no more values than agreed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fairerclip._util.files import read_bounded
from fairerclip.errors import FairerClipError

MAX_JSON_BYTES = 1024**2
"""What a manifest may take; headers that hold ids pass a limit of their own."""
MAX_VALUES = 300_000
"""Values of one document: an empty list takes three bytes of a file and some 200 of memory."""
_BLOCK = 1 << 20


def read_strict_json(
    path: Path, error: type[FairerClipError], *, limit: int = MAX_JSON_BYTES, values: int = MAX_VALUES
) -> Any:
    """Parse a JSON file as `strict_loads` does; a file that cannot be read, or is too large, is ``error``."""
    return strict_loads(read_bounded(path, limit, error), str(path), error, limit=limit, values=values)


def strict_loads(
    raw: bytes | str,
    where: str,
    error: type[FairerClipError],
    *,
    limit: int = MAX_JSON_BYTES,
    values: int = MAX_VALUES,
) -> Any:
    """Parse JSON; a repeated key, NaN, bad UTF-8, hostile depth, too many bytes or values are ``error``.

    ``limit`` bounds the bytes, ``values`` the numbers, texts, lists and tables in them.

    Examples
    --------
    >>> from fairerclip.errors import StoreError
    >>> strict_loads(b'{"a": 1}', "store.json", StoreError)
    {'a': 1}
    """
    if len(raw) > limit:
        raise error(f"{where}: expected JSON of at most {limit} bytes, got {len(raw)}")
    try:
        found = _count_values(raw.encode() if isinstance(raw, str) else raw)
    except UnicodeEncodeError as problem:
        raise error(f"{where}: expected Unicode text, got {problem}") from None
    if found > values:
        raise error(f"{where}: expected JSON of at most {values:,} values, got {found:,}")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(items)
        if len(out) < len(items):
            seen: set[str] = set()
            twice = next(key for key, _ in items if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise error(f"{where}: expected each key once, got {twice!r} twice")
        return out

    def constant(name: str) -> NoReturn:
        raise error(f"{where}: expected finite numbers, got {name}")

    try:
        return json.loads(raw, object_pairs_hook=pairs, parse_constant=constant)
    except (ValueError, RecursionError) as problem:
        if isinstance(problem, FairerClipError):
            raise
        raise error(f"{where}: expected JSON, got {type(problem).__name__}: {problem}") from problem


def _count_values(raw: bytes) -> int:
    """At least as many as there are values in the JSON: one for each comma and each opening bracket outside of text."""
    plain = np.frombuffer(raw.replace(rb"\\", b"").replace(rb"\"", b""), dtype=np.uint8)
    count, inside = 1, False
    for start in range(0, len(plain), _BLOCK):
        block = plain[start : start + _BLOCK]
        quoted = np.logical_xor.accumulate(block == ord('"')) ^ inside
        separators = (block == ord(",")) | (block == ord("[")) | (block == ord("{"))
        count += int(np.count_nonzero(separators & ~quoted))
        inside = bool(quoted[-1])
    return count
