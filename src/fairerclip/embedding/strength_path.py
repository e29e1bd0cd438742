"""Skew and utility of rankings at every strength of a mitigator, and the choice of a strength."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.arrays import beside, to_numpy
from fairerclip._util.checks import check_choice, check_confidence, check_interval
from fairerclip._util.numbers import number
from fairerclip._util.types import F64
from fairerclip.data.embedding_rows import UnitRows
from fairerclip.data.row_pass import fill_rows
from fairerclip.errors import LabelError, ParameterError
from fairerclip.inputs.sensitive_columns import encode_groups
from fairerclip.metrics.retrieval.inside_groups import FEW_ROWS, correlation_inside_groups
from fairerclip.metrics.retrieval.skew import max_skew
from fairerclip.metrics.retrieval.top_rows import checked_cut, default_cut

if TYPE_CHECKING:
    from fairerclip.embedding.mitigator import EmbeddingMitigator

STRENGTHS = (0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.93, 0.98, 1.0)
LOW_SHARE = 0.05
"""Quantile of the rank correlations over queries and groups that is reported beside their mean."""
REPLICATES = 1000


@dataclass(frozen=True, eq=False)
class StrengthPoint:
    """Figures of the rankings at one strength.

    Attributes
    ----------
    strength : float
        Strength of the mitigation.
    skews : array of shape (q,)
        MaxSkew@k of each query.
    correlations : array of shape (q, g)
        Rank correlation with the original scores inside each group, for each query; NaN for groups of 1 or 2 rows.
    max_skew, rank_correlation : tuple of three floats
        Mean over queries with an interval from resampled queries.
    low_correlation : float
        5th percentile of the rank correlations over queries and groups.
    """

    strength: float
    skews: F64
    correlations: F64
    max_skew: tuple[float, float, float]
    rank_correlation: tuple[float, float, float]
    low_correlation: float

    def as_dict(self) -> dict[str, Any]:
        """Return the figures over all queries, ready for JSON."""
        return {
            "strength": self.strength,
            "max_skew": list(self.max_skew),
            "rank_correlation": list(self.rank_correlation),
            "low_correlation": self.low_correlation,
        }


@dataclass(frozen=True, eq=False)
class StrengthPath:
    """Figures of rankings at every strength; intervals are over queries.

    Attributes
    ----------
    points : tuple of StrengthPoint
        One per strength, ascending.
    k : int
        Number of results of a search.
    rows : int
        Number of rows of the gallery with a known group.
    """

    points: tuple[StrengthPoint, ...]
    k: int
    rows: int

    def best(self, objective: str = "max_skew", *, floor: float = 0.0) -> StrengthPoint:
        """Return the point with the smallest mean MaxSkew whose mean rank correlation is at least ``floor``.

        Where no strength above 0 reaches the floor, that is an error, because 0 changes nothing.
        """
        check_choice("objective", objective, ("max_skew",))
        check_interval("floor", floor, -1, 1, "[]")
        allowed = [p for p in self.points if p.rank_correlation[0] >= floor]
        if not any(p.strength > 0 for p in allowed):
            most = max((p.rank_correlation[0] for p in self.points if p.strength > 0), default=float("nan"))
            raise ParameterError(
                f"no strength above 0 has a rank correlation of at least {number(floor)} inside groups; the largest is "
                f"{number(most)}: lower the floor"
            )
        return min(allowed, key=lambda p: (p.max_skew[0], p.strength))


def solve_strengths(
    model: EmbeddingMitigator,
    X: Any,
    Q: F64,
    groups: Any,
    *,
    strengths: Any,
    k: int | None,
    confidence: float,
    progress: Callable[[int, int], None] | None,
) -> StrengthPath:
    """Measure the rankings of rows X (n, p) by unit queries Q (q, p) at every strength."""
    check_confidence(confidence)
    values = _checked(strengths)
    encoded = encode_groups(groups, model.missing_label, kind="categorical")
    known = np.flatnonzero(~encoded.missing)
    if len(encoded.codes) != X.shape[0] or not len(known):
        raise LabelError(
            f"groups must have a value for each of the {X.shape[0]} rows, with at least one known; got "
            f"{len(encoded.codes)} with {len(known)} known"
        )
    codes = encoded.codes[known]
    if np.bincount(codes).max() <= FEW_ROWS:
        raise LabelError(
            f"no group has more than {FEW_ROWS} rows, so there is no order inside groups to compare; give more rows"
        )
    cut = default_cut(len(known)) if k is None else checked_cut(k, len(known))
    rows = UnitRows(X)[known]
    original = to_numpy(rows @ beside(rows, Q.T, rows.dtype)).astype(np.float64, copy=False)
    points = []
    for done, strength in enumerate(values, 1):
        scores = _scores(model.at(strength), rows, Q)
        points.append(_point(strength, original, scores, codes, cut, confidence))
        if progress is not None:
            progress(done, len(values))
    return StrengthPath(tuple(points), cut, len(known))


def _checked(strengths: Any) -> list[float]:
    values = (
        STRENGTHS if strengths is None else np.atleast_1d(np.asarray(strengths, dtype=np.float64)).tolist()
    )
    for value in values:
        check_interval("strengths", value, 0, 1, "[]")
    return sorted(set(map(float, values)))


def _scores(model: EmbeddingMitigator, rows: Any, Q: F64) -> F64:
    function = partial(
        model.fitted_.map.scores, Q, mitigated=np.ones(len(Q), dtype=np.bool_), unit=model.unit
    )
    return fill_rows(rows, function, np.empty((len(rows), len(Q))))


def _point(
    strength: float, original: F64, scores: F64, codes: Any, k: int, confidence: float
) -> StrengthPoint:
    skews = np.asarray(max_skew(scores, codes, k))
    correlations = correlation_inside_groups(original, scores, codes)
    per_query = np.nanmean(correlations, axis=1)
    return StrengthPoint(
        strength,
        skews,
        correlations,
        mean_over_queries(skews, confidence),
        mean_over_queries(per_query, confidence),
        float(np.nanquantile(correlations, LOW_SHARE)),
    )


def mean_over_queries(values: Sequence[float] | F64, confidence: float) -> tuple[float, float, float]:
    """Return the mean of a figure over queries, with an interval from resampled queries (seeded)."""
    array = np.asarray(values, dtype=np.float64)
    means = array[_resampled(len(array))].mean(axis=1)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(array.mean()), float(low), float(high)


def quantile_over_queries(values: F64, share: float, confidence: float) -> tuple[float, float]:
    """Return the interval of a quantile of figures (q, g) by query and group, from resampled queries (seeded)."""
    quantiles = [np.nanquantile(values[drawn], share) for drawn in _resampled(len(values))]
    low, high = np.quantile(quantiles, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _resampled(n: int) -> NDArray[np.int64]:
    """Return n drawn numbers below n in each of `REPLICATES` rows."""
    return np.random.default_rng(0).integers(n, size=(REPLICATES, n))
