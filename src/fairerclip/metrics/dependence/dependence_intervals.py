"""Intervals of the dependence measures, and a test that returns measure, interval and p-value together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve
from scipy.special import stdtrit

from fairerclip._util.checks import check_choice, check_confidence
from fairerclip.errors import ParameterError
from fairerclip.features import rbf_kernel, resolve_bandwidth
from fairerclip.features.feature_map import RandomState, Rng, as_rng
from fairerclip.metrics.dependence.attribute import KernelAttribute, centred, read_pair, row_blocks, trivial
from fairerclip.metrics.dependence.measures import (
    DEP_SEED,
    EXACT_ROWS,
    MeasureOptions,
    centred_gram,
    cholesky_factor,
    correlation_of_features,
    feature_maps,
    gram_correlation,
    root_of_top,
    whitened,
)
from fairerclip.metrics.dependence.permutation import check_permutations, permute_attribute
from fairerclip.metrics.intervals import Estimate, finite_or_none
from fairerclip.metrics.label_codes import FloatArray, IntArray
from fairerclip.metrics.retrieval.top_rows import as_generator

MAX_ROWS = 2000
"""Default number of rows that are used; if there are more, this many are drawn at random."""

FOLDS = 20
"""Number of parts of the rows, each of which is left out once."""

_LEAST = 2 * FOLDS
"""Smallest number of rows for which there is an interval."""


@dataclass(frozen=True)
class DependenceResult:
    """A dependence measure with its interval and the p-value of independence; made by `dependence_test`.

    Attributes
    ----------
    measure : str
        "dep", "hsic" or "kcc".
    value, low, high : float
        The measure on the n rows, and its interval from `dependence_interval`.
    p_value : float
        The p-value of `permutation_test`.
    permutations : int
        Number of permutations.
    n : int
        Number of rows used: a random sample if more than ``max_rows`` were given.
    """

    measure: str
    value: float
    low: float
    high: float
    p_value: float
    permutations: int
    n: int

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready copy; values that are not finite become None."""
        return {
            name: finite_or_none(value) if isinstance(value, float) else value
            for name, value in vars(self).items()
        }


def dependence_interval(
    X: Any,
    S: Any,
    *,
    measure: str = "dep",
    confidence: float = 0.95,
    kind: str = "auto",
    bandwidth: float | str = "median",
    regularization: float = 1e-2,
    n_features: int = 2000,
    max_rows: int = MAX_ROWS,
    random_state: RandomState = None,
) -> Estimate:
    """Compute `dep`, `hsic` or `kcc` with an interval of its population value, by a jackknife over 20 parts.

    See docs/math.md#dependence-intervals. O(n²·p) time for "dep" and "hsic". For "kcc" the time of `kcc` up to
    2000 rows, and 20 times that for more.

    Parameters
    ----------
    X : array of shape (n, p) or (n,)
        Representation.
    S : array of shape (n,) or (n, m)
        Attribute.
    measure : {"dep", "hsic", "kcc"}, default="dep"
        The measure.
    confidence : float, default=0.95
        Confidence of the interval.
    kind, bandwidth, regularization, n_features
        As in the measures. A median bandwidth is computed once, on all rows used.
    max_rows : int, default=2000
        If there are more rows, this many are drawn at random, without replacement.
    random_state : None, int, RandomState or Generator
        Draws the rows, the parts, and the random features or bandwidth rows of the measure.

    Returns
    -------
    Estimate
        The ends are NaN for fewer than 40 rows. The measures are biased upwards, so the interval is built
        around the value minus its estimated bias, and then extended to contain the value itself.

    Notes
    -----
    Near independence the measures are not normal and the interval gives only their order of magnitude; use the
    p-value there (`dependence_test`). Rows must be independent of each other.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> s = rng.integers(2, size=200)
    >>> kcc = dependence_interval(rng.normal(size=(200, 2)) + s[:, None], s, measure="kcc", random_state=0)
    >>> 0 <= kcc.low < kcc.value <= kcc.high <= 1
    True
    """
    check_choice("measure", measure, ("dep", "hsic", "kcc"))
    options = MeasureOptions(bandwidth, regularization, n_features)
    check_confidence(confidence)
    rng = as_rng(random_state)
    rows, attribute = _drawn(*read_pair(X, S, kind, ("X", "S")), max_rows, rng)
    return _interval(rows, attribute, measure, confidence, options, rng)


