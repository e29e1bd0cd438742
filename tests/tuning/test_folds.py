"""Folds of the judged rows, and candidates joined from the models of all folds."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fairerclip.errors import LabelError, NoSolutionError, ParameterError, ShapeError
from fairerclip.tuning.candidates import Candidate, Pool
from fairerclip.tuning.cross_validation import check_groups, deal_folds, limit_rows, make_splits, out_of_fold
from fairerclip.tuning.judge import Judge
from fairerclip.tuning.judged_rows import JudgedRows


def judged(y, s, rows=None):
    y, s = np.asarray(y), np.asarray(s)
    rows = np.arange(len(y)) if rows is None else np.asarray(rows)
    judge = Judge(y, s, int(y.max()) + 1, int(s.max()) + 1)
    return JudgedRows(
        rows, rows[:, None] + np.zeros((1, 2)), judge, np.array(["a", "b", "c"])[y], s, "given", None
    )


def cells(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(3, size=n), (rng.random(n) < 0.2).astype(int)


@pytest.mark.parametrize("n_folds", [2, 3, 5])
def test_every_cell_is_spread_evenly_over_the_folds(n_folds):
    y, s = cells(101)
    folds = deal_folds(judged(y, s).judge, None, n_folds, seed=1)
    for a in range(3):
        for b in range(2):
            sizes = np.bincount(folds[(y == a) & (s == b)], minlength=n_folds)
            assert np.ptp(sizes) <= 1
    assert np.ptp(np.bincount(folds)) <= 1


def test_rows_of_one_group_stay_in_one_fold_and_are_dealt_by_the_rarest_cell_among_them():
    y, s = np.zeros(48, dtype=int), np.zeros(48, dtype=int)
    people = np.repeat(np.arange(24), 2)
    s[::8] = 1  # the first of both rows of every fourth person
    folds = deal_folds(judged(y, s).judge, people, 3, seed=0)
    assert_array_equal(folds[::2], folds[1::2])
    assert_array_equal(np.bincount(folds[s == 1]), [2, 2, 2])
    assert_array_equal(np.bincount(folds), [16, 16, 16])


def test_folds_follow_the_seed():
    rows = judged(*cells(60)).judge
    assert_array_equal(deal_folds(rows, None, 4, seed=3), deal_folds(rows, None, 4, seed=3))
    assert np.any(deal_folds(rows, None, 4, seed=3) != deal_folds(rows, None, 4, seed=4))


def test_splits_score_judged_rows_and_fit_on_all_others():
    rows = judged([0, 1, 0, 1], [0, 0, 0, 0], rows=[1, 2, 5, 7])
    X = np.zeros((9, 2))
    for cv in (2, 4, [([0, 3, 4, 5, 6, 7, 8], [1, 2]), ([0, 1, 2, 3, 4, 6, 8], [5, 7])]):
        splits = make_splits(cv, rows, X, np.zeros(9), None, seed=0)
        assert sorted(np.concatenate([split.scored for split in splits])) == [1, 2, 5, 7]
        for split in splits:
            assert_array_equal(rows.rows[split.places], split.scored)
            assert_array_equal(split.fitted_on, np.setdiff1d(np.arange(9), split.scored))


def test_splits_that_cannot_be_are_named():
    rows, X, y = judged([0, 0, 1, 1], [0, 0, 0, 0]), np.zeros((4, 2)), np.zeros(4)
    with pytest.raises(ParameterError, match="2 to 4 folds, the number of rows with both labels; got 1"):
        make_splits(1, rows, X, y, None, seed=0)
    with pytest.raises(ParameterError, match="it puts 4 into test folds, 3 of them different"):
        make_splits([([2, 3], [0, 1]), ([1, 2], [0, 3])], rows, X, y, None, seed=0)
    with pytest.raises(ParameterError, match="it puts 0 into test folds"):
        make_splits([([0, 1, 2, 3], [])], rows, X, y, None, seed=0)
    with pytest.raises(LabelError, match="no labelled row of class 'b' to fit on"):
        make_splits([([0, 1], [2, 3])], rows, X, y, None, seed=0)
    with pytest.raises(LabelError, match=r"y has one class only \(\['a'\]\)"):
        make_splits(2, judged([0, 0], [0, 1]), X[:2], y[:2], None, seed=0)


def test_more_rows_than_are_judged_are_drawn_from_every_cell_alike():
    y, s = np.repeat([0, 0, 1], [50, 3, 40]), np.repeat([0, 1, 0], [50, 3, 40])
    every = judged(y, s, rows=np.arange(93) * 2)
    assert limit_rows(every, 0, most=93) is every
    few = limit_rows(every, 0, most=30)
    assert few.judge.counts.tolist() == [[10, 3], [10, 0]]
    assert np.all(np.diff(few.rows) > 0)
    assert_array_equal(few.X[:, 0], few.rows)
    assert_array_equal(few.judge.y, y[few.rows // 2])
    assert_array_equal(few.judge.s, s[few.rows // 2])
    assert_array_equal(few.y, every.y[few.rows // 2])
    assert_array_equal(few.groups, s[few.rows // 2])
    assert limit_rows(every, 0, most=2).judge.counts.tolist() == [[1, 1], [1, 0]]
    assert np.any(limit_rows(every, 1, most=30).rows != few.rows)


def test_groups_have_one_entry_per_row():
    assert check_groups(None, 3) is None
    assert check_groups(["a", "b", "a"], 3).tolist() == [0, 1, 0]
    for wrong in (["a", "b"], [["a"], ["b"], ["a"]]):
        with pytest.raises(ShapeError, match=r"shape \(3,\); got"):
            check_groups(wrong, 3)


def pools(without=()):
    """Two pools of three candidates, whose scores say which they are; some of them are left out."""

    def pool(fold):
        known = [
            Candidate(parameters, fit, np.full((2, 2), 10 * fold + place, dtype=np.float32))
            for place, (fit, parameters) in enumerate([(0, {}), (1, {"tau": 0.0}), (1, {"tau": 0.5})])
        ]
        kept = [c for place, c in enumerate(known) if (fold, place) not in without]
        places = [kept.index(c) if c in kept else None for c in known]
        return Pool(kept, places[0], places[1], np.arange(2), {}, 2, 3, 1.5, [f"in {fold}"], places[2])

    return [pool(0), pool(1)]


def test_candidates_have_the_scores_of_one_split_after_the_other():
    joined = out_of_fold(pools())
    assert [c.scores[:, 0].tolist() for c in joined.candidates] == [[k, k, 10 + k, 10 + k] for k in range(3)]
    assert (joined.given, joined.zero_shot, joined.orthogonal) == (0, 1, 2)
    assert (joined.fits, joined.planned, joined.seconds, joined.failures) == (4, 6, 3.0, ["in 0", "in 1"])


def test_candidates_that_a_split_lacks_are_left_out():
    joined = out_of_fold(pools({(1, 0)}))
    assert [(c.fit, c.parameters) for c in joined.candidates] == [(1, {"tau": 0.0}), (1, {"tau": 0.5})]
    assert (joined.given, joined.zero_shot, joined.orthogonal) == (None, 0, 1)
    joined = out_of_fold(pools({(0, 1)}))
    assert (joined.given, joined.zero_shot, joined.orthogonal) == (0, None, 1)
    with pytest.raises(NoSolutionError, match="in every fold"):
        out_of_fold(pools({(0, 0), (1, 1), (0, 2)}))
