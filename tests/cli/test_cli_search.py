"""From a collection to a search on the command line: apply, index, search, and what is refused."""

import csv
import json

import numpy as np
import pytest

from fairerclip.baselines import ZeroShot
from fairerclip.data.io.npz import write_npz
from fairerclip.data.stores import open_store
from small_collection import PROMPTS, QUERIES, clip_retrieval, mitigator, rows


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    mitigator().save(home / "model")
    clip_retrieval(home / "in", metadata=False)
    ids = np.array([f"{k}.png" for k in range(30)])
    write_npz(home / "named.npz", {"embeddings": rows(30)[0], "ids": ids})
    queries = np.stack([*QUERIES[:2], PROMPTS["x"]]).astype(np.float32)
    write_npz(home / "q.npz", {"text": queries, "queries": np.array(["a nurse", "a cook", "an x"])})
    X, s = rows(40)
    text = dict(zip("ab", QUERIES, strict=False))
    ZeroShot().fit(X, np.where(s == "x", "a", "b"), text=text).save(home / "classifier")
    return home


@pytest.fixture
def refuses(run):
    """A command that is refused: its one line."""

    def call(*arguments):
        code, out, err = run(*arguments)
        assert (code, out) == (2, ""), err
        assert len(err.splitlines()) == 1
        return err

    return call


def test_apply_writes_a_mitigated_folder_and_continues_it(run, home, tmp_path):
    code, out, err = run("apply", home / "model", home / "in", "-o", tmp_path / "out")
    assert (code, err) == (0, "")
    assert "55 rows mitigated" in out
    assert f"rows written to {tmp_path / 'out'}" in out
    code, out, _ = run("apply", home / "model", home / "in", "-o", tmp_path / "out")
    assert "0 rows mitigated (0 per second); 55 done earlier" in out
    code, out, _ = run("apply", home / "model", home / "in", "-o", tmp_path / "u.npy", "--unit", "--json")
    found = json.loads(out)
    assert (found["rows"], found["written"], found["unit"], found["warnings"]) == (55, 55, True, [])
    assert open_store(tmp_path / "u.npy").shape == (55, 12)


def test_apply_ranks_by_free_queries_and_says_which_are_about_s(run, home, tmp_path):
    arguments = ("apply", home / "model", home / "named.npz", "--queries", home / "q.npz", "--top", 2, "-o")
    code, out, err = run(*arguments, tmp_path / "q.csv")
    assert code == 0
    assert "a cook: the first 2 of 30 rows\n" in out
    assert "an x: the first 2 of 30 rows; about place, so not mitigated" in out
    assert "SensitiveQueryWarning: 1 of 3 queries" in err
    with (tmp_path / "q.csv").open() as handle:
        table = list(csv.DictReader(handle))
    assert [(row["prompt"], row["rank"], row["mitigated"]) for row in table[3:5]] == [
        ("a cook", "2", "True"),
        ("an x", "1", "False"),
    ]
    code, out, _ = run(*arguments, tmp_path / "one.csv", "--prompt", "a cook", "--json")
    found = json.loads(out)
    assert [*found["top"]] == ["a cook"]
    assert found["top"]["a cook"][0]["id"] == table[2]["id"]


def test_apply_refuses_what_does_not_go_together(refuses, home, tmp_path):
    to = ("-o", tmp_path / "o.csv")
    model, classifier, emb, q = (home / n for n in ("model", "classifier", "named.npz", "q.npz"))
    assert "needs --top K" in refuses("apply", model, emb, "--queries", q, *to)
    assert "give the embeddings of queries with --queries" in refuses("apply", model, emb, "--top", 2, *to)
    assert "for a mitigator" in refuses("apply", classifier, emb, "--unit", *to)
    assert "must end in .npy or .npz" in refuses("apply", model, emb, *to)
    assert "'z' is not among" in refuses(
        "apply", model, emb, "--queries", q, "--top", 1, "--prompt", "z", *to
    )
    table = refuses("apply", model, emb, "--queries", q, "--top", 1, "-o", tmp_path / "o.npz")
    assert "end the output in .csv or .parquet" in table
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def index(home, tmp_path_factory):
    from fairerclip.export import build_index

    path = tmp_path_factory.mktemp("index") / "i"
    build_index(home / "model", home / "named.npz", path)
    return path


