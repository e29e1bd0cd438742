"""A page of tables and simple charts, as Markdown, as HTML and as JSON; it knows nothing of what they are about.

All text is taken to be hostile: it is stripped of hidden characters and escaped. Charts are drawn from numbers alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from markupsafe import Markup
from pydantic import ConfigDict

from fairerclip.report.assets import asset, asset_hash, template_environment
from fairerclip.report.clean_text import clean
from fairerclip.report.document_charts import Curves, Heatmap
from fairerclip.report.markdown_text import escape
from fairerclip.report.result_table import ResultTable, to_html, to_markdown


@dataclass(frozen=True)
class Document:
    """A page; pydantic writes it as JSON, with the cells of its tables as text, and reads it.

    Attributes
    ----------
    title : str
    source : what the figures rest on, in a sentence; the first line of every form.
    notes : sentences above the tables.
    tables, heatmaps, curves : what there is, in order.

    Examples
    --------
    >>> page = Document("A page", "Simulated data.", [], [ResultTable("Rows", ["name", "n"], [["a|b", 3]])])
    >>> print(page.to_markdown().splitlines()[0])
    **Simulated data.**
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    title: str
    source: str
    notes: Sequence[str]
    tables: Sequence[ResultTable]
    heatmaps: Sequence[Heatmap] = ()
    curves: Sequence[Curves] = ()

    def to_markdown(self) -> str:
        """Markdown; charts are left to the page, their numbers are in the tables."""
        lines = [f"**{escape(self.source)}**", "", f"# {escape(self.title)}", ""]
        lines += [f"- {escape(note)}" for note in self.notes]
        lines += [""] if self.notes else []
        for table in self.tables:
            lines += [f"## {escape(table.title)}", "", *to_markdown(table)]
            lines += [escape(table.note), ""] if table.note else []
        return "\n".join(lines).rstrip() + "\n"

    def to_html(self) -> str:
        """One self-contained page: no script, no request; its policy names the one style it holds."""
        style = asset("document.css")
        every: list[Heatmap | Curves] = [*self.heatmaps, *self.curves]
        charts = [chart for chart in every if not chart.is_empty]
        environment = template_environment("document.html.j2")
        return environment.get_template("document.html.j2").render(
            title=clean(self.title),
            source=clean(self.source),
            notes=[clean(note) for note in self.notes],
            charts=[(clean(chart.title), chart.to_svg()) for chart in charts],
            tables=[(clean(table.title), to_html(table), clean(table.note or "")) for table in self.tables],
            policy=f"default-src 'none'; style-src '{asset_hash(style)}'; base-uri 'none'; form-action 'none'",
            style=Markup(style),  # noqa: S704 - our own file
        )
