"""Quality of a ranking (precision and recall at k), and its drift from another ranking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from fairerclip._util.checks import check_confidence
from fairerclip.errors import LabelError, ShapeError
from fairerclip.features.feature_map import RandomState
from fairerclip.metrics.intervals import Estimate
from fairerclip.metrics.label_codes import (
    FloatArray,
    IntArray,
    as_labels,
    check_replicates,
    encode,
    matrix,
    same_length,
)
from fairerclip.metrics.retrieval.extremes import Proportions
from fairerclip.metrics.retrieval.top_rows import TopRows, as_generator, checked_cut, rankings, row_weights

_EXACT_ONE = 1 - 1e-12


def relevance(relevant: Any, table: FloatArray) -> NDArray[np.bool_]:
    """Return ``relevant`` as booleans (n, q) for scores (n, q); one column serves all queries."""
    array = as_labels(relevant, "relevant")
    same_length(scores=table, relevant=array)
    columns = array[:, None] if array.ndim == 1 else array
    if columns.shape[1] not in (1, table.shape[1]):
        raise ShapeError(
            f"relevant must have one column or one per query ({table.shape[1]}); got {columns.shape[1]}"
        )
    if columns.dtype.kind != "b":
        invalid = [value for value in columns.ravel().tolist() if value not in (0, 1)]
        if invalid:
            raise LabelError(f"relevant must hold True and False (or 1 and 0); got {invalid[0]!r}")
    return np.broadcast_to(columns.astype(bool), table.shape)


def _hits(
    scores: ArrayLike, relevant: Any, k: int, ties: str, random_state: RandomState
) -> tuple[FloatArray, FloatArray, int]:
    """Return the expected number of relevant rows (q,) in the top k, in all rows (q,), and k."""
    table = matrix(scores, "scores")
    cut = checked_cut(k, len(table))
    known = relevance(relevant, table)
    ranked = rankings(table, ties, random_state)
    hits = np.array([r.shown(cut) @ column for r, column in zip(ranked, known.T, strict=True)])
    return hits, known.sum(axis=0).astype(np.float64), cut


def precision_at_k(
    scores: ArrayLike, relevant: Any, k: int, *, ties: str = "expected", random_state: RandomState = None
) -> float | FloatArray:
    """Compute the share of the top k that is relevant; O(q·n log n) time.

    Parameters
    ----------
    scores, k, ties, random_state
        As in `max_skew`.
    relevant : bool array of shape (n,) or (n, q)
        Whether a row is relevant to a query; one column serves all queries.

    Returns
    -------
    float or array of shape (q,)
        One value per query; an array for 2-D scores.

    Examples
    --------
    >>> precision_at_k([4, 3, 2, 2], [True, False, True, False], k=3)  # half of the tie is relevant
    0.5
    """
    hits, _, cut = _hits(scores, relevant, k, ties, random_state)
    return float(hits[0] / cut) if np.ndim(scores) == 1 else hits / cut


def recall_at_k(
    scores: ArrayLike, relevant: Any, k: int, *, ties: str = "expected", random_state: RandomState = None
) -> float | FloatArray:
    """Compute the share of the relevant rows that is in the top k; NaN if no row is relevant. O(q·n log n) time.

    Parameters
    ----------
    scores, relevant, k, ties, random_state
        As in `precision_at_k`.

    Returns
    -------
    float or array of shape (q,)
        One value per query; an array for 2-D scores.

    Examples
    --------
    >>> recall_at_k([4, 3, 2, 2], [True, False, True, False], k=3)
    0.75
    """
    hits, total, _ = _hits(scores, relevant, k, ties, random_state)
    values = np.divide(hits, total, out=np.full(hits.shape, np.nan), where=total > 0)
    return float(values[0]) if np.ndim(scores) == 1 else values


@dataclass(frozen=True)
class GroupDrift:
    """Spearman correlation of two rankings inside one group of n rows."""

    group: Any
    n: int
    spearman: Estimate


@dataclass(frozen=True)
class RankingDrift:
    """How far a ranking is from the original one; made by `ranking_drift`."""

    spearman: Estimate
    """Rank correlation over all rows; 1 is the same ranking."""
    groups: tuple[GroupDrift, ...]
    """Rank correlation inside each group of at least 3 rows that are not all tied."""
    spearman_within: Estimate | None
    """Plain mean over groups. A mitigation has to reorder rows of different groups; reordering inside groups is a
    side effect."""
    overlap: Estimate | None
    """Share of the top k that is kept; with ties its expectation over independent random orders."""

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready copy without the single groups; values that are not finite become None."""
        figures = {name: getattr(self, name) for name in ("spearman", "spearman_within", "overlap")}
        return {name: None if figure is None else figure.as_dict() for name, figure in figures.items()}


