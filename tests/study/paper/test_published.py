import pytest

from fairerclip.study.methods import METHODS
from fairerclip.study.paper.entries import ENTRIES
from fairerclip.study.paper.published import all_published


def test_tables_and_methods_are_those_that_there_are():
    names = {entry.name for entry in ENTRIES}
    assert {row.table for row in all_published()} <= names
    keys = {method.key for method in METHODS} | {"fairerclip", None}
    accuracy = ("intrinsic", "spurious", "fairface", "cfd", "training-time")
    assert {row.method for row in all_published() if row.table in accuracy} <= keys


def test_gaps_are_those_of_their_averages():
    rows = [row for row in all_published() if row.source == "paper" and "gap" in row.figures]
    assert len(rows) > 30
    for row in rows:
        difference = row.figures["average"] - row.figures["worst_group"]
        # Published gaps are means over seeds and were rounded: off by a tenth.
        assert difference == pytest.approx(row.figures["gap"], abs=0.15), row
