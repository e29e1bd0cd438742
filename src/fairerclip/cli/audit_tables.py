"""The results of an audit as tables on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fairerclip._util.numbers import measured, significant
from fairerclip.cli.show import Table, plain_table
from fairerclip.metrics.names import (
    CHANCE,
    DEPENDENCE,
    DRIFT,
    FIGURES,
    PROBE,
    PROBES,
    REPRESENTATION,
    RETRIEVAL,
)
from fairerclip.report.clean_text import shorten
from fairerclip.report.estimates import EMBEDDINGS, difference, estimate, estimate_of, stage_names, stages

Results = Mapping[str, Any]
Names = Mapping[str, str]
SKEWS = ("max_skew", "ndkl")
"""Figures of rankings that a terminal has room for."""


def tables(results: Results) -> Iterator[Table]:
    """One table per section that the results have."""
    sections: dict[str, Callable[[Any, Names], Iterator[Table]]] = {
        "groups": _groups,
        "retrieval": _retrieval,
        "probes": _probes,
        "dependence": _dependence,
        "representation": _representation,
        "wording": _wording,
    }
    for name, make in sections.items():
        if results[name] is not None:
            yield from make(results[name], stage_names(results))


def _groups(section: Results, names: Names) -> Iterator[Table]:
    reports = {stage: section[stage] for stage in stages(section)}
    if not reports:
        return
    cells = {stage: {(g["y"], g["s"]): g for g in report["groups"]} for stage, report in reports.items()}
    changes = {(change["y"], change["s"]): change for change in section["group_changes"] or ()}
    every = {key: group for stage in reversed(cells) for key, group in cells[stage].items()}
    order = dict.fromkeys(key for stage in cells for key in cells[stage])
    rows = []
    for key in order:
        group = every[key]
        row = [f"{shorten(group['name'])}, n={group['n']}{' (small)' if group['small'] else ''}"]
        for found in (stage.get(key) for stage in cells.values()):
            row.append(estimate(found, key="accuracy"))
        rows.append([*row, *([difference(changes.get(key))] if changes else [])])
    columns = ["group", *(names[stage] for stage in reports), *(["change, points"] if changes else [])]
    yield plain_table("Accuracy by group [interval]", columns, rows)
    yield _figures(section, reports, names)


def _figures(section: Results, reports: Mapping[str, Results], names: Names) -> Table:
    changes = {change["figure"]: change for change in section["changes"] or ()}
    rows = []
    for name, figure in FIGURES.items():
        found = [estimate_of(report, name) for report in reports.values()]
        if all(f["value"] is None for f in found):
            continue
        row = [figure.label, *(estimate(f, figure.kind) for f in found)]
        rows.append([*row, *([difference(changes.get(name))] if changes else [])])
    columns = ["figure", *(names[stage] for stage in reports), *(["change, points"] if changes else [])]
    return plain_table("Figures [interval]; changes are paired", columns, rows)


def _retrieval(section: Results, names: Names) -> Iterator[Table]:
    there = stages(section["mean"])
    drifts = any(query["drift"] for query in section["queries"])
    skews, within = [RETRIEVAL[name] for name in SKEWS], DRIFT["spearman_within"]
    rows = []
    for query in [*section["queries"], {"name": "mean over prompts", "drift": None, **section["mean"]}]:
        row = [query["name"]]
        for stage in there:
            found = query[stage] or {}
            row += [estimate(found.get(name), RETRIEVAL[name].kind) for name in SKEWS]
        kept = query["drift"]["spearman_within"] if query["drift"] else None
        rows.append([*row, *([estimate(kept, within.kind) if kept else ""] if drifts else [])])
    columns = ["prompt", *(f"{figure.label}, {names[stage]}" for stage in there for figure in skews)]
    columns += [within.label] if drifts else []
    title = (
        f"Top {section['k']} of {section['n']} rows, reference {section['reference']}, ties {section['ties']}"
    )
    yield plain_table(title, columns, rows)


def _probes(section: Sequence[Results], _: Names) -> Iterator[Table]:
    rows = [
        [
            f"{row['attribute']}, {PROBES[row['probe']]}, {EMBEDDINGS[row['stage']]}",
            estimate(row, PROBE.kind),
            measured(row["chance"], CHANCE.kind),
            str(row["n"]),
        ]
        for row in section
    ]
    title = "How well the sensitive attribute can be read, out of fold [interval]"
    yield plain_table(title, ["probe", PROBE.label, CHANCE.label, "n"], rows)


def _dependence(section: Sequence[Results], names: Names) -> Iterator[Table]:
    rows = [
        [
            f"{DEPENDENCE[row['measure']].label}, {_whose(row, names)}, {row['attribute']}"
            + (f", given {row['given']}" if row["given"] else ""),
            estimate(row, DEPENDENCE[row["measure"]].kind),
            significant(row["p_value"]),
        ]
        for row in section
    ]
    yield plain_table("Dependence on the sensitive attribute", ["measure", "value [interval]", "p"], rows)


def _whose(row: Results, names: Names) -> str:
    return f"{names[row['stage']]} predictions" if row["of"] == "predictions" else EMBEDDINGS[row["stage"]]


def _representation(section: Sequence[Results], _: Names) -> Iterator[Table]:
    rows = [
        [row["space"], *(estimate(row[name], figure.kind) for name, figure in REPRESENTATION.items())]
        for row in section
    ]
    columns = ["embeddings", *(figure.label for figure in REPRESENTATION.values())]
    yield plain_table("Representation quality", columns, rows)


def _wording(section: Results, _: Names) -> Iterator[Table]:
    shown = {name: FIGURES[name] for name in ("average", "worst_group", "eod")}
    rows = []
    for place, row in enumerate(section["templates"]):
        mark = " (used)" if place == section["used"] else ""
        figures = [estimate(row[name], figure.column_kind) for name, figure in shown.items()]
        rows.append([f"{shorten(row['template'])}{mark}", *figures, row["worst_name"]])
    columns = ["wording", *(figure.column for figure in shown.values()), "worst group's name"]
    yield plain_table("Zero-shot over wordings of the prompts [interval]", columns, rows)
