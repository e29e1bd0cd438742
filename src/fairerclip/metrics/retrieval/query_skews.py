"""MaxSkew of many queries with intervals, before and after a change of scores, without the slower figures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fairerclip._util.checks import check_confidence
from fairerclip.errors import ShapeError
from fairerclip.features.feature_map import RandomState
from fairerclip.metrics.intervals import Estimate, PairedEstimate, per_side
from fairerclip.metrics.label_codes import FloatArray, check_replicates, matrix
from fairerclip.metrics.retrieval.extremes import ExtremeChange, LogRatios, Proportions, extreme
from fairerclip.metrics.retrieval.gallery import Gallery
from fairerclip.metrics.retrieval.skew import Reference, one_hot
from fairerclip.metrics.retrieval.top_rows import TopRows, as_generator, rankings, resampled_counts


@dataclass(frozen=True)
class QuerySkews:
    """MaxSkew@k of several queries on one gallery; made by `query_skews`.

    Attributes
    ----------
    k, n : int
        The cut and the number of rows.
    groups : tuple
        Labels of the groups.
    shares : tuple of float
        Share of each group in all rows.
    counts_before, counts_after : array of shape (q, A), after None without a change
        Expected number of rows of each group in the top k.
    before, after : tuple of Estimate, after None without a change
        MaxSkew of each query.
    changes : tuple of PairedEstimate, or None
        Changes with paired intervals; 0 without error where the scores did not change.
    clear : tuple of bool, or None
        Whether a change differs from 0 at the level for all queries together.
    kept : array of shape (q,) or None
        Share of the top k before that is in the top k after.
    """

    k: int
    n: int
    groups: tuple[Any, ...]
    shares: tuple[float, ...]
    counts_before: FloatArray
    before: tuple[Estimate, ...]
    counts_after: FloatArray | None = None
    after: tuple[Estimate, ...] | None = None
    changes: tuple[PairedEstimate, ...] | None = None
    clear: tuple[bool, ...] | None = None
    kept: FloatArray | None = None


def query_skews(
    before_scores: ArrayLike,
    after_scores: ArrayLike | None,
    groups: Any,
    k: int,
    *,
    reference: Reference = "population",
    confidence: float = 0.95,
    n_replicates: int = 300,
    random_state: RandomState = None,
) -> QuerySkews:
    """Compute MaxSkew@k of each query before and, if there are other scores, after, with paired intervals.

    Values, and intervals with as many replicates, are those of `retrieval_changes`, which is several times slower
    because it has NDKL and intervals of rank correlations, too. O(B·(n + q·c·A) + q·n log n) time for q queries, A
    groups and c rows near the cut. See docs/math.md#retrieval-intervals.

    Parameters
    ----------
    before_scores, after_scores : array of shape (n,) or (n, q), after may be None
        Higher scores rank first; one column per query. Ties count by their expectation.
    groups, k, reference, confidence, n_replicates, random_state
        As in `retrieval_report`.

    Examples
    --------
    >>> before, after, groups = [9, 8, 7, 6, 5, 4, 3, 2], [9, 3, 7, 6, 5, 8, 4, 2], list("fffmfmmm")
    >>> found = query_skews(before, after, groups, k=4, random_state=0)
    >>> round(found.changes[0].difference, 3), float(found.kept[0])
    (-0.405, 0.75)
    """
    tables = _tables(before_scores, after_scores)
    gallery = Gallery.read(tables[0], groups, k, None, reference)
    check_confidence(confidence)
    check_replicates(n_replicates)
    ranked = [rankings(table, "expected", None) for table in tables]
    shown = [np.stack([ranking.shown(gallery.k) for ranking in scorer]) for scorer in ranked]  # (q, n)
    hot = one_hot(gallery.codes, len(gallery.labels))
    counts = [rows @ hot for rows in shown]
    skews = _resampled(gallery, ranked, counts, hot, n_replicates, as_generator(random_state))
    estimates = [_estimates(ratios, confidence) for ratios in skews]
    shares = tuple((np.bincount(gallery.codes) / gallery.n).tolist())
    found = QuerySkews(gallery.k, gallery.n, tuple(gallery.labels), shares, counts[0], estimates[0])
    if after_scores is None:
        return found
    same = (tables[0] == tables[1]).all(axis=0)
    return replace(
        found,
        counts_after=counts[1],
        after=estimates[1],
        changes=_changes(skews, estimates, same, confidence),
        clear=_clear(skews, same, confidence),
        kept=(shown[0] * shown[1]).sum(axis=1) / gallery.k,
    )


def _tables(before: ArrayLike, after: ArrayLike | None) -> list[FloatArray]:
    """Return the scores (n, q) before and, if there are any, after."""
    tables = [matrix(before, "before_scores")]
    if after is not None:
        tables.append(matrix(after, "after_scores"))
        if tables[0].shape != tables[1].shape:
            raise ShapeError(
                f"before_scores and after_scores must have the same shape; got {tables[0].shape} and {tables[1].shape}"
            )
    return tables


def _resampled(
    gallery: Gallery,
    ranked: list[list[TopRows]],
    counts: list[FloatArray],
    hot: FloatArray,
    n_replicates: int,
    rng: np.random.Generator,
) -> list[LogRatios]:
    """Return the log-ratios of each scorer; all rankings use the same resampled galleries."""
    every, q = [ranking for scorer in ranked for ranking in scorer], len(ranked[0])
    tops, sizes = resampled_counts(every, [hot] * len(every), gallery.k, n_replicates, rng)
    parts = [slice(q * i, q * (i + 1)) for i in range(len(ranked))]
    return [
        _log_ratios(gallery, counts[i], hot, (tops[:, part], sizes[:, part])) for i, part in enumerate(parts)
    ]


def _log_ratios(
    gallery: Gallery, counts: FloatArray, hot: FloatArray, resampled: tuple[FloatArray, FloatArray]
) -> LogRatios:
    tops, sizes = resampled
    k = float(gallery.k)
    size = np.broadcast_to(hot.sum(axis=0), counts.shape)
    of_top = Proportions.of(counts, np.full(counts.shape, k), tops, np.full(tops.shape, k))
    of_group = Proportions.of(counts, size, tops, sizes, exact=gallery.k == gallery.n)
    return gallery.skews(of_top, of_group)


def _estimates(ratios: LogRatios, confidence: float) -> tuple[Estimate, ...]:
    columns = (ratios.extreme(1), *extreme(ratios, 1, confidence))
    return tuple(Estimate(float(v), float(a), float(b)) for v, a, b in zip(*columns, strict=True))


def _changes(
    skews: list[LogRatios], estimates: list[tuple[Estimate, ...]], same: Any, confidence: float
) -> tuple[PairedEstimate, ...]:
    change = ExtremeChange(skews[0], skews[1], 1, confidence)
    low, high = change.each()
    ends = np.where(same[:, None], 0.0, np.column_stack([change.value, low, high]))
    return tuple(
        PairedEstimate(b.value, a.value, *map(float, row)) for b, a, row in zip(*estimates, ends, strict=True)
    )


def _clear(skews: list[LogRatios], same: Any, confidence: float) -> tuple[bool, ...]:
    low, high = ExtremeChange(skews[0], skews[1], 1, per_side(confidence, len(same))).each()
    with np.errstate(invalid="ignore"):  # NaN, an unknown limit, is not a clear change
        return tuple((~same & ((low > 0) | (high < 0))).tolist())