def dependence_test(
    X: Any,
    S: Any,
    measure: str = "dep",
    n_permutations: int = 199,
    random_state: RandomState = None,
    *,
    confidence: float = 0.95,
    kind: str = "auto",
    bandwidth: float | str = "median",
    regularization: float = 1e-2,
    n_features: int = 2000,
    max_rows: int = MAX_ROWS,
) -> DependenceResult:
    """Compute `dep`, `hsic` or `kcc` with its interval and the p-value of independence.

    At most ``max_rows`` rows are used. The time is that of `dependence_interval` plus `permutation_test`.

    Parameters
    ----------
    X, S, measure, confidence, kind, bandwidth, regularization, n_features, max_rows
        As in `dependence_interval`.
    n_permutations : int, default=199
        B; the smallest p-value is 1/(B + 1).
    random_state : None, int, RandomState or Generator
        Draws the rows, the permutations, the parts, and the random features or bandwidth rows of the measure.

    Returns
    -------
    DependenceResult
        The measure, its interval and the p-value.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> s = rng.integers(2, size=100)
    >>> result = dependence_test(rng.normal(size=(100, 2)) + 2 * s[:, None], s, "hsic", 99, random_state=0)
    >>> result.p_value, result.n, result.low <= result.value <= result.high
    (0.01, 100, True)
    """
    check_choice("measure", measure, ("dep", "hsic", "kcc"))
    options = MeasureOptions(bandwidth, regularization, n_features)
    check_confidence(confidence)
    B = check_permutations(n_permutations)
    rng = as_rng(random_state)
    rows, attribute = _drawn(*read_pair(X, S, kind, ("X", "S")), max_rows, rng)
    # Each gets its own generator with the same seed, so both use the same bandwidth and features.
    seed = int(as_generator(rng).integers(2**31))
    estimate = _interval(rows, attribute, measure, confidence, options, np.random.default_rng(seed))
    test = permute_attribute(rows, attribute, measure, B, options, np.random.default_rng(seed))
    return DependenceResult(measure, estimate.value, estimate.low, estimate.high, test.p_value, B, len(rows))


def _drawn(
    rows: FloatArray, attribute: KernelAttribute, max_rows: int, rng: Rng
) -> tuple[FloatArray, KernelAttribute]:
    """Return at most ``max_rows`` of the rows, drawn at random, in their original order."""
    if index(max_rows) < 2:
        raise ParameterError(f"max_rows must be at least 2; got {max_rows}")
    if len(rows) <= max_rows:
        return rows, attribute
    chosen = np.sort(rng.permutation(len(rows))[:max_rows])
    return rows[chosen], attribute.among(chosen)


def _interval(
    rows: FloatArray,
    attribute: KernelAttribute,
    measure: str,
    confidence: float,
    options: MeasureOptions,
    rng: Rng,
) -> Estimate:
    """Compute the interval by a jackknife: values without each part give bias and standard error.

    Dep and HSIC are squared norms, whose standard error grows with the true value. The upper end is the largest
    value whose own standard error makes the estimate plausible; docs/math.md#dependence-intervals.
    """
    n = len(rows)
    if trivial(rows, attribute):
        return Estimate(0.0, 0.0, 0.0)
    whole, without = _LEAVERS[measure](rows, attribute, options, rng)
    if n < _LEAST:
        return Estimate(whole, float("nan"), float("nan"))
    folds = rng.permutation(n) % FOLDS
    power = 2 if measure == "kcc" else 1  # the square of a correlation is a squared norm, as Dep and HSIC are
    norm, values = whole**power, without(folds) ** power
    bias = (FOLDS - 1) * float(values.mean() - norm)
    error = float(np.sqrt((FOLDS - 1) / FOLDS * ((values - values.mean()) ** 2).sum()))
    quantile = float(stdtrit(FOLDS - 1, (1 + confidence) / 2))
    low, high = norm - bias - quantile * error, _upper_end(norm, bias, error, quantile)
    if measure == "kcc":
        low, high = _lower_end(norm, bias, error, quantile), min(high, 1.0)
    return Estimate(whole, min(max(low, 0.0) ** (1 / power), whole), max(high ** (1 / power), whole))


