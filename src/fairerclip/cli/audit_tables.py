"""The results of an audit as tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from fairerclip.auditing.results import AuditResults
from fairerclip.cli.show import Table, plain_table
from fairerclip.report.result_table import text_of
from fairerclip.report.tables import overview


def tables(results: AuditResults) -> Iterator[Table]:
    """Yield a table for each section of the results that a terminal has room for."""
    for table in overview(results):
        rows = [[text_of(content) for content in row] for row in table.rows]
        yield plain_table(table.title, table.columns, rows, left=range(table.left))
