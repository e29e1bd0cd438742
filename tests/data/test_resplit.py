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


def unknown(split):
    row = np.arange(len(split))
    s = {key: np.where(row % 7 == 0, -1, values) for key, values in split.s.items()}
    return replace(split, y=np.where(row % 5 == 0, -1, split.y), s=s)


def by_class_alone(split):
    return Split(split.X, split.y, ids=split.ids)


@pytest.mark.parametrize("change", [None, unknown, by_class_alone])
def test_every_split_keeps_its_cells_and_every_row_its_labels(birds, change):
    task = birds
    if change:
        task = replace(birds, splits={name: change(split) for name, split in birds.splits.items()})
    if change is by_class_alone:
        task = replace(task, sensitive={})
    before = {name: split.X.copy() for name, split in task.splits.items()}
    other = resplit(task, 1)
    assert by_id(other) == by_id(task)
    assert list(other.splits) == list(task.splits)
    for name, split in task.splits.items():
        assert cells(other.splits[name], task.sensitive) == cells(split, task.sensitive)
        assert_array_equal(split.X, before[name])
    stayed = np.isin(other.train.ids, task.train.ids).mean()
    share = len(task.train) / sum(map(len, task.splits.values()))
    assert share * 0.5 < stayed < 0.95


def test_a_seed_is_one_deal(birds):
    a, b, c = resplit(birds, 1), resplit(birds, 1), resplit(birds, 2)
    for name in birds.splits:
        assert_array_equal(a.splits[name].X, b.splits[name].X)
        assert_array_equal(a.splits[name].ids, b.splits[name].ids)
    assert np.any(a.train.ids != c.train.ids)


def test_a_split_without_labels_takes_none_from_the_others(birds):
    val = replace(birds.val, y=None, s={})
    task = replace(birds, splits={**birds.splits, "val": val})
    other = resplit(task, 3)
    assert (other.val.y, other.val.s) == (None, {})
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
    races = {"before": [], "after": []}
    for name, split in task.splits.items():
        assert_array_equal(np.bincount(other.splits[name].s["sex"]), np.bincount(split.s["sex"]))
        races["before"].append(np.bincount(split.s["race"], minlength=7))
        races["after"].append(np.bincount(other.splits[name].s["race"], minlength=7))
    assert_array_equal(sum(races["before"]), sum(races["after"]))
    assert np.any(np.array(races["before"]) != races["after"])


def test_an_unknown_attribute_and_a_single_split_are_refused(birds):
    with pytest.raises(ParameterError, match="altitude"):
        resplit(birds, 0, sensitive=["altitude"])
    with pytest.raises(ParameterError, match="two splits"):
        resplit(replace(birds, splits={"train": birds.train}), 0)
