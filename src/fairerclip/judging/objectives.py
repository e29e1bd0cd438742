"""Objectives by which models are compared, from posterior draws of the accuracy of each class × group."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairerclip._util.types import F64, Floats
from fairerclip.errors import ParameterError
from fairerclip.judging.evidence import AT_ONCE, PRESENT, Evidence
from fairerclip.metrics.groups.group_figures import positive_classes

Scorer = Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], float]

DIFFERENCES = ("eod", "equalized_odds")
OBJECTIVES = ("worst_group", "worst_class", *DIFFERENCES, "average")
"""Objectives on labelled rows, besides a function."""
AVERAGE_SHARE = 0.5
"""Weight of the average accuracy relative to the worst group."""
TIE_BREAK = 0.01
"""Weight of the average accuracy relative to a difference between groups, which has an accuracy floor."""


@dataclass(frozen=True)
class Objective:
    """A named objective, with a floor on the share of right predictions."""

    name: str
    accuracy_floor: float | None = None

    def __post_init__(self) -> None:
        if self.name not in OBJECTIVES:
            raise ParameterError(
                f"objective must be one of {', '.join(OBJECTIVES)} or a function; got {self.name!r}"
            )
        floor = self.accuracy_floor
        if floor is not None and not (isinstance(floor, numbers.Real) and 0 <= floor <= 1):
            raise ParameterError(f"accuracy_floor must be a share in [0, 1]; got {floor!r}")

    @property
    def compares_groups(self) -> bool:
        """Whether it is a difference between groups."""
        return self.name in DIFFERENCES

    def is_met(self, average: ArrayLike) -> NDArray[np.bool_]:
        """Return whether shares of right predictions (…) reach the floor; True without a floor."""
        average = np.asarray(average)
        if self.accuracy_floor is None:
            return np.ones(average.shape, dtype=bool)
        return np.asarray(average >= self.accuracy_floor)

    def values(self, accuracies: F64, counts: F64) -> F64:
        """Return values (g, draws), larger is better, from `Evidence.accuracies` (g, c, v, draws) and cell sizes."""
        there = ~np.isnan(accuracies[0, :, :, 0])
        average = np.einsum("gkb,k->gb", accuracies[:, there], counts[there] / counts[there].sum())
        if self.compares_groups:
            differences = [self._difference(accuracies[..., draw]) for draw in range(accuracies.shape[3])]
            return np.asarray(TIE_BREAK * average - np.stack(differences, axis=1))
        if self.name == "average":
            return np.asarray(average)
        return np.asarray(accuracies[:, there].min(axis=1) + AVERAGE_SHARE * average)

    def difference_values(self, rates: F64, right: F64) -> F64:
        """Return values (b,) of a difference between groups from `Evidence.rates` (b, c, v) and shares of right rows.

        The difference of expected accuracies, and not the expected difference, which is above zero from doubt alone.
        """
        return np.asarray(TIE_BREAK * right - self._difference(rates))

    def _difference(self, accuracy: F64) -> F64:
        """Return the largest difference (g,) between groups of the accuracies (g, c, v) of one class."""
        compared = accuracy[:, self._compared(accuracy.shape[1])]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a class without rows has no spread
            spread = np.nanmax(compared, axis=2) - np.nanmin(compared, axis=2)
        return np.asarray(np.nan_to_num(spread, nan=0.0).max(axis=1))

    def _compared(self, n_classes: int) -> list[int]:
        """Return the classes to compare: for EOD the positive one of two, as in `group_report`."""
        return positive_classes(n_classes, None) if self.name == "eod" else list(range(n_classes))

    def figure(self, evidence: Evidence, scores: F64) -> float:
        """Return the objective of a model with scores (n, c) as it is counted on the rows; larger is better.

        A difference between groups is negative. Unlike `values` this is neither a posterior mean nor includes the
        average accuracy.
        """
        hits, counts = evidence.hits(scores)
        return float(self.figures(hits[None], counts)[0])

    def figures(self, hits: F64, counts: F64) -> F64:
        """Return what `figure` does (g,), from numbers of right rows (g, c, v) and of rows (c, v)."""
        if self.name == "average":
            return np.asarray(hits.sum(axis=(1, 2)) / counts.sum())
        if self.name == "worst_class":
            hits, counts = hits.sum(axis=2, keepdims=True), counts.sum(axis=1, keepdims=True)
        accuracy = np.full(hits.shape, np.nan)
        np.divide(hits, counts, out=accuracy, where=counts >= PRESENT)
        if self.compares_groups:
            return -self._difference(accuracy)
        return np.asarray(np.nanmin(accuracy, axis=(1, 2)))

    def is_defined(self, present: NDArray[np.bool_]) -> bool:
        """Return whether the cells with rows (c, v) determine the objective: a difference needs two of one class."""
        if not self.compares_groups:
            return bool(present.any())
        return bool((present[self._compared(len(present))].sum(axis=1) > 1).any())


def judge_margins(evidence: Evidence, objective: Objective, margins: Floats) -> F64:
    """Return draws of the values (g, draws) of models with margins (g, n), a few models at a time to save memory."""
    # For the worst class the cells are the classes; groups are ignored.
    cells = evidence.by_class if objective.name == "worst_class" else evidence
    each = max(1, AT_ONCE // max(1, margins.shape[1]))
    parts = [slice(start, start + each) for start in range(0, len(margins), each)]
    return np.concatenate([objective.values(cells.accuracies(margins[part]), cells.counts) for part in parts])


def judge_scores(evidence: Evidence, objective: Objective, scores: Floats) -> F64:
    """Return draws of the values (g, draws) of models with scores (g, n, c)."""
    return judge_margins(evidence, objective, evidence.margins(scores))
