"""Intervals of groups, of changes and of rankings against formulas written out with scipy's quantiles."""

from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import beta, norm

from fairerclip.metrics import group_report, paired_report
from fairerclip.metrics.dependence.dependence_intervals import _lower_end, _upper_end
from fairerclip.metrics.groups import paired_rates
from fairerclip.metrics.groups.bounds import group_intervals
from fairerclip.metrics.retrieval.extremes import (
    LogRatios,
    Proportions,
    difference_limits,
    extreme,
    mean_distance,
    mean_extreme,
    sidak,
)
from fairerclip.metrics.retrieval.rank_quality import _on_fishers_scale
from fairerclip.metrics.retrieval.top_rows import TopRows, row_weights

CONFIDENCE = 0.9


def exact(k, n, confidence):
    """Clopper and Pearson's limits of one proportion."""
    tail = (1 - confidence) / 2
    low = beta.ppf(tail, k, n - k + 1) if k else 0.0
    return low, beta.ppf(1 - tail, k + 1, n - k) if k < n else 1.0


def shared_out(confidence, m):
    return 1 - (1 - confidence) / m


def difference(first, second, confidence):
    """Limits of the second rate minus the first, each (successes, rows)."""
    (a, n), (b, m) = first, second
    (a_low, a_high), (b_low, b_high) = exact(a, n, confidence), exact(b, m, confidence)
    p, q = a / n, b / m
    return q - p - np.hypot(q - b_low, a_high - p), q - p + np.hypot(b_high - q, p - a_low)


def largest(pairs, confidence, shared=1):
    """Interval of the largest absolute difference of pairs of rates."""
    strict = [difference(*pair, shared_out(confidence, shared * len(pairs))) for pair in pairs]
    single = [difference(*pair, shared_out(confidence, shared)) for pair in pairs]
    return max(max(low, -high, 0.0) for low, high in strict), max(max(-low, high) for low, high in single)


def table(seed, c, v):
    return np.random.default_rng(seed).integers(3, 40, size=(v, c, c)) + 25 * np.eye(c, dtype=int)


def recalls(N):
    """Class by value: (right, rows)."""
    v, c, _ = N.shape
    return [[(int(N[s, y, y]), int(N[s, y].sum())) for s in range(v)] for y in range(c)]


def false_positives(N):
    v, c, _ = N.shape
    others = [
        [(N[s, :, p].sum() - N[s, p, p], N[s].sum() - N[s, p].sum()) for s in range(v)] for p in range(c)
    ]
    return [[(int(k), int(n)) for k, n in row] for row in others]


def selections(N):
    v, c, _ = N.shape
    return [[(int(N[s, :, p].sum()), int(N[s].sum())) for s in range(v)] for p in range(c)]


def pairs_of(rates, classes):
    return [pair for y in classes for pair in combinations(rates[y], 2)]


@pytest.mark.parametrize(("c", "v", "positive"), [(2, 2, None), (2, 3, 0), (3, 2, None), (4, 3, 2)])
def test_every_interval_of_a_table_is_its_formula(c, v, positive):
    N = table(c + v, c, v)
    found = group_intervals(N, CONFIDENCE, positive)
    rates = recalls(N)
    cells = [cell for row in rates for cell in row]
    k, n = (np.array(x) for x in zip(*cells, strict=True))
    assert_allclose(found["average"], exact(k.sum(), n.sum(), CONFIDENCE))
    m = len(cells)
    lowest = (
        min(exact(*x, CONFIDENCE)[0] for x in cells),
        min(exact(*x, shared_out(CONFIDENCE, m))[1] for x in cells),
    )
    assert_allclose(found["worst_group"], lowest)
    outside = [((k.sum() - a, n.sum() - b), 1 - b / n.sum()) for a, b in cells]
    low = max(
        w * difference(x, o, shared_out(CONFIDENCE, m))[0] for x, (o, w) in zip(cells, outside, strict=True)
    )
    high = max(w * difference(x, o, CONFIDENCE)[1] for x, (o, w) in zip(cells, outside, strict=True))
    assert_allclose(found["gap"], (max(low, 0.0), high))
    chosen = [positive] if positive is not None else ([1] if c == 2 else range(c))
    assert_allclose(found["eod"], largest(pairs_of(rates, chosen), CONFIDENCE))
    each = [largest(pairs_of(rates, [y]), CONFIDENCE, shared=c) for y in range(c)]
    assert_allclose(found["eod_mean"], np.mean(each, axis=0))
    everything = pairs_of(rates, range(c)) + ([] if c == 2 else pairs_of(false_positives(N), range(c)))
    assert_allclose(found["equalized_odds_difference"], largest(everything, CONFIDENCE))
    parity = pairs_of(selections(N), [1] if c == 2 else range(c))
    assert_allclose(found["demographic_parity_difference"], largest(parity, CONFIDENCE))


