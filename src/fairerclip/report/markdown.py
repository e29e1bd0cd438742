"""Functions that write the results of an audit as Markdown: findings first, then a section of tables each."""

from __future__ import annotations

from collections.abc import Sequence

from fairerclip._util.markdown_text import block, code, escape
from fairerclip._util.numbers import number, setting
from fairerclip.auditing.group_results import present_stages
from fairerclip.auditing.model_facts import subject
from fairerclip.auditing.model_results import ModelSection
from fairerclip.auditing.recommendation import recommend
from fairerclip.auditing.results import AuditResults
from fairerclip.report import tables
from fairerclip.report.command import MISSING, filled, known_command
from fairerclip.report.phrases import (
    EMBEDDINGS,
    SIMULATED,
    about_model,
    confidence,
    is_given,
    people,
    presentable,
    versions,
)
from fairerclip.report.query_tables import query_tables
from fairerclip.report.result_table import ResultTable, to_markdown


def render_markdown(results: AuditResults) -> str:
    """Return all results as one GitHub-flavoured Markdown document; sections that are None are left out."""
    results = presentable(results)
    lines = [f"# Audit of {escape(results.task.name)}", "", *_opening(results)]
    groups = [*tables.accuracy_tables(results), *tables.error_tables(results)]
    sections = {
        "Groups": tables_with_notes(groups),
        "Scores": tables_with_notes([*tables.score_tables(results), *tables.auc_tables(results)]),
        "Picture": _picture(results),
        "Trade-off": trade_off(results),
        "Retrieval": retrieval(results),
        "Free queries": tables_with_notes(query_tables(results)),
        "Predicting the sensitive attribute": tables_with_notes(tables.probe_tables(results)),
        "Dependence": tables_with_notes(tables.dependence_tables(results)),
        "Wording of the prompts": tables_with_notes(tables.wording_tables(results)),
        "Representation": tables_with_notes(tables.representation_tables(results)),
        "What this does not show": bullets(results.limits),
        "The people in the images": bullets(people(results)),
        "How it was made": how_made(results),
    }
    for title, body in sections.items():
        lines += [f"## {title}", "", *body] if body else []
    return "\n".join(lines).rstrip("\n") + "\n"


def tables_with_notes(shown: Sequence[ResultTable]) -> list[str]:
    """Return the lines of tables with their notes, and with their titles if there are several."""
    lines = []
    for table in shown:
        lines += [f"### {escape(table.title)}", ""] if len(shown) > 1 else []
        lines += [*to_markdown(table), *([escape(table.note), ""] if table.note else [])]
    return lines


def bullets(sentences: Sequence[str]) -> list[str]:
    """Return the lines of a list of sentences; none for no sentences."""
    return [*(f"- {escape(sentence)}" for sentence in sentences), ""] if sentences else []


def findings(results: AuditResults, *levels: str) -> list[str]:
    """Return the lines of a list of the findings with these levels."""
    return [
        f"- **{finding.level.capitalize()}:** {escape(finding.text)}"
        for finding in results.findings
        if finding.level in levels
    ]


def _opening(results: AuditResults) -> list[str]:
    task, split = results.task, results.settings.split
    rows = ", ".join(f"{escape(name)} {n}" for name, n in task.rows.items())
    about = [f"{len(task.classes)} classes", f"{len(task.groups)} groups", f"rows: {rows}"]
    about += [] if split is None else [f"figures are of the {escape(split)} split"]
    lines = [f"**{SIMULATED}**", ""] if task.simulated else []
    lines += [f"{'; '.join(about)}. Brackets hold {confidence(results)} intervals.", ""]
    answer = recommend(results)
    lines += [escape(answer.sentence), "", f"**{escape(answer.advice)}**", ""]
    listed = findings(results, "problem", "good", "caution", "note")
    return [*lines, *listed, ""] if listed else lines


def _picture(results: AuditResults) -> list[str]:
    sentences = [
        f"{EMBEDDINGS[stage]}, {sum(cell[3] for cell in part.cells)} rows: {part.x_label}; {part.y_label}"
        + (f" ({part.note})" if part.note else "")
        for stage, part in present_stages(results.picture).items()
    ]
    return (
        [*bullets(sentences), "The HTML page and the figures show it as a picture.", ""] if sentences else []
    )


def trade_off(results: AuditResults) -> list[str]:
    """Return lines with the table of the (τ, τ_z) plane and the command that fits the chosen point."""
    plane = results.plane
    if plane is None:
        return []
    template = known_command(plane.command)
    chosen = template and filled(template, plane.points[plane.chosen])
    return [*tables_with_notes(tables.trade_off_tables(results)), *_command(chosen)]


def retrieval(results: AuditResults) -> list[str]:
    """Return Markdown lines: each prompt with a table of its top results."""
    queries = results.retrieval.queries if results.retrieval else ()
    shown = [*tables.ranking_tables(results), *tables.composition_tables(results)]
    return [*bullets([f"{query.name}: {query.prompt}" for query in queries]), *tables_with_notes(shown)]


def how_made(results: AuditResults) -> list[str]:
    """Return lines with versions, seed, digest, settings and the command that fits the same model again."""
    made, settings, model = results.made, results.settings, results.model
    took = "" if made.seconds is None else f" in {number(made.seconds, 1)} s"
    permuted = "" if settings.permutations is None else f"; {settings.permutations} permutations"
    lines = [
        f"- {', '.join(f'{name} {escape(version)}' for name, version in versions(results).items())}",
        f"- {escape(made.date)}{took}",
        f"- task {code(results.task.digest)}",
        f"- seed {settings.seed}{permuted}; {confidence(results)} intervals",
    ]
    if model is None:
        return [*lines, ""]
    at = strengths(model) or escape(subject(model))
    used = "" if is_given(results) else f"; labels used: {model.labels}"
    lines += [f"- {at}{used}; {escape(model.source)}", *(f"- {escape(s)}" for s in about_model(results))]
    values = ", ".join(f"{code(name)}: {code(str(value))}" for name, value in model.parameters.items())
    lines += [f"- parameters: {values}"] if values else []
    return [*lines, "", *([] if is_given(results) else _command(known_command(model.command)))]


def strengths(model: ModelSection) -> str | None:
    """Return the strengths of FairerCLIP; None for a baseline, which has none."""
    if model.tau is None or model.tau_z is None or model.criterion is None:
        return None
    return f"τ {setting(model.tau)}, τ_z {setting(model.tau_z)}, {escape(model.criterion)}"


def _command(command: str | None) -> list[str]:
    return [MISSING, ""] if command is None else block(command, "sh")
