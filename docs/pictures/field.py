"""Worst group against average of every method, means over the tasks of the field."""

import re

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle
from story import AFTER, DOCS

TABLES = (DOCS / "benchmarks" / "field-tables.md").read_text(encoding="utf-8")
table = TABLES.partition("## All tasks\n")[2].partition("\n## ")[0]
found = re.findall(r"^\| (\*\*)?(.+?) \| (.+?) \|.* (\d+\.\d) / (\d+\.\d) \|$", table, re.MULTILINE)
rows = [(stars, title.removesuffix(stars), *rest) for stars, title, *rest in found]
MARKS = {
    "no labels": ("o", "#3182bd"),
    "target labels": ("s", "#e6550d"),
    "target and sensitive labels": ("D", "#31a354"),
    "the labels of validation rows": ("^", "#756bb1"),
    "S, also of the rows it predicts": ("v", "#636363"),
}
PLACES = [(6, 0, "left"), (-6, 0, "right"), (0, 8, "center"), (0, -8, "center")] + [
    (side * 6, up, "left" if side > 0 else "right") for up in (8, -8, 16, -16, 24, -24) for side in (1, -1)
]
"""Places of a name beside its mark, in points."""
points = [(float(average), float(worst)) for *_, worst, average in rows]
low, high = 70.0, max(worst for _, worst in points)
near = [average for average, worst in points if worst >= low]
BOX = (min(near) - 0.8, low - 0.7, max(near) + 1.0, high + 0.5)
"""Ends of the second panel: methods whose worst group is at least 70."""
figure, (whole, part) = plt.subplots(1, 2, figsize=(12, 6.4), layout="constrained")
for axes in (whole, part):
    for (stars, _, labels, *_), point in zip(rows, points, strict=True):
        mark, colour = MARKS[labels]
        axes.scatter(*point, marker=mark, color=AFTER if stars else colour, s=70 if stars else 30, zorder=3)
    axes.set_xlabel("average accuracy in %, mean of four tasks")
whole.set_ylabel("worst-group accuracy in %, mean of four tasks")
whole.margins(x=0.2)
part.set(xlim=(BOX[0], BOX[2]), ylim=(BOX[1], BOX[3]), title="the upper part")
whole.add_patch(Rectangle(BOX[:2], BOX[2] - BOX[0], BOX[3] - BOX[1], fill=False, color="#bbbbbb"))
for labels, (mark, colour) in MARKS.items():
    whole.scatter([], [], marker=mark, color=colour, s=30, label=labels)
whole.scatter([], [], marker="s", color=AFTER, s=70, label="FairerCLIP")
whole.legend(frameon=False, loc="lower right", title="learns from")
figure.draw_without_rendering()
taken = {whole: [whole.get_legend().get_window_extent()], part: []}
for axes in (whole, part):  # marks are no places for names
    for place in axes.transData.transform(points):
        taken[axes].append(Rectangle(place - 4, 8, 8).get_bbox())
for (stars, title, *_), point in zip(rows, points, strict=True):
    axes = part if BOX[1] <= point[1] and BOX[0] <= point[0] <= BOX[2] else whole
    for right, up, side in PLACES:
        name = axes.annotate(
            title,
            point,
            (right, up),
            textcoords="offset points",
            fontsize=7,
            weight="bold" if stars else None,
            ha=side,
            va="center",
            arrowprops={"arrowstyle": "-", "lw": 0.4, "color": "#999999"} if abs(up) > 8 else None,
        )
        name.set_in_layout(False)
        box = name.get_window_extent()
        if axes.bbox.x0 < box.x0 and box.x1 < axes.bbox.x1 and not any(map(box.overlaps, taken[axes])):
            taken[axes].append(box)
            break
        name.remove()  # a name without a place is left out; the table has all