def test_the_signed_difference_holds_every_pair_that_may_be_the_largest():
    N = np.array([[[40, 0], [2, 38]], [[40, 0], [4, 36]], [[40, 0], [20, 20]]])  # recalls 0.95, 0.9, 0.5
    low, high = group_intervals(N, CONFIDENCE)["eod_signed"]
    ends = [difference(*pair, shared_out(CONFIDENCE, 3)) for pair in pairs_of(recalls(N), [1])]
    least = max(max(a, -b, 0.0) for a, b in ends)
    possible = [(a, b) for a, b in ends if max(-a, b) >= least]
    assert len(possible) == 2  # 0.95 against 0.9 cannot be the largest, and alone might be positive
    assert high < 0 < max(b for _, b in ends)
    assert (low, high) == pytest.approx((min(a for a, _ in possible), max(b for _, b in possible)))


def test_means_of_signed_differences_and_of_training_shares_are_sums_of_rates():
    N = table(5, 2, 2)
    train = np.array([[10.0, 30.0], [5.0, 55.0]])
    found = group_intervals(N, CONFIDENCE, None, train)

    def weighted(weights):
        value = down = up = 0.0
        for w, (k, n) in zip(weights, (cell for row in recalls(N) for cell in row), strict=True):
            low, high = exact(k, n, CONFIDENCE)
            value += w * k / n
            down += (w * (k / n - low if w > 0 else high - k / n)) ** 2
            up += (w * (high - k / n if w > 0 else k / n - low)) ** 2
        return value - np.sqrt(down), value + np.sqrt(up)

    assert_allclose(found["train_weighted_average"], weighted(train.ravel() / 100))
    assert_allclose(found["eod_mean_signed"], weighted([-0.5, 0.5, -0.5, 0.5]))


# Changes --------------------------------------------------------------------------------------------------


def predictions(seed=0, n=400):
    rng = np.random.default_rng(seed)
    y, s = rng.integers(2, size=n), rng.integers(2, size=n)
    before = np.where(rng.random(n) < 0.7 + 0.1 * s, y, 1 - y)
    after = np.where(rng.random(n) < 0.25, rng.integers(2, size=n), np.where(rng.random(n) < 0.8, before, y))
    return y, s, before, after


def phi(first, second):
    """Correlation of two right-or-wrong columns, with half a row more of each combination."""
    counts = np.array([[np.sum((first == a) & (second == b)) + 0.5 for b in (0, 1)] for a in (0, 1)])
    product = np.prod(counts.sum(axis=0)) * np.prod(counts.sum(axis=1))
    return (counts[1, 1] * counts[0, 0] - counts[1, 0] * counts[0, 1]) / np.sqrt(product)


def change(after, before, confidence, rho):
    """Limits of the rate of ``after`` minus that of ``before``, of columns that correlate by rho."""
    p, q = after.mean(), before.mean()
    (p_low, p_high), (q_low, q_high) = (exact(x.sum(), len(x), confidence) for x in (after, before))
    down = (p - p_low) ** 2 + (q_high - q) ** 2 - 2 * rho * (p - p_low) * (q_high - q)
    up = (p_high - p) ** 2 + (q - q_low) ** 2 - 2 * rho * (p_high - p) * (q - q_low)
    return p - q - np.sqrt(down), p - q + np.sqrt(up)


def test_the_change_of_accuracies_is_newcombes_with_the_correlation_of_the_two():
    y, s, before, after = predictions()
    found = paired_report(y, before, after, s, confidence=CONFIDENCE)
    right = [(p == y).astype(int) for p in (before, after)]
    average = found.change("average")
    # Pooled, half a row of each combination of right and wrong is added once.
    assert_allclose(
        (average.low, average.high), change(right[1], right[0], CONFIDENCE, phi(*right)), rtol=1e-9
    )
    for group in found.groups:
        b, a = (x[(y == group.y) & (s == group.s)] for x in right)
        assert_allclose((group.low, group.high), change(a, b, CONFIDENCE, phi(b, a)), rtol=1e-9)
        low, high = change(a, b, shared_out(CONFIDENCE, 4), phi(b, a))
        assert group.clear == (low > 0 or high < 0)


