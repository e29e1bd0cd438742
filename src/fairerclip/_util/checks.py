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
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole and (
        not isinstance(value, numbers.Real) or isinstance(value, numbers.Rational)
    ):  # no Fraction
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, 1 if value >= 0 else -1)


def check_choice(name: str, value: Any, accepted: Sequence[Any]) -> None:
    """Refuse a value that is not one of those accepted."""
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in accepted):
        raise ParameterError(f"{name} must be one of {', '.join(map(repr, accepted))}; got {value!r:.200}")


def check_count(name: str, value: Any, most: int = MAX_COUNT) -> None:
    """Refuse what is not an integer from 1 to ``most``."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or not 1 <= value <= most:
        span = f" of at most {most:,}" if most < MAX_COUNT or (whole and value > most) else ""
        raise ParameterError(f"{name} must be a positive integer{span}; got {value!r:.200}")


def check_positive(name: str, value: Any) -> None:
    """Refuse what is not a positive number."""
    if not 0 < as_number(value) <= LARGEST:
        raise ParameterError(f"{name} must be a positive number of at most {LARGEST:g}; got {value!r:.200}")


def check_within(name: str, value: Any, low: float, high: float) -> None:
    """Refuse what is not a number between two others, both allowed and the upper one finite."""
    if not low <= as_number(value) <= high:
        raise ParameterError(f"{name} must be a number from {low:g} to {high:g}; got {value!r:.200}")


def check_number(name: str, value: Any, low: float, high: float, *, open_below: bool = False) -> None:
    """Refuse what is not a number in [low, high), or in (low, high)."""
    number = as_number(value)
    if not low <= number < high or (open_below and number == low):
        raise ParameterError(
            f"{name} must be a number in {'(' if open_below else '['}{low:g}, {high:g}); got {value!r:.200}"
        )


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
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not (whole and least <= value <= most):
        raise ParameterError(
            f"{shown or name} must be a whole number from {least:,} to {most:,}; got {value!r:.60}"
        )