def ranking_drift(
    before: ArrayLike,
    after: ArrayLike,
    groups: Any = None,
    k: int | None = None,
    *,
    ties: str = "expected",
    confidence: float = 0.95,
    n_replicates: int = 300,
    random_state: RandomState = None,
) -> RankingDrift | tuple[RankingDrift, ...]:
    """Compute how far a ranking moved: rank correlation over all rows and inside groups, and overlap of the top k.

    O(q·(n log n + B·n)) time. Intervals come from resampled rows, for correlations on Fisher's scale. Two equal
    rankings have a correlation of 1 with an interval of width 0.

    Parameters
    ----------
    before, after : array of shape (n,) or (n, q)
        Scores of the same rows; higher scores rank first.
    groups : label array of shape (n,) or (n, m), optional
        Needed for the correlation inside groups. Several columns are intersected.
    k : int, optional
        Needed for the overlap.
    ties : {"expected", "score", "random"}, default="expected"
        As in `max_skew`; "expected" gives equal scores their mean rank.
    confidence : float, default=0.95
        Confidence of the intervals.
    n_replicates : int, default=300
        Number B of resampled galleries for standard errors.
    random_state : None, int, RandomState or Generator
        Draws "random" ties, then the resampled rows.

    Returns
    -------
    RankingDrift or tuple of RankingDrift
        A tuple with one per query for 2-D scores.

    Examples
    --------
    >>> drift = ranking_drift([5, 4, 3, 2, 1, 0], [5, 3, 4, 2, 1, 0], k=2, random_state=0)
    >>> round(drift.spearman.value, 3), drift.overlap.value
    (0.943, 0.5)
    """
    tables = matrix(before, "before"), matrix(after, "after")
    if tables[0].shape != tables[1].shape:
        raise ShapeError(
            f"before and after must have the same shape; got {tables[0].shape} and {tables[1].shape}"
        )
    check_confidence(confidence)
    check_replicates(n_replicates)
    cut = checked_cut(k, len(tables[0]))
    coded = None if groups is None else encode(groups, "groups")
    if coded is not None:
        same_length(before=tables[0], groups=coded[0])
    rng = as_generator(random_state)
    ranked = [rankings(table, ties, rng) for table in tables]
    drifts = drift_of_queries(ranked, coded, None if k is None else cut, confidence, rng, n_replicates)
    return drifts[0] if np.ndim(before) == 1 else drifts


def drift_of_queries(
    ranked: Sequence[Sequence[TopRows]],
    coded: tuple[IntArray, list[Any]] | None,
    k: int | None,
    confidence: float,
    rng: np.random.Generator,
    n_replicates: int = 300,
) -> tuple[RankingDrift, ...]:
    """Compute `ranking_drift` for the rankings before and after of each query, on the same resampled rows."""
    n = ranked[0][0].order.size
    parts = [np.arange(n)]
    if coded is not None:
        parts += [np.flatnonzero(coded[0] == code) for code in range(len(coded[1]))]
    pairs = list(zip(ranked[0], ranked[1], strict=True))
    inner = [[[side.renumbered(part) for side in pair] for part in parts] for pair in pairs]
    ones = np.ones((1, n))
    values = np.array(
        [[_spearman(ones[:, r], *two)[0] for r, two in zip(parts, i, strict=True)] for i in inner]
    )
    replicates = np.empty((n_replicates, len(pairs), len(parts)))
    kept = np.empty((n_replicates, len(pairs)))
    start = 0
    for weights in row_weights(n, n_replicates, rng):
        block = slice(start, start + len(weights))
        start += len(weights)
        for q, pair in enumerate(pairs):
            for p, (rows, two) in enumerate(zip(parts, inner[q], strict=True)):
                replicates[block, q, p] = _spearman(weights[:, rows], *two)
            if k is not None:
                kept[block, q] = _kept(weights, *pair, k) / k
    return tuple(
        _drift(pair, parts, values[q], replicates[:, q], kept[:, q], (k, confidence, coded))
        for q, pair in enumerate(pairs)
    )


