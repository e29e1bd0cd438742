"""Changes between two predictions on the same rows, with paired intervals; see docs/math.md#paired.

Both predictions share the rows and so most of the sampling error, and the interval of a change is narrower than the
difference of two intervals. All figures follow from the counts of rows by sensitive value, class, prediction before
and prediction after.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.checks import check_confidence
from fairerclip.metrics.groups.group_figures import (
    Rates,
    positive_class,
    positive_classes,
    positive_code,
    signed_weights,
)
from fairerclip.metrics.groups.group_report import (
    GroupReport,
    assemble,
    read_labels,
    tabulate,
    train_counts,
)
from fairerclip.metrics.groups.paired_rates import Kind, PairCounts, PairedRates
from fairerclip.metrics.label_codes import FloatArray, Names
from fairerclip.metrics.names import FIGURES


@dataclass(frozen=True)
class Change:
    """A figure before and after, and the interval of after − before."""

    name: str
    before: float
    after: float
    difference: float
    low: float
    high: float


@dataclass(frozen=True)
class GroupChange:
    """Accuracy of one group before and after, and the interval of after − before.

    ``clear`` tells whether the change differs from 0 at the level for all groups together: of 28 groups that did not
    change, one or two have a single interval without 0 by chance.
    """

    y: Any
    s: Any
    name: str
    n: int
    small: bool
    before: float
    after: float
    difference: float
    low: float
    high: float
    clear: bool


@dataclass(frozen=True)
class PairedReport:
    """Two predictions on the same rows; made by `paired_report`."""

    before: GroupReport
    after: GroupReport
    """Reports of both predictions."""
    changes: tuple[Change, ...]
    """After − before of every figure that both reports have."""
    groups: tuple[GroupChange, ...]
    """After − before of the accuracy of every group."""

    def change(self, name: str) -> Change:
        """Return the change of the figure ``name``."""
        return next(change for change in self.changes if change.name == name)

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready copy."""
        changes = [
            {
                "figure": c.name,
                "label": FIGURES[c.name].label,
                "better": FIGURES[c.name].better,
                **{k: v for k, v in vars(c).items() if k != "name"},
            }
            for c in self.changes
        ]
        plain_groups = self.before.as_dict()["groups"]
        labels = [{"y": group["y"], "s": group["s"]} for group in plain_groups]
        return {
            "before": self.before.as_dict(),
            "after": self.after.as_dict(),
            "changes": changes,
            "group_changes": [{**vars(g), **label} for g, label in zip(self.groups, labels, strict=True)],
        }


def paired_report(
    y_true: Any,
    y_before: Any,
    y_after: Any,
    sensitive_features: Any,
    *,
    train_groups: Mapping[Any, int] | None = None,
    class_names: Names | None = None,
    sensitive_names: Names | None = None,
    positive: Hashable | None = None,
    missing: Any = None,
    confidence: float = 0.95,
) -> PairedReport:
    """Report the groups of two predictions on the same rows, with paired intervals of all changes.

    O(n log n) time. The parameters are those of `fairerclip.metrics.group_report`, with two predictions.

    Examples
    --------
    >>> y, s = [0, 1] * 60, ["a", "a", "b", "b"] * 30
    >>> before, after = [0, 1, 0, 0] * 30, [0, 1, 0, 1] * 30
    >>> change = paired_report(y, before, after, s).change("worst_group")
    >>> change.before, change.after, change.low > 0.5
    (0.0, 1.0, True)
    """
    check_confidence(confidence)
    given = {
        "y_true": y_true,
        "sensitive_features": sensitive_features,
        "y_before": y_before,
        "y_after": y_after,
    }
    arrays, dropped = read_labels(given, missing)
    table, codes = tabulate(arrays, train_groups or {}, class_names, sensitive_names)
    counts = PairCounts.of(codes, len(table.classes), len(table.sensitive))
    positive = positive_class(table.classes, positive)
    before = assemble(table, train_groups, positive, confidence, dropped)
    after = assemble(replace(table, N=counts.confusion(1)), train_groups, positive, confidence, dropped)
    train = train_counts(table.classes, table.sensitive, train_groups)
    intervals = paired_from_counts(counts, confidence, positive_code(table.classes, positive), train)
    changes = []
    for name, (low, high) in intervals.items():
        first, second = getattr(before, name), getattr(after, name)
        changes.append(Change(name, first, second, second - first, low, high))
    order = list(FIGURES)
    changes.sort(key=lambda change: order.index(change.name))
    return PairedReport(
        before, after, tuple(changes), _group_changes(PairedRates(counts, confidence), before, after)
    )


def paired_from_counts(
    counts: PairCounts, confidence: float, positive: int | None = None, train: FloatArray | None = None
) -> dict[str, tuple[float, float]]:
    """Compute the interval of after − before of every figure.

    O(m·(m·cells + K²)) time and O(m·(m + K)) memory for m = c·|S| rates and a figure that is the largest of K
    differences. ``positive`` and ``train`` are as in `fairerclip.metrics.groups.group_figures.evaluate`.
    """
    return dict(_figure_intervals(counts, confidence, positive, train))


