"""Functions that draw one figure each: results in, a matplotlib figure or None (nothing to draw) out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairerclip._util.numbers import with_interval
from fairerclip.auditing.group_results import Measured, ScoreHistogram, Stage, present_stages
from fairerclip.auditing.results import AuditResults, DependenceRow, ProbeRow
from fairerclip.metrics.names import CHANCE, DEPENDENCE, FIGURES, PROBE, PROBES, RETRIEVAL
from fairerclip.report.figures.drawing_parts import (
    COLOURS,
    COLUMN,
    MOST_LINES,
    MOST_ROWS,
    PAGE,
    PART_STYLES,
    STAGE_STYLES,
    Estimate,
    Row,
    dots,
    folded,
    left_out,
    legend,
    line,
    new_figure,
    patch,
    short,
    stage_legend,
)
from fairerclip.report.figures.drawings_picture import draw_picture
from fairerclip.report.figures.drawings_plane import draw_front, draw_plane
from fairerclip.report.phrases import EMBEDDINGS, confidence, stage_names
from fairerclip.report.stage_rows import group_rows

THRESHOLD = {"color": "#555555", "linestyle": ":", "linewidth": 0.9}


def draw_groups(results: AuditResults) -> Any:
    """Draw the accuracy of each group before and after, with intervals and the averages."""
    reports, groups = present_stages(results.groups), group_rows(results.groups)
    if not reports:
        return None
    lowest = sorted(groups, key=lambda row: min(estimate.value or 0.0 for estimate in row.stages.values()))
    shown_groups = [row for row in groups if row in lowest[:MOST_ROWS]]
    rows: list[Row] = [(folded(f"{row.name}, n={row.n}", 30), _by_stage(row.stages)) for row in shown_groups]
    figure = new_figure(COLUMN, 0.75 + (0.34 if len(rows) <= 12 else 0.26) * len(rows))
    axes = figure.add_subplot()
    dots(axes, rows)
    for stage, report in reports.items():
        axes.axvline(100 * report.average, color=STAGE_STYLES[stage]["color"], linestyle="--", linewidth=0.8)
    axes.set_xlabel(f"accuracy, % [{confidence(results)} interval]")
    axes.set_title(left_out(len(rows), len(groups), "groups, those of lowest accuracy"))
    average = {FIGURES["average"].short: line(color="#555555", linestyle="--", linewidth=0.8)}
    stage_legend(figure, reports, stage_names(results), average)
    return figure


def _by_stage(estimates: Mapping[Stage, Estimate]) -> list[Estimate]:
    return [estimates.get(stage) for stage in STAGE_STYLES]


def draw_scores(results: AuditResults) -> Any:
    """Draw histograms of the scores: a row per class, a column per stage, a line per sensitive value."""
    section = results.scores
    stages = present_stages(section)
    groups = next(iter(stages.values())).groups if stages else ()
    if section is None or not groups:
        return None
    rows = list(dict.fromkeys(group.y for group in groups))[:MOST_LINES]
    values = list(dict.fromkeys(group.s for group in groups))
    figure = new_figure(PAGE if len(stages) == 2 else COLUMN, 0.8 + 0.95 * len(rows))
    panels = figure.subplots(len(rows), len(stages), sharex="col", squeeze=False)
    for column, (stage, histogram) in enumerate(stages.items()):
        for row, name in enumerate(rows):
            axes = panels[row][column]
            _score_lines(axes, histogram, name, values)
            axes.set_title(f"{short(name, 40)}, {stage_names(results)[stage]}", loc="left")
        panels[-1][column].set_xlabel(short(section.label, 60))
    figure.supylabel("share of the group", fontsize=7.5)
    handles = [line(color=COLOURS[v % len(COLOURS)]) for v in range(len(values[:MOST_LINES]))]
    labels = [short(value, 30) for value in values[:MOST_LINES]]
    legend(figure, [*handles, line(**THRESHOLD)], [*labels, "threshold"], min(len(labels) + 1, 5))
    return figure


def _score_lines(axes: Any, histogram: ScoreHistogram, name: str, values: Sequence[str]) -> None:
    for group in histogram.groups:
        place = values.index(group.s) if group.s in values else MOST_LINES
        total = sum(group.counts)
        if group.y == name and place < MOST_LINES and total:
            shares = [n / total for n in group.counts]
            colour = COLOURS[place % len(COLOURS)]
            axes.stairs(shares, histogram.edges, color=colour, linewidth=1.1)
            axes.stairs(shares, histogram.edges, color=colour, alpha=0.1, fill=True)
    if histogram.threshold is not None:
        axes.axvline(histogram.threshold, **THRESHOLD)
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="x", nbins=6)


def draw_retrieval(results: AuditResults) -> Any:
    """Draw the share of each group among the first k hits of each prompt, and among all rows."""
    section = results.retrieval
    queries = [query for query in section.queries if present_stages(query)] if section else []
    if section is None or not queries or not section.groups:
        return None
    shown_queries = queries[:MOST_LINES]
    bars: list[tuple[str, Sequence[float], str]] = [("all rows", section.shares, "")]
    for query in shown_queries:
        for stage, ranked in present_stages(query).items():
            name = f"{short(query.name, 24)}, {stage_names(results)[stage]}"
            bars.append((name, ranked.counts, _skew_text(ranked.max_skew)))
    figure = new_figure(PAGE, 0.8 + 0.24 * len(bars))
    axes = figure.add_subplot()
    _stacked(axes, bars, [-0.4 if place == 0 else 0.0 for place in range(len(bars))])
    axes.set_xlabel(f"share of the first {section.k} of {section.n} rows, %")
    axes.set_title(left_out(len(shown_queries), len(queries), "prompts"))
    handles = [
        patch(facecolor=COLOURS[g % len(COLOURS)], hatch=_hatch(g), edgecolor="white", linewidth=0)
        for g in range(len(section.groups))
    ][: 2 * MOST_LINES]
    labels = [short(group, 30) for group in section.groups[: 2 * MOST_LINES]]
    legend(figure, handles, labels, min(len(labels), 6))
    return figure


def _skew_text(skew: Measured | None) -> str:
    if skew is None or skew.value is None:
        return ""
    figure = RETRIEVAL["max_skew"]
    return f"{figure.label} {with_interval(skew.value, skew.low, skew.high, figure.kind)}"


def _stacked(axes: Any, bars: Sequence[tuple[str, Sequence[float], str]], shifts: Sequence[float]) -> None:
    places = [place + shift for place, shift in enumerate(shifts)]
    for place, (_, counts, text) in zip(places, bars, strict=True):
        total, left = sum(counts) or 1.0, 0.0
        for g, n in enumerate(counts):
            width = 100 * n / total
            axes.barh(
                place,
                width,
                left=left,
                height=0.72,
                color=COLOURS[g % len(COLOURS)],
                hatch=_hatch(g),
                edgecolor="white",
                linewidth=0.5,
            )
            left += width
        axes.text(101.5, place, text, va="center", fontsize=6.5)
    axes.set_yticks(places, [label for label, _, _ in bars])
    axes.set(xlim=(0, 100), ylim=(len(bars) - 0.4, -1.0))
    axes.tick_params(axis="y", length=0)


def _hatch(group: int) -> str | None:
    return None if group < len(COLOURS) else "///"


def draw_probes(results: AuditResults) -> Any:
    """Draw how well each attribute can be predicted from the embeddings, before, after and by chance."""
    rows: dict[tuple[str, str], dict[Stage, ProbeRow]] = {}
    chances: dict[tuple[str, str], float] = {}
    for probe in results.probes or ():
        key = probe.attribute, probe.probe
        rows.setdefault(key, {})[probe.stage] = probe
        chances[key] = probe.chance
    if not rows:
        return None
    keys = list(rows)[:MOST_ROWS]
    figure = new_figure(COLUMN, 0.8 + 0.34 * len(keys))
    axes = figure.add_subplot()
    dots(axes, [(folded(f"{key[0]}, {PROBES[key[1]]}"), _by_stage(rows[key])) for key in keys])
    for place, shown_key in enumerate(keys):
        axes.plot([100 * chances[shown_key]] * 2, [place - 0.35, place + 0.35], **THRESHOLD)
    axes.set_xlabel(f"{PROBE.axis} [{confidence(results)} interval]")
    stages = [stage for stage in EMBEDDINGS if any(stage in row for row in rows.values())]
    stage_legend(figure, stages, EMBEDDINGS, {CHANCE.label: line(**THRESHOLD)})
    return figure


def draw_dependence(results: AuditResults) -> Any:
    """Draw the dependence of predictions and embeddings on each attribute, a panel per measure."""
    panels: dict[str, dict[str, dict[Stage, DependenceRow]]] = {}
    for part in results.dependence or ():
        given = "" if part.given is None else f", given {part.given}"
        label = f"{part.of} on {part.attribute}{given}"
        panels.setdefault(part.measure, {}).setdefault(label, {})[part.stage] = part
    if not panels:
        return None
    heights = [min(len(rows), MOST_ROWS) for rows in panels.values()]
    figure = new_figure(COLUMN, 0.7 + sum(0.45 + 0.32 * h for h in heights))
    grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=[h + 0.5 for h in heights])
    for (axes,), (measure, rows) in zip(grid, panels.items(), strict=True):
        panel_rows = list(rows.items())[:MOST_ROWS]
        dots(axes, [(folded(label, 28), _by_stage(by_stage)) for label, by_stage in panel_rows], scale=1.0)
        axes.set_xlabel(f"{DEPENDENCE[measure].axis} [{confidence(results)} interval]")
    stages = [s for s in EMBEDDINGS if any(s in row for rows in panels.values() for row in rows.values())]
    stage_legend(figure, stages, stage_names(results))
    return figure


def draw_wording(results: AuditResults) -> Any:
    """Draw the zero-shot average and worst group for each wording of the prompts."""
    section = results.wording
    if section is None or not section.templates:
        return None
    templates = section.templates[:MOST_ROWS]
    figure = new_figure(COLUMN, 0.8 + 0.32 * len(templates))
    axes = figure.add_subplot()
    rows: list[Row] = [
        (
            folded(f"{t.template}{' (used)' if i == section.used else ''}", 28),
            [t.worst_group, t.average],
        )
        for i, t in enumerate(templates)
    ]
    dots(axes, rows, PART_STYLES.values())
    axes.set_xlabel(f"zero-shot accuracy, % [{confidence(results)} interval]")
    axes.set_title(left_out(len(templates), len(section.templates), "templates"))
    handles = [line(markersize=4, **style) for style in PART_STYLES.values()]
    legend(figure, handles, [FIGURES[name].short for name in PART_STYLES])
    return figure


DRAWINGS: dict[str, Callable[[AuditResults], Any]] = {
    "groups": draw_groups,
    "front": draw_front,
    "plane": draw_plane,
    "scores": draw_scores,
    "retrieval": draw_retrieval,
    "picture": draw_picture,
    "probes": draw_probes,
    "dependence": draw_dependence,
    "wording": draw_wording,
}
"""Every figure, by the name of its file."""
