"""Tables and paragraphs of foreign text."""

from fairerclip._util.clean_text import LONGEST
from fairerclip._util.html_text import MOST_ROWS, notebook_block, notebook_table, paragraph
from notebook_html import HOSTILE, paragraphs, shown, tables


class Block:
    def __init__(self, *parts):
        self.parts = parts

    def _repr_html_(self):
        return notebook_block(*self.parts)


def test_foreign_text_is_shown_and_never_markup():
    root = shown(Block(paragraph(HOSTILE, strong=True), notebook_table([HOSTILE], [[HOSTILE]])))
    [[head], [cell]] = tables(root)[0]
    assert head.startswith('<script>alert("x")</script> & \ufffdbad')
    assert cell.startswith('<script>alert("x")</script> & \ufffdbad')
    assert len(cell) == LONGEST
    assert len(paragraphs(root)[0]) == 2000


def test_a_long_table_is_cut_and_says_so():
    rows = [[str(k), "1"] for k in range(MOST_ROWS + 2)]
    root = shown(Block(notebook_table(["name", "n"], rows)))
    assert tables(root)[0] == [["name", "n"], *rows[:MOST_ROWS]]
    assert paragraphs(root) == ["… and 2 more rows"]
    whole = shown(Block(notebook_table(["name", "n"], rows[:MOST_ROWS])))
    assert paragraphs(whole) == []
