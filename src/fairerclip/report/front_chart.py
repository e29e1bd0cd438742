"""Plot of two figures, one mark per method with its intervals, drawn as SVG from numbers; no two labels overlap.

All text in it is cleaned and escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from markupsafe import Markup, escape

from fairerclip._util.clean_text import clean, shorten
from fairerclip._util.numbers import significant

Tone = Literal["best", "near", "other", "harm"]
"""The best method, one that is not told apart from it, one that is clearly worse, and one that does harm."""
LONGEST_NAME = 30
"""Characters of a name in the plot."""
LETTER, BOLD, LINE = 7.2, 8.2, 13.0
"""Width of a letter, also in bold, and height of a line of a label in pixels; a wide letter counts as two."""
RADIUS = {"best": 7.0, "near": 4.5, "other": 4.5, "harm": 4.5}
STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Distances of ticks, as shares."""


class Interval(NamedTuple):
    """A figure and the ends of its interval, as shares."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Mark:
    """One method.

    Attributes
    ----------
    number : int
        Label of a method that has no name in the plot.
    name : str
        Name of the method, which a pointer on the mark shows.
    x, y : Interval
        Its figures.
    tone : Tone
        How it is drawn.
    square : bool
        Whether it is a square instead of a circle.
    rank : int or None
        Place in the order in which names are put into the plot, 0 first; None for a number only.
    """

    number: int
    name: str
    x: Interval
    y: Interval
    tone: Tone = "other"
    square: bool = False
    rank: int | None = None


class Box(NamedTuple):
    """A rectangle in pixels."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Whether two boxes overlap."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def within(self, other: Box) -> bool:
        """Whether the box lies in another one."""
        return (
            self.left >= other.left
            and self.top >= other.top
            and self.right <= other.right
            and self.bottom <= other.bottom
        )


@dataclass(frozen=True)
class Label:
    """A text at its place; ``start`` is the point of its mark."""

    text: str
    tone: Tone
    box: Box
    start: tuple[float, float]


