"""Stores in object storage, by URL, with fsspec's file system in memory: the same rows as on disk, or a clear error."""

import io
import struct
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fairerclip import EmbeddingMitigator, check, mitigate_store
from fairerclip.data import open_store
from fairerclip.data.io import remote_path
from fairerclip.errors import MissingExtraError, OutputError, StoreError

fsspec = pytest.importorskip("fsspec")
ROWS = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)


@pytest.fixture
def storage():
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def parquet(**columns):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, row_group_size=8)
    return out.getvalue()


def clip_retrieval(storage, name="bucket"):
    for part, rows in enumerate(np.split(ROWS, [20])):
        storage.pipe(f"/{name}/img_emb/img_emb_{part}.npy", npy(rows.astype(np.float16)))
        ids = [f"{part}/{row}.jpg" for row in range(len(rows))]
        storage.pipe(f"/{name}/metadata/metadata_{part}.parquet", parquet(image_path=ids))
    return f"memory://{name}"


def test_a_file_gives_the_rows_that_it_gives_on_disk(storage, tmp_path):
    for name, content in (
        ("x.npy", npy(ROWS)),
        ("x.parquet", parquet(id=list("abc") * 10, embedding=list(ROWS))),
    ):
        storage.pipe(f"/bucket/{name}", content)
        (tmp_path / name).write_bytes(content)
        remote, local = open_store(f"memory://bucket/{name}"), open_store(tmp_path / name)
        assert remote.path == f"memory://bucket/{name}"
        assert (remote.shape, remote.dtype_on_disk) == (local.shape, local.dtype_on_disk)
        for rows in (slice(None), slice(3, 11), [29, 0, 7, 7, 28], slice(0, 30, 9)):
            assert_array_equal(remote[rows], local[rows])
        assert (remote.ids is None) == (local.ids is None)
        assert remote.ids is None or remote.ids.tolist() == local.ids.tolist()


def test_a_folder_of_clip_retrieval_has_its_rows_and_ids(storage):
    store = open_store(clip_retrieval(storage))
    assert store.shape == (30, 4)
    assert_array_equal(store.raw(slice(None)), ROWS.astype(np.float16))
    assert store.ids[[0, 29]].tolist() == ["0/0.jpg", "1/9.jpg"]


def test_consecutive_rows_are_one_request_and_rows_near_each_other_too(storage, monkeypatch):
    storage.pipe("/bucket/x.npy", npy(ROWS))
    store = open_store("memory://bucket/x.npy")
    asked = []
    read = remote_path.RemotePath.ranges
    monkeypatch.setattr(
        remote_path.RemotePath, "ranges", lambda self, *spans: asked.append(spans) or read(self, *spans)
    )
    assert_array_equal(store[5:25], ROWS[5:25])
    assert asked == [([128 + 5 * 16], [128 + 25 * 16])]
    asked.clear()
    monkeypatch.setattr(remote_path, "GAP_BYTES", 32)
    assert_array_equal(store[[1, 2, 5, 20]], ROWS[[1, 2, 5, 20]])
    assert asked == [([128 + 16, 128 + 320], [128 + 96, 128 + 336])]
    asked.clear()
    monkeypatch.setattr(remote_path, "REQUEST_BYTES", 32)
    assert_array_equal(store[np.arange(6)], ROWS[:6])
    assert [len(starts) for starts, _ in asked] == [1, 1, 1]


def test_a_file_that_changes_after_it_was_opened_is_an_error(storage):
    storage.pipe("/bucket/x.npy", npy(ROWS))
    store = open_store("memory://bucket/x.npy")
    storage.pipe("/bucket/x.npy", npy(ROWS[:3]))
    with pytest.raises(StoreError, match="has it changed"):
        store[:]


def test_a_file_url_and_a_path_are_local(tmp_path, monkeypatch):
    np.savez(tmp_path / "x y.npz", embeddings=ROWS)
    assert_array_equal(open_store(f"file://{tmp_path}/x%20y.npz")[:], ROWS)
    # A path is never a URL, so that a task file cannot name one.
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError):
        open_store(remote_path.Path("memory://bucket/x.npy"))


def test_a_store_by_url_is_checked_fitted_and_mitigated_to_a_local_file(storage, tmp_path, run):
    url = clip_retrieval(storage)
    store = open_store(url)
    fairer = EmbeddingMitigator().fit(store, sensitive_features=np.arange(30) % 2)
    assert check(url).usable
    assert mitigate_store(fairer, url, tmp_path / "out.npy").rows == 30
    assert_array_equal(np.load(tmp_path / "out.npy"), fairer.transform(store).astype(np.float16))
    fairer.save(tmp_path / "model")
    code, _, error = run("apply", tmp_path / "model", url, "-o", tmp_path / "folder")
    assert (code, error) == (0, "")
    copied = open_store(tmp_path / "folder")
    assert copied.ids.tolist() == store.ids.tolist()
    assert_array_equal(copied.raw(slice(None)), np.load(tmp_path / "out.npy"))
    with pytest.raises(OutputError):
        mitigate_store(fairer, url, "memory://bucket/out.npy")
    assert run("apply", tmp_path / "model", url, "-o", "memory://bucket/out.npy")[0] == 2


GOOD = npy(ROWS)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("x.npy", GOOD[:-1]),
        ("x.npy", GOOD + b"0"),
        ("x.npy", GOOD.replace(b"(30, 4), }" + 8 * b" ", b"(3000000000, 4), }")),
        ("x.npy", GOOD[:6] + b"\x02\x00" + struct.pack("<I", 2**31) + GOOD[10:]),
        ("x.npy", npy(np.array([{}], dtype=object))),
        ("x.npy", npy(np.asfortranarray(ROWS))),
        ("x.npy", npy(ROWS.astype(int))),
        ("x.parquet", b"PAR1" + b"\xff" * 40 + b"PAR1"),
        ("x.npz", b""),
    ],
)
def test_what_cannot_be_read_is_refused_before_memory_is_allocated(storage, name, bad):
    storage.pipe(f"/bucket/{name}", bad)
    with pytest.raises(StoreError, match=name):
        open_store(f"memory://bucket/{name}")


def test_urls_of_nothing_and_errors_of_the_storage_name_the_url(storage, monkeypatch):
    for url in ("memory://bucket/nothing", "nowhere://bucket", "file://folder/x.npy"):
        with pytest.raises(StoreError, match=url):
            open_store(url)
    for error, ours in (
        (PermissionError("credentials"), StoreError),
        (ImportError("s3fs"), MissingExtraError),
    ):
        monkeypatch.setattr(fsspec.core, "url_to_fs", Mock(side_effect=error))
        with pytest.raises(ours, match=str(error)):
            open_store("s3://bucket/x.npy")
