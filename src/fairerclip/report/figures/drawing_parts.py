"""Parts that the figures share: a palette for the colour-blind, short labels, legends, dots with whiskers."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from fairerclip._util.extras import require
from fairerclip._util.markdown_text import clean
from fairerclip.auditing.group_results import Measured, Stage
from fairerclip.auditing.results import DependenceRow, ProbeRow

COLUMN, PAGE = 3.4, 7.0
"""Widths in inches."""
MOST_ROWS, MOST_LINES = 30, 8
"""Largest number of rows and lines of a figure; it says how many it leaves out."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#8C8C00")
"""The palette of Okabe and Ito, with its yellow darkened for white paper."""
BEFORE, AFTER, FAINT = "#D55E00", "#0072B2", "#b5b5b5"
STAGE_STYLES: dict[Stage, dict[str, Any]] = {
    "before": {"color": BEFORE, "marker": "o", "markerfacecolor": "white"},
    "after": {"color": AFTER, "marker": "o", "markerfacecolor": AFTER},
}
PART_STYLES: dict[str, dict[str, Any]] = {
    "worst_group": {"color": "#CC79A7", "marker": "s", "markerfacecolor": "#CC79A7"},
    "average": {"color": "#009E73", "marker": "D", "markerfacecolor": "white"},
}
OFFSETS = (-0.15, 0.15)
Estimate = Measured | ProbeRow | DependenceRow | None
Row = tuple[str, Sequence[Estimate]]
"""A label, and its estimates in the order of the styles."""


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure that keeps its labels inside."""
    figures = require("matplotlib.figure", "plots", "drawing figures")
    return figures.Figure(figsize=(width, height), layout="constrained")


def line(**style: Any) -> Any:
    """Return a line for a legend."""
    return require("matplotlib.lines", "plots", "drawing figures").Line2D([], [], **style)


def patch(**style: Any) -> Any:
    """Return a coloured field for a legend."""
    return require("matplotlib.patches", "plots", "drawing figures").Patch(**style)


def short(text: str, most: int = 44) -> str:
    """Return one clean line of at most ``most`` characters."""
    line_of_text = clean(text)
    return line_of_text if len(line_of_text) <= most else f"{line_of_text[: most - 1]}…"


def folded(text: str, width: int = 24, lines: int = 2) -> str:
    r"""Fold clean text into a few lines.

    Examples
    --------
    >>> folded("landbird × water background, n=138")
    'landbird × water\nbackground, n=138'
    """
    return textwrap.fill(clean(text), width=width, max_lines=lines, placeholder=" …", break_on_hyphens=False)


def legend(figure: Any, handles: Sequence[Any], labels: Sequence[str], columns: int | None = None) -> None:
    """Draw a legend above the figure."""
    # matplotlib leaves out labels that begin with an underscore.
    safe = [f" {label}" if label.startswith("_") else label for label in labels]
    figure.legend(
        handles,
        safe,
        loc="outside upper center",
        ncols=columns or len(safe),
        handletextpad=0.5,
        columnspacing=1.2,
    )


def stage_legend(
    figure: Any,
    stages: Collection[Stage],
    names: Mapping[Stage, str],
    more: Mapping[str, Any] | None = None,
) -> None:
    """Draw a legend of the stages by name, and of ``more`` handles by label."""
    handles = [line(markersize=4, linestyle="-", **STAGE_STYLES[stage]) for stage in stages]
    extra = dict(more or {})
    legend(figure, [*handles, *extra.values()], [*(names[stage] for stage in stages), *extra])


def dots(
    axes: Any,
    rows: Sequence[Row],
    styles: Iterable[Mapping[str, Any]] = tuple(STAGE_STYLES.values()),
    scale: float = 100.0,
) -> None:
    """Draw a row per label, with a dot and a whisker for each of its estimates; the first row is on top."""
    for place, (_, estimates) in enumerate(rows):
        if place % 2 == 0:
            axes.axhspan(place - 0.5, place + 0.5, color="#f4f4f4", linewidth=0, zorder=0)
        alone = sum(estimate is not None for estimate in estimates) == 1
        for offset, style, estimate in zip(OFFSETS, styles, estimates, strict=True):
            whisker(axes, estimate, place + (0.0 if alone else offset), style, scale)
    axes.set_yticks(range(len(rows)), [label for label, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


def whisker(
    axes: Any,
    estimate: Estimate,
    at: float,
    style: Mapping[str, Any],
    scale: float = 100.0,
    upright: bool = False,
) -> None:
    """Draw a dot at a value and a line over its interval, horizontal or ``upright``; nothing without a value."""
    if estimate is None or estimate.value is None:
        return
    low, high = estimate.low, estimate.high
    if low is not None and high is not None:
        ends, place = [scale * low, scale * high], [at, at]
        axes.plot(
            *((place, ends) if upright else (ends, place)), color=style["color"], linewidth=1.1, zorder=2
        )
    value = scale * estimate.value
    drawn = {"markersize": 4, **style}
    axes.plot(*(([at], [value]) if upright else ([value], [at])), linestyle="none", zorder=3, **drawn)


def left_out(shown: int, total: int, noun: str) -> str:
    """Return a title that says how many of the rows are shown; empty if all are."""
    return "" if shown >= total else f"{shown} of {total} {noun}"
