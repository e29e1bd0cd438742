from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
from safetensors.numpy import save_file

from fairerclip import FairerCLIP
from fairerclip.data.provenance import Provenance, check_same_model
from fairerclip.data.stores import EmbeddingStore, open_store
from fairerclip.errors import FairerClipError, ProvenanceError, ShapeError, StoreError
from small_models import FIXED

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


def test_float16_rows_come_back_to_unit_length_and_others_stay(tmp_path):
    X = unit(400, 512)
    X[5] *= 3
    np.save(tmp_path / "x.npy", X.astype(np.float16))
    norms = np.linalg.norm(open_store(tmp_path / "x.npy")[:].astype(np.float64), axis=1)
    assert np.abs(np.delete(norms, 5) - 1).max() < 2e-7
    assert norms[5] == pytest.approx(3, abs=1e-3)


def test_float16_shards_are_normalised_beside_float32_ones(tmp_path):
    X = unit(20, 512)
    np.save(tmp_path / "0.npy", X[:10].astype(np.float16))
    np.save(tmp_path / "1.npy", X[10:])
    store = open_store(tmp_path)
    assert store.dtype_on_disk == "float16, float32"
    assert np.abs(np.linalg.norm(store[:].astype(np.float64), axis=1) - 1).max() < 2e-7


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


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_safetensors_gives_the_only_matrix_or_the_named_one(tmp_path, dtype):
    X = unit().astype(dtype)
    save_file({"anything": X, "labels": np.arange(50)}, tmp_path / "x.safetensors")
    np.testing.assert_allclose(open_store(tmp_path / "x.safetensors")[:], X, atol=1e-3)
    save_file({"a": X, "b": X[:, :3]}, tmp_path / "y.safetensors")
    with pytest.raises(StoreError, match="choose one with key="):
        open_store(tmp_path / "y.safetensors")
    assert open_store(tmp_path / "y.safetensors", key="b").shape == (50, 3)


def test_bfloat16_safetensors_are_read(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_torch

    X = unit(20, 64)
    save_torch({"embeddings": torch.from_numpy(X).bfloat16()}, tmp_path / "x.safetensors")
    store = open_store(tmp_path / "x.safetensors")
    assert store.dtype_on_disk == "bfloat16"
    np.testing.assert_allclose(store[:], X, atol=5e-3)


def tampered(tmp_path, header, data=b"\0" * 16):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    (tmp_path / "x.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw + data)
    return tmp_path / "x.safetensors"


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (
            b'{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},'
            b'"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}',
            "twice",
        ),
        ({"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 16]}}, "needs 24 bytes"),
        ({"a": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]}}, "accounts for"),
        ({"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [16, 32]}}, "without gap"),
        ({"a": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 16]}}, "fits in memory"),
        ({"a": {"dtype": "F4", "shape": [2, 2], "data_offsets": [0, 16]}}, "dtype"),
        ({"a": {"dtype": "F32", "shape": [2, -2], "data_offsets": [0, 16]}}, "whole numbers"),
        (b"[" * 100_000, "expected JSON"),
        (b"\xff\xfe{}", "expected JSON"),
        ([1], "JSON object"),
    ],
)
def test_safetensors_with_a_false_header_is_refused(tmp_path, header, words):
    with pytest.raises(StoreError, match=words):
        open_store(tampered(tmp_path, header))