def _lower_end(norm: float, bias: float, error: float, quantile: float) -> float:
    """Return the smallest plausible θ ≤ 1 of a squared correlation, whose variance is proportional to 1 − θ."""
    apart = min(1.0 - norm + bias, 1.0)
    k = (quantile * error) ** 2 / (1.0 - norm) if norm < 1 else 0.0
    return 1.0 - apart - k / 2 - float(np.sqrt(k * max(apart, 0.0) + k**2 / 4))


def _upper_end(norm: float, bias: float, error: float, quantile: float) -> float:
    """Return the largest θ ≥ 0 with norm − bias ≥ θ − quantile·√(4vθ + 2v·bias), for θ = |C|² and norm = |C + E|².

    4vθ is the variance of 2⟨C, E⟩, where v is the variance of E along C; 2v·bias is the variance of |E|², whose mean
    is the bias. At θ = norm the first part equals error², which gives v. If the estimate is mostly noise this v is
    not reliable, and v is at most the mean of |E|².
    """
    centre, noise = norm - bias, max(bias, 0.0)
    if error == 0:
        return max(centre, 0.0)
    noisy = norm < 2 * noise and error**2 > 4 * norm * noise
    t = quantile**2 * (noise if noisy else error**2 / (4 * norm))
    return max(float(centre + 2 * t + np.sqrt(max(t * (4 * centre + 4 * t + 2 * noise), 0.0))), 0.0)


Leaver = Callable[[IntArray], FloatArray]
"""Function from the part of each row (n,) to the measure without each part (FOLDS,)."""


