"""Figures of methods over resampled splits: means, intervals for new rows, and differences paired by split.

The splits of one task share rows, so their figures are not independent: with the number of splits the plain interval
shrinks to nothing, however few rows there are. All intervals here have the correction of Nadeau and Bengio (2003):
the variance over J splits is multiplied by 1/J + n_test / n_train instead of 1/J.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from fairerclip._util.types import F64
from fairerclip.data import Task
from fairerclip.study.comparison import MethodDifferences, MethodRun, PairedChange, SeedMean, SeedMeans
from fairerclip.study.methods import GIVEN_ROWS
from fairerclip.study.paired_methods import PairedMethods

CONFIDENCE = 0.95
SAME = 1e-12
"""Shares that differ by less are equal up to rounding."""


def half_width(values: F64, ratio: float) -> float:
    """Return half of the 95 % interval of the mean of values (J,) of overlapping splits.

    It is infinite where the splits say nothing about the spread: for fewer than two of them, and for equal values, as
    those of a small group on few splits often are.

    Parameters
    ----------
    values : array of shape (J,)
        A figure, or a difference of figures, on each split.
    ratio : float
        Number of test rows divided by that of training rows.

    Examples
    --------
    >>> round(half_width(np.array([0.7, 0.8, 0.75]), ratio=0.5), 3)
    0.196
    """
    if len(values) < 2 or np.ptp(values) < SAME:
        return float("inf")
    quantile = student.ppf((1 + CONFIDENCE) / 2, len(values) - 1)
    return float(quantile * values.std(ddof=1) * np.sqrt(1 / len(values) + ratio))


def overlap_ratio(task: Task) -> float:
    """Return the number of test rows divided by that of training rows."""
    return len(task.splits["test"]) / len(task.splits["train"])


def split_means(runs: Mapping[str, Sequence[MethodRun]], ratio: float) -> dict[str, SeedMeans]:
    """Return the figures of every method over its splits.

    A method that ran on some of the splits only is corrected for how hard these are: its mean is that of its
    differences from the methods that ran on all splits, plus their mean over all splits. Methods that are given S of
    the rows they predict correct no other.
    """
    figures = {
        name: {key: _by_split(found, name) for key, found in runs.items()} for name in SeedMeans.model_fields
    }
    return {
        key: SeedMeans(
            **{name: _mean(key, len(found), name, values, ratio) for name, values in figures.items()}
        )
        for key, found in runs.items()
        if found
    }


def _mean(
    key: str, n_runs: int, name: str, by_split: Mapping[str, Mapping[int, float]], ratio: float
) -> SeedMean | None:
    own = by_split[key]
    if len(own) < n_runs or not own:  # not defined on some split
        return None
    correcting = [found for other, found in by_split.items() if other == key or other not in GIVEN_ROWS]
    values, mean = np.array(list(own.values())), levelled_mean(own, correcting)
    half = half_width(values, ratio)
    lowest = -1.0 if name == "eod_signed" else 0.0
    mean, low, high = (min(1.0, max(lowest, value)) for value in (mean, mean - half, mean + half))
    sd = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return SeedMean(mean=mean, sd=sd, low=low, high=high, seeds=len(values))


def levelled_mean(own: Mapping[int, float], all_methods: Collection[Mapping[int, float]]) -> float:
    """Return the mean of a figure by split, corrected if some of the splits of all methods are missing.

    Examples
    --------
    >>> round(levelled_mean({0: 0.9}, [{0: 0.9}, {0: 0.8, 1: 0.6}]), 12)  # 0.1 above the other, whose mean is 0.7
    0.8
    """
    mean = float(np.mean(list(own.values())))
    every = {split for values in all_methods for split in values}
    complete = [values for values in all_methods if set(values) == every]
    if set(own) != every and complete:
        level = {split: float(np.mean([values[split] for values in complete])) for split in every}
        mean += float(np.mean(list(level.values())) - np.mean([level[split] for split in own]))
    return mean


def _by_split(runs: Sequence[MethodRun], name: str) -> dict[int, float]:
    """Return a figure by split, of the runs that have it."""
    values = {run.seed: run.report.estimate(name).value for run in runs}
    return {split: value for split, value in values.items() if value is not None}


@dataclass(frozen=True)
class PairedSplits(PairedMethods):
    """The methods of a comparison over resampled splits; differences are paired by split."""

    def _difference(self, key: str, other: str) -> MethodDifferences:
        ratio = overlap_ratio(self.experiment.task)
        return MethodDifferences(
            **{name: self._paired(key, other, name, ratio) for name in MethodDifferences.model_fields}
        )

    def _paired(self, key: str, other: str, name: str, ratio: float) -> PairedChange:
        first, second = (_by_split(self.runs[method], name) for method in (key, other))
        both = sorted(set(first) & set(second))
        values = np.array([first[split] - second[split] for split in both])
        if not len(values):  # nothing is known of the difference
            return PairedChange(difference=0.0, low=-1.0, high=1.0)
        mean, half = float(values.mean()), half_width(values, ratio)
        return PairedChange(difference=mean, low=max(-1.0, mean - half), high=min(1.0, mean + half))
