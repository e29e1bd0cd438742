"""Strict reading of JSON: no repeated keys, no NaN, and limits on bytes and number of values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fairerclip._util.files import read_bounded
from fairerclip.errors import FairerClipError

MAX_JSON_BYTES = 1024**2
"""Most bytes of a manifest; readers of headers that hold ids pass another limit."""
MAX_VALUES = 300_000
"""Most values of one document: an empty list takes three bytes in a file and some 200 in memory."""
_BLOCK = 1 << 20


def read_strict_json(
    path: Path, error: type[FairerClipError], *, limit: int = MAX_JSON_BYTES, values: int = MAX_VALUES
) -> Any:
    """Parse a JSON file as `strict_loads` does; raise ``error`` if it cannot be read or is too large."""
    return strict_loads(read_bounded(path, limit, error), str(path), error, limit=limit, values=values)


def read_versioned_json(file: Path, error: type[FairerClipError], kind: str, version: int) -> dict[str, Any]:
    """Parse a JSON file whose ``format`` and ``format_version`` must have these values; raise ``error`` if not."""
    values = read_strict_json(file, error)
    if not isinstance(values, dict) or values.get("format") != kind:
        raise error(f"{file}: expected format {kind!r}, got {values!r:.80}")
    if values.get("format_version") != version:
        raise error(
            f"{file}: expected format_version {version}, got {values.get('format_version')!r:.40}; was it written by a "
            "later fairerclip?"
        )
    return values


def strict_loads(
    raw: bytes | str,
    where: str,
    error: type[FairerClipError],
    *,
    limit: int = MAX_JSON_BYTES,
    values: int = MAX_VALUES,
) -> Any:
    """Parse JSON; raise ``error`` on a repeated key, NaN, bad UTF-8, deep nesting, or too many bytes or values.

    ``limit`` is the most bytes, ``values`` the most numbers, texts, lists and objects. The error has a ``reason``.

    Examples
    --------
    >>> from fairerclip.errors import StoreError
    >>> strict_loads(b'{"a": 1}', "store.json", StoreError)
    {'a': 1}
    """
    if len(raw) > limit:
        raise error(f"{where}: expected JSON of at most {limit} bytes, got {len(raw)}").because("too-large")
    try:
        count = _count_values(raw.encode() if isinstance(raw, str) else raw)
    except UnicodeEncodeError as problem:
        raise error(f"{where}: expected Unicode text, got {problem}").because("not-json") from None
    if count > values:
        raise error(f"{where}: expected JSON of at most {values:,} values, got {count:,}").because(
            "too-large"
        )

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(items)
        if len(out) < len(items):
            seen: set[str] = set()
            repeated = next(key for key, _ in items if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise error(f"{where}: expected each key once, got {repeated!r:.80} twice").because(
                "repeated-key"
            )
        return out

    def constant(name: str) -> NoReturn:
        raise error(f"{where}: expected finite numbers, got {name}").because("not-finite-json")

    try:
        return json.loads(raw, object_pairs_hook=pairs, parse_constant=constant)
    except (ValueError, RecursionError) as problem:
        if isinstance(problem, FairerClipError):
            raise
        reason = "too-deep" if isinstance(problem, RecursionError) else "not-json"
        raise error(f"{where}: expected JSON, got {type(problem).__name__}: {problem}").because(
            reason
        ) from problem


def _count_values(raw: bytes) -> int:
    """Return an upper bound of the number of values: 1 + commas and opening brackets outside of strings."""
    plain = np.frombuffer(raw.replace(rb"\\", b"").replace(rb"\"", b""), dtype=np.uint8)
    count, inside = 1, False
    for start in range(0, len(plain), _BLOCK):
        block = plain[start : start + _BLOCK]
        quoted = np.logical_xor.accumulate(block == ord('"')) ^ inside
        separators = (block == ord(",")) | (block == ord("[")) | (block == ord("{"))
        count += int(np.count_nonzero(separators & ~quoted))
        inside = bool(quoted[-1])
    return count
