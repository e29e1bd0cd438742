"""Checks of single parameters: each refuses what is out of range, saying what is accepted and what came."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

from fairerclip.errors import ParameterError

LARGEST = 1e30
"""What a number without a range of its own may be at most: products of a few such numbers stay finite."""
MAX_COUNT = 2**31 - 1
"""What a count without a range of its own may be at most."""

RANGES = {
    "seed": (0, 2**32 - 1),  # what scikit-learn takes
    "seeds": (1, 1_000),
    "jobs": (1, 1_024),
    "workers": (1, 256),
    "batch_size": (1, 65_536),
    "max_steps": (1, 10**9),
    "permutations": (19, 100_000),  # with fewer no p-value can be 0.05
}
"""Least and most of whole numbers that commands and functions share; more would be a slip of the hand."""


def as_number(value: Any) -> float:
    """A number of Python's or numpy's as a float: infinity where it is too large, NaN for anything else, booleans too.

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
    """Refuse a value that is not one of those accepted."""
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in accepted):
        raise ParameterError(f"{name} must be one of {', '.join(map(repr, accepted))}; got {value!r:.200}")


def is_whole(value: Any) -> bool:
    """Whether a value is an integer of Python's or numpy's, and no boolean."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def check_count(name: str, value: Any, most: int = MAX_COUNT, *, least: int = 1) -> None:
    """Refuse what is not a whole number from ``least`` to ``most``."""
    if not is_whole(value) or not least <= value <= most:
        raise ParameterError(f"{name} must be a whole number from {least:,} to {most:,}; got {value!r:.60}")


def check_positive(name: str, value: Any) -> None:
    """Refuse what is not a positive number."""
    if not 0 < as_number(value) <= LARGEST:
        raise ParameterError(f"{name} must be a positive number of at most {LARGEST:g}; got {value!r:.200}")


def check_within(name: str, value: Any, low: float, high: float) -> None:
    """Refuse what is not a number in [low, high]."""
    check_interval(name, value, low, high, "[]")


def check_number(name: str, value: Any, low: float, high: float, *, open_below: bool = False) -> None:
    """Refuse what is not a number in [low, high), or in (low, high)."""
    check_interval(name, value, low, high, "()" if open_below else "[)")


def check_interval(name: str, value: Any, low: float, high: float, ends: str, where: str = "") -> None:
    """Refuse what is not a number in an interval whose ends are "[]", "[)" or "()"; ``where`` says when it is that."""
    number = as_number(value)
    outside = not low <= number <= high or (ends[0] == "(" and number == low)
    if outside or (ends[1] == ")" and number == high):
        raise ParameterError(
            f"{name} must be a number in {ends[0]}{low:g}, {high:g}{ends[1]}{where}; got {value!r:.200}"
        )


def check_confidence(confidence: Any) -> None:
    """Refuse what is no confidence level: a number above 0 and below 1."""
    check_number("confidence", confidence, 0, 1, open_below=True)


def check_range(name: str, value: Any, shown: str | None = None) -> None:
    """Refuse a value that is no whole number in the range of ``name``, which the message calls ``shown``.

    Examples
    --------
    >>> check_range("jobs", 0)
    Traceback (most recent call last):
    ...
    fairerclip.errors.ParameterError: jobs must be a whole number from 1 to 1,024; got 0
    """
    least, most = RANGES[name]
    check_count(shown or name, value, most, least=least)
