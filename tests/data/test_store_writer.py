from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

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


def test_float16_halves_the_file_and_comes_back_in_unit_length(tmp_path):
    X = np.random.default_rng(0).normal(size=(10, 512))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    with StoreWriter(tmp_path / "s", width=512, provenance=None, dtype="float16") as out:
        out.append([str(i) for i in range(10)], X)
        out.finish()
    store = open_store(tmp_path / "s")
    assert store.dtype_on_disk == "float16"
    assert np.abs(np.linalg.norm(store[:].astype(float), axis=1) - 1).max() < 2e-7


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


def test_rows_added_to_a_complete_store_make_it_incomplete_until_finished(tmp_path):
    with writer(tmp_path / "s") as out:
        out.append(["a"], rows(0))
        out.finish()
    with writer(tmp_path / "s") as out:
        out.append(["b"], rows(1))
    with pytest.raises(StoreError, match="not complete"):
        open_store(tmp_path / "s")


def test_half_written_files_are_removed_and_do_not_count(tmp_path):
    with writer(tmp_path / "s") as out:
        out.append(list("abc"), rows(0, 1, 2))
    shards = tmp_path / "s" / "shards"
    (shards / ".00001.npy.0123456789abcdef.tmp").write_bytes(b"half")
    (shards / "00001.ids.txt").write_text('"d"\n"e"\n')
    with (tmp_path / "s" / "skipped.jsonl").open("ab") as handle:
        handle.write(b'{"id": "x", "reason": "y"}\n{"id": "cut')
    with writer(tmp_path / "s") as out:
        assert out.done == {*"abc", "x"}
        out.append(list("de"), rows(3, 4))
        out.skip("cut", "again")
        out.finish()
    assert open_store(tmp_path / "s").ids.tolist() == list("abcde")
    assert not list(shards.glob(".*"))
    assert [name for name, _ in read_skipped(tmp_path / "s")] == ["x", "cut"]


def test_another_provenance_or_dtype_is_refused(tmp_path):
    with writer(tmp_path / "s") as out:
        out.append(["a"], rows(0))
    other = Provenance("ViT-L-14", None, "resize 224", "test", True, 4)
    with pytest.raises(ProvenanceError, match=r"ViT-B-32.*not of ViT-L-14"):
        writer(tmp_path / "s", provenance=other)
    with pytest.raises(StoreError, match="float32, not float16"):
        writer(tmp_path / "s", dtype="float16")
    with pytest.raises(ProvenanceError, match="width 5"):
        writer(tmp_path / "t", width=5)


def test_wrong_rows_and_repeated_ids_are_refused(tmp_path):
    with writer(tmp_path / "s") as out:
        out.append(["a"], rows(0))
        for ids, X in ((["b"], rows(0, 1)), (["b"], np.ones((1, 3))), (["b"], np.ones((1, 4), dtype=int))):
            with pytest.raises(ShapeError):
                out.append(ids, X)
        for ids in (["a"], ["b", "b"]):
            with pytest.raises(StoreError, match=repr(ids[-1])):
                out.append(ids, rows(*range(len(ids))))
        with pytest.raises(StoreError, match="'a'"):
            out.skip("a", "no")
        with pytest.raises(NonFiniteError, match="'n'"):
            out.append(["m", "n"], np.array([[0, 0, 0, 1], [0, 0, np.nan, 0]]))
        with pytest.raises(StoreError, match="NUL"):
            out.append(["b\0"], rows(1))
    with pytest.raises(StoreError, match="closed"):
        out.append(["z"], rows(1))


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "thesis.tex").write_text("years of work")
    with pytest.raises(OutputExistsError, match="not a fairerclip store, so nothing was written; choose"):
        writer(tmp_path / "s")
    (tmp_path / "f").write_text("")
    with pytest.raises(OutputExistsError, match="is a file"):
        writer(tmp_path / "f")


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


@pytest.mark.parametrize(
    "change",
    [{"format": "x"}, {"format_version": 2}, {"extra": 1}, {"width": 0}, {"dtype": "int8"}, {"complete": 2}],
)
def test_a_manifest_that_is_not_ours_is_refused(tmp_path, change):
    with writer(tmp_path / "s") as out:
        out.append(["a"], rows(0))
        out.finish()
    file = tmp_path / "s" / "store.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(StoreError, match="store.json"):
        open_store(tmp_path / "s")


def test_a_damaged_shard_is_refused(tmp_path):
    with writer(tmp_path / "s") as out:
        out.append(["a", "b"], rows(0, 1))
        out.finish()
    ids = tmp_path / "s" / "shards" / "00000.ids.txt"
    ids.write_text('"a"\n')
    with pytest.raises(StoreError, match="2 embeddings but ids"):
        _ = open_store(tmp_path / "s").ids
    with pytest.raises(StoreError, match=r"expected shape \(1, \d\) by its ids and width, got \(2, \d\)"):
        writer(tmp_path / "s")
    ids.unlink()
    with pytest.raises(StoreError, match=r"00000.ids.txt beside"):
        open_store(tmp_path / "s")


WORK = """
import sys, time
import numpy as np
from fairerclip.data.writer import StoreWriter
with StoreWriter(sys.argv[1], width=4, provenance=None, shard_rows=5) as out:
    print("open", flush=True)
    for i in range(400):
        if str(i) in out.done:
            continue
        if i % 10 == 7:
            out.skip(str(i), "sevens are skipped")
        else:
            out.append([str(i)], np.full((1, 4), i, dtype=np.float32))
    out.finish()
"""


@pytest.mark.linux
def test_killed_at_random_moments_and_resumed_every_id_is_there_once(tmp_path):
    rng = np.random.default_rng()
    for attempt in range(60):
        process = subprocess.Popen(
            [sys.executable, "-c", WORK, str(tmp_path / "s")], stdout=subprocess.PIPE, text=True
        )
        process.stdout.readline()
        if attempt < 12:  # then it may end
            time.sleep(rng.uniform(0.0, 0.1))
            process.send_signal(signal.SIGKILL)
        code = process.wait()
        process.stdout.close()
        if code == 0:
            break
    store = open_store(tmp_path / "s")
    expected = [i for i in range(400) if i % 10 != 7]
    assert sorted(map(int, store.ids)) == expected
    np.testing.assert_array_equal(store[:][:, 0], store.ids.astype(float))
    skipped = [int(name) for name, _ in read_skipped(tmp_path / "s")]
    assert sorted(skipped) == [i for i in range(400) if i % 10 == 7]


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


def test_skipped_lines_that_are_not_ours_are_left_as_they_are(tmp_path):
    with writer(tmp_path / "s") as out:
        out.append(["a"], rows(0))
    (tmp_path / "s" / "skipped.jsonl").write_text("my notes\nwithout an end")
    with pytest.raises(StoreError, match="skipped.jsonl"):
        writer(tmp_path / "s")
    assert (tmp_path / "s" / "skipped.jsonl").read_text() == "my notes\nwithout an end"
