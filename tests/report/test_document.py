import base64
import hashlib
import json
import re

from pydantic import TypeAdapter

from fairerclip.report.document import Document
from fairerclip.report.document_charts import Curves, Heatmap
from fairerclip.report.result_table import Cell, ResultTable

STORED = TypeAdapter(Document)
HOSTILE = "<script>alert(1)</script>|a*b_c [x](y) \u202e \x00 & \"quoted\" 'single'"


def page(text=HOSTILE):
    return Document(
        title=text,
        source=text,
        notes=[text],
        tables=[ResultTable(text, [text, "n"], [[text, 1.5], [text, None], [text, Cell(0.5, "bare")]], text)],
        heatmaps=[Heatmap(text, text, [0.0, 0.5], text, [0.1], [[1.0, None]])],
        curves=[Curves(text, text, text, {text: [(0.0, 1.0), (1.0, 2.0)], "one": [(3.0, 3.0)]})],
    )


def test_hostile_text_is_shown_and_does_nothing():
    html, markdown = page().to_html(), page().to_markdown()
    assert html.count("<script") == 0
    assert "&lt;script&gt;" in html
    assert "<script" not in markdown
    for mark in ("\u202e", "\x00"):
        assert mark not in html + markdown
    assert 'aria-label="<' not in html
    for line in markdown.splitlines():
        if line.startswith("| "):
            assert len(re.findall(r"(?<!\\)\|", line)) == 3


def test_the_policy_allows_the_one_style_and_nothing_else():
    html = page("x").to_html()
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)[1]
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1].replace("&#39;", "'")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'")
    assert "style=" not in html
    assert not re.search(r"(?:src|href)=", html)


def test_a_document_goes_through_json_unchanged():
    before = page()
    after = STORED.validate_python(json.loads(STORED.dump_json(before)))
    assert after.to_markdown() == before.to_markdown()
    assert after.to_html() == before.to_html()


def test_charts_of_one_value_or_none_are_drawn_or_left_out():
    flat = Heatmap("flat", "x", [0.0], "y", [0.0], [[0.0]])
    empty = Heatmap("empty", "x", [0.0], "y", [0.0], [[None]])
    html = Document("t", "s", [], [], [flat, empty], [Curves("none", "x", "y", {"a": []})]).to_html()
    assert html.count("<svg") == 1
    assert ">0.0</text>" in html
