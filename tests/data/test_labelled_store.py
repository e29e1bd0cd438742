"""Tables of labels matched with a store block by block: the labels of a join in memory, and its errors."""

import re

import numpy as np
import pytest

from fairerclip.data import join, open_store, read_labels
from fairerclip.data import labelled_store as module
from fairerclip.data import store_rows as rows_module
from fairerclip.data.id_index import HashCollision, IdHasher, IdIndex
from fairerclip.data.labelled_store import label_store
from fairerclip.data.stores import EmbeddingStore
from fairerclip.errors import JoinError, LabelError, ParameterError, PositionJoinWarning, StoreError

N = 60
NAMES = [f"images/{k:02d}.jpg" for k in range(N)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of both sides that begin and end at different rows."""
    monkeypatch.setattr("fairerclip.data.label_table._BLOCK", 7)
    monkeypatch.setattr("fairerclip.data.io.parquet.TEXT_ROWS", 8)
    real = rows_module.id_blocks
    monkeypatch.setattr(module, "id_blocks", lambda store: real(store, 11))
    monkeypatch.setattr(rows_module, "id_blocks", lambda store: real(store, 11))


def made_store(ids=NAMES):
    return EmbeddingStore.from_array(np.arange(1.0, len(ids) + 1)[:, None] * np.ones(3), ids=ids)


def lines(names):
    """Rows of a table: an id, a class, a group that is sometimes missing, and a split."""
    number = {name: k for k, name in enumerate(NAMES)}
    return [
        f"{name},{'cat' if (k := number.get(name, place)) % 3 else 'dog'},{'' if k % 10 == 4 else k % 2},"
        f"{['train', 'valid', 'test'][k % 4 // 2 + (k % 4 == 3)]}"
        for place, name in enumerate(names)
    ]


def write(path, names):
    path.write_text("\n".join(["image,animal,group,part", *lines(names)]) + "\n")
    return path


def written(tmp_path, names=NAMES, ending=".csv"):
    file = write(tmp_path / "labels.csv", names)
    if ending == ".csv":
        return file
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    head, *rows = [line.split(",") for line in file.read_text().splitlines()]
    columns = dict(zip(head, zip(*rows, strict=True), strict=True))
    values = {name: [value or None for value in column] for name, column in columns.items()}
    pq.write_table(pa.table(values), tmp_path / "labels.parquet", row_group_size=25)
    return tmp_path / "labels.parquet"


COLUMNS = {"id_column": "image", "target": "animal", "sensitive": ["group"]}


def shuffled(names, seed=0):
    return [names[k] for k in np.random.default_rng(seed).permutation(len(names))]


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("order", ["same", "other"])
def test_labels_are_those_of_a_join_in_memory(tmp_path, ending, order):
    file = written(tmp_path, NAMES if order == "same" else shuffled(NAMES), ending)
    store = made_store()
    found = label_store(store, file, **COLUMNS)
    table = read_labels(file, id_column="image", columns=["animal", "group"])
    rows = join(store.ids, table.ids).rows_in_labels
    for name, column in table.columns.items():
        assert found.labels[name].codes.dtype == np.int8
        assert found.labels[name].names == column.names
        np.testing.assert_array_equal(found.labels[name].codes, column.codes[rows])
    assert found.splits == ["train"]
    assert found.notes == []
    assert found.split().X is store  # all rows, without a copy of anything
    assert np.asarray(found.split().y).tolist()[:2] == ["dog", "cat"]


def test_a_table_in_the_order_of_the_store_needs_no_look_up(tmp_path, monkeypatch):
    monkeypatch.setattr(IdIndex, "rows", lambda *_: pytest.fail("looked up"))
    label_store(made_store(), written(tmp_path), **COLUMNS)
    with pytest.raises(pytest.fail.Exception):
        label_store(made_store(), write(tmp_path / "other.csv", shuffled(NAMES)), **COLUMNS)


def test_rows_that_one_side_lacks_are_counted_named_and_left_out(tmp_path):
    table = [*shuffled(NAMES[3:]), "images/x.jpg"]
    found = label_store(made_store(), write(tmp_path / "t.csv", table), **COLUMNS)
    expected = join(NAMES, table).lines()
    assert found.notes == expected
    assert "3 embeddings have no label: images/00.jpg, images/01.jpg, images/02.jpg." in expected
    train = found.split()
    assert len(train) == len(train.y) == N - 3
    np.testing.assert_array_equal(train.X[:][:, 0], np.arange(4.0, N + 1))
    assert train.X.ids.tolist() == NAMES[3:]


def test_a_split_column_divides_the_rows(tmp_path):
    found = label_store(
        made_store(), write(tmp_path / "t.csv", shuffled(NAMES)), **COLUMNS, split_column="part"
    )
    assert found.splits == ["train", "val", "test"]
    numbers = np.arange(N) % 4
    for name, rows in (("train", numbers < 2), ("val", numbers == 2), ("test", numbers == 3)):
        np.testing.assert_array_equal(found.split(name).X[:][:, 0], 1.0 + np.flatnonzero(rows))
    with pytest.raises(LabelError, match="there are rows of train"):
        label_store(made_store(), written(tmp_path), **COLUMNS).split("val")
    bad = tmp_path / "bad.csv"
    bad.write_text("image,animal,group,part\n" + "\n".join(line + "x" for line in lines(NAMES)) + "\n")
    with pytest.raises(LabelError, match="must hold train, val or test"):
        label_store(made_store(), bad, **COLUMNS, split_column="part")


def test_rows_are_joined_by_position_with_a_warning_if_that_is_asked_for(tmp_path):
    by_position = {**COLUMNS, "id_column": None, "by_position": True}
    with pytest.warns(PositionJoinWarning, match="60 rows are joined by position"):
        found = label_store(made_store(), written(tmp_path), **by_position)
    assert np.asarray(found.split().s["group"]).tolist()[:5] == ["0", "1", "0", "1", ""]
    with pytest.raises(JoinError, match="expected 60 labels, got 59"):
        label_store(made_store(), write(tmp_path / "short.csv", NAMES[1:]), **by_position)


@pytest.mark.parametrize("match", ["basename", "stem"])
def test_parts_of_ids_are_compared_as_in_a_join(tmp_path, match):
    ids = [f"elsewhere/{name[7:-4]}.{'jpg' if match == 'basename' else 'png'}" for name in shuffled(NAMES)]
    found = label_store(made_store(ids), written(tmp_path), **COLUMNS, match=match)
    table = read_labels(written(tmp_path), id_column="image", columns=["animal"])
    rows = join(ids, table.ids, match=match).rows_in_labels
    np.testing.assert_array_equal(found.labels["animal"].codes, table.columns["animal"].codes[rows])


@pytest.mark.parametrize(
    ("store_ids", "table_ids", "match"),
    [
        (NAMES, [*shuffled(NAMES), NAMES[7]], "exact"),
        ([*NAMES, NAMES[5]], shuffled(NAMES), "exact"),
        ([*NAMES, "x", "x"], shuffled(NAMES), "exact"),
        (NAMES, ["a/1.jpg", "b/1.jpg", "c/2.jpg"], "basename"),
        (NAMES, [f"other/{k}" for k in range(4)], "exact"),
        (NAMES, [name[7:] for name in NAMES], "exact"),
    ],
    ids=["label-twice", "row-twice", "stranger-twice", "part-twice", "none", "none-but"],
)
def test_ids_that_cannot_be_joined_are_the_errors_of_a_join(tmp_path, store_ids, table_ids, match):
    with pytest.raises(JoinError) as expected:
        join(store_ids, table_ids, match=match)
    with pytest.raises(JoinError, match=re.escape(str(expected.value))):
        label_store(made_store(store_ids), write(tmp_path / "t.csv", table_ids), **COLUMNS, match=match)


def test_an_id_that_both_sides_have_twice_is_refused_though_their_order_is_the_same(tmp_path):
    twice = [*NAMES, NAMES[5]]
    with pytest.raises(JoinError, match="1 ids of the labels are given more than once: 'images/05.jpg'"):
        label_store(made_store(twice), write(tmp_path / "t.csv", twice), **COLUMNS)


def test_columns_and_ids_that_are_not_there_are_refused(tmp_path):
    file = written(tmp_path)
    with pytest.raises(JoinError, match="no column 'animl'; did you mean 'animal'"):
        label_store(made_store(), file, id_column="image", target="animl")
    with pytest.raises(StoreError, match="has no ids"):
        label_store(EmbeddingStore.from_array(np.eye(3)), file, **COLUMNS)
    with pytest.raises(ParameterError, match="id_column is needed"):
        label_store(made_store(), file, target="animal")
    with pytest.raises(ParameterError, match="different columns"):
        label_store(made_store(), file, id_column="image", target="animal", sensitive=["animal"])
    file.write_text(file.read_text().replace("images/09.jpg", ""))
    with pytest.raises(JoinError, match="expected an id in every row of 'image', row 9 has none"):
        label_store(made_store(), file, **COLUMNS)


def test_a_collision_of_hashes_is_resolved_with_other_keys(tmp_path, monkeypatch):
    real, calls = IdHasher.__call__, []

    def colliding(self, ids):
        first, second = real(self, ids)
        if self not in calls:
            calls.append(self)
        return (np.zeros_like(first), second) if calls.index(self) == 0 else (first, second)

    monkeypatch.setattr(IdHasher, "__call__", colliding)
    found = label_store(made_store(), write(tmp_path / "t.csv", shuffled(NAMES)), **COLUMNS)
    assert len(calls) == 2
    assert np.asarray(found.labels["animal"]).tolist()[:3] == ["dog", "cat", "cat"]


def test_a_look_up_does_not_take_an_equal_hash_for_an_equal_id():
    index = IdIndex(IdHasher())
    index.add(np.array(["a", "b"]))
    assert index.repeated() == []
    index._second = index._second + np.uint64(1)
    with pytest.raises(HashCollision):
        index.rows(np.array(["a"]))


def test_ids_of_stores_are_read_in_blocks_and_by_row(tmp_path):
    for number, part in enumerate((NAMES[:25], NAMES[25:])):
        np.savez(tmp_path / f"{number}.npz", X=np.ones((len(part), 2)), ids=np.array(part))
    store = open_store(tmp_path)
    blocks = list(rows_module.id_blocks(store))
    assert [len(block) for block in blocks] == [11, 11, 11, 11, 11, 5]
    assert np.concatenate(blocks).tolist() == NAMES
    assert rows_module.ids_at(store, [40, 0, 24, 25]) == [NAMES[k] for k in (40, 0, 24, 25)]
    assert store.held_ids is None  # nothing has read all of them
