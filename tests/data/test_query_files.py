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

ROWS = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
TEXTS = ["a nurse", "a clerk", "a cook"]


@pytest.mark.parametrize("name", ["ids", "queries", "query_prompts", "prompts"])
def test_texts_of_an_npz_are_found_by_any_of_their_names(tmp_path, name):
    write_npz(tmp_path / "q.npz", {"text": ROWS, name: np.array(TEXTS)})
    found = read_queries(tmp_path / "q.npz")
    assert found.names == TEXTS
    np.testing.assert_array_equal(found.embeddings, ROWS)


def test_queries_are_read_from_every_kind_of_file(tmp_path):
    np.save(tmp_path / "q.npy", ROWS)
    assert read_queries(tmp_path / "q.npy").names == ["query 1", "query 2", "query 3"]
    write_tensors(
        tmp_path / "q.safetensors",
        {"x": ROWS},
        {"prompts": '["a nurse", "a clerk", "a cook"]'},
        overwrite=False,
    )
    assert read_queries(tmp_path / "q.safetensors").names == TEXTS
    with StoreWriter(tmp_path / "s", width=4, provenance=None) as writer:
        writer.append(["image.jpg"], ROWS[:1])
        writer.write_text(TEXTS, ROWS)
        writer.finish()
    found = read_queries(tmp_path / "s")
    assert found.names == TEXTS
    np.testing.assert_array_equal(found.embeddings, ROWS)
    (tmp_path / "cr" / "text_emb").mkdir(parents=True)
    np.save(tmp_path / "cr" / "text_emb" / "text_emb_0.npy", ROWS)
    np.testing.assert_array_equal(read_queries(tmp_path / "cr").embeddings, ROWS)


def test_the_free_queries_of_a_task_are_read(tmp_path):
    task = simulate("waterbirds", scale=0.03, width=48)
    with pytest.raises(StoreError, match="this task has none"):
        read_queries(save_task(task, tmp_path / "none.npz"))
    wide = np.random.default_rng(0).normal(size=(3, 48)).astype(np.float32)
    task = replace(task, queries=Sentences(wide, tuple(TEXTS)))
    found = read_queries(save_task(task, tmp_path / "some.npz"))
    assert found.names == TEXTS
    np.testing.assert_array_equal(found.embeddings, wide)


def test_bad_queries_are_refused(tmp_path):
    write_npz(tmp_path / "twice.npz", {"text": ROWS, "queries": np.array(["a", "b", "a"])})
    with pytest.raises(StoreError, match="different names, got 'a' twice"):
        read_queries(tmp_path / "twice.npz")
    write_npz(tmp_path / "short.npz", {"text": ROWS, "queries": np.array(["a", "b"])})
    with pytest.raises(StoreError, match="'queries' to hold a text for each of the 3 queries"):
        read_queries(tmp_path / "short.npz")
    with pytest.raises(StoreError, match="found nothing"):
        read_queries(tmp_path / "nowhere.npy")


def test_too_many_queries_are_refused_before_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("fairerclip.data.query_files.MAX_QUERIES", 2)
    np.save(tmp_path / "q.npy", ROWS)
    with pytest.raises(StoreError, match="at most 2 queries, got 3"):
        read_queries(tmp_path / "q.npy")
