"""Interval of a group's accuracy by the number of its rows."""

import matplotlib.pyplot as plt
import numpy as np
from story import AFTER

from fairerclip.metrics import group_report

sizes = [8, 16, 32, 64, 128, 256, 512, 1024]
low, high = [], []
for n in sizes:
    right = np.arange(n) < round(0.75 * n)
    group = group_report(np.ones(n, int), right.astype(int), np.zeros(n, int), positive=1).groups[0]
    low.append(100 * group.low)
    high.append(100 * group.high)
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.fill_between(sizes, low, high, color=AFTER, alpha=0.25, label="95 % interval")
axes.axhline(75, color=AFTER, label="75 % of the rows are right")
axes.set_xscale("log", base=2)
axes.set_xticks(sizes, [str(n) for n in sizes])
axes.set_xlabel("rows of the group")
axes.set_ylabel("accuracy, %")
axes.set_ylim(30, 100)
axes.legend(frameon=False, loc="lower right")
