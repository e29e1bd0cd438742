from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from fairerclip import FairerCLIP
from fairerclip.data.provenance import Provenance, check_same_model
from fairerclip.data.stores import EmbeddingStore, open_store
from fairerclip.errors import ProvenanceError, ShapeError, StoreError
from small_models import small

MADE = Provenance("ViT-B-32", "openai", "resize 224", "open_clip 3.3.0", True, 8)


def unit(n=50, p=8, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, p)).astype(np.float32)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def write_parquet(path, **columns):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), path, row_group_size=7)


def lists(X, kind="float32"):
    pa = pytest.importorskip("pyarrow")
    return pa.array([row.tolist() for row in X], pa.list_(getattr(pa, kind)()))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8"])
def test_npy_gives_the_right_rows_in_any_order_and_byte_order(tmp_path, order, dtype):
    X = unit()
    np.save(tmp_path / "x.npy", np.asarray(X, dtype=dtype, order=order))
    store = open_store(tmp_path / "x.npy")
    assert store.shape == (50, 8)
    assert store.dtype == np.float32
    np.testing.assert_array_equal(store[3:9], X[3:9])
    np.testing.assert_array_equal(store[[7, 2, 2, -1]], X[[7, 2, 2, -1]])
    np.testing.assert_array_equal(store[::-3], X[::-3])
    assert store[3:9].dtype == np.float32
    assert store.ids is None
    assert store.provenance is None


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_gives_the_matrix_and_its_ids(tmp_path, save):
    X = unit()
    save(tmp_path / "x.npz", embeddings=X, other=X[:, :2], ids=np.array([f"{i}.jpg" for i in range(50)]))
    store = open_store(tmp_path / "x.npz")
    np.testing.assert_array_equal(store[[30, 4]], X[[30, 4]])
    assert store.ids[30] == "30.jpg"


