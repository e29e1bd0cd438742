"""Gallery with its groups and relevance, and the intervals of retrieval figures from resampled rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from fairerclip.metrics.intervals import per_side
from fairerclip.metrics.label_codes import FloatArray, IntArray, encode, same_length
from fairerclip.metrics.retrieval.extremes import (
    ExtremeChange,
    LogRatios,
    Proportions,
    correlation,
    difference_limits,
    extreme,
    mean_extreme,
)
from fairerclip.metrics.retrieval.rank_quality import relevance
from fairerclip.metrics.retrieval.skew import (
    Reference,
    discounted,
    divergences,
    one_hot,
    pair_codes,
    reference_shares,
)
from fairerclip.metrics.retrieval.top_rows import TopRows, checked_cut, resampled_counts

EXTREMES = (("max_skew", 1), ("min_skew", -1))
"""Figures that are extremes over groups: 1 for the largest log-ratio, −1 for the smallest."""
DIVERGENCES = ("ndkl", "kl")
FIGURES = ("max_skew", "min_skew", "ndkl", "kl", "bias", "precision", "recall")

HALF_SAMPLES = 200
"""Number of random halves of the gallery, from which the standard errors of NDKL and KL are computed."""

Interval = tuple[float, float, float]
"""Value, lower and upper end."""


@dataclass(frozen=True, eq=False)
class Gallery:
    """Rows to rank: scores (n, q), groups, relevance, and the reference shares of the groups."""

    table: FloatArray
    codes: IntArray
    labels: list[Any]
    k: int
    reference: Reference
    members: IntArray
    desired: FloatArray
    relevant: NDArray[np.bool_] | None
    pair: tuple[int, int] | None = None
    """Codes of the two values of Bias@k."""

    @classmethod
    def read(
        cls, table: FloatArray, groups: Any, k: Any, relevant: Any, reference: Reference, pair: Any = None
    ) -> Gallery:
        """Check the arguments of a user and build the gallery; ``table`` has the scores (n, q)."""
        codes, labels = encode(groups, "groups")
        cut = checked_cut(k, same_length(scores=table, groups=codes))
        members, desired = reference_shares(reference, codes, labels)
        known = None if relevant is None else relevance(relevant, table)
        two = None if pair is None else pair_codes(pair, labels)
        return cls(table, codes, labels, cut, reference, members, desired, known, two)

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.table)

    @property
    def population(self) -> bool:
        """Whether the reference shares are those of the rows, which vary with the sample."""
        return isinstance(self.reference, str) and self.reference == "population"

    @property
    def complete(self) -> bool:
        """Whether every row's group has a reference share."""
        return bool(np.isin(np.arange(len(self.labels)), self.members).all())

    def indicators(self) -> list[FloatArray]:
        """Return the columns (n, A + 1) to count for each query: the groups, and relevance (0 if it is not known)."""
        hot = one_hot(self.codes, len(self.labels))
        if self.relevant is None:
            return [np.column_stack([hot, np.zeros(self.n)])] * self.table.shape[1]
        return [np.column_stack([hot, column]) for column in self.relevant.T]

    def skews(self, top: Proportions, of_group: Proportions) -> LogRatios:
        """Return log-ratios to the reference, from shares in the top k (q, A) and shares of groups shown (q, A).

        Against the population, p_a/q_a is the share of the group that is shown, divided by k/n. This is a single
        proportion, whose sampling error is known even if none or all of the group is shown.
        """
        if self.population:
            return LogRatios(of_group, np.full(of_group.value.shape, self.k / self.n), True)
        present = self.members >= 0
        value = np.where(present, top.value[:, self.members], 0.0)
        replicates = np.where(present, top.replicates[:, :, self.members], 0.0)
        shape = value.shape
        chosen = Proportions(value, replicates, np.full(shape, float(self.k)), np.zeros(shape, dtype=bool))
        return LogRatios(chosen, np.broadcast_to(self.desired, shape), self.complete)


