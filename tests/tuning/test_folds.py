"""Splits of the training rows that are judged: every row once at most, never by a fit on it, and groups together."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold

from fairerclip.errors import LabelError
from fairerclip.judging.evidence import Evidence, row_keys
from fairerclip.tuning.found_rows import make_splits
from fairerclip.tuning.judged_rows import JudgedRows


def judged(y, s=None, rows=None, width=3):
    """Rows with labels; all of them unless their numbers are given."""
    y = np.asarray(y)
    s = np.zeros_like(y) if s is None else np.asarray(s)
    rows = np.arange(len(y)) if rows is None else np.asarray(rows)
    X = np.random.default_rng(0).normal(size=(len(y), width))
    evidence = Evidence.of_codes(y, s, int(y.max()) + 1, int(s.max()) + 1, row_keys(X))
    names = np.array(["a", "b", "c"])[: evidence.n_classes]
    return JudgedRows(rows, X, evidence, names, np.arange(int(s.max()) + 1), "given")


def splits_of(cv, rows, n=None, groups=None, seed=0, taking_part=None):
    n = len(rows.rows) if n is None else n
    every = np.arange(n) if taking_part is None else np.asarray(taking_part)
    y = np.zeros(n, dtype=int)
    y[rows.rows] = rows.evidence.y
    return make_splits(cv, rows, every, np.zeros((n, 3)), y, groups, seed)


def test_splits_score_judged_rows_once_and_fit_on_all_others():
    rows = judged([0, 1, 0, 1], rows=[1, 2, 5, 7])
    pairs = [([0, 3, 4, 5, 6, 7, 8], [1, 2]), ([0, 1, 2, 3, 4, 6, 8], [5, 7])]
    for cv in (2, 4, pairs, iter(pairs), KFold(2)):
        splits = splits_of(cv, rows, n=9)
        assert sorted(np.concatenate([split.scored for split in splits])) == [1, 2, 5, 7]
        for split in splits:
            assert_array_equal(np.intersect1d(split.fitted_on, split.scored), [])
            if not isinstance(cv, KFold):
                assert_array_equal(split.fitted_on, np.setdiff1d(np.arange(9), split.scored))


def test_rows_that_take_no_part_in_the_fit_are_not_fitted_on():
    rows = judged([0, 1, 0, 1], rows=[1, 2, 5, 7])
    for cv in (2, [([0, 5, 6, 7, 8], [1, 2]), ([0, 1, 2, 8], [5, 7])]):
        for split in splits_of(cv, rows, n=9, taking_part=[1, 2, 5, 7, 8]):
            assert set(split.fitted_on.tolist()) <= {1, 2, 5, 7, 8}
            assert 8 in split.fitted_on


def test_rows_of_one_group_stay_in_one_fold_with_those_that_are_not_judged():
    rows = judged(np.arange(24) % 2, rows=np.arange(24) * 2)  # every second row has a label
    people = np.repeat(np.arange(12), 4)
    for cv in (3, GroupKFold(3)):
        splits = splits_of(cv, rows, n=48, groups=people)
        assert sorted(np.concatenate([split.scored for split in splits])) == list(range(0, 48, 2))
        for split in splits:
            assert_array_equal(np.intersect1d(people[split.fitted_on], people[split.scored]), [])
            assert set(people[split.fitted_on]) | set(people[split.scored]) == set(range(12))


def test_a_splitter_of_scikit_learn_is_used_as_it_is():
    rows = judged(np.arange(20) % 2)
    expected = [test.tolist() for _, test in StratifiedKFold(5).split(np.zeros((20, 1)), np.arange(20) % 2)]
    assert [s.scored.tolist() for s in splits_of(StratifiedKFold(5), rows)] == expected
    # A part of the rows may be left out of all test folds.
    some = [(np.arange(10, 20), np.arange(4)), (np.arange(10), np.arange(10, 12))]
    assert [s.scored.tolist() for s in splits_of(some, rows)] == [[0, 1, 2, 3], [10, 11]]


def test_every_fold_needs_a_labelled_row_of_every_class_to_fit_on():
    with pytest.raises(LabelError, match="'b'"):
        splits_of([([0, 1], [2, 3])], judged([0, 0, 1, 1]))
    with pytest.raises(LabelError, match="groups="):
        splits_of(2, judged([0, 0, 1, 1]), groups=np.array([0, 0, 1, 1]))
    with pytest.raises(LabelError, match="'c'"):
        splits_of(2, judged([0, 0, 1, 1, 2]))
    with pytest.raises(LabelError, match="one class"):
        splits_of(2, judged([0, 0], [0, 1]))
