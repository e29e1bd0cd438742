"""Functions that draw the embeddings in two dimensions, with contours around the rows of each group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.auditing.group_results import PictureStage, present_stages
from fairerclip.auditing.results import AuditResults
from fairerclip.report.figures.drawing_parts import (
    COLOURS,
    COLUMN,
    MOST_LINES,
    PAGE,
    legend,
    line,
    new_figure,
    short,
)
from fairerclip.report.phrases import EMBEDDINGS

SHARES = (0.9, 0.5)
"""Shares of a group's rows that its contours enclose, the outer one first."""
LINES = ("-", "--", "-.", ":") * 2
MARGIN = 6
"""Empty cells around the picture, so that contours close."""
SMOOTHING = 0.05
"""Standard deviation of the filter that smooths the counts, as a share of the picture's width; 1 to 2 cells."""


def draw_picture(results: AuditResults) -> Any:
    """Draw contours around 50 % and 90 % of each group's rows, before and after; dots for small groups."""
    section = results.picture
    stages = present_stages(section)
    if section is None or not stages or not section.groups:
        return None
    # With more groups than colours, groups of the same sensitive value share a colour.
    apart = len(section.groups) <= MOST_LINES
    coloured = [group.name if apart else group.s for group in section.groups]
    names = list(dict.fromkeys(coloured))
    colour_of = [names.index(name) for name in coloured]
    figure = new_figure(PAGE if len(stages) == 2 else COLUMN, 3.3)
    panels = figure.subplots(1, len(stages), squeeze=False)[0]
    for axes, (stage, part) in zip(panels, stages.items(), strict=True):
        _contours(axes, part, colour_of, results.settings.small)
        axes.set_title(f"{EMBEDDINGS[stage]}: lines around 50 % and 90 % of each group", loc="left")
    shown_names = names[:MOST_LINES]
    handles = [line(color=COLOURS[g], linestyle=LINES[g]) for g in range(len(shown_names))]
    legend(
        figure, handles, [short(name, 40) for name in shown_names], min(len(shown_names), 2 if apart else 4)
    )
    return figure


def _contours(axes: Any, part: PictureStage, colour_of: Sequence[int], small: int) -> None:
    edges = [np.asarray(e, dtype=np.float64) for e in (part.x_edges, part.y_edges)]
    centres = [_padded_centres(e) for e in edges]
    for colour in range(min(max(colour_of) + 1, MOST_LINES)):
        chosen = [cell for cell in part.cells if colour_of[cell[2]] == colour]
        if sum(cell[3] for cell in chosen) < small:  # a contour around a few rows would show chance
            places = [[_middle(e, cell[axis]) for cell in chosen] for axis, e in enumerate(edges)]
            axes.scatter(*places, s=9, color=COLOURS[colour], linewidths=0)
            continue
        density = smoothed(chosen, (len(edges[0]) - 1, len(edges[1]) - 1))
        levels = sorted({enclosing_level(density, share) for share in SHARES} - {0.0})
        if levels:
            style = {
                "colors": COLOURS[colour],
                "linestyles": LINES[colour],
                "linewidths": [0.7, 1.3][-len(levels) :],
            }
            axes.contour(*centres, density.T, levels=levels, **style)
            axes.contourf(
                *centres, density.T, levels=[levels[-1], np.inf], colors=COLOURS[colour], alpha=0.12
            )
    axes.set(xlabel=short(part.x_label, 50), ylabel=short(part.y_label, 40))
    axes.set(xlim=_with_room(edges[0]), ylim=_with_room(edges[1]))


def _with_room(edges: NDArray[np.float64]) -> tuple[float, float]:
    room = 0.06 * (edges[-1] - edges[0])
    return float(edges[0] - room), float(edges[-1] + room)


def _middle(edges: NDArray[np.float64], i: int) -> float:
    return float(edges[i] + edges[i + 1]) / 2


def _padded_centres(edges: NDArray[np.float64]) -> NDArray[np.float64]:
    middle = (edges[1:] + edges[:-1]) / 2
    first, last = edges[1] - edges[0], edges[-1] - edges[-2]
    steps = np.arange(1, MARGIN + 1)
    return np.concatenate([middle[0] - first * steps[::-1], middle, middle[-1] + last * steps])


def smoothed(cells: Sequence[Sequence[int]], shape: tuple[int, int]) -> NDArray[np.float64]:
    """Return the smoothed share of the rows per cell, with empty cells around: shape + 2·MARGIN."""
    from scipy.ndimage import gaussian_filter

    counts = np.zeros((shape[0] + 2 * MARGIN, shape[1] + 2 * MARGIN))
    for i, j, _, n in cells:
        counts[i + MARGIN, j + MARGIN] += n
    spread = [min(2.0, max(1.0, SMOOTHING * size)) for size in shape]
    smooth: NDArray[np.float64] = gaussian_filter(counts, spread, mode="constant", truncate=3.0)
    total = smooth.sum()
    return smooth / total if total else smooth


def enclosing_level(density: NDArray[np.float64], share: float) -> float:
    """Return the highest level such that the cells at or above it hold ``share`` of the total; 0 if all are 0.

    Examples
    --------
    >>> enclosing_level(np.array([[0.5, 0.25], [0.15, 0.1]]), 0.7)
    0.25
    """
    falling = np.sort(density, axis=None)[::-1]
    if not falling[0]:
        return 0.0
    reached = np.searchsorted(np.cumsum(falling), share * falling.sum() * (1 - 1e-12))
    return float(falling[min(reached, falling.size - 1)])
