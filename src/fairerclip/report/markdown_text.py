"""Text and numbers as Markdown: escaped, so that words from a file stay words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fairerclip.report import text as words
from fairerclip.report.number_text import DIFFERENCES

MINUS, NOTHING = "−", "–"
SPECIAL = re.compile(r"([\\`*_\[\]|~$])")
BLOCK_START = re.compile(r"^([-+=#]|\d{1,9}(?=[.)](?:\s|$)))")
LINK_START = re.compile(r"(?<=[Ww]{3})\.|:(?=//)")
WORD_JOINER = "&#8288;"
STAGES = {"before": "zero-shot", "after": "FairerCLIP"}
"""What predicts at each stage."""
EMBEDDINGS = {"before": "image embeddings", "after": "mitigated embeddings"}
"""Whose embeddings they are at each stage."""


def stages(part: Mapping[str, Any] | None) -> list[str]:
    """Which of before and after there are."""
    return [stage for stage in STAGES if part is not None and part[stage] is not None]


def clean(text: str) -> str:
    r"""One line of visible characters: breaks are spaces, controls and bidirectional marks are replaced.

    Examples
    --------
    >>> clean("two\nlines\x07")
    'two lines�'
    """
    return words.clean(" ".join(text.split()))


def escape(text: str) -> str:
    r"""Text that Markdown shows as it is, inside a table or a paragraph; it makes no link and calls nobody.

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
    """Text as inline code, its pipes escaped for tables."""
    shown = clean(text) or " "
    fence = "`" * (_longest_run(shown) + 1)
    space = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{space}{shown}{space}{fence}".replace("|", "\\|")


def block(text: str, language: str = "") -> list[str]:
    """Lines of a fenced block; the fence is longer than any in the text."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return [f"{fence}{language}", *map(words.clean, text.split("\n")), fence, ""]


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> list[str]:
    """Lines of a table whose cells are escaped already; the first ``left`` columns are flushed left.

    Examples
    --------
    >>> table(["group", "n"], [["a", "3"]])
    ['| group | n |', '| :-- | --: |', '| a | 3 |', '']
    """
    rules = [":--" if column < left else "--:" for column in range(len(header))]
    return [*(f"| {' | '.join(cells)} |" for cells in (header, rules, *rows)), ""]


def number(value: float | None, digits: int = 3) -> str:
    """A number to three decimals, or significant digits where it is small."""
    if value is None:
        return NOTHING
    fixed = f"{value:.{digits}f}"
    shown = fixed if value == 0 or abs(value) >= 0.1 else f"{value:.{digits}g}"
    return shown.replace("-", MINUS)


def percent(value: float | None) -> str:
    """A share as per cent with one decimal.

    Examples
    --------
    >>> percent(0.8312), percent(None)
    ('83.1', '–')
    """
    return NOTHING if value is None else f"{100 * value:.1f}".replace("-", MINUS)


def with_unit(figure: str, value: float | None) -> str:
    """A group figure with its unit: shares in per cent, differences of shares in points.

    Examples
    --------
    >>> with_unit("average", 0.8312), with_unit("gap", 0.2)
    ('83.1 %', '20.0 points')
    """
    shown = percent(value)
    return shown if value is None else f"{shown} {'points' if figure in DIFFERENCES else '%'}"


def signed(value: float | None) -> str:
    """A difference of shares in points, with its sign."""
    return NOTHING if value is None else f"{100 * value:+.1f}".replace("-", MINUS)


def with_interval(value: str, low: float | None, high: float | None, show: Any = percent) -> str:
    """A value and its interval, as far as there is one."""
    return value if low is None or high is None else f"{value} [{show(low)}, {show(high)}]"


def share(estimate: Mapping[str, Any] | None, key: str = "value") -> str:
    """A share with its interval, in per cent."""
    return (
        NOTHING
        if estimate is None
        else with_interval(percent(estimate[key]), estimate["low"], estimate["high"])
    )


def change(estimate: Mapping[str, Any] | None) -> str:
    """A difference of shares with its interval, in points."""
    if estimate is None:
        return NOTHING
    return with_interval(signed(estimate["difference"]), estimate["low"], estimate["high"], signed)


def plain(estimate: Mapping[str, Any] | None, key: str = "value") -> str:
    """A number with its interval and, where there is one, its p-value."""
    if estimate is None:
        return NOTHING
    shown = with_interval(number(estimate[key]), estimate["low"], estimate["high"], number)
    p_value = estimate.get("p_value")
    return shown if p_value is None else f"{shown}, p = {number(p_value)}"
