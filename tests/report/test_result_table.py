import pytest

from fairerclip.errors import ParameterError
from fairerclip.report.result_table import (
    Cell,
    ResultTable,
    text_of,
    to_html,
    to_markdown,
    to_terminal,
)

HOSTILE = "<script>alert(1)</script>|a*b_c [x](y) \u202e \x00 & \"quoted\" 'single'"
WORST = Cell(0.8125, "bare", 0.54, 0.96, sd=0.01)


def test_one_cell_says_the_same_in_every_form():
    table = ResultTable("t", ["method", "worst"], [["ours", WORST], ["other", None]])
    shown = "81.3 ± 1.0 [54.0, 96.0]"
    assert text_of(WORST) == shown
    assert to_markdown(table)[2] == "| ours | 81.3 ± 1.0 [54.0, 96.0] |"
    assert f'<th scope="row">ours</th>\n<td class="n">{shown}</td>' in to_html(table)
    assert to_terminal(table) == [[("ours",), ("81.3 ± 1.0", "[54.0, 96.0]")], [("other",), ("–",)]]


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Cell(0.5, "percent"), "50.0\u00a0%"),
        (Cell(-0.02, "change", -0.05, None), "−2.0 [−5.0, –]"),
        (Cell(0.25, "fine", 0.1, 0.5), "0.2500 [0.1000, 0.5000]"),
        (Cell(None, "percent", 0.1, 0.2), "–"),
        (Cell(12.345, "seconds"), "12.35"),
        (Cell(1234.5, "whole"), "1235"),
        (0.123456, "0.1235"),
        (None, "–"),
    ],
)
def test_a_cell_is_written_as_its_kind_says(cell, text):
    assert text_of(cell) == text


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ParameterError, match="2 columns, but a row of 1"):
        ResultTable("t", ["a", "b"], [["x"]])


def test_only_figures_are_left_as_they_are_in_markdown():
    texts = ["1\n\n2", "[1](2)", "1|2", "[0.5, 0.6]", "+1.5\u00a0points [−1.0, +4.0]", "2e-7"]
    line = to_markdown(ResultTable("t", list("abcdef"), [texts]))[2]
    assert line == "| 1 2 | \\[1\\](2) | 1\\|2 | [0.5, 0.6] | +1.5\u00a0points [−1.0, +4.0] | 2e-7 |"
