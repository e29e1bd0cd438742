"""Intervals of group figures: coverage, pairing, the bootstrap on counts, and the spread over seeds."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from fairerclip.errors import LabelError, ParameterError
from fairerclip.metrics import FIGURES, group_report, paired_report, resample, seed_spread
from fairerclip.metrics.groups.bounds import group_intervals, lowest
from fairerclip.metrics.groups.group_figures import evaluate
from fairerclip.metrics.groups.paired import paired_from_counts
from fairerclip.metrics.groups.paired_rates import PairCounts, PairedRates
from fairerclip.metrics.intervals import clopper_pearson, mover

SIGNED = ("average", "train_weighted_average", "eod_mean_signed")
SETS = 60  # `make coverage` counts a thousand
ERROR = 3 * np.sqrt(0.95 * 0.05 / SETS)  # of a coverage counted over SETS data sets
LEAST = binom.ppf(1e-3, SETS, 0.95) / SETS
"""Coverage that intervals which hold 95 % fall below once in a thousand times."""


def pair_counts(J):
    """Counts (|S|, c, c, c) of a paired comparison, by sensitive value, class and both predictions."""
    s, y, before, after = np.nonzero(J)
    return PairCounts(s, y, (before, after), J[J > 0].astype(float), J.shape[1], J.shape[0])


@pytest.fixture(scope="module")
def simulation():
    file = Path(__file__).parents[2] / "benchmarks" / "coverage_groups.py"
    spec = importlib.util.spec_from_file_location("coverage_groups", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("scenario", ["2×2 alike", "2×2 apart", "2×7 alike", "2×7 extreme"])
def test_coverage(simulation, scenario):
    rows = simulation.coverage(SETS, seed=3, only=(scenario,))
    found = {(row["kind"], row["figure"]): row["coverage"] for row in rows}
    for kind in ("one", "change"):
        for figure in FIGURES:
            if (kind, figure) not in found:
                assert (kind, figure) == ("change", "eod_signed")  # of several pairs none is fixed
                continue
            value = found[kind, figure]
            if "extreme" in scenario and figure in SIGNED:
                # Sums over groups of 20 rows that are nearly all right.
                assert value >= LEAST - 0.03, (kind, figure, value)
            elif figure in SIGNED or (figure == "eod_signed" and "2×2" in scenario):
                assert abs(value - 0.95) <= 0.02 + ERROR, (kind, figure, value)
            else:
                assert value >= LEAST, (kind, figure, value)
    if scenario == "2×7 alike":  # what the plain percentile bootstrap would have claimed
        assert found["percentile", "worst_group"] < 0.05
        assert found["percentile", "eod"] < 0.05


def test_the_interval_of_the_lowest_covers_at_every_number_of_ties():
    rng = np.random.default_rng(1)
    for m in (1, 3, 20):
        draws = rng.binomial(60, 0.7, size=(SETS, m))
        ends = np.array([lowest(k, np.full(m, 60), 0.95) for k in draws])
        assert ((ends[:, 0] <= 0.7) & (ends[:, 1] >= 0.7)).mean() >= LEAST


def test_mover_of_one_proportion_is_clopper_pearson():
    for k, n in ((0, 5), (3, 7), (50, 50), (412, 1000)):
        low, high = mover([1.0], [k], [n], 0.95)
        theirs = clopper_pearson(k, n, 0.95)
        assert (float(low), float(high)) == pytest.approx((float(theirs[0]), float(theirs[1])), abs=1e-12)


def test_mover_ignores_proportions_of_weight_zero():
    with_empty = mover([1.0, -1.0, 0.0], [5, 7, 0], [10, 20, 0], 0.9)
    assert np.array(with_empty) == pytest.approx(np.array(mover([1.0, -1.0], [5, 7], [10, 20], 0.9)))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 60), c=st.integers(1, 4), k=st.integers(1, 4))
def test_intervals_hold_their_estimates_on_any_table(seed, n, c, k):
    rng = np.random.default_rng(seed)
    y, s, p, q = (
        rng.integers(c, size=n),
        rng.integers(k, size=n),
        rng.integers(c, size=n),
        rng.integers(c, size=n),
    )
    both = paired_report(y, p, q, s)
    for report in (both.before, both.after):
        for name, (low, high) in report.intervals.items():
            assert low - 1e-12 <= getattr(report, name) <= high + 1e-12, name
            assert np.isfinite([low, high]).all()
        assert {name for name in FIGURES if getattr(report, name) is not None} == set(report.intervals)
    for change in both.changes:
        assert change.low <= change.difference <= change.high, change
        assert np.isfinite([change.low, change.high]).all()
    for group in both.groups:
        assert group.low <= group.difference <= group.high


def test_before_and_after_are_those_of_two_reports():
    rng = np.random.default_rng(2)
    y, s, p, q = (rng.integers(3, size=400) for _ in range(4))
    train = {(a, b): 1 + a for a in range(3) for b in range(3)}
    both = paired_report(y, p, q, s, train_groups=train, positive=1)
    assert both.before == group_report(y, p, s, train_groups=train, positive=1)
    assert both.after == group_report(y, q, s, train_groups=train, positive=1)
    for change in both.changes:
        values = getattr(both.before, change.name), getattr(both.after, change.name)
        assert (change.before, change.after) == values
        assert change.difference == values[1] - values[0]


def test_the_same_prediction_twice_changes_nothing():
    rng = np.random.default_rng(4)
    y, s = rng.integers(2, size=3000), rng.integers(2, size=3000)
    p = np.where(rng.random(3000) < 0.8, y, 1 - y)
    both = paired_report(y, p, p, s)
    for change in both.changes:
        assert change.difference == 0
    average = both.change("average")
    assert average.high - average.low < 0.005  # unpaired it would be 0.04


def test_pairing_makes_the_interval_of_a_change_narrower():
    rng = np.random.default_rng(6)
    y, s = rng.integers(2, size=2000), rng.integers(2, size=2000)
    p = np.where(rng.random(2000) < 0.8, y, 1 - y)
    q = np.where(rng.random(2000) < 0.05, y, p)
    both = paired_report(y, p, q, s)
    low, high = both.change("average").low, both.change("average").high
    discordant = (p == y).astype(int) - (q == y)
    se = discordant.std() / np.sqrt(2000)
    assert (high - low) == pytest.approx(2 * 1.96 * se, rel=0.15)
    one = both.before.intervals["average"]
    assert high - low < (one[1] - one[0]) / 2


def test_paired_intervals_are_as_wide_as_the_bootstrap_on_counts_says():
    rng = np.random.default_rng(8)
    y, s = rng.integers(2, size=4000), rng.integers(2, size=4000)
    p = np.where(rng.random(4000) < 0.8, y, 1 - y)
    q = np.where(rng.random(4000) < 0.5, y, p)
    J = np.zeros((2, 2, 2, 2), dtype=int)
    np.add.at(J, (s, y, p, q), 1)
    draws = resample(J, 4000, random_state=0)
    before, after = evaluate(draws.sum(axis=4)), evaluate(draws.sum(axis=3))
    intervals = paired_from_counts(pair_counts(J), 0.95)
    for name in ("average", "eod_signed", "eod_mean_signed"):
        low, high = intervals[name]
        assert (high - low) / (2 * 1.96) == pytest.approx((after[name] - before[name]).std(), rel=0.08)


def test_counts_are_resampled_as_rows_are():
    rng = np.random.default_rng(9)
    n = 300
    y, s = rng.integers(2, size=n), rng.integers(3, size=n)
    p = np.where(rng.random(n) < 0.7, y, 1 - y)
    report = group_report(y, p, s, train_groups={(a, b): 1 + a + b for a in range(2) for b in range(3)})
    by_counts = report.bootstrap(4000, random_state=1)
    rows = []
    for _ in range(1500):
        i = rng.integers(n, size=n)
        rows.append(group_report(y[i], p[i], s[i], train_groups=report.train_groups))
    for name in FIGURES:
        by_rows = np.array([getattr(r, name) for r in rows])
        for share in (0.1, 0.5, 0.9):
            spread = by_rows.std()
            assert np.quantile(by_counts[name], share) == pytest.approx(
                np.quantile(by_rows, share), abs=0.12 * spread + 1.5 / n
            ), name


def test_replicates_are_seeded_and_bad_input_is_refused():
    assert (resample([3, 5], 10, 0) == resample([3, 5], 10, 0)).all()
    with pytest.raises(LabelError, match="nothing to draw"):
        resample([0, 0], 5)
    with pytest.raises(ParameterError, match="integers"):
        resample([0.5], 5)
    with pytest.raises(ParameterError, match="at least 1"):
        resample([1], 0)


def test_spread_over_seeds_is_apart_from_sampling_error():
    rng = np.random.default_rng(10)
    y, s = rng.integers(2, size=500), rng.integers(2, size=500)
    reports = [group_report(y, np.where(rng.random(500) < q, y, 1 - y), s) for q in (0.6, 0.7, 0.8)]
    spreads = {spread.name: spread for spread in seed_spread(reports)}
    values = [report.average for report in reports]
    average = spreads["average"]
    assert average.mean == pytest.approx(np.mean(values))
    assert average.sd == pytest.approx(np.std(values, ddof=1))
    assert (average.smallest, average.largest) == (min(values), max(values))
    binomial = np.mean([np.sqrt(v * (1 - v) / 500) for v in values])
    assert average.sampling_se == pytest.approx(binomial, rel=0.1)
    assert "train_weighted_average" not in spreads
    assert seed_spread(reports[:1])[0].sd == 0
    with pytest.raises(ParameterError, match="same rows"):
        seed_spread([reports[0], group_report(y[1:], y[1:], s[1:])])
    with pytest.raises(ParameterError, match="none"):
        seed_spread([])


def test_a_group_without_rows_has_no_say():
    N = np.zeros((2, 2, 2), dtype=int)
    N[0, 0, 0], N[0, 1, 0], N[1, 0, 0] = 5, 3, 4  # nobody of class 1 and value 1
    intervals = group_intervals(N, 0.95)
    low, _ = clopper_pearson(0, 3, 0.95)
    assert intervals["worst_group"][0] == float(low) == 0.0
    assert "eod" not in intervals
    assert "equalized_odds_difference" in intervals


@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (2, 4)], ids=str)
def test_no_extreme_changes_by_more_than_what_it_is_an_extreme_of(shape):
    S, c = shape
    rng = np.random.default_rng(3)
    for _ in range(20):
        first = rng.dirichlet(np.full(S * c * c, 9.0)).reshape(
            S, c, c, 1
        )  # groups nearly alike, most of it kept
        J = rng.multinomial(600, (first * (0.9 * np.eye(c) + 0.1 / c)).ravel()).reshape(S, c, c, c)
        ends = paired_from_counts(pair_counts(J), 0.95, 1 if c == 2 else None)
        pair = PairedRates(pair_counts(J), 0.95)
        groups = np.eye(S * c)[J.sum(axis=(2, 3)).T.ravel() > 0]
        low, high = pair.matched(("recall",), groups, len(groups))
        assert low.min() <= ends["worst_group"][0] <= ends["worst_group"][1] <= high.max()


def test_the_change_of_a_small_difference_is_narrower_than_two_single_intervals():
    # Groups alike before and after, nine of ten predictions kept: paired 0.16 wide, of two single ones 0.20.
    right = np.array([[0.8 * 0.9 + 0.64 * 0.1, 0.016], [0.016, 0.2 * 0.9 + 0.04 * 0.1]])
    one = np.zeros((2, 2, 2, 2))
    for s, y in np.ndindex(2, 2):
        one[s, y, y, y], one[s, y, 1 - y, 1 - y] = right[0, 0], right[1, 1]
        one[s, y, y, 1 - y] = one[s, y, 1 - y, y] = right[0, 1]
    rng = np.random.default_rng(4)
    widths, held = [], []
    for draw in rng.multinomial(1000, one.ravel() / one.sum(), size=60):
        J = draw.reshape(one.shape)
        low, high = paired_from_counts(pair_counts(J), 0.95, 1)["eod"]
        widths.append(high - low)
        held.append(low <= 0 <= high)
    assert np.mean(widths) < 0.125
    assert np.mean(held) >= 0.95
