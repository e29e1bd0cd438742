"""Every form of results that tests hold, and change, as JSON."""

import io

from rich.console import Console

from fairerclip.auditing.results import check_results
from fairerclip.cli import show
from fairerclip.report import card, csv_tables, markdown, page
from fairerclip.report.figures import draw, drawings
from fairerclip.report.tables import overview


def typed(form):
    """A form that takes JSON."""

    def made(results, *arguments, **options):
        return form(check_results(results), *arguments, **options)

    return made


render_page, render_markdown = typed(page.render_page), typed(markdown.render_markdown)
render_card, metadata = typed(card.render_card), typed(card.metadata)
csv_rows, write_csv = typed(csv_tables.csv_rows), typed(csv_tables.write_csv)
draw_figures = typed(draw.draw_figures)
DRAWINGS = {name: typed(drawing) for name, drawing in drawings.DRAWINGS.items()}


def terminal(results, width=400):
    """What a terminal of some width shows."""
    console = Console(width=width, file=io.StringIO())
    for table in map(show.rendered, overview(check_results(results))):
        console.print(table)
    return console.file.getvalue()


def squeezed(text):
    """The text with single spaces, as a browser shows it."""
    return " ".join(text.split())