def _drift(
    pair: tuple[TopRows, TopRows],
    parts: Sequence[IntArray],
    values: FloatArray,
    replicates: FloatArray,
    kept: FloatArray,
    settings: tuple[int | None, float, tuple[IntArray, list[Any]] | None],
) -> RankingDrift:
    k, confidence, coded = settings
    defined = np.isfinite(values[1:]) & np.array([len(part) > 2 for part in parts[1:]], dtype=bool)
    within = None
    if defined.any():
        inside = np.nanmean(replicates[:, 1:][:, defined], axis=1)
        within = _on_fishers_scale(float(values[1:][defined].mean()), inside, confidence)
    overlap = None
    if k is not None:
        shared = np.array([pair[0].shown(k) @ pair[1].shown(k) / k])
        of_top = Proportions(shared, kept[:, None], np.array([float(k)]), np.array([k == len(parts[0])]))
        low, high = of_top.limits(float(ndtri((1 + confidence) / 2)), shift=0.5)
        overlap = Estimate(float(shared[0]), float(low[0]), float(high[0]))
    labels = [] if coded is None else coded[1]
    groups = tuple(
        GroupDrift(label, len(part), _on_fishers_scale(float(value), column, confidence))
        for label, part, value, column, known in zip(
            labels, parts[1:], values[1:], replicates[:, 1:].T, defined, strict=True
        )
        if known
    )
    return RankingDrift(
        _on_fishers_scale(float(values[0]), replicates[:, 0], confidence), groups, within, overlap
    )


def _on_fishers_scale(value: float, replicates: FloatArray, confidence: float) -> Estimate:
    """Compute the interval of a correlation, symmetric in its inverse hyperbolic tangent."""
    known = replicates[np.isfinite(replicates)]
    if not np.isfinite(value) or known.size < 2:
        return Estimate(value, float("nan"), float("nan"))
    if abs(value) > _EXACT_ONE and np.abs(known - value).max() < 1e-9:
        return Estimate(value, value, value)
    centre = np.arctanh(np.clip(value, -_EXACT_ONE, _EXACT_ONE))
    spread = np.arctanh(np.clip(known, -_EXACT_ONE, _EXACT_ONE)).std()
    reach = float(ndtri((1 + confidence) / 2)) * spread
    return Estimate(value, float(np.tanh(centre - reach)), float(np.tanh(centre + reach)))


def _spearman(weights: FloatArray, first: TopRows, second: TopRows) -> FloatArray:
    """Compute the rank correlation (b,) of rows that count ``weights`` (b, n) times; NaN if all are tied."""
    middle = weights.sum(axis=1, keepdims=True) / 2
    x, y = first.mid_ranks(weights) - middle, second.mid_ranks(weights) - middle
    cross, xx, yy = (np.einsum("bi,bi,bi->b", weights, a, b) for a, b in ((x, y), (x, x), (y, y)))
    scale = np.sqrt(xx * yy)
    correlation = np.divide(cross, scale, out=np.full(scale.shape, np.nan), where=scale > 0)
    return np.asarray(np.clip(correlation, -1.0, 1.0))


def _kept(weights: FloatArray, first: TopRows, second: TopRows, k: int) -> FloatArray:
    """Count rows (b,) in the top k of both rankings, in galleries that hold rows ``weights`` (b, n) times."""
    rows, shown = second.resampled(weights, k)
    in_second = np.zeros_like(weights)
    in_second[:, rows] = np.divide(shown, weights[:, rows], out=np.zeros_like(shown), where=shown > 0)
    rows, shown = first.resampled(weights, k)
    return np.asarray(np.einsum("bi,bi->b", shown, in_second[:, rows]))
