"""A group report as a notebook shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairerclip._util.html_text import notebook_block, notebook_table, paragraph
from fairerclip._util.numbers import count, percent, rounded, with_interval
from fairerclip.metrics.names import FIGURES

if TYPE_CHECKING:
    from fairerclip.metrics.groups.group_report import GroupReport


def report_html(report: GroupReport) -> str:
    """Return the accuracy of each group, lowest first, and all figures with their intervals, as HTML."""
    dropped = f"; {count(report.dropped)} more without a label" if report.dropped else ""
    title = (
        f"Accuracy by group on {count(report.n)} rows{dropped}: average {percent(report.average)}, "
        f"worst group {report.worst.name} {percent(report.worst_group)}"
    )
    groups = [
        [
            group.name + (" (few rows)" if group.small else ""),
            count(group.n),
            with_interval(group.accuracy, group.low, group.high),
        ]
        for group in sorted(report.groups, key=lambda group: group.accuracy)
    ]
    figures = [
        [figure.label, with_interval(value, *report.intervals[name], kind=figure.kind)]
        for name, figure in FIGURES.items()
        if (value := getattr(report, name)) is not None
    ]
    level = f"{rounded(report.confidence, 0, shift=2)} % interval"
    return notebook_block(
        paragraph(title, strong=True),
        notebook_table(["group", "rows", f"accuracy, {level}"], groups),
        notebook_table(["figure", f"value, {level}"], figures),
        *([paragraph(f"Groups without rows: {', '.join(report.empty)}")] if report.empty else []),
    )
