"""Checks of single parameters: each raises a `ParameterError` that names the accepted range and the value given."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Sequence
from typing import Any

from fairerclip.errors import ParameterError

LARGEST = 1e30
"""Upper limit of numbers that have no range of their own: products of a few such numbers stay finite."""
MAX_COUNT = 2**31 - 1
"""Upper limit of counts that have no range of their own."""

RANGES = {
    "seed": (0, 2**32 - 1),  # the range that scikit-learn accepts
    "seeds": (1, 1_000),
    "splits": (2, 1_000),
    "gradient_splits": (2, 1_000),
    "jobs": (1, 1_024),
    "workers": (1, 256),
    "batch_size": (1, 65_536),
    "max_steps": (1, 10**9),
    "permutations": (19, 100_000),  # with fewer no p-value can be 0.05
}
"""Smallest and largest value of whole numbers that several commands and functions take; larger is a typing error."""


def as_number(value: Any) -> float:
    """Convert a Python or numpy number to float; return infinity if it is too large, NaN if it is not a number.

    Booleans and fractions count as not a number.

    Examples
    --------
    >>> as_number(0.5), as_number(10**400), as_number("1")
    (0.5, inf, nan)
    """
    fraction = isinstance(value, numbers.Rational)
    if not is_whole(value) and (fraction or not isinstance(value, numbers.Real)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, 1 if value >= 0 else -1)


def check_choice(name: str, value: Any, accepted: Sequence[Any]) -> None:
    """Raise if a value is not one of those accepted."""
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in accepted):
        raise ParameterError(f"{name} must be one of {', '.join(map(repr, accepted))}; got {value!r:.200}")


def is_whole(value: Any) -> bool:
    """Return whether a value is a Python or numpy integer and not a boolean."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def check_count(name: str, value: Any, most: int = MAX_COUNT, *, least: int = 1) -> None:
    """Raise if a value is not a whole number from ``least`` to ``most``."""
    if not is_whole(value) or not least <= value <= most:
        raise ParameterError(f"{name} must be a whole number from {least:,} to {most:,}; got {value!r:.60}")


def check_positive(name: str, value: Any) -> None:
    """Raise if a value is not a positive number."""
    if not 0 < as_number(value) <= LARGEST:
        raise ParameterError(f"{name} must be a positive number of at most {LARGEST:g}; got {value!r:.200}")


def check_within(name: str, value: Any, low: float, high: float) -> None:
    """Raise if a value is not a number in [low, high]."""
    check_interval(name, value, low, high, "[]")


def check_number(name: str, value: Any, low: float, high: float, *, open_below: bool = False) -> None:
    """Raise if a value is not a number in [low, high), or in (low, high) with ``open_below``."""
    check_interval(name, value, low, high, "()" if open_below else "[)")


def check_interval(name: str, value: Any, low: float, high: float, ends: str, where: str = "") -> None:
    """Raise if a value is not a number in an interval whose ends are "[]", "[)", "(]" or "()".

    ``where`` is added to the message after the interval, such as a condition under which this range holds.
    """
    number = as_number(value)
    outside = not low <= number <= high or (ends[0] == "(" and number == low)
    if outside or (ends[1] == ")" and number == high):
        raise ParameterError(
            f"{name} must be a number in {ends[0]}{low:g}, {high:g}{ends[1]}{where}; got {value!r:.200}"
        )


SIZE_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
"""Units of sizes in bytes."""
SMALLEST_BUDGET = 1 << 24
"""Smallest memory budget in bytes; a block of rows and its features take about this."""


def as_bytes(size: Any, name: str = "memory_budget", least: int = SMALLEST_BUDGET) -> int | None:
    """Return a size of at least ``least`` bytes, from a number of bytes or a text such as "1GB"; None stays.

    Examples
    --------
    >>> as_bytes("1.5 GB")
    1500000000
    """
    if size is None:
        return None
    number: Any = size
    if isinstance(size, str):
        matched = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?B)\s*", size, re.ASCII | re.IGNORECASE)
        number = float(matched[1]) * SIZE_UNITS[matched[2].upper()] if matched else None
    if not least <= as_number(number) <= 2**60 or isinstance(size, float):
        raise ParameterError(
            f"{name} must be a number of bytes of at least {least:,}, or a text such as '1GB'; got "
            f"{size!r:.60}"
        )
    return int(number)


def check_confidence(confidence: Any) -> None:
    """Raise if a value is not a confidence level, a number above 0 and below 1."""
    check_number("confidence", confidence, 0, 1, open_below=True)


def check_range(name: str, value: Any, label: str | None = None) -> None:
    """Raise if a value is not a whole number in the range that `RANGES` gives for ``name``.

    The message uses ``label`` instead of the name where it is given.

    Examples
    --------
    >>> check_range("jobs", 0)
    Traceback (most recent call last):
    ...
    fairerclip.errors.ParameterError: jobs must be a whole number from 1 to 1,024; got 0
    """
    least, most = RANGES[name]
    check_count(label or name, value, most, least=least)
