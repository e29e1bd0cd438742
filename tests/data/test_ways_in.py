"""Embeddings without ids, or with ids that are paths, reach their labels, by id or aloud by position."""

import json

import numpy as np
import pytest

from fairerclip.data import build_task, from_table, join, load_task, open_store, read_labels
from fairerclip.data.id_files import read_id_list
from fairerclip.data.join import join_by_position
from fairerclip.data.stores import EmbeddingStore
from fairerclip.errors import JoinError, ParameterError, PositionJoinWarning, StoreError

N, WIDTH = 24, 6
SENTENCES = ["a photo of a cat.", "a photo of a dog.", "indoors.", "outdoors."]
PROMPTS = {
    "name": "mine",
    "version": 1,
    "source": {"kind": "ours", "citation": "made for this test"},
    "classes": {"cat": [SENTENCES[0]], "dog": [SENTENCES[1]]},
    "sensitive": {"place": {"indoors": [SENTENCES[2]], "outdoors": [SENTENCES[3]]}},
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
    rows = zip(IDS, Y, S, PARTS, strict=True)
    (tmp_path / "labels.csv").write_text(
        "file,animal,place,part\n" + "".join(f"{','.join(r)}\n" for r in rows)
    )
    (tmp_path / "ids.txt").write_text("".join(f"{name}\n" for name in IDS))
    (tmp_path / "ids.json").write_text(json.dumps(IDS))
    return tmp_path


def make(run, files, *more, store="x.npy"):
    given = (
        "--labels",
        files / "labels.csv",
        "--target",
        "animal",
        "--sensitive",
        "place",
        "--split",
        "part",
    )
    texts = ("--prompts", files / "prompts.json", "--text", files / "text.npy", "-o", files / "t.npz")
    return run("task", "embeddings", files / store, *given, *texts, *more)


def check_rows(file):
    """Every row of the task has the embedding, the class and the value of its position; return its ids."""
    task = load_task(file)
    for name, split in task.splits.items():
        place = [i for i in range(N) if PARTS[i] == name]
        np.testing.assert_array_equal(split.X, ROWS[place])
        assert [task.class_names[k] for k in split.y] == [Y[i] for i in place]
        assert [task.sensitive["place"].names[k] for k in split.s["place"]] == [S[i] for i in place]
    return task


def refused(result, *words):
    code, out, err = result
    assert code == 2, (out, err)
    assert len(err.strip().splitlines()) == 1, err
    for word in words:
        assert word in err, err
    return True


@pytest.mark.parametrize("name", ["ids.txt", "ids.json", "labels.csv"])
def test_rows_without_ids_get_them_from_a_file(run, files, name):
    code, _, err = make(run, files, "--id", "file", "--ids", files / name)
    assert code == 0, err
    assert check_rows(files / "t.npz").train.ids[0] == IDS[0]


def test_ids_of_a_file_replace_those_of_the_store(files):
    np.savez(files / "x.npz", embeddings=ROWS, ids=np.arange(N))
    assert open_store(files / "x.npz").ids[1] == "1"
    assert open_store(files / "x.npz", ids=files / "ids.txt").ids[1] == IDS[1]
    assert open_store(files / "x.npz", ids=IDS).ids[1] == IDS[1]
    assert open_store(files / "x.npy", ids=range(N)).ids.tolist() == [str(i) for i in range(N)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("i.txt", "a\n\nb\n", "line 2 is empty"),
        ("i.txt", "", "an id for each row, found none"),
        ("i.txt", "a" * 5000, "lines of at most"),
        ("i.json", '{"a": 1}', "a list of ids, got dict"),
        ("i.json", '["a", 1.5]', "entry 1 is 1.5"),
        ("i.json", '["a", " "]', "entry 1 is ' '"),
        ("i.json", "[true]", "entry 0 is True"),
        ("i.json", "[", "expected JSON"),
        ("i.csv", "file\na\n", "the name of the column of ids"),
        ("i.npy", "a", "expected ids in .txt"),
        ("i", "a", "got no ending"),
    ],
)
def test_bad_files_of_ids_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(JoinError, match=message):
        read_id_list(tmp_path / name)


def test_files_of_ids_with_windows_line_ends_and_numbers_are_read(tmp_path):
    (tmp_path / "i.txt").write_bytes(b"\xef\xbb\xbfa b.jpg\r\nc.jpg")
    assert read_id_list(tmp_path / "i.txt").tolist() == ["a b.jpg", "c.jpg"]
    (tmp_path / "i.json").write_text('[7, "b"]')
    assert read_id_list(tmp_path / "i.json").tolist() == ["7", "b"]


def test_too_few_ids_are_refused_with_both_counts(run, files):
    (files / "ids.txt").write_text("a.jpg\nb.jpg\n")
    assert refused(
        make(run, files, "--id", "file", "--ids", files / "ids.txt"), "each of the 24 rows, got 2 ids"
    )
    (files / "ids.txt").write_text("a.jpg\n" * 25)
    assert refused(make(run, files, "--id", "file", "--ids", files / "ids.txt"), "24 rows, got more ids")
    with pytest.raises(StoreError, match="ids of shape"):
        open_store(files / "x.npy", ids=[None] * N)


