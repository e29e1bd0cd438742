"""Retrieval figures with intervals: values against the plain figures, ends against exact cases, and coverage."""

import json

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import beta

from fairerclip.errors import ParameterError, ShapeError
from fairerclip.metrics import (
    bias_at_k,
    kl_at_k,
    max_skew,
    min_skew,
    ndkl,
    precision_at_k,
    query_skews,
    ranking_drift,
    recall_at_k,
    retrieval_changes,
    retrieval_report,
)

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


@pytest.mark.parametrize("reference", ["population", "uniform"])
def test_skews_of_many_queries_are_those_of_the_full_report(reference):
    before, after, groups, _ = gallery(n=90)
    after[:, 2] = before[:, 2]
    options = {"reference": reference, "random_state": 3, "n_replicates": 100}
    found, full = (f(before, after, groups, 20, **options) for f in (query_skews, retrieval_changes))
    assert found.before == tuple(query.figures.max_skew for query in full.before.queries)
    assert found.after == tuple(query.figures.max_skew for query in full.after.queries)
    assert found.changes == tuple(change["max_skew"] for change in full.changes)
    assert found.clear == full.clear
    assert found.kept == pytest.approx([drift.overlap.value for drift in full.drift])
    assert found.counts_after.tolist() == [list(query.counts) for query in full.after.queries]
    assert (found.groups, found.shares) == (full.before.groups, full.before.shares)
    alone = query_skews(before, None, groups, 20, **options)
    assert (alone.before, alone.after, alone.changes) == (found.before, None, None)


def test_queries_without_relevant_rows_are_left_out_of_mean_recall():
    before, _, groups, relevant = gallery()
    relevant[:, 0] = False
    report = retrieval_report(before, groups, 60, relevant=relevant, random_state=0)
    assert np.isnan(report.queries[0].figures.recall.value)
    assert report.as_dict()["queries"][0]["before"]["recall"]["low"] is None
    rest = [query.figures.recall.value for query in report.queries[1:]]
    assert report.mean.recall.value == pytest.approx(np.mean(rest))


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


@pytest.mark.parametrize("report", [retrieval_changes, query_skews])
def test_bad_arguments_are_refused(report):
    before, after, groups, _ = gallery()
    with pytest.raises(ParameterError):
        report(before, after, groups, k=10, confidence=95)
    with pytest.raises(ShapeError):
        report(before, after[:, :2], groups, k=10)


@pytest.mark.slow
@pytest.mark.parametrize("bias", [0.0, 0.8])
def test_intervals_of_figures_and_changes_hold_the_truth(bias, monkeypatch):
    """Scores are normal about a mean per group and relevance, so that the true share of each in the top is known."""
    monkeypatch.setattr("fairerclip.metrics.retrieval.gallery.HALF_SAMPLES", 40)
    rng, sets, top, share = np.random.default_rng(5), 30, 0.2, np.array([0.2, 0.3, 0.5])
    weights = np.outer([0.7, 0.3], share)

    def truth(means):
        levels = means + np.array([[0.0], [0.7]])
        cut = brentq(lambda t: np.sum(weights * ndtr(levels - t)) - top, -9, 9)
        joint = weights * ndtr(levels - cut)
        shown = joint.sum(axis=0) / top
        skews = np.log(shown / share)
        values = skews.max(), skews.min(), (shown[2] - shown[0]) / (shown[2] + shown[0])
        return dict(
            zip(
                ("max_skew", "min_skew", "bias", "precision", "recall"),
                (*values, joint[1].sum() / top, joint[1].sum() / 0.3),
                strict=True,
            )
        )

    means = [bias * part * np.array([-1.0, 0.0, 0.5]) for part in (1.0, 0.4)]
    true, held = [truth(m) for m in means], {}
    for _ in range(sets):
        codes, relevant, noise = rng.choice(3, p=share, size=500), rng.random(500) < 0.3, rng.normal(size=500)
        mixed = 0.8 * noise + 0.6 * rng.normal(size=500)
        scores = [m[codes] + 0.7 * relevant + e for m, e in zip(means, (noise, mixed), strict=True)]
        options = {"relevant": relevant, "pair": (2, 0), "n_replicates": 100, "random_state": rng}
        found = retrieval_changes(*scores, codes, 100, **options)
        for name, value in true[0].items():
            estimate, change = getattr(found.before.queries[0].figures, name), found.changes[0][name]
            held.setdefault(name, []).append(estimate.low <= value + 1e-12 <= estimate.high + 2e-12)
            held.setdefault(f"change of {name}", []).append(
                change.low <= true[1][name] - value <= change.high
            )
    least = 0.95 - 3 * (0.95 * 0.05 / sets) ** 0.5
    assert min(np.mean(hits) for hits in held.values()) >= least, {k: np.mean(h) for k, h in held.items()}


def test_a_change_that_is_clear_alone_is_not_clear_among_many():
    before, after, groups, _ = gallery(seed=3, n=600, queries=1, bias=0.35)
    alone = retrieval_changes(before, after, groups, 100, random_state=0)
    change = alone.changes[0]["max_skew"]
    assert change.high < 0
    assert alone.clear == (True,)
    many = retrieval_changes(np.repeat(before, 9, 1), np.repeat(after, 9, 1), groups, 100, random_state=0)
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


def test_a_bias_of_one_group_only_has_the_limit_of_its_rows():
    report = retrieval_report(np.arange(200.0), ["f"] * 150 + ["m"] * 50, 20, pair=("m", "f"), random_state=0)
    bias = report.queries[0].figures.bias
    assert (bias.value, bias.high) == (1, 1)
    assert bias.low == pytest.approx(2 * beta.ppf(0.025, 20.5, 0.5) - 1)


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
