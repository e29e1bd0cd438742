"""Intervals of all group figures; see docs/math.md#intervals.

Worst groups and largest differences are extremes. The lowest of several noisy rates is on average below the lowest
true rate, and the interval of the group with the lowest estimate is not an interval of the lowest true rate. So an
extreme is bounded by the limits of all rates that it is taken over. For max_i d_i with limits L_i ≤ d_i ≤ U_i:

- max_i U_i is too low only if the limit of the d_i that attains the maximum is too low: no correction is needed;
- max_i L_i is too high if any of the m limits L_i is too high: each gets 1/m of the error probability.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairerclip.metrics.groups.group_figures import Rates, positive_classes, signed_weights
from fairerclip.metrics.intervals import clopper_pearson, mover, per_side
from fairerclip.metrics.label_codes import FloatArray

Interval = tuple[float, float]
Limits = tuple[FloatArray, FloatArray]


def lowest(k: NDArray[Any], n: NDArray[Any], confidence: float) -> Interval:
    """Compute the interval of the smallest of independent proportions, estimated by k/n (m,), n > 0."""
    low, _ = clopper_pearson(k, n, confidence)
    _, high = clopper_pearson(k, n, per_side(confidence, len(n)))
    return float(low.min()), float(high.min())


class Differences:
    """Differences between two sensitive values in one kind of rate, for each class.

    Parameters
    ----------
    k, n : array of shape (m, |S|)
        Numerators and denominators of one rate per row. Pairs with an empty denominator are left out.
    """

    def __init__(self, k: NDArray[Any], n: NDArray[Any]) -> None:
        self.k, self.n = k, n
        self.pairs = [
            (row, first, second)
            for row, sizes in enumerate(n)
            for first, second in combinations(np.flatnonzero(sizes).tolist(), 2)
        ]
        weights = np.zeros((len(self.pairs), k.shape[1]))
        for place, (_, first, second) in enumerate(self.pairs):
            weights[place, [first, second]] = -1.0, 1.0
        self.weights = weights

    def __len__(self) -> int:
        return len(self.pairs)

    def limits(self, confidence: float) -> Limits:
        """Return low (pairs,) and high (pairs,) of each difference, later minus earlier sensitive value."""
        rows = [row for row, _, _ in self.pairs]
        return mover(self.weights, self.k[rows], self.n[rows], confidence)

    def values(self) -> FloatArray:
        """Return the differences (pairs,), later minus earlier sensitive value."""
        return np.array(
            [
                self.k[r, second] / self.n[r, second] - self.k[r, first] / self.n[r, first]
                for r, first, second in self.pairs
            ]
        )

    def largest(self, confidence: float, shared_by: int = 1) -> Interval | None:
        """Compute the interval of the largest absolute difference; None if there are no pairs.

        ``shared_by`` is the number of such intervals that are to hold together.
        """
        if not self.pairs:
            return None
        low, high = self.limits(per_side(confidence, shared_by * len(self)))
        least = np.maximum(np.maximum(low, -high), 0.0).max()
        low, high = self.limits(per_side(confidence, shared_by))
        return float(least), float(np.maximum(-low, high).max())

    def largest_signed(self, confidence: float) -> Interval | None:
        """Compute the interval of the difference with the largest absolute value, with its sign.

        Every pair whose limits reach the lower limit of the largest absolute difference may be the largest.
        """
        if not self.pairs:
            return None
        low, high = self.limits(per_side(confidence, len(self)))
        least = np.maximum(np.maximum(low, -high), 0.0).max()
        possible = np.maximum(-low, high) >= least
        return float(low[possible].min()), float(high[possible].max())


def group_intervals(
    N: ArrayLike,
    confidence: float,
    positive: int | None = None,
    train_counts: ArrayLike | None = None,
) -> dict[str, Interval]:
    """Compute the intervals of all figures of `group_figures.evaluate` that are defined for counts N (|S|, c, c).

    Group sizes are treated as fixed. O(c·|S|³) time.
    """
    rates = Rates.of(np.asarray(N))
    k, n = rates.recall
    nonempty = n > 0
    recall = Differences(k, n)
    chosen = positive_classes(len(k), positive)
    opportunity = Differences(k[chosen], n[chosen])
    # The rates of one of two classes determine those of the other, so they are counted once.
    binary = len(k) == 2
    odds = recall if binary else Differences(*_stacked(rates.recall, rates.false_positive))
    selected, rows = (part[1:] if binary else part for part in rates.selection)
    low, high = clopper_pearson(k.sum(), n.sum(), confidence)
    intervals: dict[str, Interval | None] = {
        "average": (float(low), float(high)),
        "worst_group": lowest(k[nonempty], n[nonempty], confidence),
        "gap": _gap(k[nonempty], n[nonempty], confidence),
        "eod": opportunity.largest(confidence),
        "eod_signed": opportunity.largest_signed(confidence),
        "eod_mean": _mean_of_largest(k, n, confidence),
        "eod_mean_signed": _mean_signed(k, n, confidence),
        "equalized_odds_difference": odds.largest(confidence),
        "demographic_parity_difference": Differences(selected, rows).largest(confidence),
    }
    if train_counts is not None:
        weights = np.where(nonempty, np.asarray(train_counts, dtype=np.float64), 0.0)
        ends = mover(weights.ravel() / weights.sum(), k.ravel(), n.ravel(), confidence)
        intervals["train_weighted_average"] = float(ends[0]), float(ends[1])
    return {name: ends for name, ends in intervals.items() if ends is not None}


def _stacked(*rates: tuple[NDArray[Any], NDArray[Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
    return np.concatenate([k for k, _ in rates]), np.concatenate([n for _, n in rates])


def _gap(k: NDArray[Any], n: NDArray[Any], confidence: float) -> Interval:
    """Compute the interval of max_g (average − p_g), where average − p_g = (1 − w_g)·(accuracy outside g − inside)."""
    outside = n.sum() - n
    if len(n) < 2:
        return 0.0, 0.0
    share = outside / n.sum()
    pairs = np.stack([k.sum() - k, k], axis=1), np.stack([outside, n], axis=1)
    low, _ = mover([1.0, -1.0], *pairs, per_side(confidence, len(n)))
    _, high = mover([1.0, -1.0], *pairs, confidence)
    return float(max(0.0, (share * low).max())), float((share * high).max())


def _mean_of_largest(k: NDArray[Any], n: NDArray[Any], confidence: float) -> Interval | None:
    by_class = [Differences(k[[row]], n[[row]]) for row in range(len(k))]
    compared = sum(len(differences) > 0 for differences in by_class)
    ends = [end for d in by_class if (end := d.largest(confidence, shared_by=compared)) is not None]
    if not ends:
        return None
    low, high = np.mean(ends, axis=0)
    return float(low), float(high)


def _mean_signed(k: NDArray[Any], n: NDArray[Any], confidence: float) -> Interval | None:
    weights = signed_weights(n > 0)
    classes = int((weights != 0).any(axis=1).sum())
    if not classes:
        return None
    low, high = mover((weights / classes).ravel(), k.ravel(), n.ravel(), confidence)
    return float(low), float(high)
