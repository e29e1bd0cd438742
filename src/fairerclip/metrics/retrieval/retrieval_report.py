"""Retrieval figures with their intervals, for one scorer and for a change of scorer.

The rows of the gallery are treated as a sample: the top k of n rows represents the top share k/n of all such rows.
See docs/math.md#retrieval-intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fairerclip._util.checks import check_confidence
from fairerclip.errors import ShapeError
from fairerclip.features.feature_map import RandomState
from fairerclip.metrics.intervals import Estimate, PairedEstimate
from fairerclip.metrics.label_codes import check_replicates, matrix
from fairerclip.metrics.retrieval.gallery import (
    FIGURES,
    Gallery,
    Sample,
    changes_of,
    clear_changes,
    figures_of,
    intervals_of,
    sample_rows,
)
from fairerclip.metrics.retrieval.rank_quality import RankingDrift, drift_of_queries
from fairerclip.metrics.retrieval.skew import Reference
from fairerclip.metrics.retrieval.top_rows import as_generator, rankings


@dataclass(frozen=True)
class QueryFigures:
    """Figures of one ranking, or their means over queries.

    Precision and recall are None without relevance, and ``bias`` (Bias@k) without a pair of values.
    """

    max_skew: Estimate
    min_skew: Estimate
    ndkl: Estimate
    precision: Estimate | None
    recall: Estimate | None
    kl: Estimate
    bias: Estimate | None

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready copy; values that are not finite become None."""
        figures = {name: getattr(self, name) for name in FIGURES}
        return {name: None if figure is None else figure.as_dict() for name, figure in figures.items()}


@dataclass(frozen=True)
class RankedGroups:
    """Top k of one query: expected number of rows and share of each group, and the figures."""

    counts: tuple[float, ...]
    shares: tuple[Estimate, ...]
    figures: QueryFigures

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready copy of the counts and the figures."""
        return {"counts": list(self.counts), **self.figures.as_dict()}


@dataclass(frozen=True)
class RetrievalReport:
    """Retrieval figures of several queries on one gallery; made by `retrieval_report`.

    Attributes
    ----------
    k, n : int
        The cut and the number of rows.
    reference, ties : str
        The reference shares and the treatment of equal scores.
    groups : tuple
        Labels of the groups.
    shares : tuple of float
        Share of each group in all rows.
    queries : tuple of RankedGroups
        One per column of scores.
    mean : QueryFigures
        Means over queries.
    pair : tuple of two labels, or None
        The two groups of Bias@k: it is positive if the first is shown more often.
    confidence : float
        Confidence of the intervals.
    """

    k: int
    n: int
    reference: str
    ties: str
    groups: tuple[Any, ...]
    shares: tuple[float, ...]
    queries: tuple[RankedGroups, ...]
    mean: QueryFigures
    pair: tuple[Any, Any] | None
    confidence: float

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready copy with the figures under "before"."""
        queries = [
            {"before": query.as_dict(), "after": None, "changes": None, "drift": None, "clear": None}
            for query in self.queries
        ]
        mean = {"before": self.mean.as_dict(), "after": None, "changes": None}
        return {**_header(self), "queries": queries, "mean": mean}


Changes = Mapping[str, PairedEstimate | None]


