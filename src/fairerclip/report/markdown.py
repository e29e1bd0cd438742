"""The results of an audit as Markdown: what was found first, then every section in tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fairerclip._util.numbers import NOTHING, measured, number, setting, significant, with_interval
from fairerclip.auditing.model_facts import about_model
from fairerclip.auditing.results import ModelSection
from fairerclip.metrics.names import FIGURES, figure_of
from fairerclip.report import markdown_sections as sections
from fairerclip.report.clean_text import cleaned, with_short_names
from fairerclip.report.command import MISSING, filled, known_command
from fairerclip.report.estimates import difference, estimate, estimate_of, stage_names, stages
from fairerclip.report.markdown_text import block, code, escape, table
from fairerclip.report.page_parts import fewest_rows, how_chosen, is_given

Results = Mapping[str, Any]
PLANE_FIGURES = ("average", "worst_group", "gap", "eod")
SIMULATED = "The embeddings are simulated: these figures say nothing about any real model."


def render_markdown(results: Results) -> str:
    """The whole of the results as one GitHub-flavoured Markdown document.

    Parameters
    ----------
    results : dict
        As `fairerclip.auditing.results.read_results` gives it. Sections that are null are left out.
    """
    results = presentable(results)
    lines = [f"# Audit of {escape(results['task']['name'])}", "", *_opening(results)]
    for title, section in SECTIONS:
        body = section(results)
        if body:
            lines += [f"## {title}", "", *body]
    return "\n".join(lines).rstrip("\n") + "\n"


def presentable(results: Results) -> Results:
    """Results to be shown: long names shortened, and no command but ours."""
    shown = dict(with_short_names(cleaned(results)))
    for section in ("plane", "model"):
        if results[section] is not None:
            shown[section] = {**shown[section], "command": known_command(results[section]["command"])}
    return shown


def _opening(results: Results) -> list[str]:
    task, settings = results["task"], results["settings"]
    rows = ", ".join(f"{escape(split)} {n}" for split, n in task["rows"].items())
    about = [f"{len(task['classes'])} classes", f"{len(task['groups'])} groups", f"rows: {rows}"]
    if settings["split"] is not None:
        about.append(f"figures are of the {escape(settings['split'])} split")
    lines = [f"**{SIMULATED}**", ""] if task["simulated"] else []
    lines += [f"{'; '.join(about)}. Brackets hold {confidence(results)} intervals.", ""]
    for sentence in results["verdict"]:
        lines += [escape(sentence), ""]
    findings = [f"- **{f['level'].capitalize()}:** {escape(f['text'])}" for f in results["findings"]]
    return [*lines, *findings, ""] if findings else lines


def confidence(results: Results) -> str:
    """How sure the intervals are, as text."""
    return f"{significant(100 * results['settings']['confidence'], 6)} %"


def accuracy_by_group(results: Results) -> list[str]:
    """Each group's accuracy before and after, with intervals and the paired difference."""
    section = results["groups"]
    there = stages(section)
    if not there:
        return []
    cells = [{(g["y"], g["s"]): g for g in section[stage]["groups"]} for stage in there]
    changes = {(c["y"], c["s"]): c for c in section["group_changes"] or []}
    every = {key: group for stage in cells for key, group in stage.items()}
    rows = []
    for key, group in every.items():
        row = [escape(group["name"]), f"{group['n']}{' (small)' if group['small'] else ''}"]
        row += [estimate(stage.get(key), key="accuracy") for stage in cells]
        rows.append([*row, *([difference(changes.get(key))] if changes else [])])
    header = ["group", "n", *(stage_names(results)[stage] for stage in there)]
    lines = table([*header, *(["change, points"] if changes else [])], rows)
    if any(group["small"] for group in every.values()):
        lines += [f"Small: fewer than {results['settings']['small']} rows; its interval says little.", ""]
    return lines


def summary_figures(results: Results) -> list[str]:
    """Average, worst group and differences between groups, before and after."""
    section = results["groups"]
    there = stages(section)
    if not there:
        return []
    changes = {c["figure"]: c for c in section["changes"] or []}
    rows = []
    for name, figure in FIGURES.items():
        found = [estimate_of(section[stage], name) for stage in there]
        if any(f["value"] is not None for f in found) or name in changes:
            row = [figure.label, *(estimate(f, figure.kind) for f in found)]
            rows.append([*row, *([difference(changes.get(name))] if changes else [])])
    header = ["figure", *(stage_names(results)[stage] for stage in there)]
    lines = table([*header, *(["change, points"] if changes else [])], rows)
    positive = section[there[-1]].get("positive")
    return lines if positive is None else [*lines, f"Equal opportunity is about {escape(positive)}.", ""]


def _groups(results: Results) -> list[str]:
    section = results["groups"]
    if not stages(section):
        return []
    lines, names = [*accuracy_by_group(results), *summary_figures(results)], stage_names(results)
    for stage in stages(section):
        lines += _recalls(section[stage], names[stage])
    for stage in stages(section):
        lines += _confusion(section[stage], names[stage])
    return [*lines, *_seeds(section["seeds"])]


def _recalls(report: Mapping[str, Any], stage: str) -> list[str]:
    if not report["differences"]:
        return []
    rows = [
        [escape(d["y"]), f"{escape(d['s'])} {NOTHING} {escape(d['reference'])}", difference(d)]
        for d in report["differences"]
    ]
    return [f"### Differences in recall, {stage}", "", *table(["class", "between", "points"], rows, left=2)]


def _confusion(report: Mapping[str, Any], stage: str) -> list[str]:
    rows = [
        [escape(value), escape(true), *map(str, counts)]
        for value, by_class in zip(report["sensitive"], report["confusion"], strict=False)
        for true, counts in zip(report["classes"], by_class, strict=False)
    ]
    header = ["value", "true class", *(f"as {escape(name)}" for name in report["classes"])]
    return [f"### Predictions counted, {stage}", "", *table(header, rows, left=2)]


