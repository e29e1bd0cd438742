"""Free queries in files: their embeddings, and their texts where these are known."""

from dataclasses import replace

import numpy as np
import pytest

from fairerclip.data import Sentences, save_task, simulate
from fairerclip.data.io.npz import write_npz
from fairerclip.data.io.tensors import write_tensors
from fairerclip.data.query_files import read_queries
from fairerclip.data.writer import StoreWriter
from fairerclip.errors import StoreError

ROWS = np.random.default_rng(0).normal(size=(3, 48)).astype(np.float32)
TEXTS = ["a nurse", "a clerk", "a cook"]


def npz(name):
    return lambda folder: write_npz(folder / "q.npz", {"text": ROWS, name: np.array(TEXTS)})


def safetensors(folder):
    texts = {"prompts": '["a nurse", "a clerk", "a cook"]'}
    write_tensors(folder / "q.safetensors", {"x": ROWS}, texts, overwrite=False)
    return folder / "q.safetensors"


def store(folder):
    with StoreWriter(folder / "s", width=48, provenance=None) as writer:
        writer.append(["image.jpg"], ROWS[:1])
        writer.write_text(TEXTS, ROWS)
        writer.finish()
    return folder / "s"


def task(folder):
    birds = simulate("waterbirds", scale=0.03, width=48)
    return save_task(replace(birds, queries=Sentences(ROWS, tuple(TEXTS))), folder / "t.npz")


@pytest.mark.parametrize("write", [*map(npz, ("ids", "queries", "query_prompts")), safetensors, store, task])
def test_queries_and_their_texts_are_read_from_every_kind_of_file(tmp_path, write):
    found = read_queries(write(tmp_path))
    assert found.names == TEXTS
    np.testing.assert_array_equal(found.embeddings, ROWS)


def test_queries_without_texts_are_numbered(tmp_path):
    (tmp_path / "cr" / "text_emb").mkdir(parents=True)
    for name in ("q.npy", "cr/text_emb/text_emb_0.npy"):
        np.save(tmp_path / name, ROWS)
    for name in ("q.npy", "cr"):
        found = read_queries(tmp_path / name)
        assert found.names == ["query 1", "query 2", "query 3"]
        np.testing.assert_array_equal(found.embeddings, ROWS)


def test_bad_queries_are_refused(tmp_path, monkeypatch):
    write_npz(tmp_path / "twice.npz", {"text": ROWS, "queries": np.array(["a", "b", "a"])})
    write_npz(tmp_path / "short.npz", {"text": ROWS, "queries": np.array(["a", "b"])})
    save_task(simulate("waterbirds", scale=0.03, width=48), tmp_path / "none.npz")
    for name, fact in (
        ("twice.npz", "'a'"),
        ("short.npz", "'queries'"),
        ("none.npz", "none"),
        ("x.npy", "x"),
    ):
        with pytest.raises(StoreError, match=fact):
            read_queries(tmp_path / name)
    np.save(tmp_path / "q.npy", ROWS)
    monkeypatch.setattr("fairerclip.data.query_files.MAX_QUERIES", 2)
    with pytest.raises(StoreError, match="got 3"):
        read_queries(tmp_path / "q.npy")
