"""The mitigated copy of a collection: the same rows, names and types, whatever happens while it is written."""

import os
import signal
import warnings
from dataclasses import replace

import numpy as np
import pytest

import fairerclip
from fairerclip import mitigate_store
from fairerclip.applying import mitigated_files
from fairerclip.applying.mitigated_rows import checked_blocks
from fairerclip.baselines import ZeroShot
from fairerclip.data.stores import EmbeddingStore, open_store
from fairerclip.data.writer import StoreWriter
from fairerclip.errors import (
    CollectionDriftWarning,
    DirectionDriftWarning,
    NonFiniteError,
    OutputExistsError,
    ParameterError,
    ShapeError,
    StoreError,
    ZeroRowWarning,
)
from small_collection import PROMPTS, WIDTH, clip_retrieval, mitigator, rows


@pytest.fixture(scope="module")
def model():
    return mitigator()


def content(folder):
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_folder_keeps_the_rows_their_type_and_their_ids(model, tmp_path, dtype):
    pytest.importorskip("pyarrow")
    X, ids = clip_retrieval(tmp_path / "in", dtype=dtype)
    told = []
    report = mitigate_store(
        model, tmp_path / "in", tmp_path / "out", progress=lambda *seen: told.append(seen)
    )
    store = open_store(tmp_path / "out")
    assert (store.dtype_on_disk, store.ids.tolist()) == (np.dtype(dtype).name, ids)
    np.testing.assert_allclose(
        store.raw(slice(None)), model.transform(X), rtol=0, atol=float(np.finfo(dtype).eps)
    )
    assert (report.rows, report.written, report.unit) == (55, 55, False)
    assert told[-1] == (55, 55)


def test_rows_are_scaled_to_unit_length_where_asked_or_fitted(model, tmp_path):
    X = rows(20)[0]
    np.save(tmp_path / "in.npy", X)
    assert mitigate_store(model, tmp_path / "in.npy", tmp_path / "unit.npy", unit=True).unit
    lengths = np.linalg.norm(np.load(tmp_path / "unit.npy"), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-6)
    fitted = mitigator(unit=True)
    assert mitigate_store(fitted, X, tmp_path / "fitted.npy").unit
    assert not mitigate_store(fitted, X, tmp_path / "plain.npy", unit=False).unit
    assert np.abs(np.linalg.norm(np.load(tmp_path / "plain.npy"), axis=1) - 1).max() > 1e-3


def killed_after(blocks, action, monkeypatch):
    """Run an action in a fork that kills itself after so many blocks of five rows."""
    monkeypatch.setattr(mitigated_files, "BLOCK_ROWS", 5)
    child = os.fork()
    if child == 0:
        left = [blocks]

        def progress(done, total):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        action(progress)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a fork of a process with threads
@pytest.mark.linux
def test_a_copy_that_was_killed_is_continued_and_ends_as_if_nothing_had_happened(
    model, tmp_path, monkeypatch
):
    source = rows(55)[0]
    monkeypatch.setattr("fairerclip.data.writer.SHARD_ROWS", 10)
    whole = model.transform(source)
    for blocks in (1, 8):
        out = tmp_path / f"out{blocks}"
        assert killed_after(
            blocks, lambda p, out=out: mitigate_store(model, source, out, progress=p), monkeypatch
        )
        with pytest.raises(StoreError, match="not complete"):
            open_store(out)
        mitigate_store(model, source, out)
        np.testing.assert_allclose(open_store(out)[:], whole, rtol=0, atol=2.0**-23)
        assert mitigate_store(model, source, out).written == 0


def test_rows_that_were_added_to_a_collection_are_added_to_its_copy(model, tmp_path):
    X = rows(30)[0]
    ids = [f"{k}.jpg" for k in range(30)]
    mitigate_store(model, EmbeddingStore.from_array(X[:20], ids[:20]), tmp_path / "out")
    assert mitigate_store(model, EmbeddingStore.from_array(X, ids), tmp_path / "out").written == 10
    store = open_store(tmp_path / "out")
    assert store.ids.tolist() == ids
    np.testing.assert_allclose(store[:], model.transform(X), rtol=0, atol=2.0**-23)


def test_files_hold_the_rows_and_npz_the_ids(model, tmp_path):
    X, _ = rows(20)
    ids = [f"{k}.jpg" for k in range(20)]
    store = EmbeddingStore.from_array(X.astype(np.float16), ids)
    mitigate_store(model, store, tmp_path / "out.npz")
    mitigate_store(model, store, tmp_path / "out.npy")
    found = open_store(tmp_path / "out.npz")
    assert found.ids.tolist() == ids
    expected = model.transform(X.astype(np.float16))
    np.testing.assert_array_equal(found.raw(slice(None)), expected)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)
    with pytest.raises(OutputExistsError):
        mitigate_store(model, store, tmp_path / "out.npy")
    mitigate_store(model, store, tmp_path / "out.npy", overwrite=True, unit=True)
    assert not np.array_equal(np.load(tmp_path / "out.npy"), expected)