def test_truncated_files_are_refused_with_their_path(tmp_path):
    X = unit()
    np.save(tmp_path / "a.npy", X)
    np.savez(tmp_path / "b.npz", X=X)
    save_file({"X": X}, tmp_path / "c.safetensors")
    for file in list(tmp_path.iterdir()):
        whole = file.read_bytes()
        for length in (0, 5, 60, len(whole) // 2, len(whole) - 1):
            file.write_bytes(whole[:length])
            with pytest.raises(StoreError, match=file.name):
                open_store(file)


def test_a_truncated_parquet_file_is_refused(tmp_path):
    write_parquet(tmp_path / "d.parquet", embedding=lists(unit()))
    whole = (tmp_path / "d.parquet").read_bytes()
    (tmp_path / "d.parquet").write_bytes(whole[:-9])
    with pytest.raises(StoreError, match="d.parquet"):
        open_store(tmp_path / "d.parquet")


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


def test_parquet_lists_of_unequal_length_or_nulls_are_refused(tmp_path):
    pa = pytest.importorskip("pyarrow")
    write_parquet(tmp_path / "a.parquet", embedding=pa.array([[1.0, 2.0], [1.0]], pa.list_(pa.float32())))
    with pytest.raises(StoreError, match="row 1 .* has 1 values, row 0 has 2"):
        open_store(tmp_path / "a.parquet")
    write_parquet(tmp_path / "b.parquet", embedding=pa.array([[1.0, None]], pa.list_(pa.float32())))
    with pytest.raises(StoreError, match="null"):
        open_store(tmp_path / "b.parquet")
    write_parquet(tmp_path / "c.parquet", label=[1, 2])
    with pytest.raises(StoreError, match="label: int64"):
        open_store(tmp_path / "c.parquet")


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


def test_clip_retrieval_counts_that_disagree_are_named(tmp_path):
    clip_retrieval(tmp_path, [3, 3], 1, unit(6), metadata_counts=[3, 5])
    with pytest.raises(StoreError, match=r"metadata_1.parquet has 5 rows, img_emb_1.npy 3"):
        open_store(tmp_path)


def test_clip_retrieval_with_a_partition_missing_or_twice_is_refused(tmp_path):
    clip_retrieval(tmp_path, [3, 3], 1, unit(6))
    np.save(tmp_path / "img_emb" / "img_emb_01.npy", unit(3))
    with pytest.raises(StoreError, match="both partition 1"):
        open_store(tmp_path)
    (tmp_path / "img_emb" / "img_emb_01.npy").unlink()
    (tmp_path / "metadata" / "metadata_1.parquet").unlink()
    with pytest.raises(StoreError, match="partition 1 is in img_emb only"):
        open_store(tmp_path)


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


def test_what_is_not_a_store_is_refused_with_what_came(tmp_path):
    cases = {
        "ints.npy": np.arange(6).reshape(2, 3),
        "flat.npy": np.ones(3),
        "empty.npy": np.ones((0, 3)),
        "complex.npy": np.ones((2, 2), dtype=complex),
    }
    for name, array in cases.items():
        np.save(tmp_path / name, array)
        with pytest.raises(StoreError, match=name.split(".")[0]):
            open_store(tmp_path / name)
    np.save(tmp_path / "object.npy", np.array([[{}]]), allow_pickle=True)
    with pytest.raises(StoreError, match="object"):
        open_store(tmp_path / "object.npy")
    for name in ("x.pt", "x"):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(StoreError, match=r"expected .npy, .npz, .parquet, .safetensors"):
            open_store(tmp_path / name)
    with pytest.raises(StoreError, match="found nothing"):
        open_store(tmp_path / "absent.npy")
    with pytest.raises(StoreError):
        open_store("a\0b")


def test_folders_that_are_empty_mixed_or_of_two_widths_are_refused(tmp_path):
    with pytest.raises(StoreError, match="found none"):
        open_store(tmp_path)
    np.save(tmp_path / "0.npy", unit(3))
    np.save(tmp_path / "1.npy", unit(3, 5))
    with pytest.raises(StoreError, match=r"1.npy has 5 and .*0.npy 8"):
        open_store(tmp_path)
    np.savez(tmp_path / "2.npz", unit(3))
    with pytest.raises(StoreError, match="one kind"):
        open_store(tmp_path)


def test_rows_that_do_not_exist_are_refused():
    store = EmbeddingStore.from_array(unit())
    for rows in ([50], [-51], 3, [[1]], [0.5]):
        with pytest.raises(ShapeError):
            store[rows]
    assert store[[]].shape == (0, 8)
    assert store[60:].shape == (0, 8)


def test_ids_must_be_as_many_as_rows():
    with pytest.raises(StoreError, match="50 embeddings but ids"):
        _ = EmbeddingStore.from_array(unit(), ids=["a"]).ids


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


def fit_peak(folder, n, p, parameters):
    """Bytes that a fit and a transform of a store of n float16 rows take at most."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=n)
    X = np.lib.format.open_memmap(folder / f"{n}.npy", mode="w+", dtype=np.float16, shape=(n, p))
    for start in range(0, n, 10_000):
        block = rng.normal(size=(10_000, p)) + y[start : start + 10_000, None]
        X[start : start + 10_000] = block / np.linalg.norm(block, axis=1, keepdims=True)
    X.flush()
    store = open_store(folder / f"{n}.npy")
    tracemalloc.start()
    try:
        model = FairerCLIP(**parameters, n_features=32, random_state=0, max_iter=2)
        model.fit(store, y, sensitive_features=rng.integers(2, size=n)).transform(store)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# Labels and weights only; a choice of parameters also keeps probabilities, keys and the rows of each fold.
@pytest.mark.parametrize(("parameters", "share"), [(FIXED, 0.2), ({}, 0.5)], ids=["fixed", "automatic"])
def test_the_memory_of_a_fit_on_a_store_does_not_grow_with_the_embeddings(
    tmp_path, monkeypatch, parameters, share
):
    monkeypatch.setattr("fairerclip.solver.rows.cache_budget", lambda *_, **__: 0)
    monkeypatch.setattr("fairerclip.model.fit_data.FEATURE_FIT_ROWS", 2000)
    p = 256
    growth = fit_peak(tmp_path, 60_000, p, parameters) - fit_peak(tmp_path, 30_000, p, parameters)
    assert growth < share * 30_000 * p * 4


def test_provenance_round_trips_and_refuses_what_it_does_not_know():
    assert Provenance.from_dict(json.loads(json.dumps(MADE.to_dict()))) == MADE
    for change in (
        {"extra": 1},
        {"width": 0},
        {"width": True},
        {"model": 3},
        {"normalised": 1},
        {"weights": 1},
    ):
        with pytest.raises(ProvenanceError, match=next(iter(change))):
            Provenance.from_dict(MADE.to_dict() | change)
    with pytest.raises(ProvenanceError, match="missing: width"):
        Provenance.from_dict({k: v for k, v in MADE.to_dict().items() if k != "width"})
    with pytest.raises(ProvenanceError):
        Provenance.from_dict([])


def test_different_models_are_named_and_unknown_ones_pass():
    other = Provenance("ViT-L-14", "openai", "resize 224", "open_clip 3.3.0", True, 768)
    with pytest.raises(ProvenanceError, match=r"model, width differ.*ViT-B-32.*ViT-L-14"):
        check_same_model(MADE, other)
    check_same_model(MADE, None)
    check_same_model(MADE, Provenance(**{**MADE.to_dict(), "weights": None, "library": "transformers"}))
    with pytest.raises(StoreError, match="width 768"):
        EmbeddingStore.from_array(unit(), provenance=other)


def test_random_damage_raises_our_errors_only(tmp_path):
    X = unit(6, 4)
    np.savez(tmp_path / "b.npz", X=X, ids=np.array(list("abcdef")))
    save_file({"X": X}, tmp_path / "c.safetensors")
    np.save(tmp_path / "a.npy", X)
    rng = np.random.default_rng(0)
    for file in list(tmp_path.iterdir()):
        whole = file.read_bytes()
        for _ in range(150):
            raw = bytearray(whole)
            raw[rng.integers(len(raw))] = rng.integers(256)
            file.write_bytes(raw)
            try:
                store = open_store(file)
                assert store[:].shape[1] == store.shape[1]
                _ = store.ids
            except FairerClipError:
                pass
