"""A path as a notebook and a terminal show it: its points, a small drawing of the trade-off, and the best ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from fairerclip._util.html_text import notebook_block, notebook_table, paragraph
from fairerclip._util.numbers import bare, count, gap, percent, setting

if TYPE_CHECKING:
    from fairerclip.model.path import TauPath

WIDTH, HEIGHT = 360, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 44
"""Margins of the drawing, for numbers and titles of the axes."""
POINT, FRONT = "#3b8fd4", "#d9730d"
"""Colours of points and of the front, readable on white and on black."""


def path_title(path: TauPath) -> str:
    """Return the number of points, the range of τ, and on how many rows they were evaluated, on one line."""
    taus = [point.setting.tau for point in path.points]
    unsolved = sum(point.failure is not None for point in path.points)
    without = f", {count(unsolved)} without a solution" if unsolved else ""
    rows = (
        "not evaluated" if path.cells is None else f"evaluated on {count(int(path.cells.counts.sum()))} rows"
    )
    return f"TauPath: {count(len(path))} points, τ from {setting(min(taus))} to {setting(max(taus))}{without}; {rows}"


def path_html(path: TauPath) -> str:
    """Return the title, the drawing of all points, and a table of those that `TauPath.best` takes, as HTML."""
    title = paragraph(path_title(path), strong=True)
    solved = [row for row in path.table or [] if row["failure"] is None]
    if not solved:
        advice = "evaluate(X_val, y_val, s_val) measures every point on labelled rows."
        return notebook_block(title, *([] if path.table else [paragraph(advice)]))
    table = path.table or []
    front = [(table[k]["average"], table[k]["worst_group"]) for k in path.front()]
    points = [(row["average"], row["worst_group"]) for row in solved]
    criteria = [by for by in ("worst_group", "average", "eod") if solved[0][by] is not None]
    best = [[f'best(by="{by}")', *_figures(table[path.best_index(by)])] for by in criteria]
    columns = ["point", "τ", "τ_z", "criterion", "average", "worst group", "EOD"]
    return notebook_block(title, draw_front(points, front), notebook_table(columns, best))


def _figures(row: dict[str, Any]) -> list[str]:
    strengths = [setting(row["tau"]), setting(row["tau_z"]), str(row["criterion"])]
    return [*strengths, percent(row["average"]), percent(row["worst_group"]), gap(row["eod"])]


def draw_front(points: Sequence[tuple[float, float]], front: Sequence[tuple[float, float]]) -> Markup:
    """Return an SVG of points (average, worst group) and of the front among them.

    Places are whole pixels, so that many points in one place are drawn once.
    """
    (x_low, x_high), (y_low, y_high) = (_span([point[axis] for point in points]) for axis in (0, 1))

    def place(point: tuple[float, float]) -> tuple[int, int]:
        across = (point[0] - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
        return LEFT + round(across), TOP + round(
            (y_high - point[1]) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)
        )

    dots = "".join(f"M{x} {y}h0" for x, y in dict.fromkeys(map(place, points)))
    line = "L".join(f"{x} {y}" for x, y in map(place, front))
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    middle = (LEFT + right) // 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'role="img" aria-label="Worst group against average of every point" fill="none" font-size="12">',
        f'<path d="M{LEFT} {TOP}V{bottom}H{right}" stroke="currentColor"/>',
        f'<path d="{dots}" stroke="{POINT}" stroke-width="6" stroke-linecap="round" stroke-opacity="0.8"/>',
        f'<path d="M{line}" stroke="{FRONT}" stroke-width="2"/>',
        _text(LEFT, bottom + 16, bare(x_low), "start"),
        _text(right, bottom + 16, bare(x_high), "end"),
        _text(LEFT - 6, bottom, bare(y_low), "end"),
        _text(LEFT - 6, TOP + 10, bare(y_high), "end"),
        _text(middle, HEIGHT - 8, "average accuracy, % (line: the front)", "middle"),
        f'<text fill="currentColor" text-anchor="middle" transform="translate(14 {(TOP + bottom) // 2}) rotate(-90)">'
        "worst group, %</text>",
    ]
    return Markup("".join([*parts, "</svg>"]))  # noqa: S704 - numbers and our own words


def _text(x: int, y: int, words: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" fill="currentColor" text-anchor="{anchor}">{words}</text>'


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of the values with a margin on both sides, so that it is never empty."""
    low, high = min(values), max(values)
    margin = 0.05 * (high - low) or 0.01
    return low - margin, high + margin
