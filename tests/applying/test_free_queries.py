"""Free queries rank a mitigated collection: block by block, by the original rows where they ask for S."""

import numpy as np
import pytest

from fairerclip.applying import free_queries
from fairerclip.applying.answer_files import write_top
from fairerclip.applying.apply import TopRow
from fairerclip.applying.best_rows import BestRows
from fairerclip.applying.free_queries import chosen_queries, search_queries
from fairerclip.data.stores import EmbeddingStore
from fairerclip.errors import ParameterError, SensitiveQueryWarning, ShapeError
from small_collection import PROMPTS, QUERIES, mitigator, rows


@pytest.fixture(scope="module")
def model():
    return mitigator()


def test_the_best_rows_are_those_of_rank_for_every_block_size(model, monkeypatch):
    X, _ = rows(60)
    store = EmbeddingStore.from_array(X, [f"{k}.jpg" for k in range(60)])
    for scores in (2**23, 3 * 7):  # blocks of all rows, and of seven
        monkeypatch.setattr(free_queries, "SCORES", scores)
        found = search_queries(model, store, QUERIES, 5, names=["a", "b", "c"])
        assert found.about == {}
        for place, name in enumerate("abc"):
            expected = model.rank(QUERIES[place], X, 5)
            got = [row for row in found.rows if row.prompt == name]
            assert [row.row for row in got] == expected.indices.tolist()
            assert [row.id for row in got] == [f"{k}.jpg" for k in expected.indices]
            np.testing.assert_allclose([row.score for row in got], expected.scores, rtol=1e-5)


def test_a_query_about_s_ranks_by_the_original_rows_and_is_named(model, tmp_path):
    X, _ = rows(40)
    Q = np.stack([QUERIES[0], PROMPTS["x"]])
    with pytest.warns(SensitiveQueryWarning, match="an x"):
        found = search_queries(model, X, Q, 3, names=["a", "an x"])
    assert found.about == {"an x": "place"}
    order = np.argsort(-X @ PROMPTS["x"], kind="stable")[:3]
    assert [row.row for row in found.rows if row.prompt == "an x"] == order.tolist()
    write_top(found.rows, tmp_path / "out.csv", about=found.about)
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[0] == "prompt,rank,row,score,mitigated"
    assert [line.rsplit(",", 1)[1] for line in lines[1:]] == ["True"] * 3 + ["False"] * 3


def test_unit_rows_rank_by_cosines(model):
    X, _ = rows(40)
    found = search_queries(model, X, QUERIES[:1], 4, unit=True)
    Z = model.transform(X)
    cosines = Z @ QUERIES[0] / np.linalg.norm(Z, axis=1)
    assert [row.row for row in found.rows] == np.argsort(-cosines)[:4].tolist()
    assert found.rows[0].prompt == "query 1"


def test_best_rows_of_blocks_are_those_of_a_stable_sort():
    scores = np.random.default_rng(0).integers(6, size=(50, 2)) / 5
    for size in (1, 7, 50):
        best = BestRows(2, 9)
        for start in range(0, 50, size):
            best.add(start, scores[start : start + size])
        for query in range(2):
            order = np.argsort(-scores[:, query], kind="stable")[:9]
            assert best.rows[query].tolist() == order.tolist()
            assert best.scores[query].tolist() == scores[order, query].tolist()


def test_queries_are_chosen_by_name_and_bad_ones_refused(model):
    X, _ = rows(10)
    Q, names = chosen_queries(QUERIES, ["a", "b", "c"], ["c", "a", "c"])
    assert names == ["c", "a"]
    np.testing.assert_array_equal(Q, QUERIES[[2, 0]])
    with pytest.raises(ParameterError, match="'z'"):
        chosen_queries(QUERIES, ["a", "b", "c"], ["z"])
    with pytest.raises(ParameterError, match="between 1 and 10"):
        search_queries(model, X, QUERIES, 11)
    with pytest.raises(ShapeError):
        search_queries(model, X, QUERIES, 2, names=["a"])
    with pytest.raises(ShapeError):
        search_queries(model, X, QUERIES[:, :5], 2)


def test_the_best_rows_are_a_table_with_a_row_per_prompt_and_rank(tmp_path):
    best = [TopRow("cat", 1, 4, "=a.jpg", 0.5), TopRow("cat", 2, 0, "b.jpg", -0.25)]
    write_top(best, tmp_path / "best.csv")
    lines = ["prompt,rank,id,score", "cat,1,'=a.jpg,0.5", "cat,2,b.jpg,-0.25"]
    assert (tmp_path / "best.csv").read_text().splitlines() == lines
    write_top([row._replace(id=None) for row in best], tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text().splitlines()[:2] == ["prompt,rank,row,score", "cat,1,4,0.5"]
    with pytest.raises(ParameterError, match="npz"):
        write_top(best, tmp_path / "best.npz")
    pq = pytest.importorskip("pyarrow.parquet")
    write_top(best, tmp_path / "best.parquet")
    table = pq.read_table(tmp_path / "best.parquet").to_pydict()
    assert list(table) == ["prompt", "rank", "id", "score"]
    assert [*zip(*table.values(), strict=True)] == [("cat", 1, "=a.jpg", 0.5), ("cat", 2, "b.jpg", -0.25)]