@dataclass(frozen=True)
class RetrievalChanges:
    """Retrieval figures before and after, and their paired changes; made by `retrieval_changes`.

    Attributes
    ----------
    before, after : RetrievalReport
        Reports on the same rows.
    changes : tuple of mapping from figure to PairedEstimate
        One mapping per query; precision and recall are None if relevance is not known, and bias without a pair.
    mean_changes : mapping from figure to PairedEstimate
        Changes of the means over queries.
    drift : tuple of RankingDrift
        How far each ranking moved.
    clear : tuple of bool
        Whether the change of MaxSkew of each query differs from 0 at the level for all queries together: of 20
        queries that did not change, one may have a single interval without 0 by chance.
    """

    before: RetrievalReport
    after: RetrievalReport
    changes: tuple[Changes, ...]
    mean_changes: Changes
    drift: tuple[RankingDrift, ...]
    clear: tuple[bool, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready copy; values that are not finite become None."""
        queries = [
            {
                "before": before.as_dict(),
                "after": after.as_dict(),
                "changes": _changes_dict(changes),
                "drift": drift.as_dict(),
                "clear": clear,
            }
            for before, after, changes, drift, clear in zip(
                self.before.queries, self.after.queries, self.changes, self.drift, self.clear, strict=True
            )
        ]
        mean = {
            "before": self.before.mean.as_dict(),
            "after": self.after.mean.as_dict(),
            "changes": _changes_dict(self.mean_changes),
        }
        return {**_header(self.before), "queries": queries, "mean": mean}


def _header(report: RetrievalReport) -> dict[str, Any]:
    return {
        "k": report.k,
        "n": report.n,
        "reference": report.reference,
        "ties": report.ties,
        "groups": _texts(report.groups),
        "shares": list(report.shares),
        "pair": None if report.pair is None else _texts(report.pair),
    }


def _texts(groups: tuple[Any, ...]) -> list[str]:
    return [", ".join(map(str, group)) if isinstance(group, tuple) else str(group) for group in groups]


def _changes_dict(changes: Changes) -> dict[str, Any]:
    figures = {name: changes[name] for name in FIGURES}
    return {name: None if change is None else change.as_dict() for name, change in figures.items()}


def retrieval_report(
    scores: ArrayLike,
    groups: Any,
    k: int,
    *,
    relevant: Any = None,
    reference: Reference = "population",
    pair: tuple[Any, Any] | None = None,
    ties: str = "expected",
    confidence: float = 0.95,
    n_replicates: int = 1000,
    random_state: RandomState = None,
) -> RetrievalReport:
    """Report the shares of groups in the top k, with intervals, for each query and on average over queries.

    O(B·(n + q·c·A) + q·(n log n + 200·n)) time for q queries, A groups and c rows near the cut.
    See docs/math.md#retrieval-intervals.

    Parameters
    ----------
    scores : array of shape (n,) or (n, q)
        Higher scores rank first; one column per query.
    groups : label array of shape (n,) or (n, m)
        Several columns are intersected.
    k : int
        The cut, at most n.
    relevant : bool array of shape (n,) or (n, q), optional
        Whether a row is relevant to a query; needed for precision and recall.
    reference : {"population", "uniform"} or mapping, default="population"
        Reference share of each group, as in `max_skew`.
    pair : tuple of two labels, optional
        The two groups of Bias@k, as in `bias_at_k`; without it Bias@k is None.
    ties : {"expected", "score", "random"}, default="expected"
        Treatment of equal scores, as in `max_skew`.
    confidence : float, default=0.95
        Confidence of each single interval.
    n_replicates : int, default=1000
        Number B of galleries resampled from the rows; each serves all queries.
    random_state : None, int, RandomState or Generator
        Draws "random" ties, then the resampled galleries.

    Returns
    -------
    RetrievalReport
        Intervals of shares, precision and recall have their confidence on average; those of MaxSkew and MinSkew
        are conservative. The intervals of NDKL and KL are for their expectations in galleries of n such rows, which
        are above 0 even for a fair ranking, and the more so the shorter the ranking.

    Examples
    --------
    >>> scores, groups = [9, 8, 7, 6, 5, 4, 3, 2], list("fffmfmmm")
    >>> report = retrieval_report(scores, groups, k=4, random_state=0)
    >>> skew = report.queries[0].figures.max_skew
    >>> round(skew.value, 3), skew.low, report.queries[0].counts
    (0.405, 0.0, (3.0, 1.0))
    """
    gallery = Gallery.read(matrix(scores, "scores"), groups, k, relevant, reference, pair)
    rng = _checked_generator(random_state, confidence, n_replicates)
    ranked = rankings(gallery.table, ties, rng)
    return _report(gallery, sample_rows(gallery, [ranked], n_replicates, rng)[0], ties, confidence)


def retrieval_changes(
    before_scores: ArrayLike,
    after_scores: ArrayLike,
    groups: Any,
    k: int,
    *,
    relevant: Any = None,
    reference: Reference = "population",
    pair: tuple[Any, Any] | None = None,
    ties: str = "expected",
    confidence: float = 0.95,
    n_replicates: int = 1000,
    random_state: RandomState = None,
) -> RetrievalChanges:
    """Report how a change of scores changes the shares of groups in the top k, with paired intervals.

    Both rankings use the same resampled rows. Complexity and intervals are those of `retrieval_report`. If the scores
    of a query did not change at all, its change is 0 without error. See docs/math.md#retrieval-intervals.

    Parameters
    ----------
    before_scores, after_scores : array of shape (n,) or (n, q)
        Higher scores rank first; the same rows and queries in both.
    groups, k, relevant, reference, pair, ties, confidence, n_replicates, random_state
        As in `retrieval_report`.

    Returns
    -------
    RetrievalChanges
        Both reports and the changes.

    Examples
    --------
    >>> before, after, groups = [9, 8, 7, 6, 5, 4, 3, 2], [9, 3, 7, 6, 5, 8, 4, 2], list("fffmfmmm")
    >>> result = retrieval_changes(before, after, groups, k=4, random_state=0)
    >>> change = result.changes[0]["max_skew"]
    >>> round(change.difference, 3), change.low < change.difference < change.high
    (-0.405, True)
    """
    before, after = matrix(before_scores, "before_scores"), matrix(after_scores, "after_scores")
    if before.shape != after.shape:
        raise ShapeError(
            f"before_scores and after_scores must have the same shape; got {before.shape} and {after.shape}"
        )
    gallery = Gallery.read(before, groups, k, relevant, reference, pair)
    rng = _checked_generator(random_state, confidence, n_replicates)
    ranked = [rankings(before, ties, rng), rankings(after, ties, rng)]
    samples = sample_rows(gallery, ranked, n_replicates, rng)
    reports = [_report(gallery, sample, ties, confidence) for sample in samples]
    same = (before == after).all(axis=0)
    each, mean = changes_of(samples[0], samples[1], same, confidence)
    clear = clear_changes(samples[0], samples[1], same, confidence)
    drift = drift_of_queries(ranked, (gallery.codes, gallery.labels), gallery.k, confidence, rng)
    changes = tuple(
        _paired(first.figures, second.figures, {name: intervals[query] for name, intervals in each.items()})
        for query, (first, second) in enumerate(zip(reports[0].queries, reports[1].queries, strict=True))
    )
    means = _paired(reports[0].mean, reports[1].mean, mean)
    return RetrievalChanges(reports[0], reports[1], changes, means, drift, clear)


def _checked_generator(
    random_state: RandomState, confidence: float, n_replicates: int
) -> np.random.Generator:
    """Return the source of random numbers; raise if an option is out of range."""
    check_confidence(confidence)
    check_replicates(n_replicates)
    return as_generator(random_state)


def _figures(intervals: Mapping[str, Any]) -> QueryFigures:
    estimates: dict[str, Any] = {name: Estimate(*interval) for name, interval in intervals.items()}
    return QueryFigures(**{"precision": None, "recall": None, "bias": None, **estimates})


def _report(gallery: Gallery, sample: Sample, ties: str, confidence: float) -> RetrievalReport:
    each, mean = figures_of(sample, confidence)
    queries = tuple(
        RankedGroups(
            tuple(counts.tolist()),
            tuple(Estimate(*share) for share in intervals_of(sample.shares[query], confidence)),
            _figures({name: intervals[query] for name, intervals in each.items()}),
        )
        for query, counts in enumerate(sample.counts)
    )
    return RetrievalReport(
        k=gallery.k,
        n=gallery.n,
        reference=gallery.reference if isinstance(gallery.reference, str) else "given",
        ties=ties,
        groups=tuple(gallery.labels),
        shares=tuple((np.bincount(gallery.codes) / gallery.n).tolist()),
        queries=queries,
        mean=_figures(mean),
        pair=None
        if gallery.pair is None
        else (gallery.labels[gallery.pair[0]], gallery.labels[gallery.pair[1]]),
        confidence=confidence,
    )


def _paired(before: QueryFigures, after: QueryFigures, intervals: Mapping[str, Any]) -> Changes:
    """Pair the figures of one query, or their means, with the interval of the difference."""
    changes: dict[str, PairedEstimate | None] = dict.fromkeys(FIGURES)
    for name, interval in intervals.items():
        changes[name] = PairedEstimate(getattr(before, name).value, getattr(after, name).value, *interval)
    return changes
