"""Differences between methods on the same test rows, with paired intervals: the best, and what is not told apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Self

import numpy as np

from fairerclip.experiment import Experiment
from fairerclip.study.comparison import (
    BestForLabels,
    FailedRun,
    MethodDifferences,
    MethodRun,
    PairedChange,
    SeedMeans,
    Verdict,
)
from fairerclip.study.method import Method
from fairerclip.study.methods import METHODS

RANK = {"none": 0, "validation": 0, "target": 1, "all": 2, "prediction": 3}
"""Rank of methods by the labels they use in training; all use labels of validation rows to choose a model.

Methods that are given S of the rows they predict are above all: they are no rivals of any other method."""
ORDER = {method.key: place for place, method in enumerate(METHODS)}
"""Place of methods in tables."""
ZERO_SHOT = "zero-shot"
"""Key of the zero-shot classifier, which needs no training."""
MARGIN = 0.01
"""By how much the average of a simpler method may be lower, so that it is still recommended."""
LEVELS: tuple[Literal["none", "target", "all"], ...] = ("none", "target", "all")
"""Labels that one may have in training, by rank."""


def is_below(change: MethodDifferences) -> bool:
    """Whether a method is clearly worse: in its worst group, or on average without a clear gain of the worst group."""
    worst, average = change.worst_group, change.average
    return worst.high < 0 or (worst.low <= 0 and average.high < 0)


@dataclass(frozen=True)
class PairedMethods:
    """The methods of a comparison with the runs that did not fail, in the order of tables.

    All differences are means over seeds of the differences and of the ends of their intervals, which are paired by
    rows. A method without randomness has one run, which is paired with every seed of another one. ``figures`` are the
    means by which methods are ordered.
    """

    experiment: Experiment
    methods: Sequence[Method]
    runs: Mapping[str, Sequence[MethodRun]]
    figures: Mapping[str, SeedMeans | None]
    _known: dict[tuple[str, str], MethodDifferences] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        experiment: Experiment,
        methods: Iterable[Method],
        runs: Mapping[str, Sequence[MethodRun | FailedRun]],
        figures: Mapping[str, SeedMeans | None],
    ) -> Self:
        """Take the runs that did not fail, by method, and leave out methods without one."""
        good = {key: [run for run in found if isinstance(run, MethodRun)] for key, found in runs.items()}
        return cls(experiment, [method for method in methods if good[method.key]], good, figures)

    def difference(self, key: str, other: str) -> MethodDifferences:
        """Return the first method minus the second; O(n log n) time per seed, and none the second time."""
        if (key, other) not in self._known:
            self._known[key, other] = self._difference(key, other)
        return self._known[key, other]

    def _difference(self, key: str, other: str) -> MethodDifferences:
        names = np.array(self.experiment.classes)
        first, second = self.runs[key], self.runs[other]
        changes: dict[str, list[tuple[float, float, float]]] = {"worst_group": [], "average": []}
        for place in range(max(len(first), len(second))):
            run, base = first[place % len(first)], second[place % len(second)]
            rows = self.experiment.task.split(run.split)
            paired = self.experiment.paired_report(
                rows, names[list(base.predicted)], names[list(run.predicted)]
            )
            for name, values in changes.items():
                change = paired.change(name)
                values.append((change.difference, change.low, change.high))
        means = {name: np.mean(values, axis=0).tolist() for name, values in changes.items()}
        return MethodDifferences(
            **{name: PairedChange(difference=d, low=low, high=high) for name, (d, low, high) in means.items()}
        )

    def best_of(self, methods: Iterable[Method]) -> Method:
        """Return the method with the best worst group, then the best average."""

        def merit(method: Method) -> tuple[float, float]:
            found = self.figures[method.key]
            if found is None or found.worst_group is None or found.average is None:
                return -1.0, -1.0
            return found.worst_group.mean, found.average.mean

        return max(methods, key=merit)

    def verdict(self, own: Method) -> Verdict | None:
        """Compare FairerCLIP with the best other method that uses no more labels in training; None without one."""
        others = [m for m in self.methods if not m.is_own and RANK[m.labels] <= RANK[own.labels]]
        if not others or own not in self.methods:
            return None
        best = self.best_of(others)
        found = self.difference(own.key, best.key)
        return Verdict(
            method=own.key,
            title=own.title,
            against=best.key,
            against_title=best.title,
            others=len(others),
            worst_group=found.worst_group,
            average=found.average,
        )

    @cached_property
    def against_zero_shot(self) -> dict[str, MethodDifferences]:
        """Every other method minus zero-shot; nothing if zero-shot was not compared."""
        keys = [method.key for method in self.methods]
        return (
            {key: self.difference(key, ZERO_SHOT) for key in keys if key != ZERO_SHOT}
            if ZERO_SHOT in keys
            else {}
        )

    def best_for_labels(self) -> tuple[BestForLabels, ...]:
        """Return the best method for each kind of labels in training that a method needs, fewest labels first."""
        ranks = sorted({RANK[method.labels] for method in self.methods if not method.needs_known_rows})
        return tuple(self._best_for(rank) for rank in ranks)

    def _best_for(self, rank: int) -> BestForLabels:
        methods = [method for method in self.methods if RANK[method.labels] <= rank]
        best = self.best_of(methods)
        others = [method for method in methods if method is not best]
        differences = {method.key: self.difference(method.key, best.key) for method in others}
        near = [m for m in others if differences[m.key].worst_group.high >= 0]
        beaten = any(
            change.worst_group.low > 0 and change.average.high >= -MARGIN
            for key, change in self.against_zero_shot.items()
            if key == best.key or key in differences
        )
        usable = [best, *(m for m in near if differences[m.key].average.high >= -MARGIN)]
        usable = [m for m in usable if m is best or not (beaten and m.key == ZERO_SHOT)]
        return BestForLabels(
            labels=LEVELS[rank],
            best=best.key,
            differences=differences,
            not_told_apart=tuple(method.key for method in near),
            use=min(usable, key=complexity).key,
        )


def complexity(method: Method) -> tuple[int, bool, bool, int]:
    """Return a key that sorts methods: fewer labels, no training by gradient, and earlier in `METHODS` first.

    Within the same labels, `METHODS` begins with the simplest method and ends with FairerCLIP.
    """
    place = ORDER.get(method.key, len(ORDER))
    return RANK[method.labels], method.labels == "validation", method.gradient, place
