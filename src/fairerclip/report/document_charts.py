"""Heat maps and curves, drawn as SVG from numbers; all text in them is cleaned and escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from markupsafe import Markup, escape
from pydantic import ConfigDict

from fairerclip._util.clean_text import clean
from fairerclip._util.numbers import number, significant
from fairerclip.errors import ParameterError

LEFT, TOP, CELL_W, CELL_H = 70, 10, 46, 26
WIDTH, HEIGHT = 560, 300
MARKS = 8


@dataclass(frozen=True)
class Heatmap:
    """Heat map of values of shape (len(y), len(x)), with titles of both axes; None leaves a cell blank."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    title: str
    x_title: str
    x: Sequence[float]
    y_title: str
    y: Sequence[float]
    values: Sequence[Sequence[float | None]]

    def __post_init__(self) -> None:
        if len(self.values) != len(self.y) or any(len(row) != len(self.x) for row in self.values):
            raise ParameterError(f"heat map {self.title!r} needs {len(self.y)} rows of {len(self.x)} values")

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to draw."""
        return all(value is None for row in self.values for value in row)

    def to_svg(self) -> Markup:
        """Return the SVG: cells shaded from the smallest to the largest value, each with its number."""
        known = [value for row in self.values for value in row if value is not None]
        low, high = min(known), max(known)
        width, height = LEFT + CELL_W * len(self.x) + 10, TOP + CELL_H * len(self.y) + 46
        parts = [_open(width, height, self.title)]
        for i, row in enumerate(self.values):
            top = TOP + i * CELL_H
            parts.append(_text(LEFT - 8, top + 17, significant(self.y[i]), "end"))
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
        bottom = TOP + CELL_H * len(self.y) + 16
        ticks = [significant(at) for at in self.x]
        parts += [_text(LEFT + (j + 0.5) * CELL_W, bottom, tick, "middle") for j, tick in enumerate(ticks)]
        parts.append(_text(LEFT + CELL_W * len(self.x) / 2, bottom + 20, self.x_title, "middle"))
        parts.append(_text(8, bottom, self.y_title, "start"))
        return Markup("".join([*parts, "</svg>"]))  # noqa: S704 - numbers, and text escaped in _text


@dataclass(frozen=True)
class Curves:
    """Named series of points (x, y), each drawn as a line; a series of one point is drawn as a dot."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    title: str
    x_title: str
    y_title: str
    series: Mapping[str, Sequence[tuple[float, float]]]

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to draw."""
        return not any(self.series.values())

    def to_svg(self) -> Markup:
        """Return the SVG: a line with dots for every series, and a legend at the side."""
        points = [point for series in self.series.values() for point in series]
        (x_low, x_high), (y_low, y_high) = (_span([p[axis] for p in points]) for axis in (0, 1))

        def place(point: Sequence[float]) -> tuple[float, float]:
            return (
                LEFT + (point[0] - x_low) / (x_high - x_low) * (WIDTH - LEFT - 20),
                TOP + (y_high - point[1]) / (y_high - y_low) * (HEIGHT - TOP - 50),
            )

        parts = [_open(WIDTH + 240, HEIGHT, self.title)]
        parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - 50}H{WIDTH - 20}"/>')
        for at in (x_low, (x_low + x_high) / 2, x_high):
            parts.append(_text(place((at, y_low))[0], HEIGHT - 32, significant(at), "middle"))
        for at in (y_low, (y_low + y_high) / 2, y_high):
            parts.append(_text(LEFT - 8, place((x_low, at))[1] + 4, significant(at), "end"))
        parts.append(_text((LEFT + WIDTH) / 2, HEIGHT - 10, self.x_title, "middle"))
        parts.append(_text(8, HEIGHT - 10, self.y_title, "start"))
        for index, (name, series) in enumerate(self.series.items()):
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
    """Return the range of the values with a margin of 5 %, or of 1 where all are equal."""
    low, high = min(values), max(values)
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin


def _open(width: float, height: float, title: str) -> str:
    label = escape(clean(title))
    return f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img" aria-label="{label}">'


def _text(x: float, y: float, words: str, anchor: str, css_class: str = "label") -> str:
    return f'<text class="{css_class}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(clean(words))}</text>'
