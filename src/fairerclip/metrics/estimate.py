"""A figure with its interval, and a change of one."""

from dataclasses import dataclass
from math import isfinite


def finite_or_none(value: float | None) -> float | None:
    """``value`` as JSON knows it: None for NaN and infinity."""
    return float(value) if value is not None and isfinite(value) else None


@dataclass(frozen=True)
class Estimate:
    """A value and its interval; an end is infinite or NaN where the rows do not bound it.

    Examples
    --------
    >>> Estimate(float("-inf"), float("-inf"), 0.2).as_dict()
    {'value': None, 'low': None, 'high': 0.2}
    """

    value: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float | None]:
        """JSON-ready copy: what is not finite is None."""
        return {name: finite_or_none(value) for name, value in vars(self).items()}


@dataclass(frozen=True)
class PairedEstimate:
    """A value before and after, and the paired interval of after minus before.

    Examples
    --------
    >>> PairedEstimate(0.5, 0.25, -0.25, -0.5, 0.0).as_dict()["difference"]
    -0.25
    """

    before: float
    after: float
    difference: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float | None]:
        """JSON-ready copy: what is not finite is None."""
        return {name: finite_or_none(value) for name, value in vars(self).items()}