def test_a_store_of_its_own_keeps_ids_provenance_and_texts(model, tmp_path):
    X, _ = rows(12)
    ids = [f"{k}.jpg" for k in range(12)]
    with StoreWriter(tmp_path / "in", width=WIDTH, provenance=None, dtype="float16") as writer:
        writer.append(ids, X)
        writer.write_text(["an x", "a y"], np.stack([*PROMPTS.values()]))
        writer.finish()
    mitigate_store(model, tmp_path / "in", tmp_path / "out")
    store = open_store(tmp_path / "out")
    assert (store.ids.tolist(), store.dtype_on_disk) == (ids, "float16")
    texts = [(tmp_path / side / "text.safetensors").read_bytes() for side in ("in", "out")]
    assert texts[0] == texts[1]


def test_another_model_setting_or_collection_does_not_continue_a_folder(model, tmp_path):
    X, out = rows(10)[0], tmp_path / "out"
    mitigate_store(model, X, out)
    before = content(out)
    copy = fairerclip.load(model.save(tmp_path / "m"))
    assert mitigate_store(copy, X, out).written == 0
    for other, source, more in (
        (mitigator(strength=0.5), X, {}),
        (mitigator(gamma=1e-2), X, {}),
        (model, X, {"unit": True}),
        (model, X[:9], {}),
        (model, EmbeddingStore.from_array(X, [f"{k}.jpg" for k in range(10)]), {}),
    ):
        with pytest.raises(OutputExistsError):
            mitigate_store(other, source, out, **more)
    assert content(out) == before


def test_folders_of_somebody_else_are_left_alone(model, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with StoreWriter(tmp_path / "own", width=WIDTH, provenance=None) as writer:
        writer.append(["a"], rows(1)[0])
    before = content(tmp_path)
    for name in ("out", "own"):
        with pytest.raises(OutputExistsError):
            mitigate_store(model, rows(5)[0], tmp_path / name)
    assert content(tmp_path) == before


def test_a_row_that_is_not_finite_is_named_by_number_and_id_and_nothing_is_left(model, tmp_path):
    X, _ = rows(20)
    X[1], X[2] = X[1] * 1e30, X[2] * 1e-30  # huge and tiny rows are finite
    store = EmbeddingStore.from_array(X.copy(), [f"{k}.jpg" for k in range(20)])
    np.testing.assert_array_equal(np.concatenate([found for _, found in checked_blocks(store)]), X)
    X[7, 3] = np.nan
    store = EmbeddingStore.from_array(X, [f"{k}.jpg" for k in range(20)])
    with pytest.raises(NonFiniteError, match=r"row 7 .'7.jpg'"):
        mitigate_store(model, store, tmp_path / "out.npy")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NonFiniteError, match="row 7"):
        list(checked_blocks(store, block=3))


def test_zero_rows_and_another_collection_are_told(model, tmp_path, monkeypatch):
    zero = rows(300)[0]
    zero[[2, 5]] = 0
    with pytest.warns(ZeroRowWarning, match="2 rows"):
        mitigate_store(model, zero, tmp_path / "zero.npy")
    monkeypatch.setattr("fairerclip.applying.mitigated_rows.DRIFT_ROWS", 100)
    X = np.random.default_rng(0).normal(size=(500, WIDTH)).astype(np.float32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mitigate_store(model, X, tmp_path / "out.npy")
        mitigate_store(model, X[:20], tmp_path / "few.npy")
    named = [w.category for w in caught]
    assert named.count(CollectionDriftWarning) == 1  # twenty rows differ by chance, too
    assert DirectionDriftWarning in named


def test_what_cannot_be_mitigated_or_read_again_is_refused_before_the_work(model, tmp_path, monkeypatch):
    limits = replace(mitigated_files.DEFAULT_LIMITS, npz_bytes=100)
    monkeypatch.setattr(mitigated_files, "DEFAULT_LIMITS", limits)
    for other, X, name, error in (
        (ZeroShot(), rows(5)[0], "out.npy", ParameterError),
        (model, np.ones((5, 3), np.float32), "out.npy", ShapeError),
        (model, rows(20)[0], "out.npz", ParameterError),
        (model, rows(20)[0], "out.csv", ParameterError),
    ):
        with pytest.raises(error):
            mitigate_store(other, X, tmp_path / name)
    assert list(tmp_path.iterdir()) == []
