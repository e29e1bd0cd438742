"""Results of an audit as a notebook shows them: the verdict and the groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from fairerclip._util.html_text import notebook_block, notebook_table, paragraph
from fairerclip._util.numbers import change, count, with_interval
from fairerclip.auditing.group_results import GroupsSection, present_stages

if TYPE_CHECKING:
    from fairerclip.auditing.results import AuditResults

WHOLE = "All sections: to_html(file) of the audit writes them as one page."


def results_html(results: AuditResults) -> str:
    """Return the verdict, its first sentence in bold, and a table of the groups, as HTML."""
    sentences = [paragraph(text, strong=k == 0) for k, text in enumerate(results.verdict)]
    groups = [] if results.groups is None else [_groups(results.groups)]
    return notebook_block(paragraph(f"Audit of {results.task.name}"), *sentences, *groups, paragraph(WHOLE))


def _groups(section: GroupsSection) -> Markup:
    """Return the accuracy of each group before and after, and its change."""
    stages = present_stages(section)
    names = {group.name: group.n for stage in stages.values() for group in stage.groups}
    scores = {
        stage: {group.name: with_interval(group.accuracy, group.low, group.high) for group in report.groups}
        for stage, report in stages.items()
    }
    changes = {
        group.name: change(group.difference, group.low, group.high) for group in section.group_changes or ()
    }
    heads = [f"accuracy {stage}" for stage in stages] + (["change, points"] if changes else [])
    columns = [*scores.values(), *([changes] if changes else [])]
    rows = [[name, count(n), *(column.get(name, "") for column in columns)] for name, n in names.items()]
    return notebook_table(["group", "rows", *heads], rows)