def _seeds(seeds: Mapping[str, Any] | None) -> list[str]:
    if seeds is None:
        return []
    columns = ("mean", "sd", "smallest", "largest", "sampling_se")
    rows = []
    for found in seeds["figures"]:
        figure = figure_of(found["figure"], found["label"])
        kinds = [("gap" if c in ("sd", "sampling_se") else figure.kind) for c in columns]
        cells = [measured(found[c], kind) for c, kind in zip(columns, kinds, strict=True)]
        rows.append([escape(figure.label), *cells])
    header = ["figure", "mean", "standard deviation", "smallest", "largest", "sampling error"]
    note = f"Fitted with {seeds['n']} seeds; the sampling error is that of the test rows and is not part of this."
    return ["### Spread over seeds", "", note, "", *table(header, rows)]


def trade_off(results: Results) -> list[str]:
    """The chosen point, zero-shot and the front of the (τ, τ_z) plane."""
    plane = results["plane"]
    if plane is None:
        return []
    points, chosen = plane["points"], plane["points"][plane["chosen"]]
    failed = sum(point["failure"] is not None for point in points)
    how = how_chosen(results)
    by = "The point with → was not chosen on validation rows: these are the parameters as given."
    if how is not None:
        by = f"The point with → was chosen {escape(how)}."
    note = (
        f"{len(points)} points on the {escape(plane['split'])} split, {failed} without a solution. {by} "
        "The other points are those that none beats on both counts."
    )
    fewest = fewest_rows(results)
    if fewest is not None:
        note += f" The smallest group has {fewest} rows: a point chosen on so few rows is uncertain."
    rows = [["zero-shot", "", "", "", *_plane_row(plane, plane["baseline"])]] if plane["baseline"] else []
    for g in sorted({*plane["front"], plane["chosen"]}, key=lambda g: (points[g]["average"], g)):
        point = points[g]
        at = [setting(point["tau"]), setting(point["tau_z"]), escape(point["criterion"])]
        rows.append(["→" if g == plane["chosen"] else "", *at, *_plane_row(plane, point)])
    average, worst, gap, eod = (FIGURES[name].column for name in PLANE_FIGURES)
    header = ["", "τ", "τ_z", "criterion", average, worst, "in", gap, eod]
    return [note, "", *table(header, rows), *_command(plane["command"] and filled(plane["command"], chosen))]


def _plane_row(plane: Mapping[str, Any], point: Mapping[str, Any]) -> list[str]:
    worst = worst_of(plane, point)
    ends = (None, None) if worst is None else plane["intervals"][worst][str(point["correct"][worst])]
    shown = with_interval(point["worst_group"], *ends)
    name = NOTHING if worst is None else escape(plane["groups"][worst]["name"])
    average, gap, eod = (
        measured(point[figure], FIGURES[figure].column_kind) for figure in ("average", "gap", "eod")
    )
    return [average, shown, name, gap, eod]


def worst_of(plane: Mapping[str, Any], point: Mapping[str, Any]) -> int | None:
    """Which group of the plane has the lowest accuracy at a point; None where no group has rows."""
    shares = [
        (right / group["n"], i)
        for i, (right, group) in enumerate(zip(point["correct"], plane["groups"], strict=True))
        if group["n"]
    ]
    return min(shares)[1] if shares else None


def _limits(results: Results) -> list[str]:
    return [*(f"- {escape(limit)}" for limit in results["limits"]), ""] if results["limits"] else []


def how_made(results: Results) -> list[str]:
    """Versions, seed, digest, settings and the command that fits the same again."""
    made, task, settings, model = (results[k] for k in ("made", "task", "settings", "model"))
    versions = ", ".join(f"{name} {escape(made[name])}" for name in VERSIONS)
    took = "" if made["seconds"] is None else f" in {number(made['seconds'], 1)} s"
    lines = [f"- {versions}", f"- {escape(made['date'])}{took}", f"- task {code(task['digest'])}"]
    permuted = "" if settings["permutations"] is None else f"; {settings['permutations']} permutations"
    lines += [f"- seed {settings['seed']}{permuted}; {confidence(results)} intervals"]
    if model is None:
        return [*lines, ""]
    at = f"τ {setting(model['tau'])}, τ_z {setting(model['tau_z'])}, {escape(model['criterion'])}"
    used = "" if is_given(results) else f"; labels used: {escape(model['labels'])}"
    lines += [f"- {at}{used}; {escape(model['source'])}"]
    lines += [f"- {escape(sentence)}" for sentence in about_model(ModelSection.model_validate(model))]
    values = ", ".join(f"{code(name)}: {code(str(value))}" for name, value in model["parameters"].items())
    lines += [f"- parameters: {values}"] if values else []
    return [*lines, "", *([] if is_given(results) else _command(model["command"]))]


def _command(command: str | None) -> list[str]:
    return [MISSING, ""] if command is None else block(command, "sh")


VERSIONS = ("fairerclip", "python", "numpy", "scipy", "scikit-learn")
SECTIONS: tuple[tuple[str, Callable[[Results], list[str]]], ...] = (
    ("Groups", _groups),
    ("Scores", sections.scores),
    ("Picture", sections.picture),
    ("Trade-off", trade_off),
    ("Retrieval", sections.retrieval),
    ("What can be read from the embeddings", sections.probes),
    ("Dependence", sections.dependence),
    ("Wording of the prompts", sections.wording),
    ("Representation", sections.representation),
    ("What this does not show", _limits),
    ("How it was made", how_made),
)
