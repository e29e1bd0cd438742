"""Functions that draw the front between average and worst group, and the (τ, τ_z) plane itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairerclip._util.numbers import setting, with_interval
from fairerclip.auditing.group_results import Measured, PlaneBaseline, PlanePoint, PlaneSection
from fairerclip.auditing.results import AuditResults
from fairerclip.metrics.names import FIGURES
from fairerclip.report.figures.drawing_parts import (
    AFTER,
    BEFORE,
    COLOURS,
    COLUMN,
    FAINT,
    PAGE,
    legend,
    line,
    new_figure,
    short,
    whisker,
)
from fairerclip.report.phrases import ZERO_SHOT, confidence
from fairerclip.report.stage_rows import worst_at

CHOSEN: dict[str, Any] = {"color": AFTER, "marker": "*", "markersize": 9, "markeredgecolor": "white"}
BASELINE: dict[str, Any] = {"color": BEFORE, "marker": "D", "markersize": 4.5, "markeredgecolor": "white"}
FRONT: dict[str, Any] = {"color": AFTER, "marker": "o", "markersize": 2.5}
MOST_PANELS = 4
AVERAGE, WORST = FIGURES["average"], FIGURES["worst_group"]


def average_at(plane: PlaneSection, point: PlanePoint | PlaneBaseline, level: float) -> Measured:
    """Return the average at a point with its exact binomial interval."""
    from fairerclip.metrics.intervals import clopper_pearson

    n = sum(group.n for group in plane.groups)
    if not n:
        return Measured(value=point.average)
    low, high = clopper_pearson(sum(point.correct or ()), n, level)
    return Measured(value=point.average, low=float(low), high=float(high))


def _per_cent(share: float | None) -> float:
    return float("nan") if share is None else 100 * share


def draw_front(results: AuditResults) -> Any:
    """Draw worst group against average: every point, the front, the chosen point and zero-shot."""
    plane = results.plane
    if plane is None:
        return None
    points = plane.points
    solved = [point for point in points if point.failure is None]
    figure = new_figure(COLUMN, 2.9)
    axes = figure.add_subplot()
    axes.plot(*_places(solved), linestyle="none", marker=".", markersize=2.5, color=FAINT, zorder=1)
    front = [points[g] for g in plane.front]
    axes.plot(*_places(front), color=AFTER, linewidth=0.9, zorder=2)
    named: dict[str, tuple[PlanePoint | PlaneBaseline, dict[str, Any]]] = {}
    named[_chosen_name(plane)] = (points[plane.chosen], CHOSEN)
    if plane.baseline:
        named[ZERO_SHOT] = (plane.baseline, BASELINE)
    for point in front:
        whisker(axes, worst_at(plane, point)[1], _per_cent(point.average), _faint(FRONT), upright=True)
    for marked, style in named.values():
        whisker(axes, worst_at(plane, marked)[1], _per_cent(marked.average), style, upright=True)
        average = average_at(plane, marked, results.settings.confidence)
        whisker(axes, average, _per_cent(marked.worst_group), style)
    axes.grid()
    axes.set_xlabel(f"{AVERAGE.axis}, {short(plane.split, 20)} split")
    axes.set_ylabel(f"{WORST.axis} [{confidence(results)}]")
    dot = line(linestyle="none", marker=".", markersize=4, color=FAINT)
    handles = [dot, line(**FRONT), *(line(linestyle="none", **style) for _, style in named.values())]
    legend(figure, handles, ["(τ, τ_z)", "front", *named])
    return figure


def _chosen_name(plane: PlaneSection) -> str:
    return "as given" if plane.chosen_by == "given" else "chosen"


def _faint(style: Mapping[str, Any]) -> dict[str, Any]:
    return {**style, "color": "#9ecae1", "markerfacecolor": AFTER, "markeredgecolor": AFTER}


def _places(points: Sequence[PlanePoint]) -> tuple[list[float], list[float]]:
    return [_per_cent(p.average) for p in points], [_per_cent(p.worst_group) for p in points]


def draw_plane(results: AuditResults) -> Any:
    """Draw the worst group over the (τ, τ_z) plane, a panel per criterion; over τ if there is only one τ_z."""
    plane = results.plane
    if plane is None:
        return None
    return _curves(plane, confidence(results)) if len(plane.tau_zs) == 1 else _heatmaps(plane)


def _heatmaps(plane: PlaneSection) -> Any:
    criteria, points = plane.criteria[:MOST_PANELS], plane.points
    shape = len(plane.tau_zs), len(plane.taus)
    size = shape[0] * shape[1]
    solved = [_per_cent(point.worst_group) for point in points if point.failure is None]
    figure = new_figure(COLUMN if len(criteria) == 1 else PAGE, 2.9)
    panels = figure.subplots(1, len(criteria), squeeze=False)[0]
    for c, (axes, criterion) in enumerate(zip(panels, criteria, strict=True)):
        cells = [
            _per_cent(None if point.failure is not None else point.worst_group)
            for point in points[c * size : (c + 1) * size]
        ]
        axes.set_facecolor("#eeeeee")
        image = axes.imshow(
            [cells[row * shape[1] : (row + 1) * shape[1]] for row in range(shape[0])],
            origin="lower",
            aspect="auto",
            cmap="cividis",
            vmin=min(solved),
            vmax=max(solved),
            interpolation="nearest",
        )
        _ticks(axes.set_xticks, plane.taus)
        _ticks(axes.set_yticks, plane.tau_zs)
        axes.set(xlabel="τ", ylabel="τ_z")
        axes.set_title(short(criterion, 30), loc="left")
        if plane.chosen // size == c:
            row, column = divmod(plane.chosen % size, shape[1])
            axes.plot([column], [row], linestyle="none", **{**CHOSEN, "color": BEFORE, "markersize": 11})
    bar = figure.colorbar(image, ax=panels, pad=0.02, aspect=25)
    bar.set_label(f"{WORST.axis}, {short(plane.split, 20)} split")
    _name_chosen(figure, plane)
    return figure


def _ticks(setter: Any, values: Sequence[float], most: int = 6) -> None:
    step = max(1, -(-(len(values) - 1) // (most - 1)))
    places = list(range(0, len(values), step))
    setter(places, [setting(values[i]) for i in places])


def _name_chosen(figure: Any, plane: PlaneSection) -> None:
    chosen = plane.points[plane.chosen]
    at = f"τ {setting(chosen.tau)}, τ_z {setting(chosen.tau_z)}"
    worst = worst_at(plane, chosen)[1]
    accuracy = with_interval(worst.value, worst.low, worst.high, WORST.kind)
    label = f"{_chosen_name(plane)}: {at}, {WORST.short} {accuracy}"
    handles, labels = [line(linestyle="none", **{**CHOSEN, "color": BEFORE})], [label]
    if any(point.failure is not None for point in plane.points):
        handles.append(line(linestyle="none", marker="s", color="#dddddd"))
        labels.append("no solution")
    legend(figure, handles, labels, 1 if figure.get_figwidth() < PAGE else 2)


def _curves(plane: PlaneSection, level: str) -> Any:
    taus, criteria = plane.taus, plane.criteria[:MOST_PANELS]
    figure = new_figure(COLUMN, 2.7)
    axes = figure.add_subplot()
    handles, labels = [], []
    for c, criterion in enumerate(criteria):
        colour = COLOURS[c]
        points = [p for p in plane.points[c * len(taus) : (c + 1) * len(taus)] if p.failure is None]
        x = [point.tau for point in points]
        estimates = [worst_at(plane, point)[1] for point in points]
        with_ends = [(t, e) for t, e in zip(x, estimates, strict=True) if e.low is not None]
        axes.fill_between(
            [t for t, _ in with_ends],
            [_per_cent(e.low) for _, e in with_ends],
            [_per_cent(e.high) for _, e in with_ends],
            color=colour,
            alpha=0.15,
            linewidth=0,
        )
        average, worst = _places(points)
        axes.plot(x, worst, color=colour, marker=".", markersize=3)
        axes.plot(x, average, color=colour, linestyle="--", linewidth=0.9)
        handles += [
            line(color=colour, marker=".", markersize=3),
            line(color=colour, linestyle="--", linewidth=0.9),
        ]
        labels += [f"{figure.short}, {short(criterion, 20)}" for figure in (WORST, AVERAGE)]
    chosen = plane.points[plane.chosen]
    whisker(axes, worst_at(plane, chosen)[1], chosen.tau, CHOSEN, upright=True)
    axes.grid()
    axes.set_xlabel(f"τ (τ_z = {setting(plane.tau_zs[0])})")
    axes.set_ylabel(f"accuracy, % [{level}], {short(plane.split, 20)}")
    legend(figure, [*handles, line(linestyle="none", **CHOSEN)], [*labels, _chosen_name(plane)], 2)
    return figure
