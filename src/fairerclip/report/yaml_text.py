"""Plain data as YAML, every text quoted: nothing in it can be taken for anything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def scalar(value: Any) -> str:
    """A text, number, truth value, null or empty collection as YAML 1.1 and 1.2 both read it.

    Examples
    --------
    >>> scalar("no: #"), scalar(True), scalar(0.5), scalar(None)
    ('"no: #"', 'true', '0.5', 'null')
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        mantissa, e, exponent = repr(value).partition("e")
        return (
            f"{mantissa}{'.0' if e and '.' not in mantissa else ''}{e}{exponent}"  # YAML 1.1 wants the point
        )
    if isinstance(value, Mapping | list):
        return "{}" if isinstance(value, Mapping) else "[]"
    return str(value) if isinstance(value, int) else f'"{"".join(map(_quoted, str(value)))}"'


def _quoted(character: str) -> str:
    if character in ESCAPES:
        return ESCAPES[character]
    if "\ud800" <= character <= "\udfff":
        return "\N{REPLACEMENT CHARACTER}"  # half a character, which no encoding holds
    if character.isprintable():
        return character
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):08x}"


def lines(value: Any, indent: int = 0) -> list[str]:
    r"""Lines of nested mappings and sequences.

    Examples
    --------
    >>> print("\n".join(lines({"tags": ["a"], "index": [{"name": "b", "values": [1, 2]}]})))
    tags:
    - "a"
    index:
    - name: "b"
      values:
      - 1
      - 2
    """
    space = " " * indent
    if isinstance(value, Mapping) and value:
        found = []
        for key, item in value.items():
            found += (
                [f"{space}{key}: {scalar(item)}"]
                if _flat(item)
                else [f"{space}{key}:", *_under(item, indent)]
            )
        return found
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        items = [[f"{space}  {scalar(item)}"] if _flat(item) else lines(item, indent + 2) for item in value]
        return [
            f"{space}- {first[indent + 2 :]}" if not i else first
            for item in items
            for i, first in enumerate(item)
        ]
    return [f"{space}{'{}' if isinstance(value, Mapping) else '[]'}"]


def _flat(item: Any) -> bool:
    return item is None or isinstance(item, str | int | float) or not item


def _under(item: Any, indent: int) -> list[str]:
    return lines(item, indent + 2) if isinstance(item, Mapping) else lines(item, indent)
