"""Parquet rows under several readers, and after an error: never another row than the one asked for."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

from fairerclip.data.io import parquet
from fairerclip.data.label_table import read_labels
from fairerclip.data.stores import open_store
from fairerclip.errors import StoreError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

THREADS, READS = 4, 20


def test_threads_that_share_a_store_each_get_their_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "BATCH_ROWS", 64)
    X = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)
    column = pa.array(list(X), pa.list_(pa.float32()))
    pq.write_table(pa.table({"embedding": column}), tmp_path / "x.parquet", row_group_size=300)
    store, ready = open_store(tmp_path / "x.parquet"), Barrier(THREADS)

    def right(seed):
        rng = np.random.default_rng(seed)
        ready.wait()
        found = 0
        for start in rng.integers(0, 700, size=READS).tolist():
            found += store[start : start + 300].tobytes() == X[start : start + 300].tobytes()
        return found

    with ThreadPoolExecutor(THREADS) as threads:
        assert list(threads.map(right, range(THREADS))) == [READS] * THREADS


def test_rows_after_a_bad_batch_are_not_those_of_the_next_one(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "BATCH_ROWS", 10)
    rows = [[float(i), 1.0] for i in range(50)]
    rows[25] = None
    column = pa.array(rows, pa.list_(pa.float32()))
    pq.write_table(pa.table({"embedding": column}), tmp_path / "x.parquet")
    store = open_store(tmp_path / "x.parquet")
    assert store[15:20][:, 0].tolist() == [15, 16, 17, 18, 19]
    for _ in range(2):  # the second read would go on behind the bad batch, and give row 35 for row 25
        with pytest.raises(StoreError, match="1 nulls"):
            store[25:27]
    assert store[3:5][:, 0].tolist() == [3, 4]


def test_a_table_of_long_ids_that_compress_well_is_read(tmp_path):
    names = [f"gs://my-company/vision/people/2023-11-04/v3/train/images/{i:09d}.jpg" for i in range(5000)]
    file = tmp_path / "labels.parquet"
    pq.write_table(pa.table({"id": names, "y": ["a", "b"] * 2500}), file, compression="zstd")
    assert read_labels(file, id_column="id", columns=["y"]).ids.tolist() == names
