"""Sections of the Markdown report beside accuracy by group and the trade-off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from fairerclip._util.numbers import NOTHING, count, number, percent
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
from fairerclip.report.estimates import EMBEDDINGS, difference, estimate, stage_names, stages, with_p_value
from fairerclip.report.markdown_text import escape, table

Results = Mapping[str, Any]


def scores(results: Results) -> list[str]:
    """Where each group's scores lie, before and after."""
    section = results["scores"]
    rows = []
    for stage in stages(section):
        histogram = section[stage]
        for group in histogram["groups"]:
            at = [number(_quantile(histogram["edges"], group["counts"], q)) for q in (0.1, 0.5, 0.9)]
            right = percent(_right_of(histogram, group["counts"]))
            who = stage_names(results)[stage]
            rows.append([escape(group["name"]), who, str(group["n"]), *at, right])
    if not rows:
        return []
    note = f"{escape(section['label'])}; read from a histogram, so to within the width of a bin."
    header = ["group", "", "n", "10 %", "median", "90 %", "right of the threshold"]
    return [note, "", *table(header, rows, left=2)]


def _quantile(edges: Sequence[float], counts: Sequence[int], q: float) -> float | None:
    """The middle of the bin in which the quantile lies."""
    total = sum(counts)
    for i, reached in enumerate(accumulate(counts)):
        if reached and reached >= q * total:
            return (edges[i] + edges[i + 1]) / 2
    return None


def _right_of(histogram: Mapping[str, Any], counts: Sequence[int]) -> float | None:
    threshold, total = histogram["threshold"], sum(counts)
    if threshold is None or not total:
        return None
    edges = histogram["edges"]
    right = sum(
        n for n, (low, high) in zip(counts, pairwise(edges), strict=True) if (low + high) / 2 > threshold
    )
    return right / total


def picture(results: Results) -> list[str]:
    """What the picture's axes are."""
    section = results["picture"]
    lines = []
    for stage in stages(section):
        part = section[stage]
        rows = sum(cell[3] for cell in part["cells"])
        note = f" ({escape(part['note'])})" if part["note"] else ""
        axes = f"{escape(part['x_label'])}; {escape(part['y_label'])}"
        lines.append(f"- {EMBEDDINGS[stage]}, {rows} rows: {axes}{note}")
    return [*lines, "", "The page and the figures show it.", ""] if lines else []


def retrieval(results: Results) -> list[str]:
    """Who is shown for each prompt, before and after."""
    section = results["retrieval"]
    if section is None:
        return []
    note = (
        f"The first {section['k']} of {section['n']} rows of the {escape(section['split'])} split for each prompt; "
        f"compared with the shares of the {escape(section['reference'])}. A MinSkew of {NOTHING} means that a group "
        "is not shown at all."
    )
    lines, names = [note, ""], stage_names(results)
    for query in section["queries"]:
        lines += [f"### {escape(query['name'])}", "", escape(query["prompt"]), ""]
        lines += [*_shown(section, query, names), *_skews(query, names)]
        if query["drift"]:
            drift = [
                [figure.label, estimate(query["drift"][name], figure.kind)] for name, figure in DRIFT.items()
            ]
            lines += table(["what moved", "[interval]"], drift)
    return [
        *lines,
        *(["### Mean over prompts", "", *_skews(section["mean"], names)] if section["queries"] else []),
    ]


def _shown(section: Mapping[str, Any], query: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    there = stages(query)
    rows = [
        [escape(group), percent(share_), *(count(query[stage]["counts"][g]) for stage in there)]
        for g, (group, share_) in enumerate(zip(section["groups"], section["shares"], strict=True))
    ]
    header = ["group", "of all", *(f"shown, {names[stage]}" for stage in there)]
    return table(header, rows) if there else []


def _skews(part: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    there = stages(part)
    rows = []
    for name, figure in RETRIEVAL.items():
        found = [part[stage][name] for stage in there]
        if any(found):
            row = [figure.label, *(estimate(f, figure.kind) for f in found)]
            if part["changes"]:
                row.append(difference(part["changes"].get(name), figure.change_kind))
            rows.append(row)
    header = ["", *(names[stage] for stage in there), *(["change"] if part["changes"] else [])]
    return table(header, rows) if rows else []


def probes(results: Results) -> list[str]:
    """How well the attribute can be read from the embeddings."""
    rows = [
        [
            escape(p["attribute"]),
            PROBES[p["probe"]],
            EMBEDDINGS[p["stage"]],
            estimate(p, PROBE.kind),
            percent(p["chance"]),
            str(p["n"]),
        ]
        for p in results["probes"] or []
    ]
    header = ["attribute", "probe", "embeddings", PROBE.label, CHANCE.label, "n"]
    note = "How well a classifier reads the attribute from the embeddings, on rows it was not fitted on."
    return [note, "", *table(header, rows, left=3)] if rows else []


def dependence(results: Results) -> list[str]:
    """How far predictions and embeddings depend on the attribute."""
    rows = [
        [
            stage_names(results)[d["stage"]],
            d["of"],
            escape(d["attribute"]),
            NOTHING if d["given"] is None else escape(d["given"]),
            DEPENDENCE[d["measure"]].label,
            with_p_value(d, DEPENDENCE[d["measure"]].kind),
            str(d["n"]),
        ]
        for d in results["dependence"] or []
    ]
    header = ["", "of", "on", "within class", "measure", "value", "n"]
    note = f"p-values are of {results['settings']['permutations']} permutations."
    return [note, "", *table(header, rows, left=5)] if rows else []


def wording(results: Results) -> list[str]:
    """What other words for the prompts would do."""
    section = results["wording"]
    if section is None or not section["templates"]:
        return []
    average, worst, eod = (FIGURES[name] for name in ("average", "worst_group", "eod"))
    rows = [
        [
            f"{'→ ' if i == section['used'] else ''}{escape(t['template'])}",
            estimate(t["average"], average.column_kind),
            estimate(t["worst_group"], worst.column_kind),
            escape(t["worst_name"]),
            estimate(t["eod"], eod.column_kind),
        ]
        for i, t in enumerate(section["templates"])
    ]
    note = f"Zero-shot with other words, on the {escape(section['split'])} split; → is what the task uses."
    return [note, "", *table(["template", average.column, worst.column, "in", eod.column], rows)]


def representation(results: Results) -> list[str]:
    """HSIC and KCC of each space with the target and the sensitive attribute."""
    rows = [
        [
            EMBEDDINGS[r["stage"]],
            escape(r["space"]),
            *(with_p_value(r[name], figure.kind) for name, figure in REPRESENTATION.items()),
        ]
        for r in results["representation"] or []
    ]
    header = ["", "space", *(figure.label for figure in REPRESENTATION.values())]
    return table(header, rows, left=2) if rows else []