@pytest.mark.parametrize("id_column", [(), ("--id", "file")])
def test_rows_are_joined_by_position_only_aloud(run, files, id_column):
    code, out, err = make(run, files, "--by-position", *id_column, "--json")
    assert code == 0, err
    assert "PositionJoinWarning: 24 rows are joined by position" in err
    assert json.loads(out)["warnings"] == [err.strip().removeprefix("warning: ")]
    task = check_rows(files / "t.npz")
    if id_column:
        assert task.train.ids[0] == IDS[0], "the ids of the labels are those of the rows"
    else:
        assert task.train.ids is None


def test_by_position_needs_as_many_labels_as_rows(run, files):
    np.save(files / "x.npy", ROWS[:-1])
    assert refused(make(run, files, "--by-position"), "expected 23 labels, got 24")
    with pytest.raises(JoinError, match="expected 3 labels, got 2"):
        join_by_position(3, 2)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ((), ["--id is needed", "--by-position"]),
        (("--id", "file"), ["no ids", "--ids FILE", "--by-position"]),
        (("--id", "file", "--match", "name"), ["--match must be one of exact, basename, stem", "'name'"]),
        (("--by-position", "--match", "stem"), ["--by-position joins without ids"]),
        (("--by-position", "--ids", "ids.txt"), ["--by-position joins without ids"]),
        (("--id", "file", "--ids", "gone.txt"), ["gone.txt"]),
    ],
)
def test_what_says_nothing_of_the_join_is_refused(run, files, more, words):
    assert refused(make(run, files, *more), *words)


def test_python_joins_by_position_aloud_too(files):
    table = read_labels(files / "labels.csv", id_column=None, columns=["animal", "place", "part"])
    assert (table.ids, len(table)) == (None, N)
    labelled = from_table(table, name="t", target="animal", sensitive=["place"], split_column="part")
    store = open_store(files / "x.npy")
    with pytest.warns(PositionJoinWarning, match="24 rows are joined by position"):
        task, _ = build_task(labelled, store, None, by_position=True)
    np.testing.assert_array_equal(task.train.X, ROWS[[p == "train" for p in PARTS]])
    with pytest.raises(StoreError, match="by_position=True"):
        build_task(labelled, store, None)
    with pytest.raises(ParameterError, match="give one of them"):
        build_task(labelled, store, None, by_position=True, match="stem")
    with pytest.raises(JoinError, match="the labels have no ids"):
        build_task(labelled, EmbeddingStore.from_array(ROWS, IDS), None)
    with pytest.raises(JoinError, match="read without an id column"):
        _ = table.known_ids


def test_paths_are_matched_by_base_name_or_stem(run, files):
    paths = [f"/data/{'ab'[i % 2]}/{name}" for i, name in enumerate(IDS)]
    np.savez(files / "paths.npz", embeddings=ROWS, ids=np.array(paths))
    assert refused(make(run, files, "--id", "file", store="paths.npz"), "give --match basename")
    code, _, err = make(run, files, "--id", "file", "--match", "basename", store="paths.npz")
    assert code == 0, err
    assert check_rows(files / "t.npz").train.ids[0] == paths[0], "the ids stay whole"
    np.savez(files / "paths.npz", embeddings=ROWS, ids=np.array([p.replace(".jpg", ".webp") for p in paths]))
    by_name = ("--id", "file", "--overwrite", "--match")
    assert refused(make(run, files, *by_name, "basename", store="paths.npz"), "give --match stem")
    assert make(run, files, *by_name, "stem", store="paths.npz")[0] == 0
    check_rows(files / "t.npz")


@pytest.mark.parametrize(("match", "part"), [("basename", "'1.jpg'"), ("stem", "'1'")])
def test_two_rows_of_one_name_are_an_error_that_names_them(match, part):
    left, right = ["a/1.jpg", "b\\1.jpg", "b/2.jpg"], ["1.jpg", "2.jpg"]
    with pytest.raises(JoinError, match="several embeddings") as caught:
        join(left, right, match=match)
    for word in (part, "'a/1.jpg'", repr("b\\1.jpg"), f"--match {match}"):
        assert word in str(caught.value)
    with pytest.raises(JoinError, match="several labels"):
        join(right, left, match=match)
    with pytest.raises(JoinError, match="given more than once"):
        join(["a/1.jpg", "a/1.jpg"], right, match=match)
    with pytest.raises(ParameterError, match="match must be one of"):
        join(left, right, match="name")


def test_ids_that_are_only_folders_or_endings_stay_as_they_are():
    assert join(["/", "x/.jpg", "x/a"], ["a", ".jpg", "/"], match="stem").rows_in_labels.tolist() == [2, 1, 0]
