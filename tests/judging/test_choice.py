"""The choice among models: the largest gain over a reference, after doubt is subtracted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip.errors import ParameterError
from fairerclip.judging.choose import (
    choose,
    choose_by_scorer,
)
from fairerclip.judging.evidence import Evidence
from fairerclip.judging.objectives import Objective, judge_scores

WORST = Objective("worst_group")


def evidence_of(seed=0, n=400, n_classes=2, n_groups=2, soft=False):
    rng = np.random.default_rng(seed)
    cell = np.concatenate([np.arange(n_classes * n_groups), rng.integers(n_classes * n_groups, size=n)])
    y, s, keys = cell // n_groups, cell % n_groups, rng.normal(size=len(cell))
    if soft:
        P = 0.8 * np.eye(n_groups)[s] + 0.2 * rng.dirichlet(np.ones(n_groups), size=len(y))
        return Evidence(y, P, n_classes, keys)
    return Evidence.of_codes(y, s, n_classes, n_groups, keys)


def model(e, strength=1.0, seed=0, shift=0.0, harmed=0.0):
    """Scores (n, c): larger for the true class, shifted to the last class, and worse for the last group."""
    noise = np.random.default_rng(seed).normal(size=(len(e.y), e.n_classes))
    last = e.groups.argmax(axis=1) == e.groups.shape[1] - 1
    scores = noise + (strength - harmed * last)[:, None] * np.eye(e.n_classes)[e.y]
    scores[:, -1] += shift
    return scores


def right_share(e, scores):
    return np.mean(scores.argmax(axis=1) == e.y)


def test_the_reference_is_kept_where_no_model_is_better():
    e = evidence_of()
    good = model(e, 2.0)
    worse = [good + 0.8 * np.random.default_rng(k).normal(size=good.shape) for k in range(1, 20)]
    scores = np.array([*worse[:7], good, *worse[7:]])
    found = choose(scores, e, WORST, 7, learns_offsets=False)
    assert (found.candidate, found.is_reference, found.strategy) == (7, True, "given")
    assert (found.gain, found.doubt) == (0.0, 0.0)
    assert_array_equal(found.offsets, [0, 0])
    assert found.value == pytest.approx(judge_scores(e, WORST, good[None]).mean())


def test_the_luckiest_of_many_models_is_mostly_not_taken():
    # Every cell has about ten rows, and every model is the reference with some noise: none is better.
    kept = lucky = 0
    for seed in range(10):
        e = evidence_of(seed, n=40)
        rng, own = np.random.default_rng(seed), model(e, 1.5, seed)
        scores = np.array([own, *(own + 0.6 * rng.normal(size=own.shape) for _ in range(40))])
        kept += choose(scores, e, WORST, 0, learns_offsets=False).is_reference
        means = judge_scores(e, WORST, scores).mean(axis=1)
        lucky += means.max() > means[0] + 0.02
    assert lucky >= 6
    assert kept >= 7


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_clearly_better_model_is_taken(n_classes):
    e = evidence_of(n_classes=n_classes)
    scores = np.array([model(e, 2.0, harmed=1.8), model(e, 0.5, 1), model(e, 2.0, 2), model(e, 1.0, 3)])
    found = choose(scores, e, WORST, 0, learns_offsets=False)
    assert (found.candidate, found.is_reference, found.strategy) == (2, False, "search")
    assert found.gain > 0.2
    assert 0 < found.doubt < found.gain
    draws = judge_scores(e, WORST, scores)
    assert found.gain == pytest.approx((draws[2] - draws[0]).mean())
    assert found.doubt == pytest.approx((draws[2] - draws[0]).std())


def test_models_that_miss_the_accuracy_floor_are_left_out():
    e = evidence_of(n=2000)
    weak, fair, unfair = model(e, 0.3), model(e, 1.2, 1), model(e, 3.5, 2, harmed=2.8)
    shares = [right_share(e, own) for own in (weak, fair, unfair)]
    assert shares[0] < shares[1] < shares[2]
    for floor, expected in ((None, 1), (shares[1] - 0.001, 1), (shares[1] + 0.001, 2)):
        found = choose(
            np.array([weak, fair, unfair]), e, Objective("worst_group", floor), 0, learns_offsets=False
        )
        assert found.candidate == expected


@pytest.mark.parametrize("n_classes", [2, 3])
def test_offsets_are_learned_for_a_shifted_boundary(n_classes):
    e = evidence_of(n=1500, n_classes=n_classes)
    scores = np.array([model(e, 2.0, shift=2.0), model(e, 0.5, 1)])
    plain = choose(scores, e, WORST, 0, learns_offsets=False)
    found = choose(scores, e, WORST, 0)
    assert plain.is_reference
    assert (found.candidate, found.is_reference, found.strategy) == (0, True, "given, offsets")
    assert found.offsets.sum() == pytest.approx(0, abs=1e-9)
    assert found.offsets[-1] - found.offsets[:-1].mean() == pytest.approx(-2, abs=0.5)
    assert found.gain > 0.1
    moved = judge_scores(e, WORST, scores[:1] + found.offsets)[0]
    assert found.value == pytest.approx(moved.mean())


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 1000),
    n_classes=st.integers(2, 3),
    n_groups=st.integers(2, 3),
    name=st.sampled_from(["worst_group", "worst_class", "equalized_odds", "average"]),
    floor=st.sampled_from([None, 0.6]),
)
def test_order_and_numbers_of_rows_classes_and_groups_do_not_matter(seed, n_classes, n_groups, name, floor):
    e = evidence_of(seed, 50, n_classes, n_groups, soft=True)  # the sizes of cells of probabilities differ
    scores = np.array([model(e, k / 2, k, shift=0.5) for k in range(5)])
    first = choose(scores, e, Objective(name, floor), 1)
    rng = np.random.default_rng(seed)
    rows, classes, groups = rng.permutation(len(e.y)), rng.permutation(n_classes), rng.permutation(n_groups)
    if name == "worst_class" and len(set(np.bincount(e.y))) < n_classes:
        classes = np.arange(n_classes)  # classes of one size: tests of the evidence have this case
    other = Evidence(classes[e.y[rows]], e.groups[rows][:, np.argsort(groups)], n_classes, e.keys[rows])
    again = choose(scores[:, rows][:, :, np.argsort(classes)], other, Objective(name, floor), 1)
    assert again.candidate == first.candidate
    assert_allclose(again.offsets[classes], first.offsets, atol=1e-9)
    assert again.gain == pytest.approx(first.gain, abs=1e-5)


@pytest.mark.parametrize("name", ["eod", "equalized_odds"])
def test_the_smallest_difference_between_groups_is_chosen(name):
    e = evidence_of(n=2000)
    scores = np.array([model(e, 2.0, 0, harmed=1.5), model(e, 2.0, 1, harmed=0.6), model(e, 1.5, 2)])
    found = choose(scores, e, Objective(name), 0)
    assert found.candidate == 2
    assert_array_equal(found.offsets, [0, 0])
    assert found.gain > 0.1
    share = right_share(e, scores[2])
    bound = choose(scores, e, Objective(name, share + 0.005), 0)
    assert right_share(e, scores[bound.candidate] + bound.offsets) >= share + 0.005


def test_a_scorer_may_be_undefined_for_some_models_and_not_for_all():
    scores = np.zeros((3, 4, 2))
    values = iter([float("nan"), 0.3, 0.2])
    assert choose_by_scorer(scores, lambda own: next(values), 1).candidate == 1
    with pytest.raises(ParameterError):
        choose_by_scorer(scores, lambda own: float("nan"), 0)


@pytest.mark.parametrize("objective", [WORST, Objective("eod", 0.0)], ids=lambda o: o.name)
@pytest.mark.parametrize("n", [1, 4, 9])
def test_a_handful_of_rows_keeps_the_reference(objective, n):
    y = np.arange(n) % 2
    evidence = Evidence(y, np.eye(2)[np.arange(n) // 2 % 2], 2, np.linspace(-1, 1, n))
    right = np.eye(2)[y]
    chosen = choose(np.stack([1 - right, right]).astype(np.float32), evidence, objective, 0)
    assert (chosen.candidate, chosen.is_reference, chosen.gain) == (0, True, 0.0)
    assert not chosen.offsets.any()
