"""Objectives from posterior draws of the accuracy of each class × group."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip.errors import ParameterError
from fairerclip.judging import objectives as module
from fairerclip.judging.evidence import DRAWS, Evidence
from fairerclip.judging.objectives import (
    AVERAGE_SHARE,
    TIE_BREAK,
    Objective,
    judge_margins,
    judge_scores,
)


def evidence_of(seed=0, n=80, n_classes=3, n_groups=2, absent=None):
    rng = np.random.default_rng(seed)
    y, s = rng.integers(n_classes, size=n), rng.integers(n_groups, size=n)
    if absent is not None:
        left = (y != absent[0]) | (s != absent[1])
        y, s = y[left], s[left]
    return Evidence.of_codes(y, s, n_classes, n_groups, rng.normal(size=len(y)))


def scores_of(e, models=4, seed=1):
    noise = np.random.default_rng(seed).normal(size=(models, len(e.y), e.n_classes))
    return noise + np.arange(models)[:, None, None] * np.eye(e.n_classes)[e.y]


def naive(name, accuracies, counts):
    """The value of one model at one draw, from the accuracies (c, v) of cells; NaN for absent ones."""
    cells = [(k, v) for k in range(counts.shape[0]) for v in range(counts.shape[1])]
    cells = [cell for cell in cells if not np.isnan(accuracies[cell])]
    average = sum(accuracies[cell] * counts[cell] for cell in cells) / sum(counts[cell] for cell in cells)
    if name == "average":
        return average
    return min(accuracies[cell] for cell in cells) + AVERAGE_SHARE * average


@pytest.mark.parametrize("absent", [None, (1, 0)])
@pytest.mark.parametrize("name", ["worst_group", "average"])
def test_values_of_accuracies_equal_a_loop_over_cells(name, absent):
    e = evidence_of(absent=absent)
    accuracies = e.accuracies(e.margins(scores_of(e)))
    found = Objective(name).values(accuracies, e.counts)
    assert found.shape == (4, DRAWS)
    expected = [[naive(name, a[:, :, b], e.counts) for b in range(DRAWS)] for a in accuracies]
    assert_allclose(found, expected, rtol=1e-5)


def largest_difference(accuracy, compared):
    """Of the accuracies (c, v) of a model, between two groups of one class; 0 where no class has two groups."""
    out = 0.0
    for k in compared:
        there = [value for value in accuracy[k] if not np.isnan(value)]
        out = max(out, max(there) - min(there)) if there else out
    return out


@pytest.mark.parametrize("absent", [None, (1, 0)])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", ["eod", "equalized_odds"])
def test_values_of_differences_equal_a_loop_over_classes(name, n_classes, absent):
    e = evidence_of(n_classes=n_classes, n_groups=3, absent=absent)
    margins = e.margins(scores_of(e))
    compared = [1] if name == "eod" and n_classes == 2 else range(n_classes)
    accuracies = e.accuracies(margins)
    found = Objective(name).values(accuracies, e.counts)
    right = (margins > 0).mean(axis=1)
    rates = Objective(name).difference_values(e.rates(margins), right)
    for g, a in enumerate(accuracies):
        for b in range(0, DRAWS, 5):
            average = naive("average", a[:, :, b], e.counts)
            expected = TIE_BREAK * average - largest_difference(a[:, :, b], compared)
            assert found[g, b] == pytest.approx(expected, abs=1e-5)
        expected = TIE_BREAK * right[g] - largest_difference(e.rates(margins)[g], compared)
        assert rates[g] == pytest.approx(expected, abs=1e-12)


def test_the_worst_class_ignores_groups():
    e = evidence_of()
    margins = e.margins(scores_of(e))
    other = Evidence(e.y, e.groups[::-1], e.n_classes, e.keys)
    worst = Objective("worst_class")
    assert_array_equal(judge_margins(e, worst, margins), judge_margins(other, worst, margins))
    found = judge_margins(e, worst, margins)
    expected = Objective("worst_group").values(e.by_class.accuracies(margins), e.by_class.counts)
    assert_array_equal(found, expected)
    assert np.any(found != judge_margins(e, Objective("worst_group"), margins))


@pytest.mark.parametrize("name", ["worst_class", "eod"])
def test_models_are_judged_a_few_at_a_time_without_a_change(name, monkeypatch):
    e = evidence_of()
    scores = scores_of(e, models=7)
    whole = judge_scores(e, Objective(name), scores)
    assert whole.shape == (7, DRAWS)
    monkeypatch.setattr(module, "AT_ONCE", 2 * len(e.y))
    assert_allclose(judge_scores(e, Objective(name), scores), whole, atol=1e-6)
    assert_allclose(judge_margins(e, Objective(name), e.margins(scores)), whole, atol=1e-6)


def counted(e, scores):
    """Accuracy of each cell, NaN without rows."""
    out = np.full(e.counts.shape, np.nan)
    s, right = e.groups.argmax(axis=1), scores.argmax(axis=1) == e.y
    for k in range(out.shape[0]):
        for v in range(out.shape[1]):
            rows = (e.y == k) & (s == v)
            if rows.any():
                out[k, v] = right[rows].mean()
    return out, right


@pytest.mark.parametrize("absent", [None, (1, 0)])
def test_figures_are_counted_on_the_rows(absent):
    e = evidence_of(absent=absent)
    scores = scores_of(e)[1]
    accuracy, right = counted(e, scores)
    spread = np.nanmax(accuracy, axis=1) - np.nanmin(accuracy, axis=1)
    by_class = [right[e.y == k].mean() for k in range(3)]
    expected = {
        "worst_group": np.nanmin(accuracy),
        "worst_class": min(by_class),
        "equalized_odds": -spread.max(),
        "eod": -spread.max(),
        "average": right.mean(),
    }
    for name, value in expected.items():
        assert Objective(name).figure(e, scores) == pytest.approx(value, abs=1e-12), name


def test_differences_are_defined_where_a_compared_class_has_two_groups():
    none, first, second = (
        np.array(p, dtype=bool) for p in ([[1, 0], [0, 1]], [[1, 1], [1, 0]], [[1, 0], [1, 1]])
    )
    assert [Objective("eod").is_defined(p) for p in (none, first, second)] == [False, False, True]
    assert [Objective("equalized_odds").is_defined(p) for p in (none, first, second)] == [False, True, True]
    assert Objective("worst_group").is_defined(none)
    assert not Objective("average").is_defined(np.zeros((2, 2), dtype=bool))


@pytest.mark.parametrize(("name", "least"), [("worst_group", 0.97), ("eod", -0.01)])
def test_a_cell_of_less_than_half_an_expected_row_has_no_figure(name, least):
    y = np.repeat([0, 1], 50)
    P = np.column_stack([np.full(100, 0.999), np.full(100, 0.001)])
    P[y == 0], P[50] = 0.5, [0.96, 0.04]
    scores = np.eye(2)[y]
    scores[50] = [1, 0]  # nearly all that the almost empty cell has
    evidence = Evidence(y, P, 2, np.linspace(-1, 1, 100))
    assert Objective(name).figure(evidence, scores) >= least


@pytest.mark.parametrize("arguments", [("accuracy",), ("worst_group", -0.1), ("worst_group", float("nan"))])
def test_unknown_objectives_and_floors_that_are_no_share_are_refused(arguments):
    with pytest.raises(ParameterError):
        Objective(*arguments)
