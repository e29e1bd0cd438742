"""Spread of figures over seeds, reported separately from the sampling error.

Fits that differ by their seed alone, evaluated on the same rows, show the effect of the seed and not of the sample
of rows. The two errors are never added up; each is reported under its own name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairerclip.errors import ParameterError
from fairerclip.metrics.groups.group_report import GroupReport
from fairerclip.metrics.names import FIGURES

REPLICATES = 1000
"""Bootstrap replicates per report."""


@dataclass(frozen=True)
class SeedSpread:
    """One figure over several seeds.

    Attributes
    ----------
    name : str
        Name of the figure, as in `FIGURES`.
    mean, sd, smallest, largest : float
        Statistics over the seeds; sd divides by n − 1, and is 0 for one seed.
    sampling_se : float
        Standard error of the figure for one seed, from the finite number of rows (bootstrap on counts, mean over
        the seeds). It does not shrink with more seeds.
    """

    name: str
    mean: float
    sd: float
    smallest: float
    largest: float
    sampling_se: float

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready copy."""
        return {"figure": self.name, "label": FIGURES[self.name].label, **_numbers(self)}


def _numbers(spread: SeedSpread) -> dict[str, float]:
    return {name: value for name, value in vars(spread).items() if name != "name"}


def seed_spread(reports: Sequence[GroupReport], random_state: Any = 0) -> tuple[SeedSpread, ...]:
    """Compute the spread of every figure over reports on the same rows that differ by their seed.

    Figures that are None in one of the reports are left out.

    Examples
    --------
    >>> from fairerclip.metrics import group_report
    >>> y, s = [0, 1] * 50, ["a", "a", "b", "b"] * 25
    >>> reports = [group_report(y, [0, 1, 1, k] * 25, s) for k in (0, 1)]
    >>> average = seed_spread(reports)[0]
    >>> average.name, average.mean, round(average.sd, 3), average.sampling_se > 0
    ('average', 0.625, 0.177, True)
    """
    if not reports:
        raise ParameterError("expected at least one report, got none")
    sizes = {tuple((group.name, group.n) for group in report.groups) for report in reports}
    if len(sizes) > 1:
        raise ParameterError(
            "expected reports on the same rows, got reports with different groups; evaluate every seed on the same rows"
        )
    replicates = [report.bootstrap(REPLICATES, random_state) for report in reports]
    spreads = []
    for name in FIGURES:
        values = [getattr(report, name) for report in reports]
        if any(value is None for value in values):
            continue
        sd = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        error = float(np.mean([np.nanstd(draws[name]) for draws in replicates]))
        spreads.append(SeedSpread(name, float(np.mean(values)), sd, min(values), max(values), error))
    return tuple(spreads)
