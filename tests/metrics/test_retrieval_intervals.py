"""Retrieval figures with intervals: values against the plain figures, ends against exact cases, and coverage."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import beta

from fairerclip.errors import ParameterError, ShapeError
from fairerclip.metrics import (
    bias_at_k,
    kl_at_k,
    max_skew,
    min_skew,
    names,
    ndkl,
    precision_at_k,
    ranking_drift,
    recall_at_k,
    retrieval_changes,
    retrieval_report,
)
from fairerclip.metrics.retrieval.extremes import Proportions, difference_limits, sidak

SKEWS = ("max_skew", "min_skew", "ndkl", "kl")


def gallery(seed=1, n=400, queries=3, groups="abc", bias=0.5):
    rng = np.random.default_rng(seed)
    codes = rng.integers(len(groups), size=n)
    relevant = rng.random((n, queries)) < 0.3
    noise = rng.normal(size=(n, queries))
    before = bias * codes[:, None] + relevant + noise
    after = 0.2 * bias * codes[:, None] + relevant + noise
    return before, after, np.array(list(groups))[codes], relevant


@pytest.mark.parametrize("reference", ["population", "uniform", {"a": 1, "b": 1, "c": 2, "x": 0.5}])
@pytest.mark.parametrize("ties", ["expected", "score"])
def test_values_are_those_of_the_plain_figures(reference, ties):
    before, _, groups, relevant = gallery()
    before = np.round(before, 1)
    report = retrieval_report(
        before,
        groups,
        60,
        relevant=relevant,
        reference=reference,
        pair=("c", "a"),
        ties=ties,
        random_state=0,
    )
    options = {"k": 60, "reference": reference, "ties": ties}
    values = {
        name: f(before, groups, **options)
        for name, f in zip(SKEWS, (max_skew, min_skew, ndkl, kl_at_k), strict=True)
    }
    values["bias"] = bias_at_k(before, groups, 60, pair=("c", "a"), ties=ties)
    values["precision"] = precision_at_k(before, relevant, 60, ties=ties)
    values["recall"] = recall_at_k(before, relevant, 60, ties=ties)
    for name, expected in values.items():
        found = [getattr(query.figures, name) for query in report.queries]
        assert [estimate.value for estimate in found] == pytest.approx(expected)
        assert getattr(report.mean, name).value == pytest.approx(np.mean(expected))
        for estimate in [*found, getattr(report.mean, name)]:
            assert estimate.low <= estimate.value <= estimate.high
    for query in report.queries:
        assert sum(query.counts) == pytest.approx(60)
        assert [share.value * 60 for share in query.shares] == pytest.approx(query.counts)
    assert (report.k, report.n, report.groups) == (60, 400, ("a", "b", "c"))
    assert report.reference == (reference if isinstance(reference, str) else "given")


def test_changes_hold_both_reports_their_differences_and_the_drift():
    before, after, groups, relevant = gallery()
    result = retrieval_changes(before, after, groups, 60, relevant=relevant, pair=("a", "b"), random_state=0)
    alone = retrieval_report(before, groups, 60, relevant=relevant, random_state=0)
    assert result.before.queries[1].counts == alone.queries[1].counts
    assert result.before.queries[1].figures.max_skew == alone.queries[1].figures.max_skew
    for query, changes in enumerate(result.changes):
        for name, change in changes.items():
            pair = [getattr(r.queries[query].figures, name).value for r in (result.before, result.after)]
            assert (change.before, change.after) == tuple(pair)
            assert change.difference == pytest.approx(pair[1] - pair[0])
            assert change.low < change.difference < change.high
        drift = ranking_drift(before[:, query], after[:, query], groups, 60, random_state=0)
        assert result.drift[query].spearman_within.value == drift.spearman_within.value
        assert result.drift[query].overlap.value == drift.overlap.value
    mean = result.mean_changes["max_skew"]
    assert mean.difference == pytest.approx(np.mean([c["max_skew"].difference for c in result.changes]))
    assert mean.low < mean.difference < mean.high


def test_a_mitigation_of_a_strong_bias_is_beyond_doubt_in_a_large_gallery():
    before, after, groups, _ = gallery(n=3000, bias=1.0)
    result = retrieval_changes(before, after, groups, 600, random_state=0)
    for change in (
        result.mean_changes["max_skew"],
        result.changes[0]["max_skew"],
        result.mean_changes["ndkl"],
    ):
        assert change.high < 0
    assert result.mean_changes["min_skew"].low > 0
    single = [c["max_skew"].high - c["max_skew"].low for c in result.changes]
    assert result.mean_changes["max_skew"].high - result.mean_changes["max_skew"].low < np.mean(single)


def test_pairing_narrows_the_interval_of_a_change():
    before, after, groups, relevant = gallery(n=2000)
    result = retrieval_changes(before, after, groups, 300, relevant=relevant, random_state=0)
    for name in ("precision", "max_skew"):
        change = result.changes[0][name]
        first, second = (getattr(r.queries[0].figures, name) for r in (result.before, result.after))
        unpaired = np.hypot(first.high - first.low, second.high - second.low)
        assert change.high - change.low < (0.8 if name == "precision" else 1.3) * unpaired


def test_unchanged_scores_have_no_change_at_all():
    before, after, groups, _ = gallery()
    after[:, 0] = before[:, 0]
    result = retrieval_changes(before, after, groups, 60, random_state=0)
    for name in SKEWS:
        change = result.changes[0][name]
        assert (change.difference, change.low, change.high) == (0, 0, 0)
        assert result.changes[1][name].low < result.changes[1][name].high
    assert result.changes[0]["precision"] is None
    assert result.before.queries[0].figures.precision is None


def test_results_are_json_with_null_for_what_is_infinite():
    scores, groups = np.arange(40, 0, -1.0), ["f"] * 20 + ["m"] * 20
    result = retrieval_changes(scores, scores[::-1], groups, 10, random_state=0)
    plain = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert set(plain) == {"k", "n", "reference", "ties", "groups", "shares", "pair", "queries", "mean"}
    assert plain["pair"] is None
    assert plain["queries"][0]["before"]["bias"] is None
    query = plain["queries"][0]
    assert set(query) == {"before", "after", "changes", "drift", "clear"}
    assert set(query["before"]) == {"counts", *SKEWS, "bias", "precision", "recall"}
    assert query["before"]["min_skew"]["value"] is None
    assert query["before"]["min_skew"]["low"] is None
    assert query["before"]["min_skew"]["high"] < 0
    assert query["before"]["precision"] is None
    assert set(query["changes"]["max_skew"]) == {"before", "after", "difference", "low", "high"}
    assert query["changes"]["min_skew"]["difference"] is None
    assert set(query["drift"]) == {"spearman", "spearman_within", "overlap"}
    assert set(plain["mean"]) == {"before", "after", "changes"}
    single = json.loads(json.dumps(retrieval_report(scores, groups, 10).as_dict(), allow_nan=False))
    assert single["queries"][0]["after"] is None
    assert single["mean"]["before"]["max_skew"]["value"] == pytest.approx(np.log(2))


def test_a_group_that_is_not_shown_has_the_exact_binomial_bound():
    scores, groups = np.arange(100, 0, -1.0), ["f"] * 60 + ["m"] * 40
    report = retrieval_report(scores, groups, 20, random_state=0)
    # 0 of 40 "m": the upper limit of the share that is shown, for two groups at once.
    alpha = 1 - 0.975**0.5
    shown = beta.ppf(1 - alpha, 1, 40)
    assert report.queries[0].figures.min_skew.high == pytest.approx(min(0.0, np.log(shown / 0.2)))
    uniform = retrieval_report(scores, groups, 20, reference="uniform", random_state=0)
    shown = beta.ppf(1 - alpha, 1, 20)
    assert uniform.queries[0].figures.min_skew.high == pytest.approx(np.log(shown / 0.5))
    # Of 20 shown all are "f": at least 0.025^(1/20) of all such rows, again for two groups.
    assert uniform.queries[0].figures.max_skew.low == pytest.approx(np.log(alpha ** (1 / 20) / 0.5))


def test_showing_everything_or_a_single_group_has_no_skew_without_error():
    before, _, groups, _ = gallery()
    for report in (
        retrieval_report(before, groups, len(groups), random_state=0),
        retrieval_report(before, ["one"] * len(groups), 50, random_state=0),
        retrieval_report(np.zeros(len(groups)), groups, 50, random_state=0),
    ):
        for estimate in (report.queries[0].figures.max_skew, report.mean.min_skew):
            assert (estimate.value, estimate.low, estimate.high) == pytest.approx((0, 0, 0), abs=1e-12)


def test_a_shown_group_without_reference_share_makes_ndkl_infinite():
    before, after, groups, _ = gallery()
    only = {"a": 1, "b": 1, "c": 0}
    result = retrieval_changes(before, after, groups, 60, reference=only, random_state=0)
    assert result.before.queries[0].figures.ndkl.value == np.inf
    plain = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert plain["queries"][0]["before"]["ndkl"]["value"] is None
    assert plain["queries"][0]["changes"]["ndkl"]["difference"] is None


def test_queries_without_relevant_rows_are_left_out_of_mean_recall():
    before, _, groups, relevant = gallery()
    relevant[:, 0] = False
    report = retrieval_report(before, groups, 60, relevant=relevant, random_state=0)
    assert np.isnan(report.queries[0].figures.recall.value)
    assert report.as_dict()["queries"][0]["before"]["recall"]["low"] is None
    rest = [query.figures.recall.value for query in report.queries[1:]]
    assert report.mean.recall.value == pytest.approx(np.mean(rest))


def test_reports_follow_the_seed():
    before, after, groups, _ = gallery(n=150)
    first, again, other = (
        retrieval_changes(before, after, groups, 30, ties="random", random_state=seed).as_dict()
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_bad_arguments_are_named():
    before, after, groups, _ = gallery()
    with pytest.raises(ParameterError, match=r"confidence must be a number in \(0, 1\); got 95"):
        retrieval_report(before, groups, 10, confidence=95)
    with pytest.raises(ParameterError, match="at least 100 for standard errors; got 5"):
        retrieval_report(before, groups, 10, n_replicates=5)
    with pytest.raises(ParameterError, match="n=400; got 401"):
        retrieval_report(before, groups, 401)
    with pytest.raises(ShapeError, match="same shape; got \\(400, 3\\) and \\(400, 2\\)"):
        retrieval_changes(before, after[:, :2], groups, 10)
    with pytest.raises(ParameterError, match="'random'; got 'first'"):
        retrieval_changes(before, after, groups, 10, ties="first")


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 1), (3, 2), (5, 5)])
def test_tiny_galleries_have_ordered_ends_and_plain_json(n, k):
    groups, relevant = list("ababc")[:n], [1, 0, 1, 0, 0][:n]
    scores = np.arange(n, dtype=float)
    pair = ("a", "b") if n > 1 else None
    result = retrieval_changes(scores, -scores, groups, k, relevant=relevant, pair=pair, random_state=0)
    json.dumps(result.as_dict(), allow_nan=False)
    for report in (result.before, result.after):
        for name, estimate in vars(report.queries[0].figures).items():
            assert estimate is not None or (name, n) == ("bias", 1)
            if estimate is not None:
                assert estimate.low <= estimate.value <= estimate.high


def test_a_group_of_one_row_leaves_the_upper_end_of_max_skew_open_to_the_ceiling():
    groups, scores = ["a"] * 95 + ["b"] * 5 + ["c"], np.arange(101.0)[::-1]
    skew = retrieval_report(scores, groups, 10, random_state=0).queries[0].figures.max_skew
    # One row that is not shown says little: by 0.975 of all such rows could be.
    assert skew.high == pytest.approx(np.log(0.975 / (10 / 101)))


# What the intervals are made of


def test_limits_of_proportions_of_independent_rows_are_clopper_and_pearsons():
    rng = np.random.default_rng(2)
    counts = rng.binomial(50, 0.3, size=(200_000, 1)).astype(float)
    share = Proportions.of(np.array([15.0]), np.array([50.0]), counts, np.full(counts.shape, 50.0))
    low, high = share.limits(1.96)
    assert low[0] == pytest.approx(beta.ppf(0.025, 15, 36), abs=0.003)
    assert high[0] == pytest.approx(beta.ppf(0.975, 16, 35), abs=0.003)


def test_sidak_limits_miss_together_as_often_as_one():
    assert sidak(0.025, 1) == pytest.approx(1.959964, abs=1e-6)
    rng = np.random.default_rng(3)
    assert (rng.normal(size=(200_000, 5)).max(axis=1) > sidak(0.05, 5)).mean() == pytest.approx(
        0.05, abs=0.002
    )


def test_difference_of_symmetric_limits_is_that_of_standard_errors():
    one = (np.array([1.0]), np.array([0.8]), np.array([1.2]))
    two = (np.array([3.0]), np.array([2.7]), np.array([3.3]))
    low, high = difference_limits(one, two, np.array([0.5]))
    reach = np.sqrt(0.2**2 + 0.3**2 - 0.2 * 0.3)
    assert (low[0], high[0]) == pytest.approx((2 - reach, 2 + reach))


def test_change_of_maxima_lies_between_the_max_min_of_pairwise_limits():
    rng = np.random.default_rng(4)
    for _ in range(200):
        m, after = rng.normal(size=(2, 5))
        pairs = after[:, None] - m
        assert after.max() - m.max() == pytest.approx(pairs.min(axis=1).max())
        assert after.min() - m.min() == pytest.approx(pairs.max(axis=1).min())


# Coverage


def benchmark():
    path = Path(__file__).parents[2] / "benchmarks" / "coverage_retrieval.py"
    spec = importlib.util.spec_from_file_location("coverage_retrieval", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("groups", "top", "bias"), [(2, 0.2, "strong"), (7, 0.1, "none")], ids=str)
def test_intervals_hold_the_truth_as_often_as_they_say(groups, top, bias, monkeypatch):
    module, sets = benchmark(), 30  # `make coverage` counts a thousand
    monkeypatch.setattr("fairerclip.metrics.retrieval.gallery.HALF_SAMPLES", 40)
    covered = module.coverage(module.Setting(groups, 1000, top, bias), sets, n_replicates=200, seed=7)
    assert len(covered) == 29
    # Three binomial standard errors of one interval per gallery; five queries per gallery have no larger one.
    error = 3 * (0.95 * 0.05 / sets) ** 0.5
    for name, share in covered.items():
        assert share >= 0.95 - error, (name, share)
    for name in ("share", "precision", "recall"):
        assert share_is_near(covered[name], 0.95, sets), (name, covered[name])


def share_is_near(share, nominal, sets):
    """Single queries are five per gallery, and correlated: their effective number is at least that of galleries."""
    return abs(share - nominal) <= 0.02 + 3 * (0.95 * 0.05 / sets) ** 0.5


def test_a_change_that_is_clear_alone_is_not_clear_among_many():
    before, after, groups, _ = gallery(seed=3, n=600, queries=1, bias=0.35)
    alone = retrieval_changes(before, after, groups, 100, random_state=0)
    change = alone.changes[0]["max_skew"]
    assert change.high < 0
    assert alone.clear == (True,)
    many = retrieval_changes(np.repeat(before, 20, 1), np.repeat(after, 20, 1), groups, 100, random_state=0)
    assert many.changes[0]["max_skew"].high == pytest.approx(change.high)
    assert not any(many.clear)
    assert [query["clear"] for query in alone.as_dict()["queries"]] == [True]


def test_scores_that_did_not_change_are_never_a_clear_change():
    before, after, groups, _ = gallery(bias=2.0)
    after[:, 1] = before[:, 1]
    assert retrieval_changes(before, after, groups, 60, random_state=0).clear == (True, False, True)


def test_a_bias_whose_groups_are_not_shown_is_0_and_not_bounded():
    scores, groups = np.c_[np.arange(40.0), -np.arange(40.0)], ["f", "m"] * 10 + ["x"] * 20
    report = retrieval_report(scores, groups, 10, pair=("m", "f"), random_state=0)
    unknown, known = (query.figures.bias for query in report.queries)
    assert (unknown.value, unknown.low, unknown.high) == (0, -1, 1)
    assert -1 < known.low < known.value < known.high < 1
    assert report.mean.bias.value == pytest.approx(known.value / 2)
    assert report.mean.bias.low == pytest.approx((known.low - 1) / 2)
    change = retrieval_changes(scores, -scores, groups, 10, pair=("m", "f"), random_state=0).changes[0][
        "bias"
    ]
    assert change.low < -0.9
    assert change.high > 0.9


def test_a_bias_of_one_group_only_has_the_limit_of_its_rows():
    report = retrieval_report(np.arange(200.0), ["f"] * 150 + ["m"] * 50, 20, pair=("m", "f"), random_state=0)
    bias = report.queries[0].figures.bias
    assert (bias.value, bias.high) == (1, 1)
    assert bias.low == pytest.approx(2 * beta.ppf(0.025, 20.5, 0.5) - 1)


def test_all_rows_have_no_divergence_from_the_population():
    kl = retrieval_report(np.arange(40.0), ["f", "m"] * 20, 40, random_state=0).queries[0].figures.kl
    assert (kl.value, kl.low, kl.high) == (0, 0, 0)
    one = retrieval_report(np.arange(40.0), ["f"] * 40, 10, random_state=0).queries[0].figures.kl
    assert (one.value, one.low, one.high) == (0, 0, 0)


def test_files_of_results_have_all_figures_and_the_pair():
    before, after, groups, _ = gallery(n=60)
    result = retrieval_changes(before, after, groups, 20, pair=("c", "a"), random_state=0)
    plain = result.as_dict()
    assert plain["pair"] == ["c", "a"]
    assert set(plain["mean"]["changes"]) == set(result.before.mean.as_dict()) == set(names.RETRIEVAL)
    assert plain["mean"]["changes"]["bias"] == result.mean_changes["bias"].as_dict()
    alone = retrieval_changes(before, after, groups, 20, random_state=0).as_dict()
    assert {**plain["mean"]["after"], "bias": None} == alone["mean"]["after"]


def test_no_interval_of_kl_is_above_the_largest_possible_kl():
    # 19 of the 38 shown rows are of the group with half of all rows but one: a KL near 0.
    groups = np.array(["f", "m"] * 19 + ["f"] * 57 + ["m"] * 55)
    report = retrieval_report(-np.arange(len(groups)), groups, 38, random_state=0)
    kl = report.queries[0].figures.kl
    assert 0 < kl.value < 1e-4
    assert kl.high == pytest.approx(-np.log(74 / 150))
    assert report.mean.kl.high == kl.high
    change = retrieval_changes(-np.arange(len(groups)), np.arange(len(groups)), groups, 38, random_state=0)
    assert change.mean_changes["kl"].high < 1