@dataclass(frozen=True)
class Frame:
    """Size of a plot in pixels, the shares at its edges, and the number of names in it."""

    width: int
    height: int
    x: tuple[float, float]
    y: tuple[float, float]
    names: int

    @property
    def area(self) -> Box:
        """The rectangle between the axes."""
        return Box(46, 10, self.width - 12, self.height - 44)

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return the pixel of two shares."""
        area = self.area
        across, up = ((v - low) / (high - low) for v, (low, high) in ((x, self.x), (y, self.y)))
        return area.left + across * (area.right - area.left), area.bottom - up * (area.bottom - area.top)


@dataclass(frozen=True)
class FrontChart:
    """Plot of one figure against another, both better where higher.

    Attributes
    ----------
    title, x_title, y_title : str
        Text for screen readers, and names of the axes.
    marks : sequence of Mark
        The methods; those of the tone "best" are drawn last, above the others.
    """

    title: str
    x_title: str
    y_title: str
    marks: Sequence[Mark]

    def to_svg(self, width: int = 600, height: int = 400, names: int = 8) -> Markup:
        """Return the SVG, with the names of the first ``names`` methods by rank and the numbers of the others."""
        frame = Frame(width, height, _range(self.marks, "x"), _range(self.marks, "y"), names)
        area = frame.area
        label = escape(clean(self.title))
        parts = [f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="{label}">']
        parts += self._axes(frame)
        order = sorted(self.marks, key=lambda mark: mark.tone == "best")
        parts += [_bars(mark, frame) for mark in order]
        labels = placed_labels(self.marks, frame)
        parts += [_leader(label) for label in labels]
        parts += [_shape(mark, frame) for mark in order]
        parts += [_drawn(label) for label in labels]
        parts.append(_text((area.left + area.right) / 2, height - 8, self.x_title, "middle", "axis-title"))
        middle = (area.top + area.bottom) / 2
        parts.append(
            f'<text class="axis-title" transform="translate(12 {middle:.0f}) rotate(-90)" text-anchor="middle">'
            f"{escape(clean(self.y_title))}</text>"
        )
        return Markup("".join([*parts, "</svg>"]))  # noqa: S704 - numbers, and text that is escaped

    def _axes(self, frame: Frame) -> Iterator[str]:
        area = frame.area
        for at in _ticks(*frame.x, most=5):
            x = frame.place(at, frame.y[0])[0]
            yield f'<path class="grid" d="M{x:.1f} {area.top}V{area.bottom}"/>'
            yield _text(x, area.bottom + 16, significant(100 * at, 4), "middle", "tick")
        for at in _ticks(*frame.y, most=6):
            y = frame.place(frame.x[0], at)[1]
            yield f'<path class="grid" d="M{area.left} {y:.1f}H{area.right}"/>'
            yield _text(area.left - 6, y + 4, significant(100 * at, 4), "end", "tick")


def placed_labels(marks: Sequence[Mark], frame: Frame) -> list[Label]:
    """Return labels that overlap neither each other nor a mark; one for which there is no place is left out.

    Names come first, by rank. A label is tried at growing distances from its mark, on all sides.
    """
    named = sorted((mark for mark in marks if mark.rank is not None), key=lambda mark: mark.rank or 0)
    named = named[: frame.names]
    taken = [_mark_box(mark, frame) for mark in marks]
    labels = []
    for mark in [*named, *(mark for mark in marks if mark not in named)]:
        text = shorten(clean(mark.name), LONGEST_NAME) if mark in named else str(mark.number)
        letter = BOLD if mark.tone == "best" else LETTER
        width = letter * sum(1 if ord(sign) < 0x1100 else 2 for sign in text) + 2
        start = frame.place(mark.x.value, mark.y.value)
        boxes = _around(start, width, RADIUS[mark.tone])
        box = next((b for b in boxes if b.within(frame.area) and not any(map(b.meets, taken))), None)
        if box is not None:
            taken.append(box)
            labels.append(Label(text, mark.tone, box, start))
    return labels


def _around(start: tuple[float, float], width: float, radius: float) -> Iterator[Box]:
    """Yield boxes of a label around a point: right, left, above and below, then on growing circles."""
    x, y = start
    for distance in (radius + 3, *range(14, 170, 6)):
        for turn in (0, 8, 4, 12, 2, 14, 6, 10, 1, 15, 7, 9, 3, 13, 5, 11):
            angle = math.tau * turn / 16
            across, up = math.cos(angle), math.sin(angle)
            # The side of the label that faces the mark lies at the distance.
            centre = (
                x + across * distance + math.copysign(width / 2, across) * (abs(across) > 0.3),
                y - up * distance - math.copysign(LINE / 2, up) * (abs(up) > 0.3),
            )
            yield Box(
                centre[0] - width / 2, centre[1] - LINE / 2, centre[0] + width / 2, centre[1] + LINE / 2
            )


def _mark_box(mark: Mark, frame: Frame) -> Box:
    x, y = frame.place(mark.x.value, mark.y.value)
    reach = RADIUS[mark.tone] + 1
    return Box(x - reach, y - reach, x + reach, y + reach)


def _drawn(label: Label) -> str:
    """Return the text, flushed to the side that faces its mark: its true width may be less than that of the box."""
    box, x = label.box, label.start[0]
    at, anchor = (
        (box.left + 1, "start")
        if box.left > x
        else (box.right - 1, "end")
        if box.right < x
        else ((box.left + box.right) / 2, "middle")
    )
    return _text(at, box.bottom - 3, label.text, anchor, f"mark-label {label.tone}")


def _leader(label: Label) -> str:
    """Return a line from a mark to its label if the label is far from it."""
    (x, y), box = label.start, label.box
    near = min(max(x, box.left), box.right), min(max(y, box.top), box.bottom)
    far = math.dist((x, y), near) > 11
    return f'<path class="leader" d="M{x:.1f} {y:.1f}L{near[0]:.1f} {near[1]:.1f}"/>' if far else ""


def _bars(mark: Mark, frame: Frame) -> str:
    (left, y), (right, _) = (frame.place(end, mark.y.value) for end in (mark.x.low, mark.x.high))
    (x, bottom), (_, top) = (frame.place(mark.x.value, end) for end in (mark.y.low, mark.y.high))
    return (
        f'<path class="bar {mark.tone}" d="M{left:.1f} {y:.1f}H{right:.1f}M{x:.1f} {bottom:.1f}V{top:.1f}"/>'
    )


def _shape(mark: Mark, frame: Frame) -> str:
    x, y = frame.place(mark.x.value, mark.y.value)
    radius = RADIUS[mark.tone]
    side = 2 * radius
    drawn = (
        f'<rect x="{x - radius:.1f}" y="{y - radius:.1f}" width="{side:.1f}" height="{side:.1f}"'
        if mark.square
        else f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}"'
    )
    name = f"{mark.number}. {clean(mark.name)}"
    return f'{drawn} class="mark {mark.tone}"><title>{escape(name)}</title></{"rect" if mark.square else "circle"}>'


def _range(marks: Sequence[Mark], axis: Literal["x", "y"]) -> tuple[float, float]:
    """Return the shares at the edges: all intervals, with a margin."""
    ends = [end for mark in marks for end in getattr(mark, axis)]
    low, high = min(ends), max(ends)
    margin = max(0.06 * (high - low), 0.01)
    return low - margin, high + margin


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Return round shares between two shares, at most ``most`` of them, and none below 0 or above 1."""
    low, high = max(low, 0.0), min(high, 1.0)
    step = next((s for s in STEPS if (high - low) / s <= most), STEPS[-1])
    return [k * step for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _text(x: float, y: float, words: str, anchor: str, css_class: str) -> str:
    return f'<text class="{css_class}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(clean(words))}</text>'
