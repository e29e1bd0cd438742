"""Intervals of group figures: coverage, pairing, the bootstrap on counts, and the spread over seeds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from fairerclip.errors import LabelError, ParameterError
from fairerclip.metrics import FIGURES, group_report, paired_report, resample, seed_spread
from fairerclip.metrics.groups.bounds import group_intervals
from fairerclip.metrics.groups.group_figures import evaluate
from fairerclip.metrics.groups.paired import paired_from_counts
from fairerclip.metrics.groups.paired_rates import PairCounts, PairedRates
from fairerclip.metrics.intervals import clopper_pearson

SETS = 40
LEAST = binom.ppf(1e-3, SETS, 0.95) / SETS
"""Coverage that intervals which hold 95 % fall below once in a thousand times."""


def pair_counts(J):
    """Counts (|S|, c, c, c) of a paired comparison, by sensitive value, class and both predictions."""
    s, y, before, after = np.nonzero(J)
    return PairCounts(s, y, (before, after), J[J > 0].astype(float), J.shape[1], J.shape[0])


@settings(max_examples=25, deadline=None)
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
    with pytest.raises(ParameterError):
        seed_spread([reports[0], group_report(y[1:], y[1:], s[1:])])
    with pytest.raises(ParameterError):
        seed_spread([])


def test_a_group_without_rows_has_no_say():
    N = np.zeros((2, 2, 2), dtype=int)
    N[0, 0, 0], N[0, 1, 0], N[1, 0, 0] = 5, 3, 4  # nobody of class 1 and value 1
    intervals = group_intervals(N, 0.95)
    low, _ = clopper_pearson(0, 3, 0.95)
    assert intervals["worst_group"][0] == float(low) == 0.0
    assert "eod" not in intervals
    assert "equalized_odds_difference" in intervals


@pytest.mark.parametrize(("c", "v", "alike"), [(2, 2, False), (2, 5, True), (3, 2, False)])
def test_intervals_of_figures_and_of_their_changes_cover_the_truth(c, v, alike):
    """Where all groups are alike, a percentile bootstrap of the lowest of them covers hardly ever."""
    rng = np.random.default_rng(v + alike)
    right = np.full((2, v, c), 0.8) if alike else rng.uniform(0.6, 0.95, size=(2, v, c))
    P, fresh = (np.eye(c) * r[..., None] + (1 - np.eye(c)) * (1 - r[..., None]) / (c - 1) for r in right)
    # Sensitive value, class, first and second prediction; of two predictions of a row six in ten are the same.
    J = P[..., None] * (0.6 * np.eye(c) + 0.4 * fresh[:, :, None, :]) / (c * v)
    train = np.full((c, v), 100.0)
    before, after = evaluate(J.sum(axis=3), None, train), evaluate(J.sum(axis=2), None, train)
    held = {}
    for draw in rng.multinomial(400 * v, J.ravel(), size=SETS).reshape(SETS, *J.shape):
        for name, (low, high) in group_intervals(draw.sum(axis=3), 0.95, None, train).items():
            held.setdefault(name, []).append(low <= before[name] <= high)
        for name, (low, high) in paired_from_counts(pair_counts(draw), 0.95, None, train).items():
            held.setdefault(f"change of {name}", []).append(low <= after[name] - before[name] <= high)
    assert (
        len(held) >= 2 * len(FIGURES) - 1
    )  # of several pairs none is fixed, whose signed difference could change
    assert min(np.mean(hits) for hits in held.values()) >= LEAST, {k: np.mean(h) for k, h in held.items()}


def test_the_bootstrap_takes_the_figures_of_multinomial_counts():
    rng = np.random.default_rng(9)
    y, s = rng.integers(2, size=90), rng.integers(3, size=90)
    p = np.where(rng.random(90) < 0.7, y, 1 - y)
    train = {(a, b): 1 + a + b for a in range(2) for b in range(3)}
    report = group_report(y, p, s, train_groups=train)
    N = np.array(report.confusion)
    draws, found = resample(N, 4000, 1), report.bootstrap(4000, random_state=1)
    assert (draws.sum(axis=(1, 2, 3)) == 90).all()
    share = N / 90
    np.testing.assert_allclose(draws.mean(axis=0), N, atol=4 * np.sqrt(90 * share.max() / 4000))
    np.testing.assert_allclose(draws.var(axis=0), 90 * share * (1 - share), rtol=0.15)
    for draw in range(3):
        cells = np.repeat(np.indices(N.shape).reshape(3, -1), draws[draw].ravel(), axis=1)
        again = group_report(cells[1], cells[2], cells[0], train_groups=train)
        for name in FIGURES:
            assert found[name][draw] == pytest.approx(getattr(again, name)), name
    with pytest.raises(LabelError):
        resample([0, 0], 5)


def test_a_largest_difference_changes_by_no_more_than_the_differences_of_its_pairs():
    rng = np.random.default_rng(3)
    for _ in range(10):
        first = rng.dirichlet(np.full(18, 9.0)).reshape(
            2, 3, 3, 1
        )  # two values and three classes, most of it kept
        J = rng.multinomial(600, (first * (0.9 * np.eye(3) + 0.1 / 3)).ravel()).reshape(2, 3, 3, 3)
        low, high = paired_from_counts(pair_counts(J), 0.95)["equalized_odds_difference"]
        pair, by_value = PairedRates(pair_counts(J), 0.95), np.kron(np.eye(3), [-1.0, 1.0])
        each = [
            pair.matched((kind,), sign * by_value, 12) for kind in ("recall", "false") for sign in (1, -1)
        ]
        least, most = min(ends[0].min() for ends in each), max(ends[1].max() for ends in each)
        assert least - 1e-12 <= low <= high <= most + 1e-12