def test_the_change_of_the_worst_group_is_the_extreme_of_all_contrasts():
    y, s, before, after = predictions(3)
    found = paired_report(y, before, after, s, confidence=CONFIDENCE).change("worst_group")
    groups = [(y == a) & (s == b) for a in (0, 1) for b in (0, 1)]
    b, a = ([(p == y)[g].astype(int) for g in groups] for p in (before, after))
    level = shared_out(CONFIDENCE, 4)
    ends = np.array(
        [[change(a[i], b[j], level, phi(b[i], a[i]) if i == j else 0.0) for j in range(4)] for i in range(4)]
    )
    single = ends[range(4), range(4)]
    assert found.low == pytest.approx(max(ends[:, :, 0].max(axis=1).min(), single[:, 0].min()), rel=1e-9)
    assert found.high == pytest.approx(min(ends[:, :, 1].max(axis=1).min(), single[:, 1].max()), rel=1e-9)


def test_differences_of_recall_are_later_minus_earlier_each_with_its_interval():
    y, s, before, _ = predictions()
    report = group_report(y, before, s, confidence=CONFIDENCE)
    N = np.array(report.confusion)
    assert [(d.y, d.reference, d.s) for d in report.differences] == [(0, 0, 1), (1, 0, 1)]
    for found, (first, second) in zip(report.differences, pairs_of(recalls(N), range(2)), strict=True):
        assert found.difference == pytest.approx(second[0] / second[1] - first[0] / first[1])
        assert (found.low, found.high) == pytest.approx(difference(first, second, CONFIDENCE))


def test_blocks_change_no_interval_of_a_change(monkeypatch):
    rng = np.random.default_rng(0)
    y, s, before = (rng.integers(3, size=200) for _ in range(3))
    after = np.where(rng.random(200) < 0.5, y, before)
    whole = paired_report(y, before, after, s)
    monkeypatch.setattr(paired_rates, "BLOCK_CELLS", 7)
    monkeypatch.setattr(paired_rates, "BLOCK_SUMS", 2)
    blocks = paired_report(y, before, after, s)
    for first, second in zip(whole.changes, blocks.changes, strict=True):
        assert (first.low, first.high) == pytest.approx((second.low, second.high), rel=1e-9)


# Ends of dependence ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("norm_", "bias", "error"), [(0.3, 0.02, 0.05), (0.05, 0.04, 0.01), (0.02, 0.05, 0.3)]
)
def test_the_upper_end_is_as_many_errors_away_as_it_would_have(norm_, bias, error):
    end = _upper_end(norm_, bias, error, 2.0)
    noisy = norm_ < 2 * bias and error**2 > 4 * norm_ * bias
    v = bias if noisy else error**2 / (4 * norm_)
    assert norm_ - bias == pytest.approx(end - 2.0 * np.sqrt(4 * v * end + 2 * v * bias), rel=1e-9)


@pytest.mark.parametrize(("norm_", "bias", "error"), [(0.3, 0.02, 0.05), (0.9, 0.01, 0.03), (0.5, -0.1, 0.2)])
def test_the_lower_end_is_as_many_errors_away_as_it_would_have(norm_, bias, error):
    end = _lower_end(norm_, bias, error, 2.0)
    v = (2.0 * error) ** 2 / (1 - norm_)  # squared distance of the end, whose variance falls to 0 at 1
    assert (1 - end - (1 - norm_ + bias)) ** 2 == pytest.approx(v * (1 - end), rel=1e-9)


# Rankings -------------------------------------------------------------------------------------------------


def naive_shown(scores, weights, k):
    """Weight of each row in the top k of a gallery in which it occurs ``weights`` times; ties by expectation."""
    shown, left = np.zeros(len(scores)), float(k)
    for score in np.unique(scores)[::-1]:
        rows = scores == score
        held = weights[rows].sum()
        if held:
            shown[rows] = weights[rows] * min(1.0, left / held)
            left = max(0.0, left - held)
    return shown


