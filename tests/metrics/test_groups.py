"""Group accuracies against naive loops, scikit-learn and scipy."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from fairerclip.errors import LabelError, NonFiniteError, ParameterError, PositiveClassWarning, ShapeError
from fairerclip.metrics import cell_accuracies, group_report, paired_report, shrunken_worst_group


def labels(seed, n=200, c=2, k=2):
    rng = np.random.default_rng(seed)
    y, s = rng.integers(c, size=n), rng.integers(k, size=n)
    p = np.where(rng.random(n) < 0.7, y, rng.integers(c, size=n))
    return y, p, s


def naive_cells(y, p, s):
    cells = {}
    for a, b, c in zip(y, p, s, strict=True):
        n, hits = cells.get((a, c), (0, 0))
        cells[a, c] = (n + 1, hits + (a == b))
    return cells


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 80), c=st.integers(1, 5), k=st.integers(1, 4))
def test_groups_equal_a_naive_loop(seed, n, c, k):
    y, p, s = labels(seed, n, c, k)
    report = group_report(y, p, s)
    found = {(g.y, g.s): (g.n, g.correct) for g in report.groups}
    assert found == naive_cells(y.tolist(), p.tolist(), s.tolist())
    assert all(g.accuracy == g.correct / g.n for g in report.groups)
    assert report.average == pytest.approx((y == p).mean())
    assert report.worst.accuracy == min(g.accuracy for g in report.groups)
    assert report.gap == pytest.approx(report.average - report.worst.accuracy)
    assert len(report.groups) + len(report.empty) == len(report.classes) * len(report.sensitive)
    assert report.n == n
    train = {(a, b): 1 + a + b for a in range(c) for b in range(k)}
    share = {g: train[g[0], g[1]] for g in found}
    expected = sum(share[g] * hits / n for g, (n, hits) in found.items()) / sum(share.values())
    assert group_report(y, p, s, train_groups=train).train_weighted_average == pytest.approx(expected)


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
@pytest.mark.parametrize(("correct", "n"), [(0, 1), (1, 1), (0, 12), (12, 12), (5, 8), (40, 57), (999, 1000)])
def test_intervals_of_groups_are_clopper_pearson(correct, n, confidence):
    y = np.zeros(n + 1, dtype=int)
    p = np.r_[np.zeros(correct, dtype=int), np.ones(n - correct, dtype=int), 0]
    report = group_report(y, p, np.r_[np.zeros(n, dtype=int), 1], confidence=confidence)
    expected = binomtest(correct, n).proportion_ci(confidence, method="exact")
    assert report.groups[0].low == pytest.approx(expected.low, abs=1e-10)
    assert report.groups[0].high == pytest.approx(expected.high, abs=1e-10)
    whole = binomtest(correct + 1, n + 1).proportion_ci(confidence, method="exact")
    assert report.intervals["average"] == pytest.approx((whole.low, whole.high), abs=1e-10)


def naive_fairlearn(y, p, s):
    """Equalized-odds and demographic-parity differences as fairlearn defines them for classes 0 and 1."""
    values = np.unique(s)
    tpr = [p[(s == a) & (y == 1)].mean() for a in values]
    fpr = [p[(s == a) & (y == 0)].mean() for a in values]
    selected = [p[s == a].mean() for a in values]
    return max(np.ptp(tpr), np.ptp(fpr)), np.ptp(selected), np.ptp(tpr), np.ptp(fpr)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_two_class_differences_are_those_of_fairlearn(seed, k):
    y, p, s = labels(seed, k=k)
    odds, parity, tpr, fpr = naive_fairlearn(y, p, s)
    report = group_report(y, p, s)
    assert report.equalized_odds_difference == pytest.approx(odds)
    assert report.demographic_parity_difference == pytest.approx(parity)
    assert report.eod == pytest.approx(tpr)
    assert group_report(y, p, s, positive=0).eod == pytest.approx(fpr)  # the recall of class 0 is 1 - FPR
    assert report.eod_mean == pytest.approx((tpr + fpr) / 2)


def test_a_report_becomes_a_metric_frame():
    fairlearn = pytest.importorskip("fairlearn.metrics")
    y, p, s = labels(4, k=3)
    names = np.array(["a", "b", "c"])[s]
    frame = group_report(y, p, names).to_metric_frame()
    metrics = {name: getattr(fairlearn, name) for name in ("selection_rate", "true_positive_rate")}
    theirs = fairlearn.MetricFrame(metrics=metrics, y_true=y, y_pred=p, sensitive_features=names)
    assert frame.by_group[list(metrics)].to_numpy() == pytest.approx(theirs.by_group.to_numpy(), abs=1e-12)
    assert frame.overall["accuracy"] == pytest.approx((y == p).mean(), abs=1e-12)
    assert frame.by_group["count"].to_dict() == {v: int((names == v).sum()) for v in "abc"}
    flipped = group_report(y, p, names, positive=0).to_metric_frame()
    recall = [(p[(y == 0) & (names == v)] == 0).mean() for v in "abc"]
    assert flipped.by_group["true_positive_rate"].to_numpy() == pytest.approx(recall, abs=1e-12)


def test_signed_mean_cancels_where_classes_disagree():
    y, p, s = labels(11, n=900, c=3, k=3)
    report = group_report(y, p, s)
    recall = np.array([[(p[(y == c) & (s == a)] == c).mean() for a in range(3)] for c in range(3)])
    pairs = [recall[:, b] - recall[:, a] for a in range(3) for b in range(a + 1, 3)]
    assert report.eod_mean_signed == pytest.approx(np.mean(pairs))
    largest = max((d for pair in pairs for d in pair), key=abs)
    assert report.eod_signed == pytest.approx(largest)


def test_more_classes_take_the_largest_and_the_mean_difference_in_recall():
    y, p, s = labels(3, n=400, c=4, k=3)
    spread = []
    for c in range(4):
        recall = [(p[(y == c) & (s == a)] == c).mean() for a in range(3)]
        spread.append(max(recall) - min(recall))
    report = group_report(y, p, s)
    assert report.eod == pytest.approx(max(spread))
    assert report.eod_mean == pytest.approx(np.mean(spread))
    assert group_report(y, p, s, positive=2).eod == pytest.approx(spread[2])
    odds = max(naive_fairlearn((y == c).astype(int), (p == c).astype(int), s)[0] for c in range(4))
    assert report.equalized_odds_difference == pytest.approx(odds)
    parity = max(naive_fairlearn((y == c).astype(int), (p == c).astype(int), s)[1] for c in range(4))
    assert report.demographic_parity_difference == pytest.approx(parity)


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (([0, 1], [0, 1], [0, 0]), {"train_groups": {(0, 0): -1}}, ParameterError),
        (([0, 1], [0, 1], [0, 0]), {"train_groups": {(5, 5): 3}}, LabelError),
        (([0, 1], [0, 1], [0, 0]), {"confidence": 95}, ParameterError),
        (("xy", "xy", [0, 1]), {"positive": "z"}, LabelError),
    ],
)
def test_options_that_do_not_fit_the_labels_are_refused(arguments, options, error):
    y, p, s = map(list, arguments)
    with pytest.raises(error):
        group_report(y, p, s, **options)


def test_a_named_class_without_rows_is_empty_and_codes_are_not_shifted():
    report = group_report([2, 2], [2, 1], [0, 1], class_names=["a", "b", "c"], sensitive_names=["f", "m"])
    assert [g.name for g in report.groups] == ["c × f", "c × m"]
    assert report.empty == ("a × f", "a × m", "b × f", "b × m")
    assert report.eod == 1.0


@pytest.mark.parametrize("move", [lambda y: y, lambda y: 2 * y - 1, lambda y: y == 1, lambda y: y / 1.0])
def test_of_two_numbers_the_larger_is_the_positive_class_without_a_word(move):
    y, p, s = labels(4, k=3)
    report = group_report(move(y), move(p), s)
    assert report.positive == move(np.array([1]))[0]
    assert report.eod == group_report(y, p, s, positive=1).eod
    given = group_report(move(y), move(p), s, positive=move(np.array([0, 1]))[1])  # a scalar of numpy
    assert given == report


def test_one_class_one_group_and_one_row_are_reported_without_differences():
    report = group_report([1], [1], [0])
    assert (report.average, report.worst.accuracy, report.gap, report.worst.n) == (1.0, 1.0, 0.0, 1)
    assert report.eod is report.eod_mean is report.equalized_odds_difference is None
    assert report.demographic_parity_difference is None
    assert report.worst.low == pytest.approx(0.025)
    assert report.intervals["gap"] == (0.0, 0.0)


@pytest.mark.parametrize(
    ("y", "p", "s", "error", "fact"),
    [
        ([0, 1], [0], [0, 1], ShapeError, "y_pred"),
        ([], [], [], LabelError, "0 rows"),
        (["a", None], ["a", "b"], [0, 1], NonFiniteError, "row 1"),
        (["0", "1"], [0, 1], [0, 1], LabelError, "same labels"),
    ],
)
def test_bad_labels_are_named(y, p, s, error, fact):
    with pytest.raises(error, match=fact):
        group_report(y, p, s)


# Many predictions at once


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), g=st.integers(1, 5), n=st.integers(0, 50))
def test_cells_of_many_predictions_equal_a_loop(seed, g, n):
    rng = np.random.default_rng(seed)
    y, s, p = rng.integers(3, size=n), rng.integers(2, size=n), rng.integers(3, size=(g, n))
    hits, counts = cell_accuracies(y, p, s, 3, 2)
    assert hits.shape == (g, 3, 2)
    for i in range(3):
        for j in range(2):
            cell = (y == i) & (s == j)
            assert counts[i, j] == cell.sum()
            for m in range(g):
                assert hits[m, i, j] == (p[m][cell] == i).sum()


def test_shrunken_worst_group_is_the_formula_and_skips_empty_cells():
    hits, counts = np.array([[9, 0], [3, 0]]), np.array([[10, 2], [4, 0]])
    mean = 12 / 16
    expected = min((9 + 8 * mean) / 18, (0 + 8 * mean) / 10, (3 + 8 * mean) / 12)
    assert float(shrunken_worst_group(hits, counts)) == pytest.approx(expected)
    assert float(shrunken_worst_group(hits, counts, prior=0)) == 0.0
    both = shrunken_worst_group(np.stack([hits, counts]), counts)
    assert both == pytest.approx([expected, 1.0])


# Labels of every kind


def test_labels_may_be_strings_booleans_or_tuples():
    y, p, s = labels(4, k=3)
    plain = group_report(y, p, s)
    names = np.array(["cat", "dog"])
    strings = group_report(names[y], names[p].tolist(), np.array(list("abc"))[s], positive="dog")
    booleans = group_report(y == 1, (p == 1).astype(float), s)
    crossed = group_report(y, p, np.column_stack([s, s % 2]))
    for other in (strings, booleans, crossed):
        assert [g.accuracy for g in other.groups] == [g.accuracy for g in plain.groups]
        assert other.eod == plain.eod
    assert strings.groups[0].name == "cat × a"
    assert crossed.sensitive == ((0, 0), (1, 1), (2, 0))


def test_the_positive_class_that_names_do_not_say_is_warned_of():
    y, p, s = labels(4, k=3)
    names = np.array(["blond", "dark"])  # blond, the one that matters, is first in sorted order
    blond, dark = (group_report(names[y], names[p], s, positive=name) for name in names.tolist())
    assert blond.eod != dark.eod
    with pytest.warns(PositiveClassWarning):
        assert group_report(names[y], names[p], s) == dark
    with pytest.warns(PositiveClassWarning):
        assert paired_report(names[y], names[p], names[y], s).change("eod").before == dark.eod
    change = paired_report(names[y], names[p], names[y], s, positive="blond").change("eod")
    assert change.before == blond.eod


def test_rows_without_labels_are_dropped_and_counted_only_on_request():
    y, s, p = [0, 1, -1, 1, 0], [0, 0, 0, -1, 1], [0, 1, 0, 1, 1]
    report = group_report(y, p, s, missing=-1)
    assert (report.n, report.dropped, report.classes) == (3, 2, (0, 1))
    assert group_report(y, p, s).classes == (-1, 0, 1)
    assert group_report([0, 1], [0, 1], [[0, 1], [0, -1]], missing=-1).dropped == 1
    with pytest.raises(LabelError):
        group_report([-1, -1], [0, 1], [0, 0], missing=-1)


def test_a_report_is_ready_for_json():
    y, p, s = labels(8, k=3)
    report = group_report(y, p, np.column_stack([s, s]), train_groups={(0, (0, 0)): 2})
    plain = report.as_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["groups"][0]["s"] == [0, 0]
    assert plain["intervals"]["gap"] == list(report.intervals["gap"])
