"""Functions that escape foreign text for Markdown, and write code, blocks, tables and the metadata of a card."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fairerclip._util import clean_text as words

SPECIAL = re.compile(r"([\\`*_\[\]|~$])")
BLOCK_START = re.compile(r"^([-+=#]|\d{1,9}(?=[.)](?:\s|$)))")
LINK_START = re.compile(r"(?<=[Ww]{3})\.|:(?=//)")
WORD_JOINER = "&#8288;"
_BARE_EXPONENT = re.compile(r"(?<![\d.])(\d+)(?=e[-+]\d+,?$)", re.MULTILINE)
"""A number such as 1e-07 at the end of a line; a text ends with a quote."""


def clean(text: str) -> str:
    r"""Return one line of visible characters: line breaks become spaces, control and direction characters are replaced.

    Examples
    --------
    >>> clean("two\nlines\x07")
    'two lines�'
    """
    return words.clean(" ".join(text.split()))


def escape(text: str) -> str:
    r"""Escape text so that Markdown shows it literally in a table or paragraph, without links or @mentions.

    Examples
    --------
    >>> escape("<b> a|b [x](y) *")
    '&lt;b&gt; a\\|b \\[x\\](y) \\*'
    """
    safe = SPECIAL.sub(r"\\\1", clean(text))
    safe = safe.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    safe = LINK_START.sub(lambda found: f"\\{found[0]}", safe).replace("@", f"&#64;{WORD_JOINER}")
    return BLOCK_START.sub(lambda found: _escaped_start(found[0]), safe)


def _escaped_start(start: str) -> str:
    return f"{start}\\" if start[0].isdigit() else f"\\{start}"


def code(text: str) -> str:
    """Return text as inline code, with pipes escaped for tables."""
    content = clean(text) or " "
    fence = "`" * (_longest_run(content) + 1)
    space = " " if content.startswith("`") or content.endswith("`") else ""
    return f"{fence}{space}{content}{space}{fence}".replace("|", "\\|")


def block(text: str, language: str = "") -> list[str]:
    """Return the lines of a fenced block; the fence is longer than any in the text."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return [f"{fence}{language}", *map(words.clean, text.split("\n")), fence, ""]


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> list[str]:
    """Return the lines of a table whose cells are already escaped; the first ``left`` columns are flushed left.

    Examples
    --------
    >>> table(["group", "n"], [["a", "3"]])
    ['| group | n |', '| :-- | --: |', '| a | 3 |', '']
    """
    rules = [":--" if column < left else "--:" for column in range(len(header))]
    return [*(f"| {' | '.join(cells)} |" for cells in (header, rules, *rows)), ""]


def front_matter(data: Mapping[str, Any]) -> str:
    """Return plain data as JSON that a YAML 1.1 parser, such as the Hub's, reads as the same data.

    YAML 1.1 reads 1e-07 as text, breaks lines at U+0085 and U+2028 and rejects control characters: such numbers get a
    point, and such characters are escaped. Plain ASCII would not do, because YAML does not join surrogate pairs.
    """
    text = json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False)
    escaped = (c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return _BARE_EXPONENT.sub(r"\1.0", "".join(escaped))
