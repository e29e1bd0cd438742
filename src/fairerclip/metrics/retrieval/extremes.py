"""Intervals of the largest and the smallest log-ratio over groups, and of their changes.

The input are proportions θ = count/size of each group at the cut k, with their values in galleries resampled by
rows. An extreme is bounded by the limits of all groups, and not by percentiles of the resampled extreme, which is
biased outwards; docs/math.md#retrieval-intervals has the proofs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr, ndtri

from fairerclip.metrics.label_codes import FloatArray

_SURE = 3.0
"""Gaps between two groups up to this many standard errors may be chance (error 0.0013 on each side)."""

_ENOUGH = 5
"""Smallest numbers of rows shown, and not shown, for which resampled logarithms give the error of a group."""


@dataclass(frozen=True, eq=False)
class Proportions:
    """Estimated proportions of any shape (…), their resampled values (B, …), and the rows behind each (…).

    The limits are those of a binomial of effective size θ(1−θ)/se², with se the resampled standard error. If all
    rows or none are counted, no replicate differs, and the limits are those of a binomial of ``size`` rows.
    """

    value: FloatArray
    replicates: FloatArray
    size: FloatArray
    exact: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        count: FloatArray,
        size: FloatArray,
        counts: FloatArray,
        sizes: FloatArray,
        exact: bool = False,
    ) -> Proportions:
        """Divide counts by sizes; a group missing in a replicate keeps its estimate. ``exact``: no sampling error."""
        with np.errstate(divide="ignore", invalid="ignore"):
            value = np.where(size > 0, count / size, 0.0)
            replicates = np.where(sizes > 0, counts / sizes, value)
        return cls(value, replicates, size, np.full(value.shape, exact))

    def __getitem__(self, key: Any) -> Proportions:
        inner = (slice(None), *key) if isinstance(key, tuple) else (slice(None), key)
        return Proportions(self.value[key], self.replicates[inner], self.size[key], self.exact[key])

    def mean(self) -> Proportions:
        """Return the mean (1,) of those of the (q,) that have rows, with the smallest of their sizes."""
        rest = self[self.size > 0] if (self.size > 0).any() else self
        return Proportions(
            rest.value.mean(keepdims=True),
            rest.replicates.mean(axis=1, keepdims=True),
            rest.size.min(keepdims=True),
            np.array([rest.exact.all()]),
        )

    def log_deviations(self) -> FloatArray:
        """Return ln θ* − ln θ̂ to first order (B, …); 0 where θ̂ is 0."""
        safe = np.where(self.value > 0, self.value, 1.0)
        return np.asarray((self.replicates - self.value) / safe)

    def _effective(self) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return the effective sizes, and a mask of the values without any sampling error."""
        inside = (self.value > 1e-12) & (self.value < 1 - 1e-12)
        variance = self.replicates.var(axis=0)
        fixed = self.exact | (inside & (variance <= 1e-20))
        n = np.divide(self.value * (1 - self.value), variance, out=self.size.copy(), where=inside & ~fixed)
        return np.where(inside, n, np.maximum(self.size, 1e-9)), fixed

    def limits(self, h: float, shift: float = 0.0) -> tuple[FloatArray, FloatArray]:
        """Return the lower and upper Clopper-Pearson limits, each wrong with probability at most Φ(−h).

        ``shift`` = ½ gives Jeffreys' narrower limits, which have this probability on average.
        """
        n, fixed = self._effective()
        x = np.clip(self.value, 0.0, 1.0) * n
        low = np.where(x > 0, betaincinv(np.maximum(x + shift, 1e-12), n - x + 1 - shift, ndtr(-h)), 0.0)
        room = n - x > 1e-9 * n
        high = np.where(room, betaincinv(x + 1 - shift, np.maximum(n - x + shift, 1e-12), ndtr(h)), 1.0)
        return (
            np.where(fixed, self.value, np.minimum(low, self.value)),
            np.where(fixed, self.value, np.maximum(high, self.value)),
        )


