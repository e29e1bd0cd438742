"""Tables of results, and functions that write them as Markdown, HTML or text of a terminal.

Cells hold numbers and unescaped text. Only these functions format numbers, through `fairerclip._util.numbers`, and
escape text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from markupsafe import Markup
from pydantic import ConfigDict, InstanceOf, PlainSerializer
from pydantic.json_schema import SkipJsonSchema

from fairerclip._util import html_text
from fairerclip._util.markdown_text import escape
from fairerclip._util.markdown_text import table as markdown_table
from fairerclip._util.numbers import NOTHING, Kind, interval, measured, significant
from fairerclip.errors import ParameterError


@dataclass(frozen=True)
class Cell:
    """A number with its interval and its spread over seeds.

    Attributes
    ----------
    value : float or None
        None is shown as a dash.
    kind : Kind
        How `fairerclip._util.numbers.measured` formats it.
    low, high : float or None
        Ends of its interval; both None where there is none.
    sd : float or None
        Standard deviation over seeds.

    Examples
    --------
    >>> Cell(0.8125, "bare", 0.54, 0.96, sd=0.01).text
    '81.3 ± 1.0 [54.0, 96.0]'
    """

    value: float | None
    kind: Kind
    low: float | None = None
    high: float | None = None
    sd: float | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        """The figure with its spread, and, where it has one, its interval."""
        if self.value is None:
            return (NOTHING,)
        spread = "" if self.sd is None else f" ± {measured(self.sd, self.kind)}"
        ends = interval(self.low, self.high, self.kind)
        figure = measured(self.value, self.kind) + spread
        return (figure, ends) if ends else (figure,)

    @property
    def text(self) -> str | None:
        """The value with spread and interval in one line; None where there is no value."""
        return None if self.value is None else " ".join(self.lines)


Content = Annotated[
    SkipJsonSchema[InstanceOf[Cell]] | str | int | float | None,
    PlainSerializer(lambda content: content.text if isinstance(content, Cell) else content),
]
"""Content of a table cell: a `Cell` (text in JSON), text, a number with four significant digits, or nothing."""
_FIGURE = re.compile(r"(?:[0-9 \u00a0.,+−–±∞%\[\]]|points|e-)*")


@dataclass(frozen=True)
class ResultTable:
    """Rows of cells in the order of the columns.

    Attributes
    ----------
    title : str
        Line above the table.
    columns : sequence of str
        Heads of the columns.
    rows : sequence of sequences of `Content`
        Cells of each row.
    note : str or None
        Line below the table.
    left : int
        Number of first columns that are flushed left; the others hold numbers.

    Examples
    --------
    >>> table = ResultTable("Accuracy", ["group", "%"], [["blond", Cell(0.5, "bare")], ["dark", None]])
    >>> to_markdown(table)
    ['| group | % |', '| :-- | --: |', '| blond | 50.0 |', '| dark | – |', '']
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Content]]
    note: str | None = None
    left: int = 1

    def __post_init__(self) -> None:
        wrong = [len(row) for row in self.rows if len(row) != len(self.columns)]
        if wrong:
            raise ParameterError(
                f"table {self.title!r} has {len(self.columns)} columns, but a row of {wrong[0]} cells"
            )


def text_of(content: Content) -> str:
    """Return the content of a table cell as one line.

    Examples
    --------
    >>> text_of(None), text_of(0.123456), text_of(12), text_of("x"), text_of(Cell(0.5, "bare", 0.4, 0.6))
    ('–', '0.1235', '12', 'x', '50.0 [40.0, 60.0]')
    """
    content = content.text if isinstance(content, Cell) else content
    if content is None:
        return NOTHING
    return significant(content, 4) if isinstance(content, float) else str(content)


def to_markdown(table: ResultTable) -> list[str]:
    """Return the Markdown lines of a table without title and note, with an empty line at the end."""
    texts = [[text_of(content) for content in row] for row in table.rows]
    # Figures hold no sign that Markdown would read as markup.
    rows = [[text if _FIGURE.fullmatch(text) else escape(text) for text in row] for row in texts]
    return markdown_table([escape(column) for column in table.columns], rows, table.left)


def to_html(table: ResultTable) -> Markup:
    """Return the ``table`` element; the first cell of a row is its head, and numbers have the class ``n``."""
    rows = [[text_of(content) for content in row] for row in table.rows]
    return html_text.table(table.columns, rows, left=table.left)


def to_terminal(table: ResultTable) -> list[list[tuple[str, ...]]]:
    """Return rows for `fairerclip.cli.show.plain_table`: a cell is a tuple of lines, a number above its interval."""
    return [[c.lines if isinstance(c, Cell) else (text_of(c),) for c in row] for row in table.rows]
