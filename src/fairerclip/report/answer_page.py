"""A page that begins with its answer, which is written as HTML or Markdown; the rest is folded, most important first.

All text is treated as hostile: hidden characters are replaced, and it is escaped. The picture is drawn from numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from markupsafe import Markup

from fairerclip._util.clean_text import clean
from fairerclip._util.markdown_text import escape
from fairerclip.report.assets import asset, asset_hash, template_environment
from fairerclip.report.front_chart import FrontChart, Tone
from fairerclip.report.result_table import Cell, Content, ResultTable, text_of, to_html, to_markdown

WIDE, NARROW = (600, 430, 6), (340, 268, 3)
"""Width and height of the picture in pixels and the number of names in it, on a screen and on a phone."""
BEST, NEAR = "→", "≈"
"""Signs of the best row and of those that are not told apart from it."""


@dataclass(frozen=True)
class BigFigure:
    """One of the few numbers at the top: what it is, the number with its unit, and words below it."""

    label: str
    value: str
    below: str


@dataclass(frozen=True)
class Alert:
    """A sentence that is never folded: something failed, does harm, or limits what can be said."""

    kind: Literal["failed", "harm", "caution"]
    text: str


@dataclass(frozen=True)
class RankedRow:
    """A row of the table: its cells, its tone, a sign, and a badge beside its name.

    The tone of a method that failed is None, and its number, too.
    """

    cells: Sequence[Content]
    tone: Tone | None
    sign: str = ""
    badge: str = ""

    @property
    def number(self) -> float:
        """Place among all rows; those without a number are last."""
        first = self.cells[0]
        return first if isinstance(first, int) else float("inf")


@dataclass(frozen=True)
class RankedSection:
    """Rows of the table below a heading, and a shorter heading for a column."""

    heading: str
    short: str
    rows: Sequence[RankedRow]


@dataclass(frozen=True)
class RankedTable:
    """The table of the page: sections of rows, and a note. A row begins with its number and its name."""

    columns: Sequence[str]
    sections: Sequence[RankedSection]
    note: str
    sorted_by: str = "Learns from"
    """Head of the column of short headings, in the table without sections."""

    def flat(self) -> ResultTable:
        """Return the table without sections, best first; signs are its first column, short headings its fourth."""
        found = [(row, section.short) for section in self.sections for row in section.rows]
        found.sort(key=lambda entry: entry[0].number)
        rows = [[row.sign, *row.cells[:2], short, *row.cells[2:]] for row, short in found]
        columns = ["", *self.columns[:2], self.sorted_by, *self.columns[2:]]
        return ResultTable("", columns, rows, self.note, left=4)


@dataclass(frozen=True)
class Folded:
    """A part of the page that opens on a tap: sentences and tables."""

    title: str
    sentences: Sequence[str] = ()
    tables: Sequence[ResultTable] = ()

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to show."""
        return not self.sentences and not self.tables


@dataclass(frozen=True)
class AnswerPage:
    """A page whose first screen is the answer.

    Attributes
    ----------
    title : str
        Heading of the page.
    source : str
        Sentence that says which data the figures come from.
    simulated : bool
        Whether the source is a warning.
    answer, recommendation : str
        One sentence each.
    advice : sequence of str
        Recommendations for other conditions, such as fewer labels.
    figures : sequence of BigFigure
        The numbers at the top, three at most.
    picture : FrontChart or None
        None if there is nothing to draw.
    alerts : sequence of Alert
        Sentences that are never folded.
    table : RankedTable
        The one table that is not folded.
    folded : sequence of Folded
        The rest, most important first.
    terms : mapping
        Plain definitions by term, for the glossary; columns and labels with the name of a term lead there.
    """

    title: str
    source: str
    simulated: bool
    answer: str
    recommendation: str
    advice: Sequence[str]
    figures: Sequence[BigFigure]
    picture: FrontChart | None
    alerts: Sequence[Alert]
    table: RankedTable
    folded: Sequence[Folded]
    terms: Mapping[str, str]

    def to_html(self) -> str:
        """Return one self-contained HTML page without scripts or requests; its policy allows only its own style."""
        style = asset("answer.css")
        environment = template_environment("answer.html.j2")
        picture = self.picture
        return environment.get_template("answer.html.j2").render(
            **{name: clean(getattr(self, name)) for name in ("title", "source", "answer", "recommendation")},
            simulated=self.simulated,
            advice=[clean(text) for text in self.advice],
            figures=[{k: clean(v) for k, v in vars(figure).items()} for figure in self.figures],
            pictures=[] if picture is None else [picture.to_svg(*size) for size in (WIDE, NARROW)],
            tones={mark.tone for mark in picture.marks} if picture else set(),
            squares=picture is not None and any(mark.square for mark in picture.marks),
            alerts=[(alert.kind, clean(alert.text)) for alert in self.alerts],
            columns=[clean(column) for column in self.table.columns],
            sections=[(clean(s.heading), [_row(row) for row in s.rows]) for s in self.table.sections],
            note=clean(self.table.note),
            folded=[_folded(part) for part in self.folded if not part.is_empty],
            terms={clean(term): (anchor(term), clean(text)) for term, text in self.terms.items()},
            policy=f"default-src 'none'; style-src '{asset_hash(style)}'; base-uri 'none'; form-action 'none'",
            style=Markup(style),  # noqa: S704 - our own file
        )

    def to_markdown(self) -> str:
        """Return the page as Markdown, without the picture: its numbers are in the table."""
        lines = [f"**{escape(self.source)}**", "", f"# {escape(self.title)}", ""]
        lines += [escape(self.answer), "", f"**{escape(self.recommendation)}**", ""]
        lines += _bullets([*self.advice, *(alert.text for alert in self.alerts)])
        lines += [*to_markdown(self.table.flat()), escape(self.table.note), ""]
        for part in self.folded:
            if part.is_empty:
                continue
            lines += [f"## {escape(part.title)}", "", *_bullets(part.sentences)]
            for table in part.tables:
                lines += to_markdown(table)
                lines += [escape(table.note), ""] if table.note else []
        lines += ["## Words", "", *_bullets([f"{term}: {text}" for term, text in self.terms.items()])]
        return "\n".join(lines).rstrip() + "\n"


def anchor(term: str) -> str:
    """Return the identifier of a term in the page.

    Examples
    --------
    >>> anchor("95 % interval")
    'term-95-interval'
    """
    return "term-" + re.sub(r"[^a-z0-9]+", "-", term.lower()).strip("-")


def _bullets(sentences: Sequence[str]) -> list[str]:
    return [*(f"- {escape(sentence)}" for sentence in sentences), ""] if sentences else []


def _row(row: RankedRow) -> dict[str, Any]:
    lines = [c.lines if isinstance(c, Cell) else (text_of(c),) for c in row.cells]
    return {
        "tone": row.tone,
        "sign": row.sign,
        "badge": clean(row.badge),
        "cells": [tuple(clean(line) for line in cell) for cell in lines],
    }


def _folded(part: Folded) -> dict[str, Any]:
    tables = [(clean(table.title), to_html(table), clean(table.note or "")) for table in part.tables]
    return {"title": clean(part.title), "sentences": [clean(s) for s in part.sentences], "tables": tables}
