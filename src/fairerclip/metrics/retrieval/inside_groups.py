"""Figures of rankings inside groups: rank correlation of two scores, and average precision."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata

from fairerclip.errors import ShapeError
from fairerclip.metrics.label_codes import FloatArray, encode, matrix, same_length
from fairerclip.metrics.retrieval.rank_quality import relevance

FEW_ROWS = 2
"""Groups of at most this many rows have no rank correlation."""


def correlation_inside_groups(before: ArrayLike, after: ArrayLike, groups: Any) -> FloatArray:
    """Compute Spearman's rank correlation (q, g) of two scores (n, q) inside each of the g groups, sorted by label.

    NaN for a group of one or two rows, and where all rows of a group tie. Equal scores have their mean rank.
    O(q·n log n) time.

    Examples
    --------
    >>> correlation_inside_groups([3, 2, 1, 3, 2, 1], [3, 2, 1, 1, 2, 3], ["a", "a", "a", "b", "b", "b"])
    array([[ 1., -1.]])
    """
    first, second = matrix(before, "before"), matrix(after, "after")
    codes, labels = encode(groups, "groups")
    same_length(before=first, after=second, groups=codes)
    if first.shape != second.shape:
        raise ShapeError(f"before and after must have the same shape; got {first.shape} and {second.shape}")
    out = np.full((first.shape[1], len(labels)), np.nan)
    for code in range(len(labels)):
        rows = codes == code
        if rows.sum() <= FEW_ROWS:
            continue
        x, y = (_centred_ranks(table[rows]) for table in (first, second))
        scale = np.sqrt((x**2).sum(axis=0) * (y**2).sum(axis=0))
        np.divide((x * y).sum(axis=0), scale, out=out[:, code], where=scale > 0)
    return np.asarray(np.clip(out, -1.0, 1.0))


def _centred_ranks(table: FloatArray) -> FloatArray:
    ranks = rankdata(table, axis=0)
    return np.asarray(ranks - ranks.mean(axis=0))


def average_precision(scores: ArrayLike, relevant: Any, groups: Any = None) -> float | FloatArray:
    """Compute the average precision of rankings: the mean over relevant rows of the precision at their rank.

    Rows of equal score count as found together, as in scikit-learn. O(q·n log n) time.

    Parameters
    ----------
    scores : array of shape (n,) or (n, q)
        Higher scores rank first; one column per query.
    relevant : bool array of shape (n,) or (n, q)
        Whether a row is a right answer.
    groups : label array of shape (n,), optional
        Rank inside each group.

    Returns
    -------
    float or array
        One value, or (q,) for 2-D scores; with groups (g,) or (q, g), sorted by label. NaN without a relevant row.

    Examples
    --------
    >>> round(average_precision([3, 2, 1], [True, False, True]), 4)
    0.8333
    """
    table = matrix(scores, "scores")
    known = relevance(relevant, table)
    if groups is None:
        values = np.array([_one(s, r) for s, r in zip(table.T, known.T, strict=True)])
        return float(values[0]) if np.ndim(scores) == 1 else values
    codes, labels = encode(groups, "groups")
    same_length(scores=table, groups=codes)
    inside = np.array(
        [
            [_one(s[codes == code], r[codes == code]) for code in range(len(labels))]
            for s, r in zip(table.T, known.T, strict=True)
        ]
    )
    return inside[0] if np.ndim(scores) == 1 else inside


def _one(scores: FloatArray, relevant: Any) -> float:
    if not relevant.any():
        return float("nan")
    order = np.argsort(-scores, kind="stable")
    ordered, hits = scores[order], np.cumsum(relevant[order])
    last = np.flatnonzero(
        np.append(np.diff(ordered) != 0, True)
    )  # the last row of each group of equal scores
    found = np.diff(np.append(0, hits[last]))
    return float((found * hits[last] / (last + 1)).sum() / hits[-1])
