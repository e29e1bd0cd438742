"""JSON that is read strictly: each key once, no NaN, no more bytes than agreed."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from fairerclip.errors import FairerClipError

MAX_JSON_BYTES = 1024**2
"""What a manifest may take; headers that hold ids pass a limit of their own."""


def strict_loads(
    raw: bytes | str, where: str, error: type[FairerClipError], *, limit: int = MAX_JSON_BYTES
) -> Any:
    """Parse JSON; a repeated key, NaN, bad UTF-8, hostile depth or more than ``limit`` bytes is ``error``.

    Examples
    --------
    >>> from fairerclip.errors import StoreError
    >>> strict_loads(b'{"a": 1}', "store.json", StoreError)
    {'a': 1}
    """
    if len(raw) > limit:
        raise error(f"{where}: expected JSON of at most {limit} bytes, got {len(raw)}")

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
