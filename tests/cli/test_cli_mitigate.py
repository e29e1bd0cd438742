"""`fairerclip apply` with a mitigator: a folder, rankings by free queries, and what is refused."""

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
