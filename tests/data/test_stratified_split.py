"""Random splits have their shares inside each class and group, and no cell without validation rows if it has three."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from fairerclip.data import Sensitive, Split, Task, build_task, from_table
from fairerclip.data.label_table import Column, LabelTable
from fairerclip.data.stores import EmbeddingStore
from fairerclip.data.stratified_split import divided, stratified_split
from fairerclip.data.task_counts import few_validation_rows
from fairerclip.errors import ParameterError

NAMES = ("train", "val", "test")
SHARES = [
    (0.5, 0.1, 0.4),
    (0.8, 0.1, 0.1),
    (1 / 3, 1 / 3, 1 / 3),
    (0.6, 0.0, 0.4),
    (0.0, 1.0, 0.0),
    (0.98, 0.01, 0.01),
]


def counts_of(split):
    return [int((split == name).sum()) for name in NAMES]


def slow(size, shares, spread):
    """The counts nearest to the quotas among all that are allowed; of equally near ones the first split has more."""
    least = [int(spread and share > 0) for share in shares]
    allowed = [
        c
        for c in itertools.product(range(size + 1), repeat=3)
        if sum(c) == size and all(n >= low for n, low in zip(c, least, strict=True))
    ]
    distance = lambda c: sum((n - size * share) ** 2 for n, share in zip(c, shares, strict=True))  # noqa: E731
    nearest = min(map(distance, allowed))
    return max(list(c) for c in allowed if distance(c) == nearest)


@pytest.mark.parametrize("shares", SHARES)
def test_rows_are_divided_as_an_exhaustive_search_divides_them(shares):
    exact = [Fraction(share).limit_denominator(1000) for share in shares]
    positive = sum(share > 0 for share in shares)
    for size in range(14):
        assert divided(size, exact, spread=False) == slow(size, exact, spread=False)
        if size >= positive:
            assert divided(size, exact, spread=True) == slow(size, exact, spread=True)


def test_many_cells_of_one_row_do_not_all_go_to_the_training_split():
    assert counts_of(stratified_split(np.arange(100), (0.5, 0.1, 0.4), 0)) == [50, 10, 40]
    assert counts_of(stratified_split(np.zeros(101, dtype=int), (0.5, 0.1, 0.4), 0)) == [51, 10, 40]


def labels(n=60):
    ids = np.array([f"i{k}" for k in range(n)])
    y = Column("y", np.where(np.arange(n) % 10 == 9, 1, 0), ("cat", "dog"))
    s = Column("s", np.where(np.arange(n) % 20 > 17, 1, 0), ("in", "out"))
    return from_table(LabelTable(ids, {"y": y, "s": s}), name="t", target="y", sensitive=["s"], seed=2)


def drawn(task):
    return {str(i): name for name, split in task.splits.items() for i in split.ids}


def test_only_rows_with_an_embedding_are_drawn():
    # 3 dogs outdoors have an embedding; drawn from all 60 labels, some splits would have none of them.
    labelled = labels()
    rare = [19, 39, 59]
    kept = [*range(0, 18), *rare]
    store = EmbeddingStore.from_array(np.eye(len(kept), dtype=np.float32), [f"i{k}" for k in kept])
    task, notes = build_task(labelled, store, None)
    assert sorted(drawn(task)[f"i{k}"] for k in rare) == ["test", "train", "val"]
    few = "Fewer than 5 validation rows of cat × in (2), dog × in (0), dog × out (1)"
    assert any(few in note for note in notes), notes
    back = EmbeddingStore.from_array(np.eye(len(kept), dtype=np.float32), [f"i{k}" for k in kept[::-1]])
    assert drawn(build_task(labelled, back, None)[0]) == drawn(task), (
        "the order of the embeddings does not matter"
    )


@pytest.mark.parametrize("shares", SHARES)
def test_every_cell_of_three_rows_is_in_every_split(shares):
    rng = np.random.default_rng(0)
    cells = rng.choice(5, size=300, p=[0.6, 0.3, 0.07, 0.02, 0.01])
    cells = np.concatenate([cells, [7, 7, 7, 8, 8, 9]])
    split = stratified_split(cells, shares, 3)
    exact = [Fraction(share).limit_denominator(1000) for share in shares]
    assert set(split) <= {name for name, share in zip(NAMES, shares, strict=True) if share > 0}
    for cell, size in zip(*np.unique(cells, return_counts=True), strict=True):
        if size >= 3:
            came = counts_of(split[cells == cell])
            assert came == divided(int(size), exact, spread=True)
            assert all(n >= 1 for n, share in zip(came, shares, strict=True) if share > 0)


def test_a_split_is_drawn_by_its_seed():
    cells = np.arange(60) % 3
    a, b, c = (stratified_split(cells, (0.5, 0.1, 0.4), seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()
    # Names of cells do not matter, only which rows are together.
    np.testing.assert_array_equal(a, stratified_split(cells * 5 - 1, (0.5, 0.1, 0.4), 0))
    for shares, seed in (((0.5, 0.1, 0.1), 0), ((1.2, -0.1, -0.1), 0), ((0.5, 0.1, 0.4), -1)):
        with pytest.raises(ParameterError):
            stratified_split(cells, shares, seed)


def test_cells_with_few_validation_rows_are_counted_by_label():
    X = np.eye(12, dtype=np.float32)
    y, s = np.array([0] * 6 + [1] * 5 + [-1]), {"s": np.array([0] * 6 + [1] * 6)}
    names, sensitive = ("a", "b"), {"s": Sensitive("s", ("x", "y"), ("x", "y"))}
    train = Split(X, y, {"s": 1 - s["s"]})
    found = {
        name: few_validation_rows(Task("t", {"train": train, **more}, None, names, names, sensitive))
        for name, more in (
            ("both", {"val": Split(X, y, s)}),
            ("one", {}),
            ("no y", {"val": Split(X, None, s)}),
        )
    }
    # a × x has 6 rows, b × y 5; the others occur in the training split only; unknown labels are no cell.
    assert found["both"] == {"a × y": 0, "b × x": 0}
    assert found["one"] == {}
    assert found["no y"] == {}, "columns of other splits are compared only if they are the same"
