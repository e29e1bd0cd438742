"""Numbers that a search goes by, with the constants written out."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import spearmanr

from fairerclip.errors import LabelError
from fairerclip.metrics import max_skew
from fairerclip.tuning import choose, offsets
from fairerclip.tuning.candidates import Candidate, Pool
from fairerclip.tuning.choose import halves
from fairerclip.tuning.judge import Judge
from fairerclip.tuning.objectives import Objective, first_best, judge_scores
from fairerclip.tuning.ranking import STRENGTHS, _equal_top, _judge, _known_groups


def judge_of(counts):
    """A judge with so many rows (c, |S|) in each cell."""
    counts = np.asarray(counts)
    cells = np.repeat(np.arange(counts.size), counts.ravel())
    return Judge(cells // counts.shape[1], cells % counts.shape[1], *counts.shape)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("worst_group", 0.9 * 0.8 * 0.7 * 0.5 + 0.5 * 0.66),
        ("average", 0.5 * 0.66),
        ("eod", -0.2 + 0.01 * 0.66),
        ("equalized_odds", -0.2 + 0.01 * 0.66),
    ],
)
def test_objectives_weigh_the_average_by_a_half_and_beside_differences_by_a_hundredth(name, expected):
    accuracies = np.array([[0.9, 0.8], [0.7, 0.5]])  # certain: the same at every level
    counts = np.array([[10, 20], [30, 40]])  # average (9 + 16 + 21 + 20) / 100
    survival = np.repeat(accuracies[None, None, :, :, None], 64, axis=4)
    found = Objective(name).values(survival, counts)
    assert_allclose(found, [[expected]])


def test_a_model_that_misses_the_floor_is_below_all_others_by_its_accuracy():
    judge = judge_of([[2, 2], [2, 2]])
    right = np.eye(2)[judge.y][None]
    values = judge_scores(judge, Objective("average", 0.9), np.concatenate([right, -right]))
    assert values[0] > 0
    assert values[1] == -10.0


def test_values_within_a_millionth_are_equal():
    assert first_best([1.0, 1.0 + 0.9e-6]) == 0
    assert first_best([1.0, 1.0 + 1.1e-6]) == 1
    assert first_best([0.0, 2.0, 2.0]) == 1


def test_the_mean_margin_of_a_cell_counts_with_four_rows_of_its_class():
    judge = judge_of([[4, 12], [5, 0]])
    means = np.array([[[2.0, 0.0], [3.0, np.nan]]])
    shift, doubt = judge._shifts(means, np.array([[2.0, 6.0]]))
    assert_allclose(shift[0], [[(4 * 2 + 4 * 1) / 8, (0 + 4 * 1) / 16], [3.0, np.nan]])
    assert_allclose(doubt[0], [[2 / np.sqrt(8), 2 / 4], [6 / 3, 6 / 2]])
    assert judge._shifts(means, np.zeros((1, 2)))[1].min() > 0


@pytest.mark.parametrize(("rows", "own"), [([2, 1], False), ([2, 2], True), ([1, 3], True)])
def test_a_class_shows_its_spread_with_two_rows_more_than_cells(rows, own):
    judge = judge_of([rows, [9, 9]])
    n = len(judge.y)
    residuals, margins = np.where(judge.y == 0, 0.5, 1.0)[None], np.linspace(-30, 30, n)[None]
    assert judge._spread(residuals, margins)[0, 0] == pytest.approx(0.5 if own else margins.std())
    assert judge._spread(residuals, margins)[0, 1] == 1.0


def test_rows_are_halved_twenty_times():
    judge = judge_of([[4, 5], [6, 1]])
    masks = halves(judge, np.arange(16))
    assert len(masks) == 20
    for mask in masks:
        sizes = np.bincount(judge._cell[mask], minlength=4)
        assert sizes[0] == 2
        assert sizes[1] in (2, 3)
        assert sizes[2] == 3
        assert sizes[3] in (0, 1)


# Offsets --------------------------------------------------------------------------------------------------


def test_boundaries_leave_two_to_ninety_eight_percent_of_the_rows_below():
    found = offsets._boundaries(np.arange(100.0)[None, ::-1])
    assert_allclose(found, [np.arange(2, 99, 2) - 0.5])
    assert_array_equal(offsets._boundaries(np.zeros((1, 10))), 0.0)


@pytest.mark.parametrize(("gain", "moved"), [(0.0009, False), (0.0011, True)])
def test_an_offset_has_to_gain_a_thousandth(monkeypatch, gain, moved):
    scores = np.stack([np.zeros(100), np.arange(100.0)], axis=1)[None]

    def values(judge, objective, scores, steps):
        return np.where(np.isclose(steps, -3.5) | np.isclose(steps, -7.5), gain, 0.0)

    monkeypatch.setattr(offsets, "judge_boundaries", values)
    found, learned = offsets.learn_offsets(None, None, scores)
    assert_allclose(found, [gain * moved])
    assert_allclose(learned, [[1.75 * moved, -1.75 * moved]])  # of two equals the smaller step


def test_offsets_of_several_classes_are_tried_in_three_steps_from_the_lowest_mean(monkeypatch):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(1, 50, 3)) + np.array([0.0, 2.0, -2.0])
    top = np.sort(scores[0], axis=1)
    unit = (top[:, 2] - top[:, 1]).std()
    tried = []

    def value(judge, objective, given):
        tried.append((given - scores)[0, 0] / unit)
        return np.array([0.0])

    monkeypatch.setattr(offsets, "judge_scores", value)
    _, learned = offsets.learn_offsets(None, None, scores)
    assert_array_equal(learned, 0.0)
    expected = [s * step * np.eye(3)[k] for step in (0.5, 0.3, 0.18) for k in (2, 0, 1) for s in (-1, 1)]
    assert_allclose(tried, [np.zeros(3), *expected], atol=1e-12)


@pytest.mark.parametrize(("n_classes", "many"), [(2, 64), (3, 8)])
def test_offsets_are_learned_for_the_best_candidates(monkeypatch, n_classes, many):
    rng = np.random.default_rng(0)
    judge = judge_of(np.full((n_classes, 2), 5))
    scores = rng.normal(size=(90, len(judge.y), n_classes))
    candidates = [Candidate({}, 0, values.astype(np.float32)) for values in scores]
    pool = Pool(candidates, 3, None, np.arange(n_classes), {}, 1, 1, 0.0, [])
    learned = []

    def learn(judge, objective, given):
        learned.append(given)
        return np.zeros(len(given)), np.zeros((len(given), n_classes))

    monkeypatch.setattr(choose, "learn_offsets", learn)
    found = choose.strategies(pool, scores, judge, Objective("average"))
    assert list(found) == ["given", "given, offsets", "search", "search, offsets"]
    plain = judge_scores(judge, Objective("average"), scores)
    best = np.sort(np.argsort(-plain, kind="stable")[:many])
    assert_array_equal(learned[0], scores[[3, *best]])
    assert found["search"].candidate == plain.argmax()


# Rankings -------------------------------------------------------------------------------------------------


def test_a_strength_is_judged_by_the_skew_of_a_fifth_and_the_least_agreement_inside_a_group():
    rng = np.random.default_rng(0)
    old, taken = rng.normal(size=(43, 2)), rng.normal(size=(43, 2))
    codes = np.repeat(
        [0, 1, 2], [20, 21, 2]
    )  # the last has too few rows for an order, though it is turned round
    taken[-2:] = (old[-2:] - old[[-1, -2]]) / 0.4
    new = old - 0.4 * taken
    found = _judge(0.4, old, taken, codes)
    inside = [spearmanr(old[codes == g, j], new[codes == g, j])[0] for g in (0, 1) for j in (0, 1)]
    assert found["rank_correlation"] == pytest.approx(min(inside))
    assert found["max_skew"] == pytest.approx(np.mean(max_skew(new, codes, 9)))
    assert _judge(0.0, old, taken, codes)["rank_correlation"] == 1.0


def test_strengths_fall_from_one_to_nothing_by_tenths():
    assert_allclose(STRENGTHS, np.linspace(1, 0, 11), atol=1e-12)


def test_a_ranking_needs_two_groups_and_one_of_three_rows():
    codes, values = _known_groups(["a", "b", "a", None, "a"], 5, None)
    assert codes.tolist() == [0, 1, 0, -1, 0]
    assert values.tolist() == ["a", "b"]
    with pytest.raises(LabelError, match="no group of validation s has more than 2 rows"):
        _known_groups(["a", "b", "a", None, "b"], 5, None)
    with pytest.raises(LabelError, match="fewer than two groups"):
        _known_groups(["a", "a", "a", None, "a"], 5, None)


def test_shifts_bring_the_shares_of_the_soft_top_to_those_of_all_rows():
    rng = np.random.default_rng(0)
    groups = np.eye(2)[(rng.random(2000) < 0.3).astype(int)]
    explained = np.column_stack([groups, np.ones(2000)])[:, :2] + 0.1 * rng.normal(size=(2000, 2))
    scores = rng.normal(size=2000) + 0.8 * groups[:, 1]
    shift = _equal_top(scores, explained, groups)
    moved = scores - explained @ shift
    softness = 0.25 * moved.std() / 2
    top = 1 / (1 + np.exp(-(moved - np.quantile(moved, 0.8)) / softness))
    assert_allclose(groups.T @ top / top.sum(), groups.mean(axis=0), rtol=2e-3)
    assert_array_equal(
        _equal_top(scores, np.ones((2000, 2)), groups), 0.0
    )  # rows that say nothing of the groups
