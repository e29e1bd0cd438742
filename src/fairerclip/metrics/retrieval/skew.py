"""Skew of the groups at the top of a ranking: MaxSkew, MinSkew and NDKL.

Definitions of Geyik et al. 2019 (arXiv:1905.01989); see docs/math.md#retrieval. Published code uses different
reference shares (population or uniform), cuts k and treatments of ties under the same name, so state all three
next to a figure.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fairerclip._util.checks import check_choice
from fairerclip.errors import LabelError, ParameterError
from fairerclip.features.feature_map import RandomState
from fairerclip.metrics.label_codes import FloatArray, IntArray, encode, matrix, same_length
from fairerclip.metrics.retrieval.top_rows import checked_cut, rankings

Reference = str | Mapping[Any, float]


def reference_shares(reference: Reference, codes: IntArray, labels: list[Any]) -> tuple[IntArray, FloatArray]:
    """Return the codes of groups with a positive reference share (-1: not in the gallery), and the shares."""
    if isinstance(reference, Mapping):
        missing = [label for label in labels if label not in reference]
        if missing:
            raise LabelError(f"reference gives no share for group {missing[0]!r}; give 0 to leave it out")
        weights = np.array([float(share) for share in reference.values()])
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
            raise ParameterError(
                f"reference must hold shares of at least 0, not all 0; got {dict(reference)}"
            )
        places = {label: code for code, label in enumerate(labels)}
        members = np.array([places.get(label, -1) for label in reference], dtype=np.intp)
    else:
        check_choice("reference", reference, ("population", "uniform"))
        members = np.arange(len(labels))
        weights = np.bincount(codes).astype(np.float64) if reference == "population" else np.ones(len(labels))
    positive = weights > 0
    return members[positive], weights[positive] / weights.sum()


def one_hot(codes: IntArray, n_groups: int) -> FloatArray:
    """Return indicators (n, n_groups) of the group of each row."""
    return np.asarray(codes[:, None] == np.arange(n_groups), dtype=np.float64)


def _per_query(
    scores: ArrayLike,
    groups: Any,
    k: int | None,
    reference: Reference,
    ties: tuple[str, RandomState],
    value: Callable[[FloatArray, FloatArray, FloatArray], float],
    *,
    prefixes: bool,
) -> float | FloatArray:
    """Apply ``value(shares (m, A), reference (A,), cuts (m,))`` to the ranking of each query."""
    table = matrix(scores, "scores")  # (n, q)
    codes, labels = encode(groups, "groups")
    k = checked_cut(k, same_length(scores=table, groups=codes))
    members, desired = reference_shares(reference, codes, labels)
    cuts = np.arange(1, k + 1) if prefixes else np.array([k])
    indicators = one_hot(codes, len(labels))
    values = np.empty(table.shape[1])
    for query, ranking in enumerate(rankings(table, *ties)):
        counts = ranking.prefix_counts(indicators, cuts)
        shares = np.where(members >= 0, counts[:, members], 0.0) / cuts[:, None]
        values[query] = value(shares, desired, cuts.astype(np.float64))
    return float(values[0]) if np.ndim(scores) == 1 else values


def _skews(shares: FloatArray, desired: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):  # ln 0 = -inf: nobody of that group is shown
        return np.asarray(np.log(shares[0] / desired))


def _max_skew(shares: FloatArray, desired: FloatArray, _: FloatArray) -> float:
    return float(_skews(shares, desired).max())


def _min_skew(shares: FloatArray, desired: FloatArray, _: FloatArray) -> float:
    return float(_skews(shares, desired).min())


def max_skew(
    scores: ArrayLike,
    groups: Any,
    k: int,
    *,
    reference: Reference = "population",
    ties: str = "expected",
    random_state: RandomState = None,
) -> float | FloatArray:
    r"""Compute the log-ratio of the share in the top k to the reference share, for the most over-represented group.

    :math:`\max_a \ln\big(p_a(\text{top-}k) / p_a(\text{reference})\big)`; 0 is proportional. It is never
    negative if every group has a reference share. O(q·(n log n + n·A)) time, O(n·q) memory.
    See docs/math.md#retrieval.

    Parameters
    ----------
    scores : array of shape (n,) or (n, q)
        Higher scores rank first; one column per query. Use inner products: cosines in a one-dimensional space
        are ±1, so that thousands of rows tie.
    groups : label array of shape (n,) or (n, m)
        Several columns are intersected.
    k : int
        The cut, at most n.
    reference : {"population", "uniform"} or mapping, default="population"
        The share a group should have: its share of all rows, one over the number of groups, or
        the given weights (normalised to sum 1). Only groups with a positive share count.
    ties : {"expected", "score", "random"}, default="expected"
        Rows of equal score at the cut: "expected" takes the expected composition over random orders (a tied
        block contributes its proportions), "score" the order of the input (stable sort), "random" one
        random order.
    random_state : None, int, RandomState or Generator
        Draws the order of "random" ties.

    Returns
    -------
    float or array of shape (q,)
        One value per query; an array for 2-D scores.

    Examples
    --------
    >>> round(max_skew([9, 8, 7, 6], ["f", "f", "m", "m"], k=2), 4)  # ln 2: only "f" is shown
    0.6931
    >>> max_skew([1, 1, 1, 1], ["f", "f", "m", "m"], k=2)  # all tied
    0.0
    """
    return _per_query(scores, groups, k, reference, (ties, random_state), _max_skew, prefixes=False)


def min_skew(
    scores: ArrayLike,
    groups: Any,
    k: int,
    *,
    reference: Reference = "population",
    ties: str = "expected",
    random_state: RandomState = None,
) -> float | FloatArray:
    r"""Compute the log-ratio of the share in the top k to the reference share, for the most under-represented group.

    :math:`\min_a \ln\big(p_a(\text{top-}k) / p_a(\text{reference})\big)`; ``-inf`` if a group is not shown
    at all. Complexity is that of `max_skew`. See docs/math.md#retrieval.

    Parameters
    ----------
    scores, groups, k, reference, ties, random_state
        As in `max_skew`.

    Returns
    -------
    float or array of shape (q,)
        One value per query; an array for 2-D scores.

    Examples
    --------
    >>> round(min_skew([9, 8, 7, 6, 5, 4], ["f", "f", "m", "f", "m", "m"], k=3), 4)  # ln(1/3 / 1/2)
    -0.4055
    """
    return _per_query(scores, groups, k, reference, (ties, random_state), _min_skew, prefixes=False)


def discounted_kl(shares: FloatArray, desired: FloatArray, cuts: FloatArray) -> float:
    """Compute NDKL of shares (m, A) in the prefixes of lengths ``cuts`` (m,)."""
    if not np.allclose(shares.sum(axis=1), 1):
        return float("inf")  # a group without reference share is shown
    ratio = np.divide(shares, desired, out=np.ones_like(shares), where=shares > 0)
    divergence = (shares * np.log(ratio)).sum(axis=1)
    weights = 1 / np.log2(cuts + 1)
    return float(max(0.0, weights @ divergence / weights.sum()))


def ndkl(
    scores: ArrayLike,
    groups: Any,
    *,
    reference: Reference = "population",
    k: int | None = None,
    ties: str = "expected",
    random_state: RandomState = None,
) -> float | FloatArray:
    r"""Compute NDKL, the normalised discounted Kullback-Leibler divergence of all prefixes of a ranking.

    :math:`\sum_i w_i \mathrm{KL}(p(\text{top-}i) \| p(\text{reference})) / \sum_i w_i` with
    :math:`w_i = 1/\log_2(i+1)`, with natural logarithms; infinite if a row is shown whose group has a
    reference share of 0. O(q·(n log n + n·A)) time, O(n·(q + A)) memory. See docs/math.md#retrieval.

    Parameters
    ----------
    scores, groups, reference, ties, random_state
        As in `max_skew`.
    k : int, optional
        Longest prefix; by default all n rows.

    Returns
    -------
    float or array of shape (q,)
        One value per query; an array for 2-D scores.

    Examples
    --------
    >>> round(ndkl([2, 1], ["f", "m"]), 4)  # ln 2 at i=1, 0 at i=2, weights 1 and 1/log2(3)
    0.425
    """
    return _per_query(scores, groups, k, reference, (ties, random_state), discounted_kl, prefixes=True)
