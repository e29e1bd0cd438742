"""A general page of tables and simple charts, which is written as Markdown, HTML or JSON.

All text is treated as hostile: hidden characters are replaced, and it is escaped. Charts are drawn from numbers alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from markupsafe import Markup
from pydantic import ConfigDict

from fairerclip._util.clean_text import clean
from fairerclip._util.markdown_text import escape
from fairerclip.report.assets import asset, asset_hash, template_environment
from fairerclip.report.document_charts import Curves, Heatmap
from fairerclip.report.result_table import ResultTable, to_html, to_markdown


@dataclass(frozen=True)
class Document:
    """A page of tables and charts; pydantic reads and writes it as JSON, with the cells of its tables as text.

    Attributes
    ----------
    title : str
        Heading of the page.
    source : str
        Sentence that says which data the figures come from; the first line of every form.
    notes : sequence of str
        Sentences above the tables.
    tables, heatmaps, curves : sequence of ResultTable, of Heatmap, of Curves
        Contents of the page, in order.

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
        """Return the page as Markdown, without the charts: their numbers are in the tables."""
        lines = [f"**{escape(self.source)}**", "", f"# {escape(self.title)}", ""]
        lines += [f"- {escape(note)}" for note in self.notes]
        lines += [""] if self.notes else []
        for table in self.tables:
            lines += [f"## {escape(table.title)}", "", *to_markdown(table)]
            lines += [escape(table.note), ""] if table.note else []
        return "\n".join(lines).rstrip() + "\n"

    def to_html(self) -> str:
        """Return one self-contained HTML page without scripts or requests; its policy allows only its own style."""
        style = asset("document.css")
        drawn: list[Heatmap | Curves] = [*self.heatmaps, *self.curves]
        charts = [chart for chart in drawn if not chart.is_empty]
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