def _figure_intervals(
    counts: PairCounts, confidence: float, positive: int | None, train: FloatArray | None
) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield the interval of after − before for every figure that is defined."""
    pair, pooled = PairedRates(counts, confidence), PairedRates(counts.pooled(), confidence)
    rows = Rates.of(counts.confusion(0)).counts
    single = np.eye(rows.size)[rows.ravel() > 0]  # weights of each group's accuracy
    yield "average", _linear(pooled, np.array([[1.0, 0.0]]))
    # The change of a minimum is min_i max_j (after_i − before_j); docs/math.md#paired.
    yield "worst_group", _extreme(pair, ("recall",), single, len(single), lowest=True)
    if train is not None:
        weights = np.where(rows > 0, train, 0.0).ravel()[None]
        yield "train_weighted_average", _linear(pair, weights / weights.sum())
    yield "gap", _extreme(pair, ("recall",), rows.ravel() / rows.sum() - single, len(single))
    yield from _difference_intervals(pair, rows, positive)


def _difference_intervals(
    pair: PairedRates, counts: NDArray[Any], positive: int | None
) -> Iterator[tuple[str, tuple[float, float]]]:
    c, S = counts.shape
    by_class = [_pairs(counts > 0, [k]) for k in range(c)]
    by_class = [weights for weights in by_class if len(weights)]
    if by_class:
        signed = (signed_weights(counts > 0) / len(by_class)).ravel()[None]
        yield "eod_mean_signed", _linear(pair, signed)
        ends = [_extreme(pair, ("recall",), w, len(by_class) * len(w)) for w in by_class]
        yield "eod_mean", (float(np.mean([e[0] for e in ends])), float(np.mean([e[1] for e in ends])))
    chosen = _pairs(counts > 0, positive_classes(c, positive))
    if len(chosen):
        yield "eod", _extreme(pair, ("recall",), chosen, len(chosen))
        if len(chosen) == 2:  # one pair in one class: later − earlier is the same contrast before and after
            yield "eod_signed", _linear(pair, chosen[:1])
    rows = np.broadcast_to(counts.sum(axis=0), counts.shape)
    parity = _pairs(rows > 0, [1] if c == 2 else list(range(c)))
    if len(parity):
        yield "demographic_parity_difference", _extreme(pair, ("selection",), parity, len(parity))
    odds = _pairs(counts > 0, list(range(c)))
    kinds: tuple[Kind, ...] = ("recall",)
    if c != 2:
        kinds = ("recall", "false")
        false = _pairs(rows - counts > 0, list(range(c)))
        odds = np.block(
            [
                [odds, np.zeros((len(odds), c * S))],
                [np.zeros((len(false), c * S)), false],
            ]
        )
    if len(odds):
        yield "equalized_odds_difference", _extreme(pair, kinds, odds, len(odds))


def _pairs(defined: NDArray[np.bool_], classes: list[int]) -> FloatArray:
    """Return weights (pairs, c·|S|) of the differences between two sensitive values in the given classes.

    Every pair occurs in both orders; later − earlier comes first.
    """
    S = defined.shape[1]
    weights = []
    for k in classes:
        for second, first in permutations(np.flatnonzero(defined[k])[::-1].tolist(), 2):
            row = np.zeros(defined.size)
            row[k * S + second], row[k * S + first] = 1.0, -1.0
            weights.append(row)
    return np.array(weights).reshape(len(weights), defined.size)


def _linear(pair: PairedRates, weights: FloatArray) -> tuple[float, float]:
    """Compute the interval of the change of one weighted sum (1, m) of recalls."""
    low, high = pair.matched(("recall",), weights, 1)
    return float(low[0]), float(high[0])


def _extreme(
    pair: PairedRates, kinds: tuple[Kind, ...], weights: FloatArray, share: int, *, lowest: bool = False
) -> tuple[float, float]:
    """Compute the interval of max_i after_i − max_j before_j = max_i min_j (after_i − before_j); docs/math.md#paired.

    With ``lowest``, of the lowest after minus the lowest before. An extreme changes by no more than one of the sums
    that it is taken over, so the interval is cut to the range of their changes. This needs no further correction: the
    limits of these changes are among the limits that already hold together.
    """
    inner, outer = (np.max, np.min) if lowest else (np.min, np.max)
    ends = [[inner(end, axis=1) for end in block] for block in pair.contrasts(kinds, weights, share)]
    least, most = outer(np.concatenate(ends, axis=1), axis=1)
    low, high = pair.matched(kinds, weights, share)
    return float(max(least, low.min())), float(min(most, high.max()))


def _group_changes(pair: PairedRates, before: GroupReport, after: GroupReport) -> tuple[GroupChange, ...]:
    places = [
        before.classes.index(g.y) * pair.n_sensitive + before.sensitive.index(g.s) for g in before.groups
    ]
    weights = np.eye(pair.n_classes * pair.n_sensitive)[places]
    low, high = pair.matched(("recall",), weights, 1)
    least, most = pair.matched(("recall",), weights, len(places))
    changes = []
    for g, (first, second) in enumerate(zip(before.groups, after.groups, strict=True)):
        changes.append(
            GroupChange(
                first.y,
                first.s,
                first.name,
                first.n,
                first.small,
                first.accuracy,
                second.accuracy,
                second.accuracy - first.accuracy,
                float(low[g]),
                float(high[g]),
                bool(least[g] > 0 or most[g] < 0),
            )
        )
    return tuple(changes)