def _trace_leaver(
    kernel: Callable[[slice], FloatArray], attribute: KernelAttribute, n: int
) -> tuple[float, Leaver]:
    """Return tr(KHLH)/n² of all rows, and a function for its values without each part.

    Each takes one pass over blocks of both kernels. Sums over pairs of parts are enough, because leaving out a
    part subtracts its rows and columns.
    """

    def sums(folds: IntArray, parts: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        hot = np.asarray(folds[:, None] == np.arange(parts), dtype=np.float64)  # (n, parts)
        cross, k_sums, l_sums = np.zeros((parts, parts)), np.empty((n, parts)), np.empty((n, parts))
        k_shift = l_shift = 0.0
        for block in row_blocks(n):
            K, L = kernel(block), attribute.kernel(block)  # (b, n)
            if block.start == 0:  # H removes constants; subtracting a near mean reduces cancellation
                k_shift, l_shift = float(K.mean()), float(L.mean())
            K, L = K - k_shift, L - l_shift
            cross += hot[block].T @ ((K * L) @ hot)
            k_sums[block], l_sums[block] = K @ hot, L @ hot
        return cross, k_sums, l_sums

    def value(cross: float, k: FloatArray, total: FloatArray) -> float:
        m = k.size
        trace = cross - 2 * float(k @ total) / m + float(k.sum() * total.sum()) / m**2
        return max(0.0, trace / m**2)

    def without(folds: IntArray) -> FloatArray:
        cross, k_sums, l_sums = sums(folds, FOLDS)
        k_rows, l_rows = k_sums.sum(axis=1), l_sums.sum(axis=1)
        values = []
        for part in range(FOLDS):
            kept = folds != part
            pairs = cross.sum() - 2 * cross[part].sum() + cross[part, part]
            values.append(value(pairs, (k_rows - k_sums[:, part])[kept], (l_rows - l_sums[:, part])[kept]))
        return np.array(values)

    cross, k_sums, l_sums = sums(np.zeros(n, dtype=np.intp), 1)
    return value(float(cross[0, 0]), k_sums[:, 0], l_sums[:, 0]), without


def _dep_leaver(
    rows: FloatArray, attribute: KernelAttribute, options: MeasureOptions, rng: Rng
) -> tuple[float, Leaver]:
    """Return the leaver of Dep, which is HSIC with the inner product as kernel of the rows."""
    Zc = centred(rows)
    attribute = attribute.resolved(options.bandwidth, DEP_SEED)
    return _trace_leaver(lambda block: Zc[block] @ Zc.T, attribute, len(rows))


def _hsic_leaver(
    rows: FloatArray, attribute: KernelAttribute, options: MeasureOptions, rng: Rng
) -> tuple[float, Leaver]:
    sigma = resolve_bandwidth(options.bandwidth, rows, random_state=rng)
    attribute = attribute.resolved(options.bandwidth, rng)
    return _trace_leaver(lambda block: rbf_kernel(rows[block], rows, sigma), attribute, len(rows))


def _kcc_leaver(
    rows: FloatArray, attribute: KernelAttribute, options: MeasureOptions, rng: Rng
) -> tuple[float, Leaver]:
    n, kappa = len(rows), options.regularization
    if n <= EXACT_ROWS:
        K = centred_gram(rows, resolve_bandwidth(options.bandwidth, rows, random_state=rng))
        F = attribute.resolved(options.bandwidth, rng).factor()
        return gram_correlation(K, F, kappa), lambda folds: _gram_correlations(K, F, kappa, folds)
    x, y = (
        features(slice(0, n))
        for features in feature_maps(rows, attribute, options.n_features, options.bandwidth, rng)
    )

    def of_kept(kept: NDArray[np.bool_]) -> float:
        x_kept, y_kept = x[kept], y[kept]
        return correlation_of_features(lambda b: x_kept[b], lambda b: y_kept[b], len(x_kept), kappa)

    return of_kept(np.ones(n, dtype=bool)), lambda folds: np.array(
        [of_kept(folds != part) for part in range(FOLDS)]
    )


def _gram_correlations(K: FloatArray, F: FloatArray, kappa: float, folds: IntArray) -> FloatArray:
    """Compute `gram_correlation` without each part. O(n³ + parts·n²): one inverse serves all parts of one size.

    Let M = (K + mκI)⁻¹, in blocks of kept rows k and left-out rows l. The inverse for the kept rows is
    A = M_kk − M_kl M_ll⁻¹ M_lk. Centring on the kept rows adds the multiple of A1 that makes the solution sum to 0.
    """
    n, values, inverses = len(K), np.empty(FOLDS), {}
    for part in range(FOLDS):
        kept = folds != part
        m = int(kept.sum())
        if m not in inverses:
            factor = cholesky_factor(K, m * kappa)
            inverses[m] = cho_solve((factor, True), np.eye(n), overwrite_b=True)
        M = inverses[m]
        W = whitened(centred(F[kept]), kappa)
        right = np.zeros((n, W.shape[1] + 1))
        right[kept, :-1], right[kept, -1] = W, 1.0
        image = M @ right
        left = np.flatnonzero(~kept)
        image -= M[:, left] @ solve(M[np.ix_(left, left)], image[left], assume_a="pos")
        solution, ones = image[kept, :-1], image[kept, -1:]
        solution -= ones * (solution.sum(axis=0) / ones.sum())
        values[part] = root_of_top(W.T @ W - m * kappa * (W.T @ solution))
    return values


_LEAVERS = {"dep": _dep_leaver, "hsic": _hsic_leaver, "kcc": _kcc_leaver}