def test_index_writes_both_indexes(run, home, tmp_path):
    code, out, err = run("index", home / "named.npz", "--model", home / "model", "-o", tmp_path / "i")
    assert (code, err) == (0, "")
    assert "30 rows of width 12 indexed twice (kind flat) in" in out
    names = {file.name for file in (tmp_path / "i").iterdir()}
    assert names == {"original.index", "mitigated.index", "ids.txt", "index.json"}
    arguments = ("index", home / "named.npz", "--model", home / "model", "-o", tmp_path / "i", "--json")
    code, out, err = run(*arguments)
    assert (code, json.loads(out)["error"]["type"]) == (2, "OutputExistsError")
    code, out, err = run(*arguments, "--overwrite", "--unit")
    found = json.loads(out)
    assert (code, found["kind"], found["rows"], found["unit"]) == (0, "flat", 30, True)


def test_search_shows_both_rankings_side_by_side(run, home, index):
    arguments = ("search", index, "--query-embedding", home / "q.npz", "--k", 3)
    code, out, err = run(*arguments, "a nurse")
    assert (code, err) == (0, "")
    assert "a nurse: the first 3 of 30 rows; " in out
    assert "give --model to know if it is about a sensitive attribute" in out
    assert "mitigated" in out
    code, out, err = run(*arguments, "--model", home / "model", "--json")
    found = json.loads(out)
    assert [q["about"] for q in found["queries"]] == [None, None, "place"]
    about = found["queries"][2]
    assert about["original"] == about["mitigated"]
    assert about["shared"] == 3
    assert found["warnings"][0].startswith("SensitiveQueryWarning")
    code, out, err = run(*arguments, "--model", home / "model", "an x")
    assert "about place, so not mitigated: the original ranking is used" in out


def test_search_writes_a_sheet_of_images(run, home, index, tmp_path):
    image = pytest.importorskip("PIL.Image")
    for k in range(30):
        image.new("RGB", (8, 8)).save(tmp_path / f"{k}.png")
    arguments = ("search", index, "--query-embedding", home / "q.npz", "--k", 2, "--images", tmp_path)
    code, out, err = run(*arguments, "--sheet", tmp_path / "sheet.png")
    assert (code, err) == (0, "")
    assert f"sheet of images written to {tmp_path / 'sheet.png'}" in out
    assert image.open(tmp_path / "sheet.png").width > 200


def test_search_refuses_what_it_cannot_answer(refuses, home, index, tmp_path):
    q = ("--query-embedding", home / "q.npz")
    assert "texts need --encoder" in refuses("search", index, "a nurse")
    assert "give texts to search for" in refuses("search", index)
    assert "k must be between 1 and 30" in refuses("search", index, *q, "--k", 31)
    assert "go together" in refuses("search", index, *q, "--sheet", tmp_path / "s.png")
    assert "leave probe out" in refuses("search", index, *q, "--probe", 0.5)
    assert "expected a folder" in refuses("search", tmp_path / "nowhere", *q)
    np.save(tmp_path / "q.npy", np.ones((1, 3), np.float32))
    assert "queries must be embeddings" in refuses("search", index, "--query-embedding", tmp_path / "q.npy")
    assert "'b' is not among the 3 queries" in refuses("search", index, *q, "b")
    mitigator(strength=0.5).save(tmp_path / "other")
    assert "another mitigator" in refuses("search", index, *q, "--model", tmp_path / "other")
    assert "is none of RN50" in refuses("search", index, "a nurse", "--encoder", "CLIP")
