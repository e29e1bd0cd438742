"""What a search goes by: one number per model, larger is better."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.errors import ParameterError
from fairerclip.tuning.judge import Judge

F64 = NDArray[np.float64]
Scorer = Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], float]

DIFFERENCES = ("eod", "equalized_odds")
OBJECTIVES = ("worst_group", "worst_class", *DIFFERENCES, "average")
"""What `FairerCLIP.tune` can go by on labelled rows, besides a scorer."""
AVERAGE_SHARE = 0.5
"""What a point of average accuracy is worth in points of the worst group."""
TIE_BREAK = 0.01
"""The same for a difference between groups: there the accuracy floor says what may be given for it."""
INFEASIBLE = -10.0
"""Below every value that an objective can take: where the accuracy floor is missed."""


@dataclass(frozen=True)
class Objective:
    """A named objective, with a floor on the average accuracy."""

    name: str
    accuracy_floor: float | None = None

    def __post_init__(self) -> None:
        if self.name not in OBJECTIVES:
            raise ParameterError(
                f"objective must be one of {', '.join(OBJECTIVES)}, max_skew or a function; got {self.name!r}"
            )
        floor = self.accuracy_floor
        if floor is not None and not (isinstance(floor, numbers.Real) and 0 <= floor <= 1):
            raise ParameterError(f"accuracy_floor must be a share in [0, 1]; got {floor!r}")

    def values(self, accuracies: F64, counts: NDArray[np.int64]) -> F64:
        """(b,) from draws of cell accuracies (b, draws, c, |S|) and rows of the cells (c, |S|)."""
        there = np.flatnonzero(counts)
        flat = accuracies.reshape(*accuracies.shape[:2], -1)[:, :, there]  # cells with rows: no NaN
        average = (flat @ counts.reshape(-1)[there]).mean(axis=1) / counts.sum()
        expected = (
            flat.min(axis=2).mean(axis=1) if self.name == "worst_group" else self._other(accuracies, counts)
        )
        share = TIE_BREAK if self.name in DIFFERENCES else AVERAGE_SHARE
        value = expected + share * average
        if self.accuracy_floor is None:
            return np.asarray(value)
        return np.asarray(np.where(average >= self.accuracy_floor, value, INFEASIBLE + average))

    def _other(self, accuracies: F64, counts: NDArray[np.int64]) -> F64:
        if self.name == "worst_class":
            rows = np.maximum(counts.sum(axis=1), 1)
            by_class = np.nansum(accuracies * counts, axis=3) / rows
            return np.asarray(np.min(by_class[:, :, counts.sum(axis=1) > 0], axis=2).mean(axis=1))
        if self.name == "average":
            return np.zeros(len(accuracies))
        # As `group_report` has it: of two classes the second is the positive one.
        # The difference of expected accuracies, not the expected difference: doubt alone would make one.
        expected = accuracies.mean(axis=1)
        compared = expected[:, -1:] if self.name == "eod" and expected.shape[1] == 2 else expected
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a class without rows has no spread
            spread = np.nanmax(compared, axis=2) - np.nanmin(compared, axis=2)
        return np.asarray(-np.nan_to_num(spread, nan=0.0).max(axis=1))

    def is_defined(self, counts: NDArray[np.int64]) -> bool:
        """Whether rows of these cells (c, |S|) say anything of it: a difference needs two groups of one class."""
        if self.name not in DIFFERENCES:
            return bool(counts.any())
        compared = counts[-1:] if self.name == "eod" and len(counts) == 2 else counts
        return bool(((compared > 0).sum(axis=1) > 1).any())


def offset_shifts(candidates: F64) -> F64:
    """What an offset of the second of two classes (b,) does to the margins of both: (b, 2)."""
    return np.column_stack([-candidates, candidates])


def judge_scores(judge: Judge, objective: Objective, scores: F64) -> float:
    """The objective's value for scores (n, c) as they are."""
    return float(objective.values(judge.accuracies(judge.margins(scores)), judge.counts)[0])
