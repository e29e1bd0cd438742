"""Tables of the best rows of each prompt."""

import pytest

from fairerclip.applying.answer_files import write_top
from fairerclip.applying.apply import TopRow
from fairerclip.errors import ParameterError

BEST = [TopRow("cat", 1, 4, "=a.jpg", 0.5), TopRow("cat", 2, 0, "b.jpg", -0.25)]


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


def test_the_best_rows_are_written_as_parquet_too(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    write_top(BEST, tmp_path / "best.parquet")
    assert pq.read_table(tmp_path / "best.parquet").to_pydict() == {
        "prompt": ["cat", "cat"],
        "rank": [1, 2],
        "id": ["=a.jpg", "b.jpg"],
        "score": [0.5, -0.25],
    }
