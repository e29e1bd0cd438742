"""What a search goes by: one number per model, larger is better."""

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
"""What `FairerCLIP.tune` can go by on labelled rows, besides a scorer."""
AVERAGE_SHARE = 0.5
"""What a point of average accuracy is worth in points of the worst group."""
TIE_BREAK = 0.01
"""The same for a difference between groups: there the accuracy floor says what may be given for it."""
INFEASIBLE = -10.0
"""Below every value that an objective can take: where the accuracy floor is missed."""
AT_ONCE = 2**20
"""Numbers of a posterior that are held at once."""
EQUAL = 1e-6
"""Values that differ by less are equal: rounding must not choose between them."""


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
        """Whether shares of right predictions (…) reach the floor; without one they do."""
        average = np.asarray(average)
        if self.accuracy_floor is None:
            return np.ones(average.shape, dtype=bool)
        return np.asarray(average >= self.accuracy_floor)

    def values(self, survival: F64, counts: NDArray[np.int64]) -> F64:
        """(g, b) values from `Judge.survival` (g, b, c, |S|, levels) and rows of cells (c, |S|), whatever the floor."""
        there = counts > 0
        expected = survival.mean(axis=4)  # (g, b, c, |S|) expected accuracies
        average = expected[:, :, there] @ counts[there] / counts.sum()
        if self.name in DIFFERENCES:
            return np.asarray(-self._difference(expected) + TIE_BREAK * average)
        if self.name == "average":
            return np.asarray(AVERAGE_SHARE * average)
        # The worst of independent cells exceeds a level where all of them do.
        worst = survival[:, :, there].prod(axis=2).mean(axis=2)
        return np.asarray(worst + AVERAGE_SHARE * average)

    def _difference(self, expected: F64) -> F64:
        """(g, b) largest difference of expected accuracies (g, b, c, |S|) between groups, in the classes that count.

        Not the expected difference: doubt alone would make one.
        """
        compared = expected[:, :, self._compared(expected.shape[2])]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a class without rows has no spread
            spread = np.nanmax(compared, axis=3) - np.nanmin(compared, axis=3)
        return np.asarray(np.nan_to_num(spread, nan=0.0).max(axis=2))

    def _compared(self, n_classes: int) -> list[int]:
        """Classes that a difference looks at: for EOD the positive one of two, as `group_report` has it."""
        return positive_classes(n_classes, None) if self.name == "eod" else list(range(n_classes))

    def is_defined(self, counts: NDArray[np.int64]) -> bool:
        """Whether rows of these cells (c, |S|) say anything of it: a difference needs two groups of one class."""
        if self.name not in DIFFERENCES:
            return bool(counts.any())
        return bool(((counts[self._compared(len(counts))] > 0).sum(axis=1) > 1).any())


def judge_scores(judge: Judge, objective: Objective, scores: F64) -> F64:
    """(g,) values of models with scores (g, n, c): below all others where a floor is missed."""
    right = (scores.argmax(axis=2) == judge.y).mean(axis=1, keepdims=True)  # (g, 1)
    values = _judged(judge, objective, judge.margins(scores), np.zeros((len(scores), 1, judge.n_classes)))
    return _with_floor(objective, values, right)[:, 0]


def judge_boundaries(judge: Judge, objective: Objective, scores: F64, steps: F64) -> F64:
    """(g, b) values of models of two classes, scores (g, n, 2), with steps (g, b) added to their differences."""
    values = _judged(judge, objective, judge.margins(scores), np.stack([-steps, steps], axis=2))
    if objective.accuracy_floor is None:
        return values
    difference = scores[:, :, 1] - scores[:, :, 0]
    pairs = zip(difference, steps, strict=True)  # one model at a time: (b, n) fits into memory
    right = [((d + step[:, None] > 0) == (judge.y == 1)).mean(axis=1) for d, step in pairs]
    return _with_floor(objective, values, np.array(right))


def _judged(judge: Judge, objective: Objective, margins: F64, shifts: F64) -> F64:
    """(g, b) values of margins (g, n) with shifts (g, b, c), some models at a time so that memory stays small."""
    # The worst class is the worst of cells that are classes: groups are not looked at.
    cells = judge.by_class if objective.name == "worst_class" else judge
    each = max(1, AT_ONCE // (shifts.shape[1] * cells.counts.size * N_LEVELS))
    parts = [slice(start, start + each) for start in range(0, len(margins), each)]
    return np.concatenate(
        [objective.values(cells.survival(margins[part], shifts[part]), cells.counts) for part in parts]
    )


def _with_floor(objective: Objective, values: F64, right: F64) -> F64:
    """The values, or for shares of right rows that miss the floor the shares, moved below all values."""
    return np.asarray(np.where(objective.is_met(right), values, INFEASIBLE + right))


def first_best(values: ArrayLike) -> int:
    """Place of the first of the largest values, as far as rounding tells."""
    values = np.asarray(values)
    return int(np.flatnonzero(values >= values.max() - EQUAL)[0])
