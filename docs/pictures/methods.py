"""Worst group and average of every method, mean over the tasks of the first table of the comparison."""

import re

import matplotlib.pyplot as plt
import numpy as np
from story import AFTER, DOCS

TABLES = (DOCS / "benchmarks" / "comparison-tables.md").read_text(encoding="utf-8")
table = TABLES.partition("### Labels, no validation rows\n")[2].partition("\n### ")[0]
rows = re.findall(r"^\| ([^*|][^|]*?) \|(( \d+\.\d / \d+\.\d \|)+)", table, re.MULTILINE)
figures = {
    name: np.array(re.findall(r"(\d+\.\d) / (\d+\.\d)", cells), float).mean(0) for name, cells, _ in rows
}
names = sorted(figures, key=lambda name: figures[name][1])
places = np.arange(len(names))
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
colours = [AFTER if name == "FairerCLIP" else "#9ecae1" for name in names]
axes.barh(places, [figures[name][1] for name in names], color=colours)
axes.plot([figures[name][0] for name in names], places, "k|", markersize=12, label="average accuracy")
for place, name in zip(places, names, strict=True):
    worst, colour = figures[name][1], "white" if name == "FairerCLIP" else "black"
    axes.text(worst - 0.4, place, f"{worst:.1f}", ha="right", va="center", color=colour)
axes.set_yticks(places, names)
axes.set_xlim(40, 90)
axes.set_xlabel("worst-group accuracy in %, mean of eight tasks")
figure.legend(frameon=False, loc="outside upper right")
