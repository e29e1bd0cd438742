"""Offsets between classes: what is learned, that it is no worse, and that it holds on fresh rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tuning_inputs import labelled, noisy_scores, value_of, worst_accuracy

from fairerclip.tuning import offsets as module
from fairerclip.tuning.judge import Judge
from fairerclip.tuning.objectives import OBJECTIVES, Objective
from fairerclip.tuning.offsets import GAIN, LINE_SHARES


def learn_offsets(judge, objective, scores):
    """Value and offsets (c,) of one model's scores (n, c)."""
    values, offsets = module.learn_offsets(judge, objective, scores[None])
    return values[0], offsets[0]


def biased(seed, n, n_classes=2, offset=None):
    """A judge and scores whose boundaries are off by ``offset`` (c,)."""
    y, s = labelled(seed, n, n_classes)
    scores = noisy_scores(seed + 1000, y, n_classes, strength=2.5)
    return Judge(y, s, n_classes, 2), scores + (0.0 if offset is None else offset)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("n", [37, 160])
def test_two_classes_get_the_best_of_the_candidates(name, n):
    judge, scores = biased(31, n, offset=np.array([0.0, 1.2]))
    objective = Objective(name)
    order = np.sort(scores[:, 1] - scores[:, 0])
    below = {round(share * n) for share in LINE_SHARES}
    places = sorted(below | {n - m for m in below})
    steps = [0.0, *(-(order[m - 1] + order[m]) / 2 for m in places if 0 < m < n)]
    values = [value_of(judge, objective, scores + np.array([-step / 2, step / 2])) for step in steps]
    best = int(np.argmax(values))
    best = best if values[best] > values[0] + GAIN else 0
    value, offsets = learn_offsets(judge, objective, scores)
    assert value == pytest.approx(values[best], abs=1e-6)
    assert offsets.sum() == 0
    assert value_of(judge, objective, scores + offsets) == pytest.approx(value, abs=1e-9)
    if name in ("worst_group", "worst_class"):
        assert best > 0  # the bias of the boundary is there to be found
    assert np.abs(np.diff(scores + offsets)).min() > 1e-6  # no row lies on the boundary


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_rows_and_equal_rows_have_boundaries_between_them_alone(n):
    y = np.arange(n) % 2
    judge = Judge(y, np.zeros(n, dtype=np.int64), 2, 1)
    for scores in (np.ones((n, 2)), noisy_scores(53, y, 2)):
        value, offsets = learn_offsets(judge, Objective("average"), scores)
        assert np.isfinite([value, *offsets]).all()
    assert_array_equal(learn_offsets(judge, Objective("average"), np.ones((n, 2)))[1], [0.0, 0.0])


@pytest.mark.parametrize("n_classes", [2, 4])
def test_models_learn_together_what_each_learns_alone(n_classes):
    judge, first = biased(54, 80, n_classes, np.linspace(0, 1, n_classes))
    scores = np.array([first, noisy_scores(55, judge.y, n_classes), 3 * first])
    values, offsets = module.learn_offsets(judge, Objective("worst_group"), scores)
    assert np.any(offsets)
    for i, own in enumerate(scores):
        value, learned = learn_offsets(judge, Objective("worst_group"), own)
        assert value == pytest.approx(values[i], abs=1e-12)
        assert_allclose(learned, offsets[i], atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_where_nothing_is_gained_offsets_are_zero(name, n_classes):
    y, s = labelled(32, 80, n_classes)
    scores = 10.0 * np.eye(n_classes)[y] + 0.01 * np.random.default_rng(33).normal(size=(80, n_classes))
    value, offsets = learn_offsets(Judge(y, s, n_classes, 2), Objective(name), scores)
    assert_array_equal(offsets, np.zeros(n_classes))
    assert value == pytest.approx(value_of(Judge(y, s, n_classes, 2), Objective(name), scores))


def test_scores_that_are_all_alike_get_no_offsets():
    y, s = labelled(34, 30, 3)
    _, offsets = learn_offsets(Judge(y, s, 3, 2), Objective("worst_group"), np.zeros((30, 3)))
    assert_array_equal(offsets, np.zeros(3))


@pytest.mark.parametrize("planted", [-2.0, 1.5, 3.0])
def test_a_planted_shift_of_the_threshold_is_recovered(planted):
    judge, scores = biased(35, 400, offset=np.array([0.0, planted]))
    _, offsets = learn_offsets(judge, Objective("worst_group"), scores)
    assert offsets[1] - offsets[0] == pytest.approx(-planted, abs=0.6)
    fresh, others = biased(36, 4000, offset=np.array([0.0, planted]))
    before = worst_accuracy(fresh.y, fresh.s, others.argmax(axis=1))
    after = worst_accuracy(fresh.y, fresh.s, (others + offsets).argmax(axis=1))
    honest = worst_accuracy(fresh.y, fresh.s, (others - [0.0, planted]).argmax(axis=1))
    assert after > before + 0.1
    assert after > honest - 0.06


def test_a_planted_offset_of_one_of_several_classes_is_recovered():
    planted = np.array([0.0, 0.0, 1.5, 0.0])
    judge, scores = biased(37, 600, 4, planted)
    _, offsets = learn_offsets(judge, Objective("worst_group"), scores)
    assert offsets.argmin() == 2
    assert offsets[2] - np.delete(offsets, 2).mean() < -0.5
    fresh, others = biased(38, 6000, 4, planted)
    before, after = (
        worst_accuracy(fresh.y, fresh.s, (others + o).argmax(axis=1)) for o in (np.zeros(4), offsets)
    )
    assert after > before + 0.1


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("seed", range(4))
def test_offsets_never_lower_the_objective(n_classes, seed):
    judge, scores = biased(40 + seed, 60, n_classes, np.random.default_rng(seed + 70).normal(size=n_classes))
    for name in OBJECTIVES:
        objective = Objective(name)
        plain = value_of(judge, objective, scores)
        value, offsets = learn_offsets(judge, objective, scores)
        assert value >= plain - 1e-12
        assert np.isfinite(offsets).all()
        assert value_of(judge, objective, scores + offsets) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_a_common_constant_changes_no_class(n_classes):
    judge, scores = biased(50, 80, n_classes, np.linspace(0, 1, n_classes))
    objective = Objective("worst_group")
    value, offsets = learn_offsets(judge, objective, scores)
    again, moved = learn_offsets(judge, objective, scores + 0.25)
    assert again == pytest.approx(value, abs=1e-9)
    assert_allclose(moved, offsets, atol=1e-9)
    assert_array_equal((scores + offsets).argmax(axis=1), (scores + offsets + 17.0).argmax(axis=1))


def test_offsets_of_several_classes_are_centred():
    judge, scores = biased(51, 200, 4, np.array([0.0, 0.0, 1.5, 0.0]))
    _, offsets = learn_offsets(judge, Objective("worst_group"), scores)
    assert np.any(offsets)
    assert offsets.sum() == pytest.approx(0, abs=1e-12)


def test_learning_leaves_the_scores_as_they_were():
    for n_classes in (2, 3):
        judge, scores = biased(52, 60, n_classes, np.arange(n_classes) * 1.0)
        before = scores.copy()
        learn_offsets(judge, Objective("worst_group"), scores)
        assert_array_equal(scores, before)
