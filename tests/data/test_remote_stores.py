"""Stores in object storage, by URL, with fsspec's file system in memory: the same rows as on disk, or a clear error."""

import io
import json
import struct

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fairerclip import EmbeddingMitigator, check, mitigate_store
from fairerclip._util import extras
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


def test_a_folder_of_shards_is_in_the_order_of_their_numbers(storage):
    for part, rows in enumerate(np.split(ROWS, 15)):
        storage.pipe(f"/bucket/shards/part_{part}.npy", npy(rows))
    assert_array_equal(open_store("memory://bucket/shards/")[:], ROWS)


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


def test_what_a_file_declares_is_checked_before_memory_is_allocated(storage):
    good = npy(ROWS)
    many = good.replace(b"(30, 4), }" + 8 * b" ", b"(3000000000, 4), }")
    long = good[:6] + b"\x02\x00" + struct.pack("<I", 2**31) + good[10:]
    objects = npy(np.array([{}], dtype=object))
    for bad, told in (
        (good[:-1], "truncated"),
        (good + b"0", "truncated"),
        (good[:20], "header"),
        (b"", "signature"),
        (many, "48000000128 bytes"),
        (long, "at most 10000 bytes"),
        (objects, "dtype object"),
        (npy(np.asfortranarray(ROWS)), "Fortran order"),
        (npy(ROWS.astype(int)), "matrix"),
        (npy(ROWS[0]), "matrix"),
    ):
        storage.pipe("/bucket/x.npy", bad)
        with pytest.raises(StoreError, match=told):
            open_store("memory://bucket/x.npy")
    storage.pipe("/bucket/x.parquet", b"PAR1" + b"\xff" * 40 + b"PAR1")
    with pytest.raises(StoreError, match="readable parquet"):
        open_store("memory://bucket/x.parquet")


def test_a_file_that_changes_after_it_was_opened_is_an_error(storage):
    storage.pipe("/bucket/x.npy", npy(ROWS))
    store = open_store("memory://bucket/x.npy")
    storage.pipe("/bucket/x.npy", npy(ROWS[:3]))
    with pytest.raises(StoreError, match="has it changed"):
        store[:]


def test_what_is_not_read_from_storage_is_refused_with_a_reason(storage):
    storage.pipe("/bucket/own/store.json", b"{}")
    storage.pipe("/bucket/x.npz", b"")
    for url, told in (
        ("memory://bucket/own", "copy it to a local disk"),
        ("memory://bucket/x.npz", "copy it to a local disk"),
        ("memory://bucket/nothing", "found nothing"),
        ("nowhere://bucket", "nowhere"),
        ("file://folder/x.npy", "three slashes"),
    ):
        with pytest.raises(StoreError, match=told):
            open_store(url)
    storage.mkdir("/bucket/empty")
    with pytest.raises(StoreError, match="found none"):
        open_store("memory://bucket/empty")


def test_any_exception_of_a_file_system_names_the_url(storage, monkeypatch):
    class CredentialsError(Exception):
        pass

    def fail(*_, **__):
        raise CredentialsError("unable to locate credentials")

    storage.pipe("/bucket/x.npy", npy(ROWS))
    monkeypatch.setattr(type(storage), "info", fail)
    with pytest.raises(StoreError, match=r"memory://bucket/x\.npy: .*CredentialsError: unable to locate"):
        open_store("memory://bucket/x.npy")


def test_a_missing_library_is_named(monkeypatch):
    def fail(name):
        raise ImportError(name)

    url_to_fs = fsspec.core.url_to_fs
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url: fail("Install s3fs to access S3"))
    with pytest.raises(MissingExtraError, match="s3://bucket/x.npy: Install s3fs"):
        open_store("s3://bucket/x.npy")
    monkeypatch.setattr(fsspec.core, "url_to_fs", url_to_fs)
    monkeypatch.setattr(extras, "import_module", fail)
    with pytest.raises(MissingExtraError, match=r"\[fsspec\]"):
        open_store("memory://bucket/x.npy")


def test_a_file_url_and_a_path_are_local(tmp_path, monkeypatch):
    np.savez(tmp_path / "x y.npz", embeddings=ROWS)
    assert_array_equal(open_store(f"file://{tmp_path}/x%20y.npz")[:], ROWS)
    # A path is never a URL, so that a task file cannot name one.
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match="found nothing at this path"):
        open_store(remote_path.Path("memory://bucket/x.npy"))


def test_a_store_by_url_is_checked_fitted_and_mitigated(storage, tmp_path, run):
    url = clip_retrieval(storage)
    store = open_store(url)
    s = np.arange(30) % 2
    fairer = EmbeddingMitigator().fit(store, sensitive_features=s)
    assert check(url).usable
    report = mitigate_store(fairer, url, tmp_path / "out.npy")
    assert report.rows == 30
    fairer.save(tmp_path / "model")
    code, out, _ = run("check", url, "--json")
    assert (code, json.loads(out)["path"]) == (0, url)
    code, _, error = run("apply", tmp_path / "model", url, "-o", tmp_path / "folder")
    assert (code, error) == (0, "")
    copied = open_store(tmp_path / "folder")
    assert copied.ids.tolist() == store.ids.tolist()
    assert_array_equal(copied.raw(slice(None)), np.load(tmp_path / "out.npy"))


def test_results_are_not_written_to_a_url(storage, tmp_path, run):
    url = clip_retrieval(storage)
    fairer = EmbeddingMitigator().fit(ROWS, sensitive_features=np.arange(30) % 2)
    with pytest.raises(OutputError, match="on this machine"):
        mitigate_store(fairer, url, "memory://bucket/out.npy")
    fairer.save(tmp_path / "model")
    code, _, told = run("apply", tmp_path / "model", url, "-o", "memory://bucket/out.npy")
    assert code == 2
    assert "on this machine" in told
