"""Accuracy of every group before and after, with intervals."""

import matplotlib.pyplot as plt
import numpy as np
from story import AFTER, BEFORE, group_names, reports

figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
names = group_names()
styles = ((-0.2, BEFORE, "zero-shot"), (0.2, AFTER, "FairerCLIP"))
for report, (shift, colour, label) in zip(reports(), styles, strict=True):
    rates = np.array([100 * group.accuracy for group in report.groups])
    ends = np.array([[100 * group.low, 100 * group.high] for group in report.groups])
    places = np.arange(len(rates)) + shift
    axes.bar(places, rates, 0.36, color=colour, label=label)
    axes.errorbar(places, rates, np.abs(ends.T - rates), fmt="none", ecolor="black", capsize=3, linewidth=1)
    for place, rate in zip(places, rates, strict=True):
        axes.text(place, 4, f"{rate:.0f}", ha="center", color="white", fontweight="bold")
axes.set_xticks(range(len(names)), names)
axes.set_ylim(0, 105)
axes.set_ylabel("accuracy, %")
axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.17), ncols=2, frameon=False)
