"""Rows dealt anew between splits: the cells stay, the rows move, and nothing is lost or doubled."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fairerclip.data import Split, resplit, simulate
from fairerclip.errors import ParameterError


@pytest.fixture(scope="module")
def birds():
    """Waterbirds with an id per row, so that a row can be followed."""
    task = simulate("waterbirds", scale=0.1, width=48)
    splits, start = {}, 0
    for name, split in task.splits.items():
        splits[name] = replace(split, ids=np.arange(start, start + len(split)))
        start += len(split)
    return replace(task, splits=splits)


def cells(split, names):
    """Rows of each class and sensitive values, as a mapping."""
    columns = [split.y, *(split.s[name] for name in names)]
    found, counts = np.unique(np.column_stack(columns), axis=0, return_counts=True)
    return {tuple(cell): int(n) for cell, n in zip(found.tolist(), counts, strict=True)}


def by_id(task):
    """Every row of a task by its id: embedding, class and sensitive values."""
    return {
        int(i): (x.tobytes(), int(y), tuple(int(s[k]) for s in split.s.values()))
        for split in task.splits.values()
        for k, (i, x, y) in enumerate(zip(split.ids, split.X, split.y, strict=True))
    }


def test_every_split_keeps_its_cells(birds):
    other = resplit(birds, 1)
    assert list(other.splits) == list(birds.splits)
    for name, split in birds.splits.items():
        assert len(other.splits[name]) == len(split)
        assert cells(other.splits[name], birds.sensitive) == cells(split, birds.sensitive)


def test_the_rows_are_a_permutation_and_keep_their_labels_and_ids(birds):
    other = resplit(birds, 1)
    assert by_id(other) == by_id(birds)
    ids = np.concatenate([split.ids for split in other.splits.values()])
    assert_array_equal(np.sort(ids), np.arange(len(ids)))


def test_rows_do_move_between_splits(birds):
    other = resplit(birds, 1)
    stayed = np.isin(other.train.ids, birds.train.ids).mean()
    share = len(birds.train) / sum(map(len, birds.splits.values()))
    assert share * 0.5 < stayed < 0.95


def test_a_seed_is_one_deal(birds):
    a, b, c = resplit(birds, 1), resplit(birds, 1), resplit(birds, 2)
    for name in birds.splits:
        assert_array_equal(a.splits[name].X, b.splits[name].X)
        assert_array_equal(a.splits[name].ids, b.splits[name].ids)
    assert np.any(a.train.ids != c.train.ids)


def test_the_task_itself_is_left_alone(birds):
    before = {name: split.X.copy() for name, split in birds.splits.items()}
    other = resplit(birds, 1)
    for name, X in before.items():
        assert_array_equal(birds.splits[name].X, X)
    assert other.text_target is birds.text_target
    assert other.class_names == birds.class_names


def test_unknown_labels_are_cells_of_their_own(birds):
    splits = {}
    for name, split in birds.splits.items():
        y = np.where(np.arange(len(split)) % 5 == 0, -1, split.y)
        s = {key: np.where(np.arange(len(split)) % 7 == 0, -1, v) for key, v in split.s.items()}
        splits[name] = replace(split, y=y, s=s)
    task = replace(birds, splits=splits)
    other = resplit(task, 3)
    assert by_id(other) == by_id(task)
    for name, split in task.splits.items():
        assert cells(other.splits[name], task.sensitive) == cells(split, task.sensitive)
        assert np.sum(other.splits[name].y == -1) == np.sum(split.y == -1)


def test_a_split_without_labels_takes_none_from_the_others(birds):
    val = replace(birds.val, y=None, s={})
    task = replace(birds, splits={**birds.splits, "val": val})
    other = resplit(task, 3)
    assert other.val.y is None
    assert other.val.s == {}
    # Its rows have no cell in common with labelled ones, so that they stay among themselves.
    assert_array_equal(np.sort(other.val.ids), np.sort(birds.val.ids))
    for name in ("train", "test"):
        assert cells(other.splits[name], task.sensitive) == cells(birds.splits[name], task.sensitive)


def test_ids_are_kept_only_where_every_split_has_them(birds):
    task = replace(birds, splits={**birds.splits, "val": replace(birds.val, ids=None)})
    assert all(split.ids is None for split in resplit(task, 0).splits.values())


def test_the_cells_may_be_those_of_some_attributes():
    task = simulate("gallery", scale=0.1, width=48)
    other = resplit(task, 1, sensitive=["sex"])
    for name, split in task.splits.items():
        assert_array_equal(np.bincount(other.splits[name].s["sex"]), np.bincount(split.s["sex"]))
    races = [np.bincount(t.splits[n].s["race"], minlength=7) for t in (task, other) for n in task.splits]
    half = len(task.splits)
    assert_array_equal(sum(races[:half]), sum(races[half:]))
    assert any(np.any(a != b) for a, b in zip(races[:half], races[half:], strict=True))


def test_an_unknown_attribute_and_a_single_split_are_refused(birds):
    with pytest.raises(ParameterError, match="altitude"):
        resplit(birds, 0, sensitive=["altitude"])
    with pytest.raises(ParameterError, match="expected a task with two splits or more, .* has one"):
        resplit(replace(birds, splits={"train": birds.train}), 0)


def test_a_split_of_no_attributes_is_dealt_by_class_alone(birds):
    splits = {name: Split(split.X, split.y, ids=split.ids) for name, split in birds.splits.items()}
    task = replace(birds, splits=splits, sensitive={})
    other = resplit(task, 5)
    for name, split in splits.items():
        assert_array_equal(np.bincount(other.splits[name].y), np.bincount(split.y))
    assert by_id(other) == by_id(task)
