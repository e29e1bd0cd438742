"""What a search goes by, against the plain formulas."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tuning_inputs import labelled, noisy_scores

from fairerclip.errors import ParameterError
from fairerclip.tuning.judge import Judge
from fairerclip.tuning.objectives import (
    AVERAGE_SHARE,
    OBJECTIVES,
    TIE_BREAK,
    Objective,
    judge_scores,
    offset_shifts,
)


def slow_value(name, accuracies, counts):
    """Value of one model from draws (d, c, S): the mean over draws of what the name says, plus part of the average."""
    c, S = counts.shape
    cells = [(k, g) for k in range(c) for g in range(S) if counts[k, g]]
    values, averages = [], []
    for draw in accuracies:
        averages.append(sum(draw[cell] * counts[cell] for cell in cells) / counts.sum())
        classes = [k for k in range(c) if counts[k].any()]
        if name == "worst_group":
            values.append(min(draw[cell] for cell in cells))
        elif name == "worst_class":
            values.append(
                min(
                    sum(draw[cell] * counts[cell] for cell in cells if cell[0] == k) / counts[k].sum()
                    for k in classes
                )
            )
        elif name == "average":
            values.append(0.0)
        else:
            compared = [k for k in classes if not (name == "eod" and c == 2 and k == 0)]
            expected = np.mean(accuracies, axis=0)  # a difference is one of expected accuracies
            recalls = [[expected[cell] for cell in cells if cell[0] == k] for k in compared]
            values.append(-max((max(r) - min(r) for r in recalls), default=0.0))
    share = TIE_BREAK if name in ("eod", "equalized_odds") else AVERAGE_SHARE
    return np.mean(values) + share * np.mean(averages), np.mean(averages)


def drawn(seed, c, S, empty=()):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 40, size=(c, S))
    accuracies = rng.random((3, 6, c, S))
    for cell in empty:
        counts[cell] = 0
        accuracies[(slice(None), slice(None), *cell)] = np.nan
    return accuracies, counts


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize(
    ("c", "S", "empty"),
    [
        (2, 2, []),
        (2, 3, [(0, 1)]),
        (2, 2, [(1, 0)]),
        (3, 2, [(1, 0), (2, 1)]),
        (3, 2, [(1, 0), (1, 1)]),
        (2, 1, []),
        (2, 2, [(1, 0), (1, 1)]),
        (2, 2, [(0, 0), (0, 1)]),
    ],
    ids=str,
)
def test_every_objective_is_its_formula(name, c, S, empty):
    accuracies, counts = drawn(21, c, S, empty)
    expected = [slow_value(name, a, counts)[0] for a in accuracies]
    assert_allclose(Objective(name).values(accuracies, counts), expected, atol=1e-12)


def test_eod_of_two_classes_compares_the_second_alone():
    accuracies, counts = drawn(22, 2, 2)
    counts[:] = 1
    accuracies[:, :, 1] = 0.5
    equal = Objective("eod").values(accuracies, counts) - TIE_BREAK * accuracies.mean(axis=(1, 2, 3))
    assert_allclose(equal, 0, atol=1e-12)
    odds = Objective("equalized_odds").values(accuracies, counts)
    spread = np.abs((accuracies[:, :, 0, 0] - accuracies[:, :, 0, 1]).mean(axis=1))
    assert_allclose(odds, -spread + TIE_BREAK * accuracies.mean(axis=(1, 2, 3)), atol=1e-12)


@pytest.mark.parametrize("c", [3, 5])
def test_eod_of_several_classes_compares_them_all(c):
    accuracies, counts = drawn(23, c, 2)
    assert_allclose(
        Objective("eod").values(accuracies, counts), Objective("equalized_odds").values(accuracies, counts)
    )


@pytest.mark.parametrize("name", OBJECTIVES)
def test_what_meets_the_floor_beats_what_misses_it(name):
    counts = np.full((2, 2), 10)
    unequal = np.full((6, 2, 2), 0.95)
    unequal[:, 1, 1] = 0.5  # average 0.84, and all that an objective minds
    fair = np.full((6, 2, 2), 0.79)
    worse = np.full((6, 2, 2), 0.6)
    values = Objective(name, 0.8).values(np.stack([unequal, fair, worse]), counts)
    assert values[0] > values[1] > values[2]  # and of two that miss it, the closer one is better
    assert values[0] == pytest.approx(slow_value(name, unequal, counts)[0])
    unconstrained = Objective(name).values(np.stack([unequal, fair]), counts)
    if name in ("worst_group", "eod", "equalized_odds"):
        assert unconstrained[1] > unconstrained[0]


def test_a_floor_that_is_just_met_is_met():
    accuracies = np.full((1, 4, 2, 2), 0.75)
    value = Objective("average", 0.75).values(accuracies, np.full((2, 2), 8))
    assert_allclose(value, [AVERAGE_SHARE * 0.75])


def test_a_floor_of_zero_changes_nothing():
    accuracies, counts = drawn(24, 2, 3)
    assert_allclose(
        Objective("eod", 0.0).values(accuracies, counts), Objective("eod").values(accuracies, counts)
    )


@pytest.mark.parametrize("name", ["best_group", "", None, 3, "max skew"])
def test_an_unknown_objective_is_named(name):
    with pytest.raises(
        ParameterError, match="objective must be one of worst_group, .* max_skew or a function; got"
    ):
        Objective(name)


@pytest.mark.parametrize("floor", [-0.1, 1.1, 80, np.nan, np.inf, "0.8", [0.8]], ids=str)
def test_a_floor_out_of_range_is_named(floor):
    with pytest.raises(ParameterError, match=r"accuracy_floor must be a share in \[0, 1\]; got"):
        Objective("eod", floor)


@pytest.mark.parametrize(
    ("name", "counts", "defined"),
    [
        ("worst_group", [[5, 0], [0, 0]], True),
        ("average", [[0, 0], [0, 0]], False),
        ("eod", [[5, 5], [5, 0]], False),  # of two classes the second one counts
        ("eod", [[5, 0], [5, 5]], True),
        ("eod", [[5, 5], [5, 0], [0, 0]], True),
        ("equalized_odds", [[5, 5], [5, 0]], True),
        ("equalized_odds", [[5, 0], [0, 5]], False),
        ("equalized_odds", [[5], [5]], False),
    ],
)
def test_a_difference_is_defined_where_two_groups_of_a_class_have_rows(name, counts, defined):
    assert Objective(name).is_defined(np.array(counts)) is defined


def test_an_offset_of_the_second_class_moves_the_margins_of_both():
    y, s = labelled(25, 40)
    judge = Judge(y, s, 2, 2)
    scores = noisy_scores(26, y, 2)
    shifts = offset_shifts(np.array([0.0, 0.4, -1.3]))
    for offset, shift in zip([0.0, 0.4, -1.3], shifts, strict=True):
        moved = judge.margins(scores + np.array([0.0, offset]))
        assert_allclose(judge.margins(scores) + shift[y], moved, atol=1e-12)


def test_scores_are_judged_by_the_draws_of_their_margins():
    y, s = labelled(27, 60)
    judge = Judge(y, s, 2, 2)
    scores = noisy_scores(28, y, 2)
    draws = judge.accuracies(judge.margins(scores))[0]
    for name in OBJECTIVES:
        assert judge_scores(judge, Objective(name), scores) == pytest.approx(
            slow_value(name, draws, judge.counts)[0], abs=1e-12
        )
