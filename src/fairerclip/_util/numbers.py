"""Numbers as text: the one formatter of the page, the terminal, Markdown, sentences, tables and drawings.

One rule rounds everything. A float is first brought to 12 significant digits, which drops the noise of binary
arithmetic (0.285 × 100 is 28.499999999999996); what is left is rounded in decimal, halves away from zero. For a
share k/n this is the rounding of the exact ratio: 13/16 is 81.3 %. The page's script follows the same rule.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Literal

NOTHING = "–"
MINUS = "−"
SPACE = "\u00a0"
"""Between a number and its unit: a line does not break there."""
_TWELVE = Context(prec=12, rounding=ROUND_HALF_UP)
_WIDE = Context(prec=400, rounding=ROUND_HALF_UP)  # any float has room


def rounded(value: float, digits: int, *, shift: int = 0, plus: bool = False) -> str:
    """Decimal text of ``value`` × 10^``shift``, halves away from zero, with a true minus sign.

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
    r"""Share as per cent with one decimal; the space before the sign does not break.

    Examples
    --------
    >>> percent(0.8449), percent(0.0625), percent(None)
    ('84.5\xa0%', '6.3\xa0%', '–')
    """
    return measured(value, "percent")


def gap(value: float | None) -> str:
    r"""Size of a difference of two shares, in percentage points.

    Examples
    --------
    >>> gap(0.1234), gap(None)
    ('12.3\xa0points', '–')
    """
    return measured(value, "gap")


def bare(value: float | None) -> str:
    """Share in per cent, or a difference in points, where the head of the table says which.

    Examples
    --------
    >>> bare(13 / 16), bare(None)
    ('81.3', '–')
    """
    return NOTHING if value is None else rounded(value, 1, shift=2)


def points(value: float | None) -> str:
    """Difference of two shares in percentage points, with its sign and without the unit.

    Examples
    --------
    >>> points(0.1234), points(-0.02), points(0.0)
    ('+12.3', '−2.0', '0.0')
    """
    return NOTHING if value is None else rounded(value, 1, shift=2, plus=True)


def number(value: float | None, digits: int = 3) -> str:
    """Plain number with a fixed count of decimals."""
    return NOTHING if value is None else rounded(value, digits)


def signed(value: float | None, digits: int = 3) -> str:
    """Plain number with its sign."""
    return NOTHING if value is None else rounded(value, digits, plus=True)


def count(value: float) -> str:
    """Count of rows; where ties are shared out it may be a fraction, which has one decimal.

    Examples
    --------
    >>> count(7.0), count(7.25)
    ('7', '7.3')
    """
    return rounded(value, 0 if value == int(value) else 1)


def significant(value: float | None, digits: int = 3) -> str:
    """Number with a count of significant digits, but whole where it is large: p-values, ticks, magnitudes.

    Examples
    --------
    >>> significant(0.01005), significant(0.5), significant(12345.6, 4), significant(2e-7)
    ('0.0101', '0.5', '12346', '2e-7')
    """
    if value is None:
        return NOTHING
    if not math.isfinite(value) or abs(value) >= 10 ** (digits - 1):
        return rounded(value, 0)
    found = Context(prec=digits, rounding=ROUND_HALF_UP).plus(_TWELVE.create_decimal(value)).normalize()
    text = f"{found:f}" if found == 0 or found.adjusted() > -6 else f"{found:e}"
    return MINUS + text[1:] if text.startswith("-") else text


Kind = Literal[
    "percent",  # a share
    "gap",  # the size of a difference of two shares
    "bare",  # either, where the head of the table says the unit
    "points",  # a difference of two shares, with its sign
    "change",  # the same without the unit
    "number",
    "fine",  # a number with one decimal more
    "signed",
    "seconds",
    "tenths",  # seconds of what takes long
    "whole",
    "count",  # of rows, which may be a fraction
    "setting",
    "significant",
]
"""How a number is written."""
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
    r"""A figure with its unit: per cent, points, or none where the table's head says it ("bare").

    Examples
    --------
    >>> measured(0.5), measured(0.5, "gap"), measured(-0.5, "points"), measured(0.5, "bare")
    ('50.0\xa0%', '50.0\xa0points', '−50.0\xa0points', '50.0')
    """
    return NOTHING if value is None else _PLAIN[kind](value) + _UNITS.get(kind, "")


def worded(value: float | None, kind: str = "percent") -> str:
    """The same inside a sentence, with plain spaces, which people can search for.

    Examples
    --------
    >>> worded(13 / 16), worded(-0.02, "points")
    ('81.3 %', '−2.0 points')
    """
    return measured(value, kind).replace(SPACE, " ")


def interval(low: float | None, high: float | None, kind: str = "percent") -> str:
    """Interval in brackets, in the unit of its value; nothing where there is none.

    Examples
    --------
    >>> interval(0.1, 0.25), interval(-0.1, 0.25, "points"), interval(None, None)
    ('[10.0, 25.0]', '[−10.0, +25.0]', '')
    """
    return "" if low is None and high is None else f"[{_PLAIN[kind](low)}, {_PLAIN[kind](high)}]"


def with_interval(value: float | None, low: float | None, high: float | None, kind: str = "percent") -> str:
    r"""A figure with its unit and its interval.

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
    """A difference with its sign and its interval; the head says that the unit is points.

    Examples
    --------
    >>> change(0.1234, 0.1, 0.15), change(-0.5, None, None, "signed")
    ('+12.3 [+10.0, +15.0]', '−0.500')
    """
    return (
        NOTHING if difference is None else f"{_PLAIN[kind](difference)} {interval(low, high, kind)}".rstrip()
    )


def with_spread(mean: float, sd: float | None, ends: Sequence[float] | None = None) -> str:
    """Mean share in per cent with its spread over seeds and its interval; the head says the unit.

    Examples
    --------
    >>> with_spread(0.5, None), with_spread(0.5, 0.01, (0.4, 0.6))
    ('50.0', '50.0 ± 1.0 [40.0, 60.0]')
    """
    spread = "" if sd is None else f" ± {bare(sd)}"
    return bare(mean) + spread + ("" if ends is None else f" {interval(ends[0], ends[1])}")


def setting(value: float) -> str:
    """A value of τ or τ_z as one types it: at most four decimals, no trailing zeros."""
    text = rounded(value, 4)
    return text.rstrip("0").rstrip(".") if "." in text else text


def typed(value: float) -> str:
    """A number as the script writes it: twelve digits, without the noise of the last ones of 0.1 + 0.2."""
    return f"{value:.12g}"


def shown(value: Any) -> str:
    """Any JSON value on one line."""
    if value is None or isinstance(value, str):
        return NOTHING if value is None else value
    return typed(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