@dataclass(frozen=True, eq=False)
class Divergences:
    """NDKL or KL (q,) of each query, of random halves (R, q), and with the reference mixed into every share (q,).

    The deviation of the halves from the whole estimates the standard error where the figure is smooth in the rows, and
    over-estimates it in a fair ranking, where the figure falls with the number of rows. The mixture covers rankings
    that show one group only, whose halves are all equal: its share of the reference is the largest that k rows fail to
    show with probability 0.025. No upper end is above ``most``, the largest possible figure.
    """

    value: FloatArray
    halves: FloatArray
    mixed: FloatArray
    most: float

    def __getitem__(self, part: slice) -> Divergences:
        return Divergences(self.value[part], self.halves[:, part], self.mixed[part], self.most)

    def mean(self) -> Divergences:
        """Return the mean over queries (1,)."""
        return Divergences(
            self.value.mean(keepdims=True),
            self.halves.mean(axis=1, keepdims=True),
            self.mixed.mean(keepdims=True),
            self.most,
        )

    def limits(self, confidence: float) -> tuple[FloatArray, FloatArray]:
        """Return low (q,) and high (q,) of the expected figure in galleries of this size."""
        with np.errstate(invalid="ignore"):  # an infinite divergence has no spread
            reach = float(ndtri((1 + confidence) / 2)) * np.sqrt(
                ((self.halves - self.value) ** 2).mean(axis=0)
            )
            low = np.maximum(np.minimum(self.value - reach, self.mixed), 0.0)
            # Divergences are sums of squares to first order, so errors grow with their roots: the end is (√v + r/2√v)².
            beyond = np.divide(reach**2, 4 * self.value, out=np.zeros_like(reach), where=self.value > 0)
            return low, np.maximum(self.value, np.minimum(self.value + reach + beyond, self.most))


@dataclass(frozen=True, eq=False)
class Sample:
    """Counts, shares and figures of one scorer per query, with resampled values."""

    counts: FloatArray
    shares: Proportions
    skews: LogRatios
    ndkl: Divergences
    kl: Divergences
    precision: Proportions | None
    recall: Proportions | None
    pair: Proportions | None
    """Share (q,) of the first of two values among rows of both in the top k: Bias@k is twice this, minus 1."""


def sample_rows(
    gallery: Gallery, scorers: Sequence[Sequence[TopRows]], n_replicates: int, rng: np.random.Generator
) -> list[Sample]:
    """Resample the rows once for all scorers, and return a sample for each; a scorer has a ranking per query."""
    members = gallery.indicators()
    ranked = [ranking for scorer in scorers for ranking in scorer]
    tops, sizes = resampled_counts(ranked, members * len(scorers), gallery.k, n_replicates, rng)
    found = _divergences(gallery, ranked, rng)
    q = len(members)
    parts = [slice(q * i, q * (i + 1)) for i in range(len(scorers))]
    return [
        _sample(gallery, scorers[i], members, (tops[:, part], sizes[:, part]), [d[part] for d in found])
        for i, part in enumerate(parts)
    ]


def _sample(
    gallery: Gallery,
    scorer: Sequence[TopRows],
    members: Sequence[FloatArray],
    resampled: tuple[FloatArray, FloatArray],
    found: Sequence[Divergences],
) -> Sample:
    k, all_shown = gallery.k, gallery.k == gallery.n
    top = np.stack([r.shown(k) @ member for r, member in zip(scorer, members, strict=True)])  # (q, A + 1)
    size = np.stack([member.sum(axis=0) for member in members])
    tops, sizes = resampled
    of_top = Proportions.of(top, np.full(top.shape, float(k)), tops, np.full(tops.shape, float(k)))
    of_group = Proportions.of(top, size, tops, sizes, exact=all_shown)
    known = gallery.relevant is not None
    return Sample(
        counts=top[:, :-1],
        shares=of_top[:, :-1],
        skews=gallery.skews(of_top[:, :-1], of_group[:, :-1]),
        ndkl=found[0],
        kl=found[1],
        precision=of_top[:, -1] if known else None,
        recall=of_group[:, -1] if known else None,
        pair=None if gallery.pair is None else _pair_share(top[:, gallery.pair], tops[:, :, gallery.pair]),
    )


def _pair_share(count: FloatArray, counts: FloatArray) -> Proportions:
    """Return the share (q,) of the first of two values, from counts (q, 2) and resampled counts (B, q, 2)."""
    size, sizes = count.sum(axis=-1), counts.sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.where(size > 0, count[:, 0] / size, 0.5)
        replicates = np.where(sizes > 0, counts[..., 0] / sizes, value)
    return Proportions(value, replicates, size, np.zeros(size.shape, dtype=bool))


