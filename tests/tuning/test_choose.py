"""The choice among candidates: what held-out halves are, and what each strategy is trusted with."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tuning_inputs import SEARCH, held, labelled, noisy_scores, pool_of, prompts, small, task, value_of

from fairerclip.errors import LabelError, ParameterError
from fairerclip.tuning import search as module
from fairerclip.tuning.choose import (
    OFFSET_CANDIDATES,
    REPEATS,
    choose,
    choose_by_scorer,
    halves,
    row_keys,
    strategies,
)
from fairerclip.tuning.judge import Judge
from fairerclip.tuning.objectives import Objective, judge_scores
from fairerclip.tuning.offsets import learn_offsets
from small_models import tune

WORST = Objective("worst_group")


@pytest.mark.parametrize(("n", "n_classes", "n_groups"), [(101, 2, 2), (40, 3, 4), (9, 2, 2), (7, 7, 1)])
def test_halves_split_every_cell(n, n_classes, n_groups):
    y, s = labelled(71, n, n_classes, n_groups)
    judge = Judge(y, s, n_classes, n_groups)
    masks = halves(judge, np.random.default_rng(n).permutation(n))
    assert len(masks) == REPEATS
    for mask in masks:
        assert mask.shape == (n,)
        for rows in judge.cells():
            assert abs(2 * int(mask[rows].sum()) - len(rows)) == len(rows) % 2


def test_halves_are_the_same_every_time_and_differ_from_each_other():
    y, s = labelled(72, 60)
    keys = np.random.default_rng(72).permutation(60)
    first, again = halves(Judge(y, s, 2, 2), keys), halves(Judge(y, s, 2, 2), keys)
    assert_array_equal(first, again)
    assert len({mask.tobytes() for mask in first}) == REPEATS


def test_halves_are_those_of_the_rows_whatever_their_order_and_the_names_of_their_cells():
    y, s = labelled(72, 61, 3, 2)
    rng = np.random.default_rng(73)
    keys, order = rng.permutation(61), rng.permutation(61)
    first = halves(Judge(y, s, 3, 2), keys)
    assert_array_equal(halves(Judge(y[order], s[order], 3, 2), keys[order]), np.array(first)[:, order])
    assert_array_equal(halves(Judge(2 - y, 1 - s, 3, 2), keys), first)


def test_over_many_halves_every_row_is_on_either_side_as_often():
    y, s = np.zeros(41, dtype=np.int64), np.zeros(41, dtype=np.int64)
    shares = np.mean(halves(Judge(y, s, 2, 1), np.arange(41), repeats=400), axis=0)
    assert np.abs(shares - 0.5).max() < 0.1


def test_candidates_of_pure_noise_do_not_replace_a_good_zero_shot():
    kept = 0
    for seed in range(8):
        y, s = labelled(100 + seed, 60)
        good = noisy_scores(200 + seed, y, 2, strength=1.5)
        noise = [np.random.default_rng([seed, i]).normal(size=(60, 2)) for i in range(20)]
        chosen = choose(pool_of([good, *noise]), Judge(y, s, 2, 2), WORST)
        kept += chosen.choice.candidate == 0
        assert not chosen.strategy.startswith("given")
    assert kept == 8


def test_the_luck_of_many_equals_is_not_trusted():
    """All candidates are as good as zero-shot in truth; the raw maximum would take another nearly always."""
    kept = raw = 0
    for seed in range(8):
        y, s = labelled(300 + seed, 60)
        judge = Judge(y, s, 2, 2)
        equals = [noisy_scores([seed, i], y, 2, strength=1.5) for i in range(20)]
        kept += choose(pool_of(equals), judge, WORST).strategy.startswith(("zero-shot", "given"))
        raw += int(judge_scores(judge, WORST, np.array(equals)).argmax()) < 2
    assert raw <= 2
    assert kept >= 5


@pytest.mark.parametrize("n_classes", [2, 4])
def test_a_candidate_that_is_far_better_is_taken(n_classes):
    y, s = labelled(73, 160, n_classes)
    scores = [noisy_scores(400 + i, y, n_classes, strength=0.5) for i in range(6)]
    scores[4] = noisy_scores(500, y, n_classes, strength=5.0)
    chosen = choose(pool_of(scores), Judge(y, s, n_classes, 2), WORST)
    assert chosen.strategy.startswith("search")
    assert chosen.choice.candidate == 4
    assert max(chosen.held_out, key=chosen.held_out.get).startswith("search")
    moved = scores[4].astype(np.float32) + chosen.choice.offsets
    assert chosen.value == pytest.approx(value_of(Judge(y, s, n_classes, 2), WORST, moved), abs=1e-9)


def test_of_equals_the_simpler_is_taken():
    y, s = labelled(74, 80)
    perfect = 10.0 * np.eye(2)[y]
    judge = Judge(y, s, 2, 2)
    chosen = choose(pool_of([perfect] * 4), judge, WORST)
    assert len(set(chosen.held_out.values())) == 1
    assert (chosen.strategy, chosen.choice.candidate) == ("zero-shot", 0)
    assert choose(pool_of([perfect] * 4, zero_shot=None), judge, WORST).strategy == "given"
    assert choose(pool_of([perfect] * 4, zero_shot=None, given=None), judge, WORST).strategy == "search"


def test_strategies_go_from_simple_to_the_whole_search():
    y, s = labelled(75, 80)
    judge = Judge(y, s, 2, 2)
    scores = [noisy_scores(600 + i, y, 2, strength=1.0 + i) + np.array([0.0, 1.5]) for i in range(3)]
    found = strategies(pool_of(scores), np.array(scores), judge, WORST)
    names = ["zero-shot", "zero-shot, offsets", "given", "given, offsets", "search", "search, offsets"]
    assert list(found) == names
    assert [found[name].candidate for name in names[:4]] == [0, 0, 1, 1]
    plain = [value_of(judge, WORST, values) for values in scores]
    assert found["search"].candidate == int(np.argmax(plain))
    values, learned = learn_offsets(judge, WORST, np.array(scores))
    best = int(np.argmax(values))
    assert found["search, offsets"].candidate == best
    assert_array_equal(found["search, offsets"].offsets, learned[best])
    for place, name in enumerate(("zero-shot", "given")):
        assert_array_equal(found[name].offsets, [0.0, 0.0])
        assert_array_equal(found[f"{name}, offsets"].offsets, learned[place])


def test_with_several_classes_offsets_are_learned_for_the_most_promising_and_the_fixed_ones():
    y, s = labelled(76, 120, 3)
    judge = Judge(y, s, 3, 2)
    scores = np.array([noisy_scores(700 + i, y, 3, strength=0.2 * i) for i in range(12)])
    found = strategies(pool_of(scores), scores, judge, WORST)
    promising = judge_scores(judge, WORST, scores).argsort()[-OFFSET_CANDIDATES:]
    assert not {0, 1} & set(promising.tolist())  # zero-shot and the given model are not among them
    values, offsets = learn_offsets(judge, WORST, scores)
    best = max(promising, key=lambda i: values[i])
    assert found["search, offsets"].candidate == best
    assert_allclose(found["search, offsets"].offsets, offsets[best], atol=1e-12)
    assert_allclose(found["given, offsets"].offsets, offsets[1], atol=1e-12)


def test_held_out_values_are_means_over_both_sides_of_every_halving():
    y, s = labelled(77, 60)
    judge = Judge(y, s, 2, 2)
    scores = np.array([noisy_scores(800 + i, y, 2) for i in range(3)]).astype(np.float32).astype(np.float64)
    chosen = choose(pool_of(scores), judge, WORST)
    sides = [side for mask in halves(judge, row_keys(judge, scores)) for side in (mask, ~mask)]
    plain = [value_of(judge.of(side), WORST, scores[1, side]) for side in sides]
    assert chosen.held_out["given"] == pytest.approx(np.mean(plain), abs=1e-12)
    offset = [
        value_of(
            judge.of(~side),
            WORST,
            scores[0, ~side] + learn_offsets(judge.of(side), WORST, scores[:1, side])[1][0],
        )
        for side in sides
    ]
    assert chosen.held_out["zero-shot, offsets"] == pytest.approx(np.mean(offset), abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_rows_that_cannot_be_halved_are_named_or_skipped(n):
    """Cells of one row each fall on either side: a side may be left without any."""
    y, s = np.arange(n) % 2, np.arange(n) // 2
    judge = Judge(y, s, 2, 2)
    pool = pool_of([noisy_scores(900 + i, y, 2) for i in range(3)])
    if n == 1:
        with pytest.raises(LabelError, match="1 labelled rows are too few"):
            choose(pool, judge, WORST)
    else:
        assert np.isfinite(list(choose(pool, judge, WORST).held_out.values())).all()


def test_one_row_is_too_few():
    with pytest.raises(LabelError, match="1 labelled rows are too few"):
        choose(pool_of([np.eye(2)[[0]]] * 2), Judge(np.array([0]), np.array([0]), 2, 2), WORST)


@pytest.mark.parametrize("name", ["eod", "equalized_odds"])
def test_a_half_without_the_class_that_counts_does_not_spoil_the_choice(name):
    y = np.array([0] * 30 + [1, 1])
    s = np.array([0, 1] * 15 + [0, 1])
    scores = [noisy_scores(950 + i, y, 2) for i in range(3)]
    held_out = choose(pool_of(scores), Judge(y, s, 2, 2), Objective(name)).held_out
    assert np.isfinite(list(held_out.values())).all()


def test_a_scorer_takes_its_largest_value_and_no_offsets():
    y, _ = labelled(78, 40)
    scores = [noisy_scores(970 + i, y, 2, strength=i) for i in range(4)]
    pool = pool_of(scores)
    chosen = choose_by_scorer(pool, lambda values: float(np.mean(values.argmax(axis=1) == y)))
    assert (chosen.choice.candidate, chosen.strategy, chosen.held_out) == (3, "search", {})
    assert_array_equal(chosen.choice.offsets, [0.0, 0.0])
    assert chosen.value == np.mean(scores[3].argmax(axis=1) == y)


def test_a_scorer_that_gives_nan_somewhere_is_not_led_by_it():
    pool = pool_of([np.full((3, 2), float(i)) for i in range(3)])
    assert choose_by_scorer(pool, lambda v: [np.nan, 1.0, 2.0][int(v[0, 0])]).choice.candidate == 2
    with pytest.raises(ParameterError, match="NaN for every model"):
        choose_by_scorer(pool, lambda v: np.nan)


@pytest.mark.parametrize(
    ("name", "labels", "random_state"),
    [("waterbirds", True, 0), ("waterbirds", False, 0), ("multiclass", True, 0)],
)
def test_the_tuned_model_is_the_one_that_was_chosen(name, labels, random_state, monkeypatch):
    """Its scores on the validation rows are those of the candidate plus offsets."""
    seen = {}

    def remember(pool, judge, objective):
        seen["pool"], seen["chosen"] = pool, choose(pool, judge, objective)
        return seen["chosen"]

    monkeypatch.setattr(module, "choose", remember)
    t = task(name)
    given = small(random_state=random_state)
    model = tune(
        given, t.train.X, t.train.y if labels else None, validation=held(t), search=SEARCH, **prompts(t)
    )
    choice = seen["chosen"].choice
    expected = seen["pool"].candidates[choice.candidate].scores + choice.offsets
    found = model.scores(t.val.X)
    top = np.sort(expected, axis=1)
    # An offset may put a row right on the boundary, where rounding decides.
    clear = top[:, -1] - top[:, -2] > 1e-4 * np.abs(expected).max()
    assert clear.mean() > 0.95
    assert_array_equal(found.argmax(axis=1)[clear], expected.argmax(axis=1)[clear])
    np.testing.assert_allclose(found, expected, atol=2e-4 * np.abs(expected).max())
    assert given.get_params() == small(random_state=random_state).get_params()
    assert not hasattr(given, "classes_")


def test_without_a_seed_the_features_are_drawn_once_for_the_whole_search(monkeypatch):
    """Or else the model that is fitted in the end would be another than the one that was chosen."""
    pools = []

    def remember(pool, value):
        pools.append(pool)
        return choose_by_scorer(pool, value)

    monkeypatch.setattr(module, "choose_by_scorer", remember)
    t = task()
    calls = []
    model = tune(
        small(random_state=None),
        t.train.X,
        t.train.y,
        validation=held(t),
        search=SEARCH,
        objective=lambda y, p, s: calls.append(0) or len(calls),  # the last candidate: of random features
        **prompts(t),
    )
    assert model.kernel == "rbf"
    expected = pools[0].candidates[-1].scores
    np.testing.assert_allclose(model.scores(t.val.X), expected, atol=2e-4 * np.abs(expected).max())
    assert model.random_state == 0
