"""AUC by group: values against the loop over pairs, variances against DeLong's formula, and coverage."""

import numpy as np
import pytest

from fairerclip.errors import LabelError, NonFiniteError, ParameterError, ShapeError
from fairerclip.metrics import auc_report
from fairerclip.metrics.groups.auc import _mean_auc


def naive_auc(positive, negative):
    won = sum(1.0 if p > q else 0.5 if p == q else 0.0 for p in positive for q in negative)
    return won / (len(positive) * len(negative))


def delong(positive, negative):
    """Variance of DeLong et al. 1988, with the sums over pairs written out."""
    X, Y = np.asarray(positive), np.asarray(negative)
    psi = (X[:, None] > Y) + 0.5 * (X[:, None] == Y)
    return psi.mean(axis=1).var(ddof=1) / len(X) + psi.mean(axis=0).var(ddof=1) / len(Y)


def rows(seed=0, n=120, shift=(1.5, 0.5, 1.0)):
    rng = np.random.default_rng(seed)
    y, s = rng.integers(2, size=n), rng.integers(len(shift), size=n)
    return y, np.round(rng.normal(size=n) + np.array(shift)[s] * y, 1), np.array(list("abc"))[s]


def test_the_auc_of_each_group_is_the_share_of_pairs_in_order():
    y, scores, s = rows()
    report = auc_report(y, scores, s, positive=1)
    expected = {v: naive_auc(scores[(s == v) & (y == 1)], scores[(s == v) & (y == 0)]) for v in "abc"}
    assert {group.s: group.auc.value for group in report.groups} == pytest.approx(expected)
    assert report.overall.value == pytest.approx(naive_auc(scores[y == 1], scores[y == 0]))
    assert report.worst.s == min(expected, key=expected.get)
    assert report.worst_auc.value == pytest.approx(min(expected.values()))
    assert report.auc_gap.value == pytest.approx(max(expected.values()) - min(expected.values()))
    assert [group.n for group in report.groups] == [int((s == v).sum()) for v in "abc"]
    for estimate in (report.overall, report.worst_auc, report.auc_gap, *(g.auc for g in report.groups)):
        assert estimate.low < estimate.value < estimate.high


def test_the_variance_is_that_of_delong():
    y, scores, _ = rows(n=80)
    value, size = _mean_auc(y, scores[:, None], [1])
    assert value * (1 - value) / size == pytest.approx(delong(scores[y == 1], scores[y == 0]))


def test_several_classes_take_the_mean_of_each_against_the_rest():
    rng = np.random.default_rng(4)
    y, s = rng.integers(3, size=150), rng.integers(2, size=150)
    scores = np.round(rng.normal(size=(150, 3)) + np.eye(3)[y], 1)
    names = np.array(["cat", "dog", "owl"])
    report = auc_report(names[y], scores[:, [2, 0, 1]], s, classes=["owl", "cat", "dog"])
    for group in report.groups:
        inside = s == group.s
        each = [naive_auc(scores[inside & (y == c), c], scores[inside & (y != c), c]) for c in range(3)]
        assert group.auc.value == pytest.approx(np.mean(each))
    assert report.positive is None
    assert report.classes == ("cat", "dog", "owl")


def test_the_variance_of_a_mean_over_classes_is_that_of_resampled_rows():
    rng = np.random.default_rng(5)
    y = np.repeat([0, 1, 2], [60, 90, 150])
    draws = []
    sizes = []
    for _ in range(120):
        value, size = _mean_auc(y, rng.normal(size=(300, 3)) + np.eye(3)[y], [0, 1, 2])
        draws.append(value)
        sizes.append(value * (1 - value) / size)
    assert np.mean(sizes) == pytest.approx(np.var(draws), rel=0.4)


def test_perfect_scores_have_the_limit_of_the_smaller_side():
    y, s = [0] * 30 + [1] * 10, ["a"] * 40
    report = auc_report(y, y, s, positive=1)
    # All of 10 independent pairs are in order with probability AUC¹⁰.
    assert report.worst_auc.low == pytest.approx(0.025**0.1)
    assert report.worst_auc.high == 1.0
    assert report.auc_gap is None


def test_groups_without_a_class_are_left_out_and_named():
    y, s = [0, 1, 0, 1, 1, 1], ["a", "a", "b", "b", "c", "c"]
    report = auc_report(
        y, [1, 2, 3, 4, 5, 6], s, positive=1, sensitive_names={"a": "A", "b": "B", "c": "C", "d": "D"}
    )
    assert [group.name for group in report.groups] == ["A", "B"]
    assert report.left_out == ("C", "D")
    with pytest.raises(LabelError):
        auc_report([0, 1], [1, 2], ["a", "b"], positive=1)


def test_bad_arguments_are_refused():
    y, scores, s = rows(n=30)
    with pytest.raises(ParameterError):
        auc_report(y, scores, s)
    with pytest.raises(ShapeError):
        auc_report(y, np.c_[scores, -scores], s, positive=1)
    with pytest.raises(NonFiniteError):
        auc_report(y, scores * np.nan, s, positive=1)


def test_intervals_contain_the_true_worst_group_and_gap():
    from scipy.special import ndtr

    rng = np.random.default_rng(9)
    shift = np.array([0.6, 1.2, 1.2])
    truth = ndtr(shift / 2**0.5)
    y, s = np.tile([0, 1, 1], 60), np.repeat([0, 1, 2], 60)
    held = np.zeros(3)
    for _ in range(120):
        report = auc_report(y, rng.normal(size=180) + shift[s] * y, s, positive=1)
        held += [
            report.groups[0].auc.low <= truth[0] <= report.groups[0].auc.high,
            report.worst_auc.low <= truth.min() <= report.worst_auc.high,
            report.auc_gap.low <= np.ptp(truth) <= report.auc_gap.high,
        ]
    assert (held >= 0.92 * 120).all()
