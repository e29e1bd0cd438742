"""Objectives of a search: one number per model, larger is better."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairerclip._util.types import F64
from fairerclip.errors import ParameterError
from fairerclip.metrics.groups.group_figures import positive_classes
from fairerclip.tuning.judge import N_LEVELS, Judge

Scorer = Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], float]

DIFFERENCES = ("eod", "equalized_odds")
OBJECTIVES = ("worst_group", "worst_class", *DIFFERENCES, "average")
"""Objectives on labelled rows, besides a function."""
AVERAGE_SHARE = 0.5
"""Weight of the average accuracy relative to the worst group."""
TIE_BREAK = 0.01
"""Weight of the average accuracy relative to a difference between groups, which has an accuracy floor."""
INFEASIBLE = -10.0
"""Value below all others, for models that miss the accuracy floor."""
AT_ONCE = 2**20
"""Largest number of posterior values in memory at once."""
EQUAL = 1e-6
"""Values that differ by less count as equal, so that rounding does not decide."""


@dataclass(frozen=True)
class Objective:
    """A named objective, with a floor on the share of right predictions."""

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

    def is_met(self, average: ArrayLike) -> NDArray[np.bool_]:
        """Return whether shares of right predictions (…) reach the floor; True without a floor."""
        average = np.asarray(average)
        if self.accuracy_floor is None:
            return np.ones(average.shape, dtype=bool)
        return np.asarray(average >= self.accuracy_floor)

    def values(self, survival: F64, counts: NDArray[np.int64]) -> F64:
        """Return values (g, b), without the floor, from `Judge.survival` (g, b, c, |S|, levels) and cell sizes."""
        there = counts > 0
        expected = survival.mean(axis=4)  # (g, b, c, |S|) expected accuracies
        average = expected[:, :, there] @ counts[there] / counts.sum()
        if self.name in DIFFERENCES:
            return np.asarray(-self._difference(expected) + TIE_BREAK * average)
        if self.name == "average":
            return np.asarray(AVERAGE_SHARE * average)
        # The worst of independent cells exceeds a level if all cells do.
        worst = survival[:, :, there].prod(axis=2).mean(axis=2)
        return np.asarray(worst + AVERAGE_SHARE * average)

    def _difference(self, expected: F64) -> F64:
        """Return the largest difference (g, b) between groups of expected accuracies (g, b, c, |S|) of one class.

        The expected difference would be above zero from uncertainty alone.
        """
        compared = expected[:, :, self._compared(expected.shape[2])]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a class without rows has no spread
            spread = np.nanmax(compared, axis=3) - np.nanmin(compared, axis=3)
        return np.asarray(np.nan_to_num(spread, nan=0.0).max(axis=2))

    def _compared(self, n_classes: int) -> list[int]:
        """Return the classes to compare: for EOD the positive one of two, as in `group_report`."""
        return positive_classes(n_classes, None) if self.name == "eod" else list(range(n_classes))

    def figure(self, judge: Judge, scores: F64) -> float:
        """Return the objective of a model with scores (n, c) as it is counted on the rows; larger is better.

        A difference between groups is negative. Unlike `values` this is neither a posterior mean nor includes the
        average accuracy.
        """
        hits, counts = judge.hits(scores), judge.counts
        if self.name == "average":
            return float(hits.sum() / counts.sum())
        if self.name == "worst_class":
            hits, counts = hits.sum(axis=1, keepdims=True), counts.sum(axis=1, keepdims=True)
        accuracy = np.divide(hits, counts, out=np.full(counts.shape, np.nan), where=counts > 0)
        if self.name in DIFFERENCES:
            return -float(self._difference(accuracy[None, None])[0, 0])
        return float(np.nanmin(accuracy))

    def is_defined(self, counts: NDArray[np.int64]) -> bool:
        """Return whether cell sizes (c, |S|) determine the objective: a difference needs two groups of one class."""
        if self.name not in DIFFERENCES:
            return bool(counts.any())
        return bool(((counts[self._compared(len(counts))] > 0).sum(axis=1) > 1).any())


def judge_scores(judge: Judge, objective: Objective, scores: F64) -> F64:
    """Return values (g,) of models with scores (g, n, c); models that miss the floor come below all others."""
    right = (scores.argmax(axis=2) == judge.y).mean(axis=1, keepdims=True)  # (g, 1)
    values = _judged(judge, objective, judge.margins(scores), np.zeros((len(scores), 1, judge.n_classes)))
    return _with_floor(objective, values, right)[:, 0]


def judge_boundaries(judge: Judge, objective: Objective, scores: F64, steps: F64) -> F64:
    """Return values (g, b) of two-class scores (g, n, 2) with steps (g, b) added to the score difference."""
    values = _judged(judge, objective, judge.margins(scores), np.stack([-steps, steps], axis=2))
    if objective.accuracy_floor is None:
        return values
    difference = scores[:, :, 1] - scores[:, :, 0]
    pairs = zip(difference, steps, strict=True)  # one model at a time: (b, n) fits into memory
    right = [((d + step[:, None] > 0) == (judge.y == 1)).mean(axis=1) for d, step in pairs]
    return _with_floor(objective, values, np.array(right))


def _judged(judge: Judge, objective: Objective, margins: F64, shifts: F64) -> F64:
    """Return values (g, b) of margins (g, n) with shifts (g, b, c), a few models at a time to save memory."""
    # For the worst class the cells are the classes; groups are ignored.
    cells = judge.by_class if objective.name == "worst_class" else judge
    each = max(1, AT_ONCE // (shifts.shape[1] * cells.counts.size * N_LEVELS))
    parts = [slice(start, start + each) for start in range(0, len(margins), each)]
    return np.concatenate(
        [objective.values(cells.survival(margins[part], shifts[part]), cells.counts) for part in parts]
    )


def _with_floor(objective: Objective, values: F64, right: F64) -> F64:
    """Return the values; where shares of right rows miss the floor, the shares, shifted below all values."""
    return np.asarray(np.where(objective.is_met(right), values, INFEASIBLE + right))


def first_best(values: ArrayLike) -> int:
    """Return the index of the first of the largest values, up to rounding."""
    values = np.asarray(values)
    return int(np.flatnonzero(values >= values.max() - EQUAL)[0])
