"""Skew of the groups at the top of a ranking: MaxSkew, MinSkew, NDKL, KL, Bias@k and ABLE.

Definitions of Geyik et al. 2019 (arXiv:1905.01989), of Wang et al. 2021 (arXiv:2109.05433) for Bias@k and of Zhang et
al. 2025 (arXiv:2411.12785) for ABLE; see docs/math.md#retrieval. Published code uses different
reference shares (population or uniform), cuts k and treatments of ties under the same name, so state all three
next to a figure.
"""

from collections.abc import Callable, Mapping
from math import exp, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fairerclip._util.checks import as_number, check_choice
from fairerclip._util.clean_text import quoted
from fairerclip.errors import LabelError, ParameterError
from fairerclip.features.feature_map import RandomState
from fairerclip.metrics.intervals import Estimate
from fairerclip.metrics.label_codes import FloatArray, IntArray, encode, matrix, same_length
from fairerclip.metrics.retrieval.top_rows import checked_cut, rankings

Reference = str | Mapping[Any, float]


def reference_shares(reference: Reference, codes: IntArray, labels: list[Any]) -> tuple[IntArray, FloatArray]:
    """Return the codes of groups with a positive reference share (-1: not in the gallery), and the shares."""
    if isinstance(reference, Mapping):
        missing = [label for label in labels if label not in reference]
        if missing:
            raise LabelError(f"reference gives no share for group {missing[0]!r}; give 0 to leave it out")
        weights = np.array([as_number(share) for share in reference.values()])
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
            raise ParameterError(
                f"reference must hold shares of at least 0, not all 0; got {quoted(dict(reference), 200)}"
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


def divergences(shares: FloatArray, desired: FloatArray) -> FloatArray:
    """Compute KL(shares ‖ desired) of each row of shares (m, A): (m,); infinite if a group without share is shown."""
    ratio = np.divide(shares, desired, out=np.ones_like(shares), where=shares > 0)
    return np.asarray(
        np.where(np.isclose(shares.sum(axis=1), 1), (shares * np.log(ratio)).sum(axis=1), np.inf)
    )


def discounted(divergence: FloatArray, cuts: FloatArray) -> float:
    """Compute NDKL from the divergences (m,) of the prefixes of lengths ``cuts`` (m,)."""
    weights = 1 / np.log2(cuts + 1)
    return float(max(0.0, weights @ divergence / weights.sum()))


def _discounted_kl(shares: FloatArray, desired: FloatArray, cuts: FloatArray) -> float:
    return discounted(divergences(shares, desired), cuts)


def _kl(shares: FloatArray, desired: FloatArray, _: FloatArray) -> float:
    return float(max(0.0, divergences(shares, desired)[0]))


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
    return _per_query(scores, groups, k, reference, (ties, random_state), _discounted_kl, prefixes=True)


def kl_at_k(
    scores: ArrayLike,
    groups: Any,
    k: int,
    *,
    reference: Reference = "population",
    ties: str = "expected",
    random_state: RandomState = None,
) -> float | FloatArray:
    r"""Compute the Kullback-Leibler divergence of the shares in the top k from the reference shares.

    :math:`\sum_a p_a(\text{top-}k) \ln\big(p_a(\text{top-}k) / p_a(\text{reference})\big)`, with natural logarithms;
    infinite if a row is shown whose group has a reference share of 0. Complexity is that of `max_skew`.
    See docs/math.md#retrieval.

    Parameters
    ----------
    scores, groups, k, reference, ties, random_state
        As in `max_skew`.

    Returns
    -------
    float or array of shape (q,)
        One value per query; an array for 2-D scores. `retrieval_report` has the interval.

    Examples
    --------
    >>> round(kl_at_k([9, 8, 7, 6], ["f", "f", "m", "m"], k=2), 4)  # ln 2: only "f" is shown
    0.6931
    """
    return _per_query(scores, groups, k, reference, (ties, random_state), _kl, prefixes=False)


def pair_codes(pair: Any, labels: list[Any]) -> tuple[int, int]:
    """Return the codes of the two values of Bias@k; raise if they are not two different groups."""
    try:
        values = [pair] if isinstance(pair, str) else list(pair)
    except TypeError:
        values = []
    if len(values) != 2 or values[0] == values[1]:
        raise ParameterError(
            f"pair must be two different values of the groups {labels}; got {quoted(pair, 80)}"
        )
    unknown = [value for value in values if value not in labels]
    if unknown:
        raise LabelError(f"pair names {unknown[0]!r}, which is none of the groups {labels}")
    return labels.index(values[0]), labels.index(values[1])


def bias_at_k(
    scores: ArrayLike,
    groups: Any,
    k: int,
    *,
    pair: tuple[Any, Any],
    ties: str = "expected",
    random_state: RandomState = None,
) -> float | FloatArray:
    """Compute Bias@k: the difference of two groups in the top k over their sum, from −1 to 1.

    (M − F) / (M + F) with M and F the numbers of rows of the first and the second value; 0 if neither is shown.
    Rows of other groups take places of the top k and count in neither number. The reference are equal
    numbers, whatever the shares in all rows. O(q·n log n) time. See docs/math.md#retrieval.

    Parameters
    ----------
    scores, groups, k, ties, random_state
        As in `max_skew`.
    pair : tuple of two labels
        The two values. A positive figure means that the first is shown more often.

    Returns
    -------
    float or array of shape (q,)
        One value per query; an array for 2-D scores. `retrieval_report` has the interval.

    Examples
    --------
    >>> bias_at_k([9, 8, 7, 6], ["m", "m", "f", "m"], k=4, pair=("m", "f"))
    0.5
    """
    table = matrix(scores, "scores")  # (n, q)
    codes, labels = encode(groups, "groups")
    cut = checked_cut(k, same_length(scores=table, groups=codes))
    members = np.stack([codes == code for code in pair_codes(pair, labels)], axis=1)  # (n, 2)
    counts = np.stack([ranking.shown(cut) @ members for ranking in rankings(table, ties, random_state)])
    total = counts.sum(axis=1)
    values = np.divide(counts[:, 0] - counts[:, 1], total, out=np.zeros(len(total)), where=total > 0)
    return float(values[0]) if np.ndim(scores) == 1 else values


def able(accuracy: float | Estimate, skew: float | Estimate) -> Estimate:
    """Compute ABLE, the harmonic mean of an accuracy and exp(−MaxSkew), from 0 (worst) to 1.

    The interval needs both intervals, of independent samples (ImageNet and FairFace, for example): the changes of ABLE
    up to the limit of each figure are combined like standard errors (Zou and Donner 2008). O(1) time.
    See docs/math.md#retrieval-intervals.

    Parameters
    ----------
    accuracy : float or Estimate
        Zero-shot accuracy, from 0 to 1.
    skew : float or Estimate
        MaxSkew, at least 0; of several queries the mean (``retrieval_report(…).mean.max_skew``).

    Returns
    -------
    Estimate
        Ends are NaN if one of the figures has no interval.

    Examples
    --------
    >>> round(able(0.6, 0.2).value, 4)  # 2 / (1/0.6 + exp(0.2))
    0.6925
    >>> found = able(Estimate(0.6, 0.58, 0.62), Estimate(0.2, 0.15, 0.25))
    >>> round(found.low, 4), round(found.high, 4)
    (0.6725, 0.7121)
    """
    a, s = (x if isinstance(x, Estimate) else Estimate(_figure(x), np.nan, np.nan) for x in (accuracy, skew))
    if not (0 <= a.value <= 1 and s.value >= 0):
        raise ParameterError(
            f"expected an accuracy from 0 to 1 and a MaxSkew of at least 0; got "
            f"{quoted(accuracy, 60)} and {quoted(skew, 60)}"
        )
    value = _able(a.value, s.value)
    down, up = (
        sqrt((_able(x, s.value) - value) ** 2 + (_able(a.value, y) - value) ** 2)
        for x, y in ((a.low, s.high), (a.high, s.low))
    )
    # NaN stays NaN: an end that is not known is not cut to the range.
    return Estimate(value, float(np.maximum(value - down, 0.0)), float(np.minimum(value + up, 1.0)))


def _figure(value: Any) -> float:
    """Return a number, also of an array with one, as a float; NaN for anything else."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan


def _able(accuracy: float, skew: float) -> float:
    fairness = exp(-skew)
    return 2 * accuracy * fairness / (accuracy + fairness) if accuracy + fairness else 0.0
