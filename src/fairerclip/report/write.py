"""Results written in the form that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairerclip.audit.results import write_results
from fairerclip.errors import ParameterError
from fairerclip.files import atomic_file, check_free
from fairerclip.report.card import render_card
from fairerclip.report.csv_tables import write_csv
from fairerclip.report.markdown import render_markdown
from fairerclip.report.page import render_page

FORMATS = {"html": "html", "md": "md", "json": "json", "csv": "", "card": "md"}
"""Form → ending of its file; CSV tables are a folder."""


def check_output(kind: str, path: Path, *, overwrite: bool) -> None:
    """Refuse a form that there is not, and a path that is taken, before the work is done."""
    if kind not in FORMATS:
        raise ParameterError(f"format must be one of {', '.join(FORMATS)}; got {kind!r}")
    check_free(path, overwrite)


def write_report(
    results: Mapping[str, Any],
    path: Path,
    kind: str = "html",
    *,
    title: str | None = None,
    overwrite: bool = False,
) -> Path:
    """Write results as a page (html), Markdown (md), JSON, a folder of CSV tables, or a model card.

    Parameters
    ----------
    results : mapping
        From `fairerclip.audit.task.audit_task` or `fairerclip.audit.results.read_results`.
    path : Path
        The file, or for CSV the folder; it appears whole or not at all.
    kind : "html", "md", "json", "csv" or "card"
    title : str, optional
        Of the page.
    overwrite : bool
        Replace what is there.
    """
    check_output(kind, path, overwrite=overwrite)
    if kind == "json":
        return write_results(results, path, overwrite=overwrite)
    if kind == "csv":
        write_csv(results, path, overwrite=overwrite)
        return path
    if kind == "html":
        text = render_page(results, title=title)
    else:
        text = render_markdown(results) if kind == "md" else render_card(results)
    with atomic_file(path, overwrite=overwrite) as handle:
        handle.write(text.encode())
    return path
