"""Embeddings without ids, or with ids that are paths, reach their labels, by id or aloud by position."""

import json

import numpy as np
import pytest

from fairerclip.data import build_task, from_table, join, load_task, open_store, read_labels
from fairerclip.data.id_files import read_id_list
from fairerclip.data.stores import EmbeddingStore
from fairerclip.errors import JoinError, ParameterError, PositionJoinWarning, StoreError

N, WIDTH = 24, 6
PROMPTS = {
    "classes": {"cat": ["a photo of a cat."], "dog": ["a photo of a dog."]},
    "sensitive": {"place": {"indoors": ["indoors."], "outdoors": ["outdoors."]}},
}
IDS = [f"{i:03d}.jpg" for i in range(N)]
Y = ["cat", "dog"] * (N // 2)
S = ["indoors", "indoors", "outdoors"] * (N // 3)
PARTS = ["train", "train", "val", "test"] * (N // 4)
ROWS = np.random.default_rng(0).normal(size=(N, WIDTH)).astype(np.float32)


@pytest.fixture
def files(tmp_path):
    np.save(tmp_path / "x.npy", ROWS)
    np.save(tmp_path / "text.npy", np.eye(4, WIDTH, dtype=np.float32))
    (tmp_path / "prompts.json").write_text(json.dumps(PROMPTS))
    rows = "".join(f"{','.join(row)}\n" for row in zip(IDS, Y, S, PARTS, strict=True))
    (tmp_path / "labels.csv").write_text("file,animal,place,part\n" + rows)
    (tmp_path / "ids.txt").write_text("".join(f"{name}\n" for name in IDS))
    (tmp_path / "ids.json").write_text(json.dumps(IDS))
    return tmp_path


def make(run, files, *more, store="x.npy"):
    options = {
        "--labels": files / "labels.csv",
        "--target": "animal",
        "--sensitive": "place",
        "--split": "part",
    }
    options |= {"--prompts": files / "prompts.json", "--text": files / "text.npy", "-o": files / "t.npz"}
    return run(
        "task", "embeddings", files / store, *(word for pair in options.items() for word in pair), *more
    )


def check_rows(file):
    """Every row of the task has the embedding, the class and the value of its position; return the task."""
    task = load_task(file)
    for name, split in task.splits.items():
        place = [i for i in range(N) if PARTS[i] == name]
        np.testing.assert_array_equal(split.X, ROWS[place])
        assert [task.class_names[k] for k in split.y] == [Y[i] for i in place]
        assert [task.sensitive["place"].names[k] for k in split.s["place"]] == [S[i] for i in place]
    return task


@pytest.mark.parametrize("name", ["ids.txt", "ids.json", "labels.csv"])
def test_rows_without_ids_get_them_from_a_file(run, files, name):
    code, _, err = make(run, files, "--id", "file", "--ids", files / name)
    assert code == 0, err
    assert check_rows(files / "t.npz").train.ids[0] == IDS[0]


def test_given_ids_replace_those_of_the_store(files):
    np.savez(files / "x.npz", embeddings=ROWS, ids=np.arange(N))
    assert open_store(files / "x.npz").ids[1] == "1"
    assert open_store(files / "x.npz", ids=files / "ids.txt").ids[1] == IDS[1]
    assert open_store(files / "x.npz", ids=IDS).ids[1] == IDS[1]
    with pytest.raises(StoreError):
        open_store(files / "x.npy", ids=[None] * N)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("i.txt", "a\n\nb\n"), ("i.txt", ""), ("i.json", '{"a": 1}'), ("i.json", '["a", 1.5]')),
        *(("i.json", '["a", " "]'), ("i.csv", "file\na\n"), ("i.npy", "a")),
    ],
)
def test_bad_files_of_ids_are_refused(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(JoinError, match=name):
        read_id_list(tmp_path / name)


def test_files_of_ids_with_windows_line_ends_and_numbers_are_read(tmp_path):
    (tmp_path / "i.txt").write_bytes(b"\xef\xbb\xbfa b.jpg\r\nc.jpg")
    assert read_id_list(tmp_path / "i.txt").tolist() == ["a b.jpg", "c.jpg"]
    (tmp_path / "i.json").write_text('[7, "b"]')
    assert read_id_list(tmp_path / "i.json").tolist() == ["7", "b"]


@pytest.mark.parametrize("id_column", [(), ("--id", "file")])
def test_rows_are_joined_by_position_only_aloud(run, files, id_column):
    code, out, err = make(run, files, "--by-position", *id_column, "--json")
    assert code == 0, err
    assert "PositionJoinWarning: 24 rows" in err
    assert json.loads(out)["warnings"] == [err.strip().removeprefix("warning: ")]
    task = check_rows(files / "t.npz")
    assert (task.train.ids is None) == (not id_column)


@pytest.mark.parametrize(
    ("more", "fact"),
    [
        ((), "--by-position"),
        (("--id", "file"), "--ids FILE"),
        (("--id", "file", "--match", "name"), "'name'"),
        (("--by-position", "--match", "stem"), "--by-position"),
        (("--by-position", "--ids", "ids.txt"), "--by-position"),
        (("--id", "file", "--ids", "gone.txt"), "gone.txt"),
        (("--id", "file", "--ids", "few.txt"), "24 rows"),
        (("--id", "file", "--ids", "many.txt"), "24 rows"),
        (("--by-position", "--labels", "fewer.csv"), "24 labels"),
    ],
)
def test_what_says_too_little_of_the_join_is_refused(run, files, monkeypatch, more, fact):
    monkeypatch.chdir(files)
    (files / "few.txt").write_text("a.jpg\nb.jpg\n")
    (files / "many.txt").write_text("a.jpg\n" * 25)
    lines = (files / "labels.csv").read_text().splitlines(keepends=True)
    (files / "fewer.csv").write_text("".join(lines[:-1]))
    code, out, err = make(run, files, *more)
    assert code == 2, (out, err)
    assert fact in err
    assert len(err.strip().splitlines()) == 1


def test_python_joins_by_position_aloud_too(files):
    table = read_labels(files / "labels.csv", id_column=None, columns=["animal", "place", "part"])
    labelled = from_table(table, name="t", target="animal", sensitive=["place"], split_column="part")
    store = open_store(files / "x.npy")
    with pytest.warns(PositionJoinWarning, match="24 rows"):
        task, _ = build_task(labelled, store, None, by_position=True)
    np.testing.assert_array_equal(task.train.X, ROWS[[p == "train" for p in PARTS]])
    with pytest.raises(StoreError, match="by_position"):
        build_task(labelled, store, None)
    with pytest.raises(ParameterError):
        build_task(labelled, store, None, by_position=True, match="stem")
    with pytest.raises(JoinError):
        build_task(labelled, EmbeddingStore.from_array(ROWS, IDS), None)


def test_paths_are_matched_by_base_name_or_stem(run, files):
    paths = [f"/data/{'ab'[i % 2]}/{name}" for i, name in enumerate(IDS)]
    for match, ids in (("basename", paths), ("stem", [path.replace(".jpg", ".webp") for path in paths])):
        np.savez(files / "paths.npz", embeddings=ROWS, ids=np.array(ids))
        more = ("--id", "file", "--overwrite")
        assert f"--match {match}" in make(run, files, *more, store="paths.npz")[2]
        code, _, err = make(run, files, *more, "--match", match, store="paths.npz")
        assert code == 0, err
        assert check_rows(files / "t.npz").train.ids[0] == ids[0], "the ids stay whole"


@pytest.mark.parametrize(("match", "part"), [("basename", "'1.jpg'"), ("stem", "'1'")])
def test_two_rows_of_one_name_are_an_error_that_names_it(match, part):
    left, right = ["a/1.jpg", "b\\1.jpg", "b/2.jpg"], ["1.jpg", "2.jpg"]
    for one, two in ((left, right), (right, left)):
        with pytest.raises(JoinError, match=part):
            join(one, two, match=match)
    odd = join(["/", "x/.jpg", "x/a"], ["a", ".jpg", "/"], match="stem")
    assert odd.rows_in_labels.tolist() == [2, 1, 0]
    with pytest.raises(ParameterError):
        join(left, right, match="name")
