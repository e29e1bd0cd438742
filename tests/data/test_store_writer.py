from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from dataclasses import replace

import numpy as np
import pytest

from fairerclip.data.provenance import Provenance
from fairerclip.data.stores import open_store
from fairerclip.data.writer import StoreWriter, read_skipped, read_text
from fairerclip.errors import (
    NonFiniteError,
    OutputExistsError,
    ProvenanceError,
    ShapeError,
    StoreError,
)

MADE = Provenance("ViT-B-32", None, "resize 224", "test", True, 4)


def rows(*numbers):
    return np.array([[i, i + 1, 0.5, -i] for i in numbers], dtype=np.float32)


def writer(path, **changes):
    return StoreWriter(path, **{"width": 4, "provenance": MADE, "shard_rows": 3} | changes)


def test_a_store_comes_back_with_ids_rows_and_provenance(tmp_path):
    names = ['"quoted"\n.jpg', "ü/日本.png", "plain", "d", "e", "f", "g"]
    with writer(tmp_path / "s") as out:
        out.append(names[:2], rows(0, 1))
        out.append(names[2:], rows(2, 3, 4, 5, 6))
        out.skip("broken.jpg", "cannot be opened")
        out.finish()
    store = open_store(tmp_path / "s")
    assert store.ids.tolist() == names
    np.testing.assert_array_equal(store[:], rows(*range(7)))
    assert store.provenance == MADE
    assert sorted(f.name for f in (tmp_path / "s" / "shards").glob("*.npy")) == [
        "00000.npy",
        "00001.npy",
        "00002.npy",
    ]
    assert read_skipped(tmp_path / "s") == [("broken.jpg", "cannot be opened")]


def test_an_interrupted_store_is_refused_until_it_is_taken_up_and_finished(tmp_path):
    with writer(tmp_path / "s") as out:
        out.append(list("abcd"), rows(0, 1, 2, 3))
    with pytest.raises(StoreError, match="not complete"):
        open_store(tmp_path / "s")
    assert len(open_store(tmp_path / "s", incomplete=True)) == 4
    with writer(tmp_path / "s") as out:
        assert out.done == set("abcd")
        out.append(["e"], rows(4))
        out.finish()
    np.testing.assert_array_equal(open_store(tmp_path / "s")[:], rows(*range(5)))
    with writer(tmp_path / "s") as out:
        assert out.complete
        assert out.done == set("abcde")


def test_a_second_writer_at_once_ends_with_an_error_and_mixes_no_ids(tmp_path):
    first, second = writer(tmp_path / "s"), writer(tmp_path / "s")
    first.append(["a"], rows(0))
    first.finish()
    second.append(["b"], rows(1))
    with pytest.raises(OutputExistsError):
        second.finish()
    store = open_store(tmp_path / "s")
    assert store.ids.tolist() == ["a"]
    np.testing.assert_array_equal(store[:], rows(0))


def test_prompts_come_back_with_their_embeddings(tmp_path):
    prompts = ["a photo of a cat", "a photo of a “dog”"]
    with writer(tmp_path / "s") as out:
        out.append(["a"], rows(0))
        out.write_text(prompts, rows(5, 6))
        out.write_text(prompts, rows(5, 6))
        out.finish()
        with pytest.raises(ShapeError):
            out.write_text(prompts, rows(5))
        with pytest.raises(StoreError, match="letters"):
            out.write_text(prompts, rows(5, 6), name="../x")
    back, T = read_text(tmp_path / "s")
    assert back == prompts
    np.testing.assert_array_equal(T, rows(5, 6))
    store = open_store(tmp_path / "s", modality="text")
    assert store.provenance == MADE
    assert store.ids.tolist() == prompts
    from safetensors.numpy import load_file

    np.testing.assert_array_equal(load_file(tmp_path / "s" / "text.safetensors")["embeddings"], T)


@pytest.mark.parametrize("part", ["skipped.jsonl", "shards", "store.json", "shards/00000.ids.txt"])
def test_a_store_that_leads_elsewhere_is_refused_before_anything_is_changed(tmp_path, part):
    with writer(tmp_path / "s") as out:
        out.append(["a"], rows(0))
        out.skip("b", "bad")
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "s" / part).rename(elsewhere)
    if part == "shards":
        (elsewhere / "mine.ids.txt").write_text("mine")
    elif part == "skipped.jsonl":
        elsewhere.write_text("line one\nlast line without an end")
    before = {f.name: f.read_bytes() for f in [elsewhere, *elsewhere.glob("*")] if f.is_file()}
    (tmp_path / "s" / part).symlink_to(elsewhere)
    with pytest.raises(StoreError, match="is a link"):
        writer(tmp_path / "s")
    assert {f.name: f.read_bytes() for f in [elsewhere, *elsewhere.glob("*")] if f.is_file()} == before


def test_taking_up_a_store_removes_nothing_but_what_a_writer_left(tmp_path):
    with writer(tmp_path / "s") as out:
        out.append(["a"], rows(0))
    ours = ["shards/.00001.npy.0123456789abcdef.tmp", "shards/00001.ids.txt"]
    theirs = [".cargo.lock", ".notes.tmp", "shards/mine.ids.txt", "shards/.00001.npy.tmp", "notes.txt"]
    for name in ours + theirs:
        (tmp_path / "s" / name).write_text("mine")
    (tmp_path / "s" / ".dir.0123456789abcdef.tmp").mkdir()
    with writer(tmp_path / "s") as out:
        out.append(["b"], rows(1))
    assert (tmp_path / "s" / ours.pop()).read_text() == '"b"\n'
    assert not any((tmp_path / "s" / name).exists() for name in ours)
    assert all((tmp_path / "s" / name).read_text() == "mine" for name in theirs)
    assert (tmp_path / "s" / ".dir.0123456789abcdef.tmp").is_dir()


