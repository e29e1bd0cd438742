"""A page of tables and simple charts, as Markdown, as HTML and as JSON; it knows nothing of what they are about.

All text is taken to be hostile: it is stripped of hidden characters and escaped. Charts are drawn from numbers alone.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from fairerclip._util.numbers import NOTHING, significant
from fairerclip.errors import ParameterError
from fairerclip.report.clean_text import cleaned
from fairerclip.report.document_charts import curves_svg, heatmap_svg
from fairerclip.report.markdown_text import escape, table


@dataclass(frozen=True)
class DocumentTable:
    """A table: rows of cells in the order of the columns; None is shown as a dash.

    Attributes
    ----------
    title, note : str
        Above and below it; the note may be left out.
    columns : sequence of str
    rows : sequence of sequences of str, int, float or None
    left : how many of the first columns are flushed left; the rest are numbers.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str | None = None
    left: int = 1

    def __post_init__(self) -> None:
        wrong = [len(row) for row in self.rows if len(row) != len(self.columns)]
        if wrong:
            raise ParameterError(
                f"table {self.title!r} has {len(self.columns)} columns, but a row of {wrong[0]} cells"
            )


@dataclass(frozen=True)
class Heatmap:
    """Numbers (rows, columns) as shades, with what the axes stand for; None is left blank."""

    title: str
    x_title: str
    x: Sequence[float]
    y_title: str
    y: Sequence[float]
    values: Sequence[Sequence[float | None]]

    def __post_init__(self) -> None:
        if len(self.values) != len(self.y) or any(len(row) != len(self.x) for row in self.values):
            raise ParameterError(f"heat map {self.title!r} needs {len(self.y)} rows of {len(self.x)} values")


@dataclass(frozen=True)
class Curves:
    """Lines through points (x, y) by name, or points alone."""

    title: str
    x_title: str
    y_title: str
    series: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class Document:
    """A page.

    Attributes
    ----------
    title : str
    source : what the figures rest on, in a sentence; the first line of every form.
    notes : sentences above the tables.
    tables, heatmaps, curves : what there is, in order.

    Examples
    --------
    >>> page = Document("A page", "Simulated data.", [], [DocumentTable("Rows", ["name", "n"], [["a|b", 3]])])
    >>> print(page.to_markdown().splitlines()[0])
    **Simulated data.**
    >>> Document.from_dict(page.as_dict()).to_markdown() == page.to_markdown()
    True
    """

    title: str
    source: str
    notes: Sequence[str]
    tables: Sequence[DocumentTable]
    heatmaps: Sequence[Heatmap] = ()
    curves: Sequence[Curves] = ()

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        plain = asdict(self)
        for entry in plain["curves"]:
            entry["series"] = {name: [list(p) for p in points] for name, points in entry["series"].items()}
        return dict(_listed(plain))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Document:
        """What `as_dict` gave."""
        try:
            return cls(
                title=str(content["title"]),
                source=str(content["source"]),
                notes=[str(note) for note in content["notes"]],
                tables=[DocumentTable(**entry) for entry in content["tables"]],
                heatmaps=[Heatmap(**entry) for entry in content.get("heatmaps", ())],
                curves=[Curves(**entry) for entry in content.get("curves", ())],
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ParameterError(f"this is not a document that as_dict wrote: {error}") from None

    def to_markdown(self) -> str:
        """Markdown; charts are left to the page, their numbers are in the tables."""
        lines = [f"**{escape(self.source)}**", "", f"# {escape(self.title)}", ""]
        lines += [f"- {escape(note)}" for note in self.notes]
        lines += [""] if self.notes else []
        for entry in self.tables:
            lines += [f"## {escape(entry.title)}", ""]
            rows = [[escape(shown(cell)) for cell in row] for row in entry.rows]
            lines += table([escape(c) for c in entry.columns], rows, entry.left)
            lines += [escape(entry.note), ""] if entry.note else []
        return "\n".join(lines).rstrip() + "\n"

    def to_html(self) -> str:
        """One self-contained page: no script, no request; its policy names the one style it holds."""
        style = _asset("document.css")
        page = cleaned(self.as_dict())
        for entry in page["tables"]:
            entry["rows"] = [[shown(cell) for cell in row] for row in entry["rows"]]
        heatmaps = [
            (entry["title"], heatmap_svg(entry))
            for entry in page["heatmaps"]
            if any(v is not None for row in entry["values"] for v in row)
        ]
        curves = [
            (entry["title"], curves_svg(entry)) for entry in page["curves"] if any(entry["series"].values())
        ]
        environment = Environment(
            loader=DictLoader({"document.html.j2": _asset("document.html.j2")}),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        return environment.get_template("document.html.j2").render(
            page=page,
            charts=[*heatmaps, *curves],
            policy=f"default-src 'none'; style-src '{_digest(style)}'; base-uri 'none'; form-action 'none'",
            style=Markup(style),  # noqa: S704 - our own file
        )


def shown(cell: Any) -> str:
    """A cell as text: None is a dash, a number has four significant digits at most.

    Examples
    --------
    >>> shown(None), shown(0.123456), shown(12), shown("x")
    ('–', '0.1235', '12', 'x')
    """
    if cell is None:
        return NOTHING
    return significant(cell, 4) if isinstance(cell, float) else str(cell)


def _listed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _listed(item) for name, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value


def _asset(name: str) -> str:
    # Browsers hash the text with line feeds alone, whatever the checkout made of them.
    return (files(__package__) / "templates" / name).read_text(encoding="utf-8").replace("\r\n", "\n")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