def test_datacomp_arrays_are_chosen_by_key_and_ids_come_from_the_parquet_beside(tmp_path):
    X, Y = unit(10), unit(10, 4, seed=1)
    for name, rows in (("aa", slice(0, 6)), ("bb", slice(6, 10))):
        np.savez(tmp_path / f"{name}.npz", b32_img=X[rows].astype("f2"), l14_img=Y[rows].astype("f2"))
        write_parquet(tmp_path / f"{name}.parquet", uid=[f"u{i}" for i in range(10)[rows]])
    with pytest.raises(StoreError, match='key="b32_img"'):
        open_store(tmp_path)
    store = open_store(tmp_path, key="l14_img")
    np.testing.assert_allclose(store[:], Y, atol=1e-3)
    assert store.ids.tolist() == [f"u{i}" for i in range(10)]


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_parquet_rows_come_in_any_order_across_row_groups(tmp_path, kind, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    monkeypatch.setattr("fairerclip.data.io.parquet.BATCH_ROWS", 3)
    X = unit()
    values = pa.array(X.astype(kind).ravel(), getattr(pa, kind)())
    column = pa.FixedSizeListArray.from_arrays(values, 8)
    write_parquet(tmp_path / "x.parquet", vectors=column, image_path=[f"{i}.jpg" for i in range(50)])
    store = open_store(tmp_path / "x.parquet")
    for rows in (slice(0, 50), slice(20, 23), slice(3, 5), np.array([49, 0, 21, 21]), slice(45, 50)):
        np.testing.assert_allclose(store[rows], X[rows], atol=1e-3)
    assert store.dtype_on_disk == kind
    assert store.ids[-1] == "49.jpg"


def clip_retrieval(folder, counts, digits, X, metadata_counts=None):
    """Partitions of a clip-retrieval run; rows are numbered on through the partitions."""
    for name in ("img_emb", "text_emb", "metadata"):
        (folder / name).mkdir()
    start = 0
    for p, count in enumerate(counts):
        tag = f"{p:0{digits}d}"
        rows = slice(start, start + count)
        np.save(folder / "img_emb" / f"img_emb_{tag}.npy", X[rows].astype(np.float16))
        np.save(folder / "text_emb" / f"text_emb_{tag}.npy", -X[rows].astype(np.float16))
        named = (metadata_counts or counts)[p]
        paths = [f"d/{i}.jpg" for i in range(start, start + named)]
        write_parquet(
            folder / "metadata" / f"metadata_{tag}.parquet", image_path=paths, caption=["c"] * named
        )
        start += count


@pytest.mark.parametrize("digits", [1, 2, 4])
def test_clip_retrieval_partitions_go_by_number_and_not_by_name(tmp_path, digits):
    X = unit(36)
    clip_retrieval(tmp_path, [3] * 12, digits, X)
    store = open_store(tmp_path)
    np.testing.assert_allclose(store[:], X, atol=1e-3)
    assert store.ids.tolist() == [f"d/{i}.jpg" for i in range(36)]
    np.testing.assert_allclose(open_store(tmp_path, modality="text")[:], -X, atol=1e-3)


def test_shards_are_laid_end_to_end_in_natural_order(tmp_path):
    X = unit(33)
    for k in range(11):
        np.save(tmp_path / f"part_{k}.npy", X[3 * k : 3 * k + 3])
    store = open_store(tmp_path)
    np.testing.assert_array_equal(store[:], X)
    rows = np.random.default_rng(0).integers(33, size=100)
    np.testing.assert_array_equal(store[rows], X[rows])
    seen = list(store.blocks(rows=7))
    np.testing.assert_array_equal(np.concatenate([ids for ids, _ in seen]), np.arange(33))
    np.testing.assert_array_equal(np.concatenate([block for _, block in seen]), X)


def test_a_fit_on_a_store_equals_a_fit_on_the_array(tmp_path, embeddings):
    data = embeddings(n=300)
    X = data.X.astype(np.float32)
    for k in range(3):
        np.save(tmp_path / f"{k}.npy", X[100 * k : 100 * k + 100])
    store = open_store(tmp_path)
    make = lambda: FairerCLIP(n_features=60, random_state=0)  # noqa: E731
    arguments = {"sensitive_features": data.s, "text": data.text}
    one, two = make().fit(X, data.y, **arguments), make().fit(store, data.y, **arguments)
    np.testing.assert_array_equal(one.components_, two.components_)
    np.testing.assert_array_equal(one.transform(X), two.transform(store))
    np.testing.assert_array_equal(one.predict(X), one.predict(store))
    pseudo = {"text": data.text, "sensitive_text": data.sensitive_text}
    np.testing.assert_array_equal(
        make().fit(X, **pseudo).predict(X), make().fit(store, **pseudo).predict(store)
    )
    with pytest.raises(ShapeError, match="features"):
        one.predict(EmbeddingStore.from_array(X[:, :5]))


def test_float16_rows_come_back_to_unit_length_and_others_stay(tmp_path):
    X = unit(400, 512)
    X[5] *= 3
    np.save(tmp_path / "0.npy", X[:300].astype(np.float16))
    np.save(tmp_path / "1.npy", X[300:])
    for store in (open_store(tmp_path / "0.npy"), open_store(tmp_path)):
        norms = np.linalg.norm(store[:].astype(np.float64), axis=1)
        assert np.abs(np.delete(norms, 5) - 1).max() < 2e-7
        assert norms[5] == pytest.approx(3, abs=1e-3)
    assert store.dtype_on_disk == "float16, float32"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_safetensors_gives_the_only_matrix_or_the_named_one(tmp_path, dtype):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_torch

    X = unit(20, 64)
    rows = torch.from_numpy(X).to(getattr(torch, dtype))
    save_torch({"anything": rows, "labels": torch.arange(20)}, tmp_path / "x.safetensors")
    store = open_store(tmp_path / "x.safetensors")
    assert store.dtype_on_disk == dtype
    np.testing.assert_allclose(store[:], X, atol=5e-3 if dtype == "bfloat16" else 1e-3)
    save_torch({"a": rows, "b": rows[:, :3].clone()}, tmp_path / "y.safetensors")
    with pytest.raises(StoreError, match="key="):
        open_store(tmp_path / "y.safetensors")
    assert open_store(tmp_path / "y.safetensors", key="b").shape == (20, 3)


@pytest.mark.slow
def test_the_memory_of_a_fit_on_a_store_does_not_grow_with_the_embeddings(
    tmp_path, monkeypatch, tracemalloc_peak
):
    monkeypatch.setattr("fairerclip.solver.rows.cache_budget", lambda *_, **__: 0)
    monkeypatch.setattr("fairerclip.model.fit_data.FEATURE_FIT_ROWS", 2000)
    rng, p, peaks = np.random.default_rng(0), 256, []
    for n in (15_000, 30_000):
        y, s = rng.integers(2, size=(2, n))
        X = rng.normal(size=(n, p)).astype(np.float16)
        X[:, 0] += y
        np.save(tmp_path / f"{n}.npy", X)
        store, model = open_store(tmp_path / f"{n}.npy"), small(n_features=32, max_iter=2)
        _, peak = tracemalloc_peak(
            lambda store=store, model=model, y=y, s=s: model.fit(store, y, sensitive_features=s).transform(
                store
            )
        )
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 0.3 * 15_000 * p * 4  # labels and weights only


@pytest.mark.parametrize(
    "make",
    [
        lambda file: np.save(file.with_suffix(".npy"), np.arange(6).reshape(2, 3)),
        lambda file: np.save(file.with_suffix(".npy"), np.ones(3)),
        lambda file: np.save(file.with_suffix(".npy"), np.ones((0, 3))),
        lambda file: write_parquet(file.with_suffix(".parquet"), embedding=[[1.0, 2.0], [1.0]]),
        lambda file: write_parquet(file.with_suffix(".parquet"), embedding=[[1.0, None]]),
        lambda file: write_parquet(file.with_suffix(".parquet"), label=[1, 2]),
        lambda file: save_file({"x": np.ones(3)}, file.with_suffix(".safetensors")),
        lambda file: file.with_suffix(".pt").touch(),
        lambda file: None,
    ],
)
def test_a_file_without_a_matrix_of_rows_is_refused(tmp_path, make):
    make(tmp_path / "x")
    file = next(tmp_path.iterdir(), tmp_path / "x.npy")
    with pytest.raises(StoreError, match=file.name):
        open_store(file)


def test_folders_of_two_widths_or_kinds_are_refused(tmp_path):
    for name, width in (("0.npy", 8), ("1.npy", 5)):
        np.save(tmp_path / name, unit(3, width))
    with pytest.raises(StoreError, match=r"1.npy"):
        open_store(tmp_path)
    (tmp_path / "1.npy").unlink()
    np.savez(tmp_path / "1.npz", unit(3))
    with pytest.raises(StoreError, match="kind"):
        open_store(tmp_path)


def test_clip_retrieval_with_partitions_that_do_not_fit_is_refused(tmp_path):
    def twice(folder):
        np.save(folder / "img_emb" / "img_emb_01.npy", unit(3))

    def without(folder):
        (folder / "metadata" / "metadata_1.parquet").unlink()

    for change, counts in ((twice, [3, 3]), (without, [3, 3]), (lambda folder: None, [3, 5])):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        clip_retrieval(folder, [3, 3], 1, unit(6), metadata_counts=counts)
        change(folder)
        with pytest.raises(StoreError, match="1"):
            open_store(folder)


def test_rows_and_ids_that_do_not_exist_are_refused():
    store = EmbeddingStore.from_array(unit())
    for rows in ([50], [-51], 3, [[1]], [0.5]):
        with pytest.raises(ShapeError):
            store[rows]
    assert store[60:].shape == store[[]].shape == (0, 8)
    with pytest.raises(StoreError):
        _ = EmbeddingStore.from_array(unit(), ids=["a"]).ids


def test_provenance_round_trips_and_different_models_are_refused():
    assert Provenance.from_dict(json.loads(json.dumps(MADE.to_dict()))) == MADE
    for change in ({"extra": 1}, {"width": True}, {"model": 3}, {"normalised": 1}):
        with pytest.raises(ProvenanceError, match=next(iter(change))):
            Provenance.from_dict(MADE.to_dict() | change)
    other = Provenance("ViT-L-14", "openai", "resize 224", "open_clip 3.3.0", True, 768)
    with pytest.raises(ProvenanceError, match="ViT-L-14"):
        check_same_model(MADE, other)
    check_same_model(MADE, None)
    check_same_model(MADE, Provenance(**{**MADE.to_dict(), "weights": None, "library": "transformers"}))
    with pytest.raises(StoreError, match="768"):
        EmbeddingStore.from_array(unit(), provenance=other)
