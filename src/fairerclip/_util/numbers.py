"""Formatting of numbers as text for the HTML page, the terminal, Markdown, sentences, tables and figures.

One rule rounds everything. A float is first rounded to 12 significant digits, which removes the error of binary
arithmetic (0.285 × 100 is 28.499999999999996); the result is rounded in decimal, halves away from zero. For a
share k/n this is the rounding of the exact ratio: 13/16 is 81.3 %. The script of the page follows the same rule.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Literal

NOTHING = "–"
MINUS = "−"
SPACE = "\u00a0"
"""No-break space, between a number and its unit."""
_TWELVE = Context(prec=12, rounding=ROUND_HALF_UP)
_WIDE = Context(prec=400, rounding=ROUND_HALF_UP)  # enough digits for any float


def rounded(value: float, digits: int, *, shift: int = 0, plus: bool = False) -> str:
    """Format ``value`` × 10^``shift`` with ``digits`` decimals, halves away from zero, with the sign "−".

    Examples
    --------
    >>> rounded(0.8125, 1, shift=2), rounded(0.6035 - 0.4, 1, shift=2), rounded(-0.00004, 3)
    ('81.3', '20.4', '0.000')
    """
    if not math.isfinite(value):
        return NOTHING if math.isnan(value) else MINUS * (value < 0) + "∞"
    exact = _TWELVE.create_decimal(value).scaleb(shift, _WIDE)
    text = f"{exact.quantize(Decimal(1).scaleb(-digits), context=_WIDE):f}"
    if not text.strip("-0."):
        return text.lstrip("-")
    return MINUS + text[1:] if text.startswith("-") else "+" * plus + text


def percent(value: float | None) -> str:
    r"""Format a share in per cent with one decimal and a no-break space before the sign.

    Examples
    --------
    >>> percent(0.8449), percent(0.0625), percent(None)
    ('84.5\xa0%', '6.3\xa0%', '–')
    """
    return measured(value, "percent")


def gap(value: float | None) -> str:
    r"""Format the absolute difference of two shares in percentage points.

    Examples
    --------
    >>> gap(0.1234), gap(None)
    ('12.3\xa0points', '–')
    """
    return measured(value, "gap")


def bare(value: float | None) -> str:
    """Format a share in per cent, or a difference in points, without the unit, which the table header gives.

    Examples
    --------
    >>> bare(13 / 16), bare(None)
    ('81.3', '–')
    """
    return NOTHING if value is None else rounded(value, 1, shift=2)


def points(value: float | None) -> str:
    """Format a difference of two shares in percentage points, with its sign and without the unit.

    Examples
    --------
    >>> points(0.1234), points(-0.02), points(0.0)
    ('+12.3', '−2.0', '0.0')
    """
    return NOTHING if value is None else rounded(value, 1, shift=2, plus=True)


def number(value: float | None, digits: int = 3) -> str:
    """Format a number with a fixed number of decimals."""
    return NOTHING if value is None else rounded(value, digits)


def signed(value: float | None, digits: int = 3) -> str:
    """Format a number with its sign and a fixed number of decimals."""
    return NOTHING if value is None else rounded(value, digits, plus=True)


def count(value: float) -> str:
    """Format a count of rows; a fraction, which occurs where ties are divided, gets one decimal.

    Examples
    --------
    >>> count(7.0), count(7.25)
    ('7', '7.3')
    """
    return rounded(value, 0 if value == int(value) else 1)


def significant(value: float | None, digits: int = 3) -> str:
    """Format a number with some significant digits, or without decimals if it is large: p-values, axis ticks.

    Examples
    --------
    >>> significant(0.01005), significant(0.5), significant(12345.6, 4), significant(2e-7)
    ('0.0101', '0.5', '12346', '2e-7')
    """
    if value is None:
        return NOTHING
    if not math.isfinite(value) or abs(value) >= 10 ** (digits - 1):
        return rounded(value, 0)
    exact = Context(prec=digits, rounding=ROUND_HALF_UP).plus(_TWELVE.create_decimal(value)).normalize()
    text = f"{exact:f}" if exact == 0 or exact.adjusted() > -6 else f"{exact:e}"
    return MINUS + text[1:] if text.startswith("-") else text


Kind = Literal[
    "percent",  # a share
    "gap",  # the absolute difference of two shares
    "bare",  # either, without the unit, which the table header gives
    "points",  # a difference of two shares, with its sign
    "change",  # the same without the unit
    "number",
    "fine",  # a number with one decimal more
    "signed",
    "seconds",
    "tenths",  # seconds of long runs
    "whole",
    "count",  # of rows, which may be a fraction
    "setting",
    "significant",
]
"""Kinds of numbers, each with its format."""
_PLAIN: dict[str, Callable[[float | None], str]] = {
    "percent": bare,
    "gap": bare,
    "bare": bare,
    "points": points,
    "change": points,
    "number": number,
    "fine": lambda x: number(x, 4),
    "signed": signed,
    "seconds": lambda x: number(x, 2),
    "tenths": lambda x: number(x, 1),
    "whole": lambda x: number(x, 0),
    "count": lambda x: NOTHING if x is None else count(x),
    "setting": lambda x: NOTHING if x is None else setting(x),
    "significant": significant,
}
_UNITS = {"percent": f"{SPACE}%", "gap": f"{SPACE}points", "points": f"{SPACE}points"}


def measured(value: float | None, kind: str = "percent") -> str:
    r"""Format a number of a kind with its unit: per cent, points, or none.

    Examples
    --------
    >>> measured(0.5), measured(0.5, "gap"), measured(-0.5, "points"), measured(0.5, "bare")
    ('50.0\xa0%', '50.0\xa0points', '−50.0\xa0points', '50.0')
    """
    return NOTHING if value is None else _PLAIN[kind](value) + _UNITS.get(kind, "")


def worded(value: float | None, kind: str = "percent") -> str:
    """Format a number with its unit for a sentence, with plain spaces, so that readers can search for it.

    Examples
    --------
    >>> worded(13 / 16), worded(-0.02, "points")
    ('81.3 %', '−2.0 points')
    """
    return measured(value, kind).replace(SPACE, " ")


def interval(low: float | None, high: float | None, kind: str = "percent") -> str:
    """Format an interval in brackets, without the unit; return "" if it has no ends.

    Examples
    --------
    >>> interval(0.1, 0.25), interval(-0.1, 0.25, "points"), interval(None, None)
    ('[10.0, 25.0]', '[−10.0, +25.0]', '')
    """
    return "" if low is None and high is None else f"[{_PLAIN[kind](low)}, {_PLAIN[kind](high)}]"


def with_interval(value: float | None, low: float | None, high: float | None, kind: str = "percent") -> str:
    r"""Format a number with its unit and its interval.

    Examples
    --------
    >>> with_interval(0.8125, 0.54, 0.96), with_interval(0.5, None, None), with_interval(None, 0.1, 0.2)
    ('81.3\xa0% [54.0, 96.0]', '50.0\xa0%', '–')
    """
    return (
        measured(value, kind)
        if value is None
        else f"{measured(value, kind)} {interval(low, high, kind)}".rstrip()
    )


def change(difference: float | None, low: float | None, high: float | None, kind: str = "points") -> str:
    """Format a difference with its sign and its interval, without the unit, which the table header gives.

    Examples
    --------
    >>> change(0.1234, 0.1, 0.15), change(-0.5, None, None, "signed")
    ('+12.3 [+10.0, +15.0]', '−0.500')
    """
    return (
        NOTHING if difference is None else f"{_PLAIN[kind](difference)} {interval(low, high, kind)}".rstrip()
    )


def setting(value: float) -> str:
    """Format a value of τ or τ_z as a user types it: at most four decimals, no trailing zeros."""
    text = rounded(value, 4)
    return text.rstrip("0").rstrip(".") if "." in text else text


def typed(value: float) -> str:
    """Format a number with twelve significant digits, as the script of the page does; 0.1 + 0.2 gives 0.3."""
    return f"{value:.12g}"


def shown(value: Any) -> str:
    """Format any JSON value on one line."""
    if value is None or isinstance(value, str):
        return NOTHING if value is None else value
    return typed(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
