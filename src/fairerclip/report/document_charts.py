"""Heat maps and curves as SVG: shapes from numbers, every word escaped; no styles of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from fairerclip._util.numbers import number, significant

LEFT, TOP, CELL_W, CELL_H = 70, 10, 46, 26
WIDTH, HEIGHT = 560, 300
MARKS = 8


def heatmap_svg(chart: Mapping[str, Any]) -> Markup:
    """Cells shaded from the smallest to the largest value, each with its number."""
    x, y, values = chart["x"], chart["y"], chart["values"]
    there = [v for row in values for v in row if v is not None]
    low, high = min(there), max(there)
    width, height = LEFT + CELL_W * len(x) + 10, TOP + CELL_H * len(y) + 46
    parts = [_open(width, height, chart["title"])]
    for i, row in enumerate(values):
        top = TOP + i * CELL_H
        parts.append(_text(LEFT - 8, top + 17, significant(y[i]), "end"))
        for j, value in enumerate(row):
            if value is None:
                continue
            shade = 0.08 + 0.8 * ((value - low) / (high - low) if high > low else 0.0)
            left = LEFT + j * CELL_W
            parts.append(
                f'<rect class="cell" x="{left}" y="{top}" width="{CELL_W - 1}" height="{CELL_H - 1}" '
                f'fill-opacity="{shade:.3f}"/>'
            )
            strong = "number strong" if shade > 0.55 else "number"
            parts.append(_text(left + CELL_W / 2, top + 17, number(value, 1), "middle", strong))
    bottom = TOP + CELL_H * len(y) + 16
    parts += [_text(LEFT + (j + 0.5) * CELL_W, bottom, significant(at), "middle") for j, at in enumerate(x)]
    parts.append(_text(LEFT + CELL_W * len(x) / 2, bottom + 20, chart["x_title"], "middle"))
    parts.append(_text(8, TOP + CELL_H * len(y) + 16, chart["y_title"], "start"))
    return Markup("".join([*parts, "</svg>"]))  # noqa: S704 - numbers, and text escaped in _text


def curves_svg(chart: Mapping[str, Any]) -> Markup:
    """A line with points for every series, and its name at the side."""
    points = [p for series in chart["series"].values() for p in series]
    (x_low, x_high), (y_low, y_high) = (_span([p[axis] for p in points]) for axis in (0, 1))

    def place(point: Sequence[float]) -> tuple[float, float]:
        return (
            LEFT + (point[0] - x_low) / (x_high - x_low) * (WIDTH - LEFT - 20),
            TOP + (y_high - point[1]) / (y_high - y_low) * (HEIGHT - TOP - 50),
        )

    parts = [_open(WIDTH + 240, HEIGHT, chart["title"])]
    parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - 50}H{WIDTH - 20}"/>')
    for at in (x_low, (x_low + x_high) / 2, x_high):
        parts.append(_text(place((at, y_low))[0], HEIGHT - 32, significant(at), "middle"))
    for at in (y_low, (y_low + y_high) / 2, y_high):
        parts.append(_text(LEFT - 8, place((x_low, at))[1] + 4, significant(at), "end"))
    parts.append(_text((LEFT + WIDTH) / 2, HEIGHT - 10, chart["x_title"], "middle"))
    parts.append(_text(8, HEIGHT - 10, chart["y_title"], "start"))
    for index, (name, series) in enumerate(chart["series"].items()):
        mark = f"mark-{index % MARKS}"
        placed = [place(point) for point in series]
        if len(placed) > 1:
            line = "L".join(f"{a:.1f} {b:.1f}" for a, b in placed)
            parts.append(f'<path class="line {mark}" d="M{line}"/>')
        parts += [f'<circle class="dot {mark}" cx="{a:.1f}" cy="{b:.1f}" r="3.5"/>' for a, b in placed]
        parts.append(f'<circle class="dot {mark}" cx="{WIDTH}" cy="{TOP + 12 + 16 * index}" r="4"/>')
        parts.append(_text(WIDTH + 10, TOP + 16 + 16 * index, name[:40], "start"))
    return Markup("".join([*parts, "</svg>"]))  # noqa: S704 - numbers, and text escaped in _text


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin


def _open(width: float, height: float, title: str) -> str:
    return f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img" aria-label="{escape(title)}">'


def _text(x: float, y: float, words: str, anchor: str, kind: str = "label") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
