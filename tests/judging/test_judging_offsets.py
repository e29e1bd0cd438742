"""Offsets of the class scores: boundaries between two classes, and steps of several classes in turn."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip.judging.offsets import GAIN, boundaries, learn_offsets


def scores_of(y, n_classes, shift, seed=0, strength=3.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(len(y), n_classes)) + strength * np.eye(n_classes)[y] + shift


def worst_class(y):
    """A judge: the accuracy of the worst class."""

    def judge(moved, tried):
        assert moved.shape[0] == tried.shape[0]
        right = (moved + tried[:, None, :]).argmax(axis=2) == y
        return np.array([min(own[y == k].mean() for k in np.unique(y)) for own in right])

    return judge


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_offsets_undo_a_shift_of_the_scores(n_classes):
    y = np.arange(1200) % n_classes
    shift = np.linspace(0, 1.5, n_classes)
    scores = np.array([scores_of(y, n_classes, shift), scores_of(y, n_classes, 0 * shift, 1)])
    judge = worst_class(y)
    before = judge(scores, np.zeros((2, n_classes)))
    values, offsets = learn_offsets(scores, before, judge)
    assert_allclose(offsets.sum(axis=1), 0, atol=1e-12)
    assert_allclose(judge(scores, offsets), values, atol=1e-12)
    assert np.all(values >= before)
    assert values[0] > before[0] + 0.05
    assert_allclose(offsets[0], shift.mean() - shift, atol=0.6)
    assert np.abs(offsets[1]).max() < np.abs(offsets[0]).max()


@pytest.mark.parametrize("sign", [1, -1])
def test_the_smallest_of_equally_good_boundaries_is_taken(sign):
    # Any boundary from 1 to 3 is as good to this judge: the nearest to zero is enough.
    difference = sign * np.linspace(0, 5, 101)
    scores = np.zeros((1, 101, 2))
    scores[0, :, 1] = difference

    def judge(moved, tried):
        steps = -sign * (tried[:, 1] - tried[:, 0])
        return np.where((steps > 1) & (steps < 3), 0.9 + 1e-4 * steps, 0.1)

    _, offsets = learn_offsets(scores, np.array([0.1]), judge)
    step = -sign * (offsets[0, 1] - offsets[0, 0])
    found = np.abs(boundaries(difference))
    assert step == pytest.approx(found[found > 1].min())


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_gain_that_is_noise_changes_nothing(n_classes):
    y = np.arange(90) % n_classes
    scores = scores_of(y, n_classes, 0.0)[None]
    judge = lambda moved, tried: 0.5 + 0.9 * GAIN * np.any(tried, axis=1)  # noqa: E731
    values, offsets = learn_offsets(scores, np.array([0.5]), judge)
    assert_array_equal(values, [0.5])
    assert_array_equal(offsets, np.zeros((1, n_classes)))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_models_that_miss_a_floor_with_every_offset_stay_as_they_are(n_classes):
    y = np.arange(90) % n_classes
    scores = scores_of(y, n_classes, 0.0)[None]
    judge = lambda moved, tried: np.full(len(tried), -np.inf)  # noqa: E731
    values, offsets = learn_offsets(scores, np.array([-np.inf]), judge)
    assert values[0] == -np.inf
    assert_array_equal(offsets, np.zeros((1, n_classes)))
