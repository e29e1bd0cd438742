"""Functions that write results in the form that is asked for."""

from __future__ import annotations

from pathlib import Path

from fairerclip._util.files import atomic_file, check_folder, check_free
from fairerclip.auditing.results import AuditResults, write_results
from fairerclip.errors import ParameterError
from fairerclip.report.card import render_card
from fairerclip.report.csv_tables import write_csv
from fairerclip.report.markdown import render_markdown
from fairerclip.report.page import render_page

FORMATS = {"html": "html", "md": "md", "json": "json", "csv": "", "card": "md"}
"""Form → ending of its file; CSV tables are a folder."""
ENDINGS = {".html": ("html",), ".md": ("md", "card"), ".json": ("json",), ".csv": ("csv",), ".pdf": ()}
"""Ending → forms that may have it, the first by default."""


def choose_kind(kind: str | None, path: str | Path | None) -> str:
    """Return the form that is asked for, else the one of the output's ending, else html.

    Examples
    --------
    >>> choose_kind(None, "r.md"), choose_kind("card", "r.md"), choose_kind(None, None)
    ('md', 'card', 'html')
    """
    if kind is not None and kind not in FORMATS:
        raise ParameterError(f"format must be one of {', '.join(FORMATS)}; got {kind!r}")
    ending = "" if path is None else Path(path).suffix.lower()
    if kind is not None:
        if kind not in ENDINGS.get(ending, (kind,)):
            raise ParameterError(f"{path} ends in {ending}, which --format {kind} does not make: {_EXPECTED}")
        return kind
    if path is None:
        return "html"
    if ending == ".csv" or not ENDINGS.get(ending):
        raise ParameterError(f"the ending of {path} does not say which report to make: {_EXPECTED}")
    return ENDINGS[ending][0]


_EXPECTED = "a report ends in .html, .md or .json; csv is a folder: --format csv -o FOLDER"


def check_output(kind: str, path: str | Path, *, overwrite: bool) -> None:
    """Raise before any work if the form does not exist or the path cannot be written."""
    choose_kind(kind, path)
    (check_folder if kind == "csv" else check_free)(Path(path), overwrite)


def write_report(
    results: AuditResults,
    path: str | Path,
    kind: str | None = None,
    *,
    title: str | None = None,
    overwrite: bool = False,
) -> Path:
    """Write results as a page (html), Markdown (md), JSON, a folder of CSV tables, or a model card.

    Parameters
    ----------
    results : AuditResults
        From `fairerclip.auditing.run.audit_task` or `fairerclip.auditing.results.read_results`.
    path : str or Path
        The file, or for CSV the folder; it is written completely or not at all.
    kind : "html", "md", "json", "csv" or "card", optional
        Form of the report; by default that of the path's ending.
    title : str, optional
        Title of the page.
    overwrite : bool
        Replace existing output.
    """
    path, kind = Path(path), choose_kind(kind, path)
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