@dataclass(frozen=True, eq=False)
class LogRatios:
    """ln(θ/reference) of each query and group, (q, A), with limits at any level."""

    proportions: Proportions
    reference: FloatArray
    """What θ is divided by, broadcast to (q, A)."""
    complete: bool
    """Whether every group has a reference share; then the largest is at least 0 and the smallest at most 0."""

    @property
    def value(self) -> FloatArray:
        """Estimates (q, A); −∞ for a group that is not shown."""
        return self._log(self.proportions.value)

    def extreme(self, sign: int) -> FloatArray:
        """Return the largest (sign 1) or the smallest (−1) log-ratio of each query (q,)."""
        return np.asarray(self.value.max(axis=1) if sign > 0 else self.value.min(axis=1))

    def limits(self, h: float) -> tuple[FloatArray, FloatArray]:
        """Return lower and upper limits, each (q, A)."""
        low, high = self.proportions.limits(h)
        return self._log(low), self._log(high)

    def _log(self, theta: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(theta / self.reference))

    def misses(self, sign: int) -> tuple[FloatArray, FloatArray] | None:
        """Return resampled bounds (B, q) of the over-estimation and the under-estimation of the extreme, or None.

        Let e be the errors and g ≥ 0 the gaps of the groups to the extreme one. A maximum is over-estimated by at
        most max(e_a − g_a) at the true gaps, for which lower bounds are used, and under-estimated by at most
        max(−e_a − ĝ_a) at the estimated gaps. None if few or nearly all rows of a group that may be the extreme
        one are shown, because resampling does not give its error.
        """
        low, high = self.limits(_SURE)
        candidates = (
            high >= low.max(axis=1, keepdims=True) if sign > 0 else low <= high.min(axis=1, keepdims=True)
        )
        regular = self._regular()
        if not regular[candidates].all():
            return None
        e = np.where(regular, sign * self._errors(), 0.0)
        gap = np.where(regular, np.abs(self.value - self.extreme(sign)[:, None]), np.inf)
        best = np.argmin(gap, axis=1)[None, :, None]
        spread = (e - np.take_along_axis(e, np.broadcast_to(best, (len(e), *best.shape[1:])), axis=2)).std(
            axis=0
        )
        least_gap = np.maximum(gap - _SURE * spread, 0.0)
        return (e - least_gap).max(axis=2), (-e - gap).max(axis=2)

    def _errors(self) -> FloatArray:
        """Return resampled minus estimated log-ratios (B, q, A); a group that a replicate lacks counts as 1/2 row."""
        p = self.proportions
        least = 0.5 / np.maximum(p.size, 1.0)
        return np.asarray(np.log(np.maximum(p.replicates, least) / np.maximum(p.value, least)))

    def _regular(self) -> NDArray[np.bool_]:
        """Return a mask (q, A) of groups with enough rows shown and not shown, or without sampling error."""
        p = self.proportions
        _, fixed = p._effective()
        rows = np.minimum(p.value, 1 - p.value) * p.size
        return np.asarray((rows >= _ENOUGH) | fixed)


def sidak(alpha: float, m: int) -> float:
    """Return the normal quantile h with which m independent limits, each wrong with Φ(−h), all hold with 1 − alpha."""
    return float(-ndtri(-np.expm1(np.log1p(-alpha) / m)))


def mean_distance(misses: FloatArray, alpha: float) -> float:
    """Return the distance ≥ 0 that the mean over queries of ``misses`` (B, q) exceeds with probability alpha."""
    level = min(1.0, (1 - alpha) * (1 + 1 / len(misses)))
    return max(0.0, float(np.quantile(misses.mean(axis=1), level, method="higher")))


