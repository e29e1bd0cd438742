import csv

import numpy as np
import pytest

from fairerclip.cli.options import parse_grid
from fairerclip.data.io.csv_table import csv_bytes, defused, write_table
from fairerclip.errors import OutputExistsError, ParameterError
from fairerclip.model.path import front


def test_the_front_holds_what_no_other_point_beats():
    rng = np.random.default_rng(0)
    table = [
        {"average": a, "worst_group": w, "failure": None}
        for a, w in rng.integers(0, 20, size=(60, 2)).tolist()
    ]
    table.append({"average": None, "worst_group": None, "failure": "collapsed"})
    chosen = front(table)
    solved = [(row["average"], row["worst_group"]) for row in table[:-1]]
    best = {
        point
        for point in solved
        if not any(o != point and o[0] >= point[0] and o[1] >= point[1] for o in solved)
    }
    assert {solved[g] for g in chosen} == best
    assert len(chosen) == len(best)
    assert [solved[g][0] for g in chosen] == sorted(solved[g][0] for g in chosen)


def test_text_that_runs_nothing_stays_as_it_is():
    for text in ("-12", "+4.5", "a=b", "", " ", "\u200b", "é=", "12-3", "−5"):
        assert defused(text) == text
    for text in ("-12+A1", "--1", "-x", "\tcell", "\ncell", "-1e5", "- 1"):
        assert defused(text) == "'" + text
    assert [defused(value) for value in (-1.5, 2, None, True)] == [-1.5, 2, None, True]


def test_a_grid_is_a_range_or_a_list():
    assert parse_grid(None, "taus") is None
    np.testing.assert_allclose(parse_grid("0:0.9:4", "taus"), [0, 0.3, 0.6, 0.9])
    assert parse_grid("0.1, 0.2", "taus") == [0.1, 0.2]
    for text in ("", "a,b", "0:1", "0:1:x", "0:1:0", "1:2:3:4"):
        with pytest.raises(ParameterError, match="--taus"):
            parse_grid(text, "--taus")


def test_formulas_behind_what_is_not_seen_and_in_wide_forms_are_defused():
    before = ["", "\n", "\r\n", "\t", "  ", "\u00a0", "\u3000", "\u200b", "\ufeff", "\x00", "\u202e"]
    formulas = [f"{b}{start}HYPERLINK(A1)" for b in before for start in "=+-@＝＋－＠﹢⁺"]
    text = csv_bytes([{"=cmd()": name, "value": -1.5} for name in formulas]).decode()
    rows = list(csv.reader(text.splitlines(keepends=True)))
    assert rows == [["'=cmd()", "value"], *(["'" + name, "-1.5"] for name in formulas)]
    assert csv_bytes([{"id": "\udce9.jpg"}]).decode().split() == ["id", "\\udce9.jpg"]


def test_a_table_is_not_overwritten_unasked(tmp_path):
    file = tmp_path / "new" / "t.csv"
    write_table([{"a": 1}], file)
    with pytest.raises(OutputExistsError):
        write_table([{"a": 2}], file)
    write_table([{"a": 3}], file, overwrite=True)
    assert file.read_text().split() == ["a", "3"]