@pytest.mark.parametrize(
    ("ids", "X", "error"),
    [
        (["b"], rows(0, 1), ShapeError),
        (["b"], np.ones((1, 3)), ShapeError),
        (["b"], np.ones((1, 4), dtype=int), ShapeError),
        (["a"], rows(0), StoreError),
        (["b", "b"], rows(0, 1), StoreError),
        (["b\0"], rows(1), StoreError),
        (["m", "n"], np.array([[0, 0, 0, 1], [0, 0, np.nan, 0]]), NonFiniteError),
    ],
)
def test_wrong_rows_and_repeated_ids_are_refused(tmp_path, ids, X, error):
    with writer(tmp_path / "s") as out:
        out.append(["a"], rows(0))
        with pytest.raises(error):
            out.append(ids, X)
        with pytest.raises(StoreError, match="'a'"):
            out.skip("a", "no")
        out.finish()
    assert open_store(tmp_path / "s").ids.tolist() == ["a"]
    with pytest.raises(StoreError, match="closed"):
        out.append(["z"], rows(1))


def test_folders_and_lists_of_somebody_else_are_left_alone(tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "thesis.tex").write_text("years of work")
    (tmp_path / "f").write_text("")
    for name in "sf":
        with pytest.raises(OutputExistsError):
            writer(tmp_path / name)
    with writer(tmp_path / "own") as out:
        out.append(["a"], rows(0))
    (tmp_path / "own" / "skipped.jsonl").write_text("my notes\nwithout an end")
    with pytest.raises(StoreError, match=r"skipped.jsonl"):
        writer(tmp_path / "own")
    assert (tmp_path / "own" / "skipped.jsonl").read_text() == "my notes\nwithout an end"


@pytest.mark.slow
@pytest.mark.linux
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a fork of a process with threads
def test_killed_at_any_moment_and_resumed_every_id_is_there_once(tmp_path):
    def work():
        with StoreWriter(tmp_path / "s", width=4, provenance=None, shard_rows=5) as out:
            for i in range(100):
                if str(i) in out.done:
                    continue
                if i % 10 == 7:
                    out.skip(str(i), "sevens are skipped")
                else:
                    out.append([str(i)], np.full((1, 4), i, dtype=np.float32))
            out.finish()

    for moment in range(1, 200):
        child = os.fork()
        if child == 0:
            left = itertools.count(moment, -1)

            def dies(event, arguments, left=left):
                if event in ("os.rename", "os.truncate", "os.remove", "open") and next(left) <= 0:
                    os.kill(os.getpid(), signal.SIGKILL)

            sys.addaudithook(dies)
            work()
            os._exit(0)
        if os.WIFEXITED(os.waitpid(child, 0)[1]):
            break
    store = open_store(tmp_path / "s")
    assert sorted(map(int, store.ids)) == [i for i in range(100) if i % 10 != 7]
    np.testing.assert_array_equal(store[:][:, 0], store.ids.astype(float))
    skipped = [int(name) for name, _ in read_skipped(tmp_path / "s")]
    assert sorted(skipped) == [i for i in range(100) if i % 10 == 7]


def test_another_provenance_width_or_dtype_and_damage_are_refused(tmp_path):
    with writer(tmp_path / "s") as out:
        out.append(["a", "b"], rows(0, 1))
    for changes, error in (
        ({"provenance": replace(MADE, model="ViT-L-14")}, ProvenanceError),
        ({"width": 5}, ProvenanceError),
        ({"dtype": "float16"}, StoreError),
        ({"dtype": "int8"}, StoreError),
    ):
        with pytest.raises(error):
            writer(tmp_path / "s", **changes)
    with pytest.raises(ProvenanceError):
        writer(tmp_path / "new", width=5)
    writer(tmp_path / "unknown", width=5, provenance=None).close()
    (tmp_path / "s" / "shards" / "00000.ids.txt").write_text('"a"\n')
    with pytest.raises(StoreError):
        writer(tmp_path / "s")


@pytest.mark.parametrize("change", [{"format": "x"}, {"format_version": 2}, {"extra": 1}, {"width": 0}])
def test_a_manifest_that_is_not_ours_is_refused(tmp_path, change):
    with writer(tmp_path / "s") as out:
        out.append(["a"], rows(0))
        out.finish()
    file = tmp_path / "s" / "store.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(StoreError, match=r"store.json"):
        open_store(tmp_path / "s")


def test_half_written_files_are_removed_and_do_not_count(tmp_path):
    with writer(tmp_path / "s") as out:
        out.append(list("abc"), rows(0, 1, 2))
    (tmp_path / "s" / "shards" / "00001.ids.txt").write_text('"d"\n"e"\n')
    with (tmp_path / "s" / "skipped.jsonl").open("ab") as handle:
        handle.write(b'{"id": "x", "reason": "y"}\n{"id": "cut')
    with writer(tmp_path / "s") as out:
        assert out.done == {*"abc", "x"}
        out.append(list("de"), rows(3, 4))
        out.skip("cut", "again")
        out.finish()
    assert open_store(tmp_path / "s").ids.tolist() == list("abcde")
    assert [name for name, _ in read_skipped(tmp_path / "s")] == ["x", "cut"]
