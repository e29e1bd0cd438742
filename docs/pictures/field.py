"""Worst group against average of every method, means over the tasks of the field."""

import re

import matplotlib.pyplot as plt
from story import AFTER, DOCS

TABLES = (DOCS / "benchmarks" / "field-tables.md").read_text(encoding="utf-8")
table = TABLES.partition("## All tasks\n")[2].partition("\n## ")[0]
rows = re.findall(r"^\| (\**)(.+?)\** \| (.+?) \|.* (\d+\.\d) / (\d+\.\d) \|$", table, re.MULTILINE)
MARKS = {
    "no labels": ("o", "#3182bd"),
    "target labels": ("s", "#e6550d"),
    "target and sensitive labels": ("D", "#31a354"),
    "the labels of validation rows": ("^", "#756bb1"),
    "S, also of the rows it predicts": ("v", "#636363"),
}
figure, axes = plt.subplots(figsize=(7.5, 6), layout="constrained")
seen = set()
placed = []
for stars, title, labels, worst, average in rows:
    mark, colour = MARKS[labels]
    x, y = float(average), float(worst)
    label = None if labels in seen else labels
    seen.add(labels)
    axes.scatter(
        x, y, marker=mark, color=AFTER if stars else colour, s=70 if stars else 30, label=label, zorder=3
    )
    # Names of methods that lie on others are left out; the table has all.
    if stars or all(abs(x - a) > 0.9 or abs(y - b) > 0.9 for a, b in placed):
        axes.annotate(
            title,
            (x, y),
            xytext=(5, 2),
            textcoords="offset points",
            fontsize=7,
            weight="bold" if stars else None,
        )
        placed.append((x, y))
axes.set_xlabel("average accuracy in %, mean of four tasks")
axes.set_ylabel("worst-group accuracy in %, mean of four tasks")
axes.legend(frameon=False, loc="lower left", title="learns from")
