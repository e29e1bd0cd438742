"""What a search goes by, against the plain formulas."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tuning_inputs import labelled, noisy_scores

from fairerclip.errors import ParameterError
from fairerclip.tuning import objectives
from fairerclip.tuning.judge import Judge
from fairerclip.tuning.objectives import (
    AVERAGE_SHARE,
    OBJECTIVES,
    TIE_BREAK,
    Objective,
    first_best,
    judge_boundaries,
    judge_scores,
)

LEVELS = 8


def slow_value(name, survival, counts):
    """Value of one model from P(accuracy > level) (c, S, levels): what the name says, plus part of the average."""
    c, S = counts.shape
    cells = [(k, g) for k in range(c) for g in range(S) if counts[k, g]]
    expected = {cell: np.mean(survival[cell]) for cell in cells}
    average = sum(expected[cell] * counts[cell] for cell in cells) / counts.sum()
    if name in ("worst_group", "worst_class"):  # of the worst class the cells are classes
        value = np.mean([np.prod([survival[cell][t] for cell in cells]) for t in range(LEVELS)])
    elif name == "average":
        value = 0.0
    else:
        compared = [k for k in range(c) if not (name == "eod" and c == 2 and k == 0)]
        recalls = [[expected[cell] for cell in cells if cell[0] == k] for k in compared]
        value = -max((max(r) - min(r) for r in recalls if r), default=0.0)
    return value + (TIE_BREAK if name in ("eod", "equalized_odds") else AVERAGE_SHARE) * average


def made(seed, c, S, empty=()):
    """Survival (3, 2, c, S, levels), falling from level to level, and counts (c, S)."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 40, size=(c, S))
    survival = -np.sort(-rng.random((3, 2, c, S, LEVELS)), axis=-1)
    for cell in empty:
        counts[cell] = 0
        survival[(slice(None), slice(None), *cell)] = np.nan
    return survival, counts


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
    survival, counts = made(21, c, S, empty)
    expected = [[slow_value(name, a, counts) for a in model] for model in survival]
    assert_allclose(Objective(name).values(survival, counts), expected, atol=1e-12)


def test_eod_of_two_classes_compares_the_second_alone():
    survival, counts = made(22, 2, 2)
    counts[:] = 1
    survival[:, :, 1] = 0.5
    average = survival.mean(axis=(2, 3, 4))
    assert_allclose(Objective("eod").values(survival, counts) - TIE_BREAK * average, 0, atol=1e-12)
    odds = Objective("equalized_odds").values(survival, counts)
    spread = np.abs((survival[:, :, 0, 0] - survival[:, :, 0, 1]).mean(axis=-1))
    assert_allclose(odds, -spread + TIE_BREAK * average, atol=1e-12)


@pytest.mark.parametrize("c", [3, 5])
def test_eod_of_several_classes_compares_them_all(c):
    survival, counts = made(23, c, 2)
    assert_allclose(
        Objective("eod").values(survival, counts), Objective("equalized_odds").values(survival, counts)
    )


def right_in(counts, right):
    """A judge and scores (1, n, 2) with so many right rows in each cell (2, S); wrong rows are wrong by as much."""
    y = np.repeat([0, 1], counts.sum(axis=1))
    s = np.concatenate([np.repeat(np.arange(counts.shape[1]), row) for row in counts])
    hit = np.concatenate([np.arange(n) < k for n, k in zip(counts.ravel(), right.ravel(), strict=True)])
    return Judge(y, s, 2, counts.shape[1]), np.eye(2)[np.where(hit, y, 1 - y)][None]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_what_meets_the_floor_beats_what_misses_it(name):
    counts = np.full((2, 2), 20)
    judge, unequal = right_in(counts, np.array([[19, 19], [19, 10]]))  # 67 of 80
    fair = right_in(counts, np.array([[16, 16], [16, 15]]))[1]  # 63 of 80
    worse = right_in(counts, np.array([[12, 12], [12, 12]]))[1]
    scores = np.concatenate([unequal, fair, worse])
    values = judge_scores(judge, Objective(name, 0.8), scores)
    assert values[0] > values[1] > values[2]  # and of two that miss it, the closer one is better
    assert values[0] == judge_scores(judge, Objective(name), scores)[0]
    free = judge_scores(judge, Objective(name), scores)
    if name in ("worst_group", "eod", "equalized_odds"):
        assert free[1] > free[0]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_floor_is_on_the_share_of_right_rows_and_not_on_what_is_expected(name):
    judge, scores = right_in(np.full((2, 2), 10), np.array([[9, 8], [7, 6]]))  # 30 of 40
    free = judge_scores(judge, Objective(name), scores)[0]
    assert judge_scores(judge, Objective(name, 0.75), scores)[0] == free
    assert judge_scores(judge, Objective(name, 0.75 + 1e-12), scores)[0] < -5
    assert judge_scores(judge, Objective(name, 0.0), scores)[0] == free


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("floor", [None, 0.7])
def test_boundaries_are_judged_as_the_scores_that_they_make(name, floor):
    y, s = labelled(25, 40)
    judge = Judge(y, s, 2, 2)
    scores = np.array([noisy_scores(26, y, 2), noisy_scores(27, y, 2, strength=2.0)])
    steps = np.array([[0.0, 0.4, -1.3], [0.0, -0.2, 0.8]])
    found = judge_boundaries(judge, Objective(name, floor), scores, steps)
    assert found.shape == (2, 3)
    for b in range(3):
        moved = scores + steps[:, b, None, None] * np.array([-0.5, 0.5])
        assert_allclose(found[:, b], judge_scores(judge, Objective(name, floor), moved), atol=1e-12)
    if floor is not None:
        assert (found < -5).any()
        assert (found > -5).any()


def test_models_are_judged_some_at_a_time_with_the_same_values(monkeypatch):
    y, s = labelled(29, 50)
    judge = Judge(y, s, 2, 2)
    scores = np.array([noisy_scores(seed, y, 2) for seed in range(7)])
    whole = judge_scores(judge, Objective("worst_group"), scores)
    monkeypatch.setattr(objectives, "AT_ONCE", 1)
    assert_allclose(judge_scores(judge, Objective("worst_group"), scores), whole, atol=1e-15)


def test_the_worst_class_does_not_look_at_groups():
    y, s = labelled(30, 90, 3, 2)
    scores = noisy_scores(31, y, 3)[None]
    found = judge_scores(Judge(y, s, 3, 2), Objective("worst_class"), scores)
    other = judge_scores(Judge(y, 1 - s, 3, 2), Objective("worst_class"), scores)
    alone = judge_scores(Judge(y, 0 * s, 3, 1), Objective("worst_group"), scores)
    assert_allclose([found, other], [alone, alone], atol=1e-12)


def test_values_that_differ_by_rounding_are_equal():
    assert first_best([0.5, 0.7, 0.7 + 1e-9, 0.1]) == 1
    assert first_best([0.5, 0.7, 0.71, 0.1]) == 2


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
