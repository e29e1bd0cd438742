"""Functions that write HTML tables and paragraphs of foreign text, for pages and for notebooks.

All text is cleaned and escaped here. There is no script and no colour, so that the theme of a notebook decides how it
looks. For a notebook, long text is shortened, long tables are cut, and cells have their alignment in a ``style``.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from fairerclip._util.clean_text import clean, shorten
from fairerclip._util.numbers import count

MOST_ROWS = 40
"""Rows of a table in a notebook."""
LONGEST_PARAGRAPH = 2000
"""Characters of a paragraph in a notebook."""
NUMBER_CLASS = ' class="n"'
LEFT_STYLE, RIGHT_STYLE = ' style="text-align: left"', ' style="text-align: right"'


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> Markup:
    """Return the ``table`` element; the first cell of a row is its head, and numbers have the class ``n``.

    ``left`` is the number of first columns that hold text; the others hold numbers.

    Examples
    --------
    >>> "&lt;a&gt;" in table(["name", "n"], [["<a>", "3"]])
    True
    """
    return _table(columns, rows, ["" if k < left else NUMBER_CLASS for k in range(len(columns))])


def notebook_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> Markup:
    """Return the ``table`` element for a notebook, with a line on the rows that are left out.

    Examples
    --------
    >>> "<script>" in notebook_table(["name"], [["<script>"]])
    False
    """
    shown = [[shorten(cell) for cell in row] for row in rows[:MOST_ROWS]]
    styles = [LEFT_STYLE if k < left else RIGHT_STYLE for k in range(len(columns))]
    more = len(rows) - len(shown)
    return _table(columns, shown, styles) + (
        paragraph(f"… and {count(more)} more rows") if more else Markup()
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], attributes: Sequence[str]) -> Markup:
    def element(column: int, text: str, scope: str | None = None) -> str:
        tag, head = ("td", "") if scope is None else ("th", f' scope="{scope}"')
        return f"<{tag}{head}{attributes[column]}>{escape(clean(text))}</{tag}>"

    lines = ["<table>", "<thead><tr>"]
    lines += [element(k, name, "col") for k, name in enumerate(columns)]
    lines += ["</tr></thead>", "<tbody>"]
    for row in rows:
        lines += ["<tr>", *(element(k, text, None if k else "row") for k, text in enumerate(row)), "</tr>"]
    return Markup("\n".join([*lines, "</tbody>", "</table>"]))  # noqa: S704 - our tags, and text that is escaped


def paragraph(text: str, *, strong: bool = False) -> Markup:
    """Return a paragraph, in bold if ``strong``."""
    words = escape(clean(shorten(text, LONGEST_PARAGRAPH)))
    return (Markup("<p><strong>{}</strong></p>") if strong else Markup("<p>{}</p>")).format(words)


def notebook_block(*parts: Markup) -> str:
    """Return one element of all parts, as ``_repr_html_`` gives it."""
    return str(Markup("<div>{}</div>").format(Markup("\n").join(parts)))
