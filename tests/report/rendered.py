"""What a Markdown document shows once it is rendered, HTML inside it allowed."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from markdown_it import MarkdownIt

BLOCKS = ("h1", "h2", "h3", "p", "ul", "li", "pre", "table", "thead", "tbody", "tr", "th", "td")
OURS = {*BLOCKS, "strong", "em", "code", "a"}


class _Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text, self.tables = [], [], [], []
        self.comments, self.in_cell = 0, False

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *attribute) for attribute in attributes]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.in_cell = True

    def handle_endtag(self, tag):
        self.in_cell = self.in_cell and tag not in ("td", "th")

    def handle_data(self, data):
        self.text.append(data)
        if self.in_cell:
            self.tables[-1][-1][-1] += data

    def handle_comment(self, data):
        self.comments += 1


def render(markdown):
    page = _Page()
    page.feed(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown))
    page.close()
    return page


def foreign(page):
    """Tags and attributes that no report of ours makes."""
    kept = {("a", "href", "https://arxiv.org/abs/2403.15593")}
    attributes = {
        a
        for a in page.attributes
        if a not in kept and not (a[1] == "style" and a[2].startswith("text-align:"))
    }
    languages = {("code", "class", f"language-{name}") for name in ("sh", "python", "bibtex")}
    return (set(page.tags) - OURS) | (attributes - languages), page.comments


def table_with(page, *header):
    """Rows of the tables whose header begins so."""
    return [t[1:] for t in page.tables if tuple(cell.strip() for cell in t[0][: len(header)]) == header]


def numbers(cell):
    return [float(n) for n in re.findall(r"[-+]?\d+(?:\.\d+)?", cell.replace("−", "-"))]
