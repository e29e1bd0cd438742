"""Whole numbers that callers give: their ranges in one place."""

from __future__ import annotations

import numbers
from typing import Any

from fairerclip.errors import ParameterError

RANGES = {
    "seed": (0, 2**32 - 1),  # what scikit-learn takes
    "seeds": (1, 1_000),
    "jobs": (1, 1_024),
    "workers": (1, 256),
    "batch_size": (1, 65_536),
    "max_steps": (1, 10**9),
    "permutations": (19, 100_000),  # with fewer no p-value can be 0.05
}
"""Least and most of each. More would be a slip of the hand, and take the machine with it."""


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