def extreme(ratios: LogRatios, sign: int, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Compute low (q,) and high (q,) of the largest (sign 1) or smallest (−1) log-ratio of each query."""
    return _within_range(ratios, sign, *_extreme_at(ratios, sign, _levels(ratios, sign, confidence)))


def mean_extreme(ratios: LogRatios, sign: int, confidence: float) -> tuple[float, float]:
    """Compute the interval of the mean over queries of the largest (sign 1) or smallest (−1) log-ratio."""
    misses = ratios.misses(sign) if len(ratios.value) > 1 else None
    if misses is None:
        # Ends of single queries before they are cut to the range: cutting each of them would bias the mean.
        low, high = (x.mean() for x in _extreme_at(ratios, sign, _levels(ratios, sign, confidence)))
    else:
        beyond, short = (mean_distance(miss, (1 - confidence) / 2) for miss in misses)
        value = ratios.extreme(sign).mean()
        low, high = (value - beyond, value + short) if sign > 0 else (value - short, value + beyond)
    ends = _within_range(ratios, sign, np.array([low]), np.array([high]))
    return float(ends[0][0]), float(ends[1][0])


def _levels(ratios: LogRatios, sign: int, confidence: float) -> tuple[float, float]:
    """Return the levels of the limits for both ends: only the inner end has to hold for all groups at once."""
    alpha = (1 - confidence) / 2
    one, all_groups = float(-ndtri(alpha)), sidak(alpha, ratios.value.shape[1])
    return (all_groups, one) if sign > 0 else (one, all_groups)


def _extreme_at(ratios: LogRatios, sign: int, levels: tuple[float, float]) -> tuple[FloatArray, FloatArray]:
    """Return low (q,) and high (q,) of the extreme, from the limits of its groups at two levels."""
    low, high = ratios.limits(levels[0])[0], ratios.limits(levels[1])[1]
    pick = np.max if sign > 0 else np.min
    return pick(low, axis=1), pick(high, axis=1)


def _within_range(
    ratios: LogRatios, sign: int, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray]:
    if not ratios.complete:
        return low, high
    return (np.maximum(low, 0.0), high) if sign > 0 else (low, np.minimum(high, 0.0))


def difference_limits(
    first: tuple[FloatArray, FloatArray, FloatArray],
    second: tuple[FloatArray, FloatArray, FloatArray],
    correlation: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Compute limits of second − first from (value, low, high) of each and the correlation of their estimates.

    The distances to the relevant ends are combined like standard errors (Zou and Donner 2008). Where a value is
    infinite the ends themselves are subtracted.
    """
    a, a_low, a_high = first
    b, b_low, b_high = second
    with np.errstate(invalid="ignore"):
        down, up = (b - b_low, a_high - a), (b_high - b, a - a_low)
        ends = []
        for sign, (x, y), outer in ((-1, down, b_low - a_high), (1, up, b_high - a_low)):
            distance = np.sqrt(np.maximum(x**2 + y**2 - 2 * correlation * x * y, 0.0))
            ends.append(np.where(np.isfinite(distance), (b - a) + sign * distance, outer))
    return ends[0], ends[1]


def correlation(first: FloatArray, second: FloatArray) -> FloatArray:
    """Compute the correlation over replicates of arrays (B, …) that broadcast; 0 where one does not vary."""
    e, f = first - first.mean(axis=0), second - second.mean(axis=0)
    scale = np.sqrt((e**2).mean(axis=0) * (f**2).mean(axis=0))
    product = (e * f).mean(axis=0)
    return np.asarray(np.divide(product, scale, out=np.zeros_like(product), where=scale > 1e-300))


class ExtremeChange:
    """Change of an extreme log-ratio: max_i min_j (m'_i − m_j) of all pairs of groups (min_i max_j for minima)."""

    def __init__(self, before: LogRatios, after: LogRatios, sign: int, confidence: float) -> None:
        self.before, self.after, self.sign = before, after, sign
        self.alpha = (1 - confidence) / 2
        self._e, self._f = before.proportions.log_deviations(), after.proportions.log_deviations()
        self._correlation = correlation(self._e[:, :, None, :], self._f[:, :, :, None])  # (q, i, j)

    @property
    def value(self) -> FloatArray:
        """Estimated change (q,); NaN where the extreme is −∞ before and after."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.after.extreme(self.sign) - self.before.extreme(self.sign))

    def _ends(self, levels: tuple[float, float]) -> tuple[FloatArray, FloatArray]:
        """Return low (q,) and high (q,) of the change, from the limits of pairs of groups at two levels."""
        ends = []
        for end, h in enumerate(levels):
            first = tuple(x[:, None, :] for x in (self.before.value, *self.before.limits(h)))
            second = tuple(x[:, :, None] for x in (self.after.value, *self.after.limits(h)))
            limits = difference_limits(
                (first[0], first[1], first[2]), (second[0], second[1], second[2]), self._correlation
            )[end]
            limits = limits.min(axis=2).max(axis=1) if self.sign > 0 else limits.max(axis=2).min(axis=1)
            ends.append(limits)
        return ends[0], ends[1]

    def each(self) -> tuple[FloatArray, FloatArray]:
        """Return the interval, low (q,) and high (q,), of the change of every query."""
        h = sidak(self.alpha, self.before.value.shape[1])
        return self._ends((h, h))

    def mean(self) -> tuple[float, float, float]:
        """Return the mean change over queries and its interval; NaN if both −∞ and ∞ occur."""
        with np.errstate(invalid="ignore"):
            value = float(self.value.mean())
            low, high = (float(end.mean()) for end in self.each())
        first, second = self.before.misses(self.sign), self.after.misses(self.sign)
        if len(self.before.value) == 1 or first is None or second is None:
            return value, low, high
        # A change is over-estimated by the over-estimation after plus the under-estimation before.
        ends = [mean_distance(second[i] + first[1 - i], self.alpha) for i in range(2)]
        if self.sign < 0:
            ends.reverse()
        # Both kinds of ends are conservative, so the tighter one is taken: this one is better for groups far
        # apart, that of pairs for similar groups.
        return value, max(low, value - ends[0]), min(high, value + ends[1])
