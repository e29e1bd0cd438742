import pytest
import sample
from forms import render_markdown
from rendered import foreign, render, table_with

from fairerclip._util.markdown_text import block, escape


def test_more_classes_and_groups_than_two_have_their_rows():
    results = sample.many_classes()
    (rows,) = table_with(render(render_markdown(results)), "group", "n", "zero-shot")
    assert len(rows) == 15
    small = [row[1].endswith("(small)") for row in rows]
    assert small == [group["small"] for group in results["groups"]["after"]["groups"]]


def test_hostile_text_makes_no_tags_links_or_comments():
    page = render(render_markdown(sample.hostile()))
    assert foreign(page) == (set(), 0)
    assert not {"a", "em"} & set(page.tags)
    shown = "".join(page.text)
    assert "<script>window.pwned=1;alert(1)</script>" in shown  # as text
    assert "\u202e" not in shown


@pytest.mark.parametrize(
    "words",
    [
        "<img src=x onerror=alert(1)>",
        "a | b",
        "`code` ``",
        "[x](javascript:alert(1)) ![y](z) [z]: w",
        "*bold* _it_ ~~no~~ **b**",
        "# heading",
        "1. item",
        "> quote",
        "&lt; &amp; &#60;b&#62;",
        "a\\",
        "https://example.org <https://example.org>",
        "$x$",
        "<!-- x -->",
        "---",
    ],
)
def test_escaped_text_is_shown_as_it_is(words):
    for document in (f"{escape(words)}\n", f"- {escape(words)}\n"):
        page = render(document)
        assert set(page.tags) <= {"p", "ul", "li"}
        assert "".join(page.text).strip() == words
    page = render(f"| {escape(words)} | n |\n| :-- | --: |\n| {escape(words)} | 1 |\n")
    assert set(page.tags) <= {"table", "thead", "tbody", "tr", "th", "td"}
    assert page.tables[0][1] == [words, "1"]


def test_line_breaks_do_not_end_a_cell_and_names_call_nobody():
    assert escape("a\n\n# b\r\nc") == "a # b c"
    assert "@" not in escape("@someone a@b.example")
    assert "www." not in escape("www.example.org")
    assert "https:" not in escape("https://example.org")


def test_a_block_is_fenced_longer_than_its_text():
    page = render("\n".join(block("fit\n```\n<script>alert(1)</script>\n````\n# x")))
    assert foreign(page) == (set(), 0)