def _divergences(gallery: Gallery, ranked: Sequence[TopRows], rng: np.random.Generator) -> list[Divergences]:
    """Compute NDKL and KL of each ranking, and of the same random halves for all.

    Halves are drawn without replacement and cut at k/2.
    """
    n, k = gallery.n, gallery.k
    hot, all_rows = one_hot(gallery.codes, len(gallery.labels)), np.ones(n, dtype=bool)
    unseen = 1 - 0.025 ** (1 / k)
    value, mixed = (
        np.array([_ndkl_and_kl(gallery, ranking, hot, all_rows, k, share) for ranking in ranked])
        for share in (0.0, unseen)
    )  # (q, 2)
    half = max(1, n // 2)
    halves = np.empty((HALF_SAMPLES, len(ranked), 2))
    for replicate in halves:
        kept = np.zeros(n, dtype=bool)
        kept[rng.permutation(n)[:half]] = True
        cut = max(1, round(k * half / n))
        replicate[:] = [_ndkl_and_kl(gallery, ranking, hot, kept, cut) for ranking in ranked]
    # KL is largest if the smallest group alone is shown; the upper end of a value near 0 may be far above.
    limits = (np.inf, float(-np.log(gallery.desired.min())) if gallery.complete else np.inf)
    return [Divergences(value[:, i], halves[:, :, i], mixed[:, i], most) for i, most in enumerate(limits)]


def _ndkl_and_kl(
    gallery: Gallery,
    ranking: TopRows,
    hot: FloatArray,
    kept: NDArray[np.bool_],
    k: int,
    mixed: float = 0.0,
) -> tuple[float, float]:
    """Compute NDKL up to k, and KL at k, of the rows ``kept`` (n,), with groups as columns of ``hot`` (n, A)."""
    members, desired = gallery.members, gallery.desired
    if gallery.population:
        desired = (hot.T @ kept)[members] / kept.sum()
    cuts = np.arange(1, k + 1)
    counts = ranking.among(kept).prefix_counts(hot, cuts)
    shares = np.where(members >= 0, counts[:, members], 0.0) / cuts[:, None]
    of_prefixes = divergences((1 - mixed) * shares + mixed * desired, desired)
    return discounted(of_prefixes, cuts.astype(np.float64)), float(max(0.0, of_prefixes[-1]))


def _zipped(*columns: FloatArray) -> list[Interval]:
    return [(float(v), float(a), float(b)) for v, a, b in zip(*columns, strict=True)]


def intervals_of(proportions: Proportions, confidence: float) -> list[Interval]:
    """Return value and interval of each proportion (q,); NaN if it has no rows."""
    low, high = proportions.limits(float(ndtri((1 + confidence) / 2)), shift=0.5)
    return _zipped(*(np.where(proportions.size > 0, x, np.nan) for x in (proportions.value, low, high)))


def figures_of(sample: Sample, confidence: float) -> tuple[dict[str, list[Interval]], dict[str, Interval]]:
    """Return value and interval of each figure per query, and of the mean over queries."""
    each: dict[str, list[Interval]] = {}
    mean: dict[str, Interval] = {}
    for name, sign in EXTREMES:
        value = sample.skews.extreme(sign)
        each[name] = _zipped(value, *extreme(sample.skews, sign, confidence))
        mean[name] = (float(value.mean()), *mean_extreme(sample.skews, sign, confidence))
    for name in DIVERGENCES:
        found = getattr(sample, name)
        each[name] = _zipped(found.value, *found.limits(confidence))
        mean[name] = _zipped(found.mean().value, *found.mean().limits(confidence))[0]
    for name, proportions in (("precision", sample.precision), ("recall", sample.recall)):
        if proportions is not None:
            each[name] = intervals_of(proportions, confidence)
            mean[name] = intervals_of(proportions.mean(), confidence)[0]
    if sample.pair is not None:
        each["bias"] = _zipped(*_bias(sample.pair, confidence))
        mean["bias"] = _zipped(*_mean_bias(sample.pair, confidence))[0]
    return each, mean


def _bias(pair: Proportions, confidence: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return Bias@k (q,), low and high; −1 and 1 where neither value is shown."""
    low, high = pair.limits(float(ndtri((1 + confidence) / 2)), shift=0.5)
    shown = pair.size > 0
    return 2 * pair.value - 1, np.where(shown, 2 * low - 1, -1.0), np.where(shown, 2 * high - 1, 1.0)


def _mean_bias(pair: Proportions, confidence: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the mean Bias@k (1,) over all queries, low and high; a query that shows neither value adds −1 and 1."""
    shown = float((pair.size > 0).mean())
    value, low, high = _bias(pair.mean(), confidence)
    return shown * value, shown * low - (1 - shown), shown * high + (1 - shown)


def _bias_changes(
    before: Proportions, after: Proportions, confidence: float
) -> tuple[list[Interval], Interval]:
    """Return difference and paired interval of Bias@k of each query, and of the mean."""
    found = []
    for bias, single in ((_bias, True), (_mean_bias, False)):
        first, second = bias(before, confidence), bias(after, confidence)
        drawn = [
            p.replicates if single else p.replicates.mean(axis=1, keepdims=True) for p in (before, after)
        ]
        limits = difference_limits(first, second, correlation(drawn[0], drawn[1]))
        found.append(_zipped(second[0] - first[0], *(np.clip(limit, -2.0, 2.0) for limit in limits)))
    return found[0], found[1][0]


def changes_of(
    before: Sample, after: Sample, same: NDArray[np.bool_], confidence: float
) -> tuple[dict[str, list[Interval]], dict[str, Interval]]:
    """Return difference and paired interval of each figure per query and of the mean; 0 where scores are the same."""
    each: dict[str, list[Interval]] = {}
    mean: dict[str, Interval] = {}
    for name, sign in EXTREMES:
        change = ExtremeChange(before.skews, after.skews, sign, confidence)
        each[name] = _zipped(change.value, *change.each())
        mean[name] = change.mean()
    for name in DIVERGENCES:
        first, second = getattr(before, name), getattr(after, name)
        each[name] = _divergence_change(first, second, confidence)
        mean[name] = _divergence_change(first.mean(), second.mean(), confidence)[0]
    for name in ("precision", "recall"):
        first, second = getattr(before, name), getattr(after, name)
        if first is not None:
            each[name] = _proportion_change(first, second, confidence)
            mean[name] = _proportion_change(first.mean(), second.mean(), confidence)[0]
    if before.pair is not None and after.pair is not None:
        each["bias"], mean["bias"] = _bias_changes(before.pair, after.pair, confidence)
    unchanged = (0.0, 0.0, 0.0)
    for name, intervals in each.items():
        each[name] = [unchanged if equal else x for equal, x in zip(same, intervals, strict=True)]
    return each, dict.fromkeys(mean, unchanged) if same.all() else mean


def clear_changes(
    before: Sample, after: Sample, same: NDArray[np.bool_], confidence: float
) -> tuple[bool, ...]:
    """Return whether the change of MaxSkew of each query differs from 0, for all queries together (Bonferroni)."""
    change = ExtremeChange(before.skews, after.skews, 1, per_side(confidence, len(same)))
    low, high = change.each()
    with np.errstate(invalid="ignore"):  # NaN, an unknown limit, is not a clear change
        return tuple((~same & ((low > 0) | (high < 0))).tolist())


def _divergence_change(before: Divergences, after: Divergences, confidence: float) -> list[Interval]:
    first, second = ((d.value, *d.limits(confidence)) for d in (before, after))
    with np.errstate(invalid="ignore"):  # infinite before and after: the difference is not known
        limits = difference_limits(first, second, correlation(before.halves, after.halves))
        return _zipped(after.value - before.value, *limits)


def _proportion_change(before: Proportions, after: Proportions, confidence: float) -> list[Interval]:
    h = float(ndtri((1 + confidence) / 2))
    first, second = ((p.value, *p.limits(h, shift=0.5)) for p in (before, after))
    limits = difference_limits(first, second, correlation(before.replicates, after.replicates))
    has_rows = before.size > 0
    return _zipped(*(np.where(has_rows, x, np.nan) for x in (after.value - before.value, *limits)))
