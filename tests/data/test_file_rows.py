import numpy as np
import pytest
from safetensors.numpy import save_file

from fairerclip import FairerCLIP
from fairerclip.data import EmbeddingStore, open_store
from fairerclip.data.io.file_rows import FileRows
from fairerclip.errors import StoreError


@pytest.fixture
def mapped(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(4000, dtype=np.float16).reshape(1000, 4))
    return np.load(tmp_path / "x.npy", mmap_mode="r")


PARTS = {
    "all": lambda a: a,
    "later rows": lambda a: a[5:],
    "rows of a plain view": lambda a: np.asarray(a)[7:90],
    "other type": lambda a: a[3:].view(np.uint16),
    "rows of rows": lambda a: a[10:][10:][:50],
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS.keys())
def test_rows_of_a_file_are_those_of_the_map_and_of_its_parts(mapped, part):
    array = part(mapped)
    rows = FileRows.of(array)
    assert (rows.shape, rows.dtype, len(rows), rows.nbytes) == (
        *(array.shape, array.dtype, len(array)),
        array.nbytes,
    )
    mask = np.arange(len(array)) % 3 == 1
    for index in (
        *(slice(None), slice(2, 9), slice(0, 0), slice(None, None, -2), slice(9, 2)),
        *([3, 1, 1, -1], np.array([40, 41, 42, 7]), mask, []),
    ):
        found = rows[index]
        np.testing.assert_array_equal(found, array[index])
        assert not np.shares_memory(found, array)
    np.testing.assert_array_equal(np.asarray(rows), array)
    assert np.asarray(rows, dtype=np.float64).dtype == np.float64


@pytest.mark.parametrize("ending", ["npy", "safetensors"])
def test_a_file_that_becomes_shorter_is_an_error_that_names_it(tmp_path, ending):
    file, X = tmp_path / f"x.{ending}", np.ones((2000, 8), dtype=np.float32)
    np.save(file, X) if ending == "npy" else save_file({"X": X}, file)
    store = open_store(file)
    with file.open("r+b") as handle:
        handle.truncate(9000)
    np.testing.assert_array_equal(store[:100], X[:100])
    for index in (slice(1000, 1100), np.array([5, 1999])):
        with pytest.raises(StoreError, match=rf"x\.{ending}: .*shorter"):
            store[index]


def test_rows_near_and_far_from_each_other_and_repeated_ones_are_those_of_the_array(tmp_path):
    X = np.arange(60_000, dtype=np.float32).reshape(20_000, 3)
    np.save(tmp_path / "x.npy", X)
    rows = FileRows.of(np.load(tmp_path / "x.npy", mmap_mode="r"))
    rng = np.random.default_rng(0)
    for numbers in (
        np.sort(rng.choice(20_000, 5000)),
        np.arange(0, 20_000, 2),
        np.array([0, 0, 2]),
        np.array([5, 5, 5, 19_999]),
        np.array([3, 4, 4, 6]),
        np.zeros(0, dtype=np.int64),
    ):
        np.testing.assert_array_equal(rows.take(numbers), X[numbers])
        np.testing.assert_array_equal(rows[numbers], X[numbers])


def replace(file, array):
    np.save(file.with_name("new.npy"), array)
    file.with_name("new.npy").replace(file)


def append(file, array):
    with file.open("ab") as handle:
        handle.write(b"more")


@pytest.mark.parametrize("change", [replace, append, np.save])
def test_a_file_that_is_changed_between_two_reads_is_an_error(tmp_path, mapped, change):
    rows, store = FileRows.of(mapped), EmbeddingStore.from_array(mapped[5:])
    np.testing.assert_array_equal(rows[:10], mapped[:10])
    np.testing.assert_array_equal(store[:2], mapped[5:7])
    change(tmp_path / "x.npy", np.zeros_like(mapped))
    for one in (rows, store):
        with pytest.raises(StoreError, match=r"x\.npy"):
            one[:10]


@pytest.mark.parametrize("shape", [(1000, 4), (2000, 8), None])
def test_a_map_keeps_its_rows_if_its_file_was_replaced_or_removed_before(tmp_path, mapped, shape):
    expected = np.array(mapped)
    if shape:
        replace(tmp_path / "x.npy", np.full(shape, -1, dtype=np.float16))
    else:
        (tmp_path / "x.npy").unlink()
    assert FileRows.of(mapped) is None
    np.testing.assert_array_equal(EmbeddingStore.from_array(mapped)[:], expected)


@pytest.mark.parametrize("mode", ["r+", "c"])
def test_a_map_that_was_written_to_is_read_from_memory(tmp_path, mapped, mode):
    changed = np.load(tmp_path / "x.npy", mmap_mode=mode)
    changed[0] = -1
    assert FileRows.of(changed) is None
    np.testing.assert_array_equal(EmbeddingStore.from_array(changed)[:1], [[-1, -1, -1, -1]])


def test_a_fit_reads_a_map_block_by_block_and_equals_one_of_the_array(tmp_path, embeddings, monkeypatch):
    data = embeddings(n=400)
    X = data.X.astype(np.float32)
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")[100:]
    y, s = data.y[100:], data.s[100:]
    make = lambda: FairerCLIP(n_features=20, random_state=0)  # noqa: E731
    expected = make().fit(X[100:], y, sensitive_features=s, text=data.text).predict(X)
    monkeypatch.setattr("fairerclip.model.prepare.UNIT_COPY", 0)  # or the rows of a small file are copied
    monkeypatch.setattr(FileRows, "__array__", lambda *_, **__: pytest.fail("the whole file was read"))
    model = make().fit(mapped, y, sensitive_features=s, text=data.text)
    np.testing.assert_array_equal(model.predict(mapped), expected[100:])
