"""Files of a model's answers."""

import csv

import numpy as np
import pytest

from fairerclip.applying.answer_files import write_predictions, write_top
from fairerclip.applying.apply import TopRow
from fairerclip.errors import ParameterError

BEST = [TopRow("cat", 1, 4, "=a.jpg", 0.5), TopRow("cat", 2, 0, "b.jpg", -0.25)]


def test_predictions_are_written_as_csv_and_npz_under_the_names_of_the_prompts(tmp_path):
    scores = np.array([[0.1, 0.2], [1, 2]])
    result = {
        "id": np.array(["a.jpg", "b.jpg"]),
        "prediction": np.array(["cat", "=dog"], dtype=object),
        "score": scores,
        "names": np.array(["cat", "=dog"]),
        "embedding": np.ones((2, 3)),
    }
    write_predictions(result, tmp_path / "p.csv")
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    assert [r["id"] for r in rows] == ["a.jpg", "b.jpg"]
    assert rows[1]["prediction"] == "'=dog"
    assert list(rows[0]) == ["row", "id", "prediction", "score: cat", "score: =dog"]
    assert [float(r["score: =dog"]) for r in rows] == [0.2, 2.0]
    write_predictions(result, tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz", allow_pickle=False) as back:
        np.testing.assert_array_equal(back["embedding"], result["embedding"])
        assert back["prediction"].tolist() == back["names"].tolist() == ["cat", "=dog"]


def test_an_unknown_ending_is_refused(tmp_path):
    with pytest.raises(ParameterError, match=r"\.npz or \.csv or \.parquet"):
        write_predictions({}, tmp_path / "p.txt")


def test_the_best_rows_are_a_table_with_a_row_per_prompt_and_rank(tmp_path):
    write_top(BEST, tmp_path / "best.csv")
    assert (tmp_path / "best.csv").read_text().splitlines() == [
        "prompt,rank,id,score",
        "cat,1,'=a.jpg,0.5",
        "cat,2,b.jpg,-0.25",
    ]
    write_top([row._replace(id=None) for row in BEST], tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text().splitlines()[:2] == ["prompt,rank,row,score", "cat,1,4,0.5"]
    with pytest.raises(ParameterError, match=r"end the output in \.csv or \.parquet"):
        write_top(BEST, tmp_path / "best.npz")


def test_tables_are_written_as_parquet_too(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    write_top(BEST, tmp_path / "best.parquet")
    assert pq.read_table(tmp_path / "best.parquet").to_pydict() == {
        "prompt": ["cat", "cat"],
        "rank": [1, 2],
        "id": ["=a.jpg", "b.jpg"],
        "score": [0.5, -0.25],
    }
    result = {
        "prediction": np.array([1, "one"], dtype=object),
        "score": np.array([[0.5, 1], [2, 3]]),
        "names": np.array(["1", "one"]),
    }
    write_predictions(result, tmp_path / "p.parquet")
    assert pq.read_table(tmp_path / "p.parquet").to_pydict() == {
        "row": [0, 1],
        "prediction": ["1", "one"],
        "score: 1": [0.5, 2.0],
        "score: one": [1.0, 3.0],
    }
