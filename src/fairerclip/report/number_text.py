"""Numbers as the page writes them: per cent, points, intervals; the same as its script does."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

NOTHING = "–"
DIFFERENCES = frozenset(
    {
        "gap",
        "eod",
        "eod_signed",
        "eod_mean",
        "eod_mean_signed",
        "equalized_odds_difference",
        "demographic_parity_difference",
    }
)
"""Figures that are differences of shares: given in points, not in per cent."""
SIGNED = frozenset({"eod_signed", "eod_mean_signed"})


def figure_kind(figure: str) -> str:
    """How a group figure is written: "percent" for a share, "gap" or "points" for a difference."""
    if figure in SIGNED:
        return "points"
    return "gap" if figure in DIFFERENCES else "percent"


def rounded(value: float, digits: int, *, plus: bool = False) -> str:
    """Decimal text, halves away from zero as the script's toFixed does, with a true minus sign."""
    text = str(Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))
    if not text.strip("-0."):
        return text.lstrip("-")
    return "−" + text[1:] if text.startswith("-") else "+" * plus + text


def percent(value: float | None) -> str:
    r"""Share as per cent with one decimal; the space before the sign does not break.

    Examples
    --------
    >>> percent(0.8449), percent(0.0625), percent(None)
    ('84.5\xa0%', '6.3\xa0%', '–')
    """
    return NOTHING if value is None else rounded(value * 100, 1) + "\u00a0%"


def gap(value: float | None) -> str:
    r"""Size of a difference of two shares, in percentage points.

    Examples
    --------
    >>> gap(0.1234), gap(None)
    ('12.3\xa0points', '–')
    """
    return NOTHING if value is None else rounded(value * 100, 1) + "\u00a0points"


def points(value: float | None) -> str:
    """Difference of two shares in percentage points, with its sign and without the unit.

    Examples
    --------
    >>> points(0.1234), points(-0.02), points(0.0)
    ('+12.3', '−2.0', '0.0')
    """
    return NOTHING if value is None else rounded(value * 100, 1, plus=True)


def number(value: float | None, digits: int = 3) -> str:
    """Plain number with a fixed count of decimals."""
    return NOTHING if value is None else rounded(value, digits)


def signed(value: float | None, digits: int = 3) -> str:
    """Plain number with its sign."""
    return NOTHING if value is None else rounded(value, digits, plus=True)


_PLAIN: dict[str, Callable[[float | None], str]] = {
    "percent": lambda x: NOTHING if x is None else rounded(x * 100, 1),
    "gap": lambda x: NOTHING if x is None else rounded(x * 100, 1),
    "bare": lambda x: NOTHING if x is None else rounded(x * 100, 1),
    "points": points,
    "number": number,
    "fine": lambda x: number(x, 4),
    "signed": signed,
}
_UNITS = {"percent": "\u00a0%", "gap": "\u00a0points", "points": "\u00a0points"}


def measured(value: float | None, kind: str = "percent") -> str:
    r"""A figure with its unit: per cent, points, or none where the table's head says it ("bare").

    Examples
    --------
    >>> measured(0.5), measured(0.5, "gap"), measured(-0.5, "points"), measured(0.5, "bare")
    ('50.0\xa0%', '50.0\xa0points', '−50.0\xa0points', '50.0')
    """
    return NOTHING if value is None else _PLAIN[kind](value) + _UNITS.get(kind, "")


def interval(low: float | None, high: float | None, kind: str = "percent") -> str:
    """Interval in brackets, in the unit of its value; nothing where there is none.

    Examples
    --------
    >>> interval(0.1, 0.25), interval(-0.1, 0.25, "points"), interval(None, None)
    ('[10.0, 25.0]', '[−10.0, +25.0]', '')
    """
    return "" if low is None and high is None else f"[{_PLAIN[kind](low)}, {_PLAIN[kind](high)}]"


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