@pytest.mark.parametrize("k", [1, 7, 30, 59, 60])
@pytest.mark.parametrize("distinct", [60, 8, 1])
def test_resampled_galleries_show_what_sorted_copies_would(k, distinct):
    rng = np.random.default_rng(k)
    scores = rng.permutation(np.arange(60) % distinct).astype(float)
    ranking = TopRows.of(scores, "expected")
    weights = next(row_weights(60, 20, rng))
    assert weights.shape == (20, 60)
    assert_array_equal(weights.sum(axis=1), 60)
    rows, shown = ranking.resampled(weights, k)
    for gallery, row_shown in zip(weights, shown, strict=True):
        full = np.zeros(60)
        full[rows] = row_shown
        assert_allclose(full, naive_shown(scores, gallery, k), atol=1e-12)
    assert_allclose(ranking.shown(k), naive_shown(scores, np.ones(60), k), atol=1e-12)
    members = rng.integers(2, size=(60, 3)).astype(float)
    cuts = np.arange(1, k + 1)
    expected = [naive_shown(scores, np.ones(60), cut) @ members for cut in cuts]
    assert_allclose(ranking.prefix_counts(members, cuts), expected, atol=1e-12)


def test_intervals_of_correlations_are_symmetric_on_fishers_scale():
    replicates = np.array([0.2, 0.5, np.nan, 0.7])
    found = _on_fishers_scale(0.4, replicates, 0.9)
    reach = norm.ppf(0.95) * np.arctanh([0.2, 0.5, 0.7]).std()
    expected = np.tanh([np.arctanh(0.4) - reach, np.arctanh(0.4) + reach])
    assert_allclose((found.value, found.low, found.high), (0.4, *expected))
    sure = _on_fishers_scale(1.0, np.ones(3), 0.9)
    assert (sure.low, sure.high) == (1.0, 1.0)
    doubtful = _on_fishers_scale(1.0, np.array([1.0, 0.9, 1.0]), 0.9)
    assert doubtful.low < 1.0
    assert np.isnan(_on_fishers_scale(0.4, np.array([0.3, np.nan]), 0.9).low)
    assert not np.isnan(_on_fishers_scale(0.4, np.array([0.3, 0.5]), 0.9).low)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("queries", [1, 2, 3])
def test_the_mean_extreme_of_several_queries_is_bounded_by_resampled_misses(sign, queries):
    rng = np.random.default_rng(0)
    size = np.full((queries, 2), 400.0)
    counts = rng.binomial(400, [0.2, 0.3], size=(queries, 2)).astype(float)
    replicates = rng.binomial(400, counts / 400, size=(99, queries, 2)).astype(float)
    ratios = LogRatios(
        Proportions.of(counts, size, replicates, size), np.full((queries, 2), 0.25), complete=False
    )
    low, high = mean_extreme(ratios, sign, CONFIDENCE)
    value = ratios.extreme(sign).mean()
    if queries == 1:
        assert (low, high) == pytest.approx(tuple(float(end[0]) for end in extreme(ratios, sign, CONFIDENCE)))
    else:
        beyond, short = (mean_distance(miss, 0.05) for miss in ratios.misses(sign))
        down, up = (beyond, short) if sign > 0 else (short, beyond)
        assert (low, high) == pytest.approx((value - down, value + up))


def test_sidak_and_the_distance_of_a_mean():
    assert sidak(0.05, 1) == pytest.approx(norm.isf(0.05))
    assert (1 - norm.sf(sidak(0.05, 7))) ** 7 == pytest.approx(0.95)
    misses = np.arange(99.0)[:, None] + np.array([[-1.0, 1.0]])
    assert mean_distance(misses, 0.05) == 95.0  # of the values 0 … 98, 4 or fewer are at least as large
    assert mean_distance(misses - 200, 0.05) == 0.0
    assert mean_distance(misses[:5], 0.05) == 4.0


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.8])
def test_limits_of_a_difference_use_the_ends_that_matter(rho):
    first, second = ([np.array([end]) for end in ends] for ends in ((0.0, -1.0, 2.0), (5.0, 2.0, 9.0)))
    low, high = difference_limits(first, second, np.array([rho]))
    assert low == pytest.approx(5 - np.sqrt(9 + 4 - 2 * rho * 3 * 2))
    assert high == pytest.approx(5 + np.sqrt(16 + 1 - 2 * rho * 4 * 1))
    hidden = np.array([-np.inf]), np.array([-np.inf]), np.array([-3.0])
    assert difference_limits(first, hidden, np.array([rho])) == (-np.inf, -3.0 + 1.0)
