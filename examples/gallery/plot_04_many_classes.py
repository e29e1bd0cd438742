"""
Several classes and several groups
==================================

Nothing is special about two classes or two groups. Here are five objects in three styles. In the training
rows each object has a style of its own most of the time, in the test rows every style is equally frequent.
"""

# %%

import matplotlib.pyplot as plt
import numpy as np

from fairerclip import FairerCLIP
from fairerclip.baselines import LinearProbe, ZeroShot
from fairerclip.data import simulate
from fairerclip.metrics import group_report, paired_report

task = simulate("multiclass", seed=0, scale=0.7, width=128)
style = task.sensitive_attribute()
names = {"class_names": task.class_names, "sensitive_names": style.names}
train, test = task.train, task.test

models = {
    "zero-shot": ZeroShot().fit(train.X, text=task.text_target),
    "linear probe": LinearProbe(random_state=0).fit(train.X, train.y, classes=range(task.n_classes)),
    "FairerCLIP": FairerCLIP(random_state=0).fit(
        train.X, train.y, text=task.text_target, sensitive_text=style.text
    ),
}
reports = {
    name: group_report(test.y, model.predict(test.X), test.sensitive(), **names)
    for name, model in models.items()
}

# %%
# Accuracy in each of the 15 groups
# ---------------------------------
# A dot marks the groups that are frequent in the training rows. A probe on the labels learns the style
# together with the object; zero-shot does not see the training rows, and has errors of its own.

frequent = np.zeros((task.n_classes, len(style.names)), dtype=int)
np.add.at(frequent, (train.y, train.sensitive()), 1)
figure, panels = plt.subplots(1, 3, figsize=(10, 4.2), layout="constrained", sharey=True)
for axes, (name, report) in zip(panels, reports.items(), strict=True):
    grid = np.full(frequent.shape, np.nan)
    for group in report.groups:
        grid[group.y, group.s] = 100 * group.accuracy
    image = axes.imshow(grid, cmap="cividis", vmin=60, vmax=100, aspect="auto")
    for (y, s), value in np.ndenumerate(grid):
        mark = " •" if frequent[y, s] == frequent[y].max() else ""
        axes.text(
            s, y, f"{value:.0f}{mark}", ha="center", va="center", color="white" if value < 80 else "black"
        )
    axes.set_xticks(range(len(style.names)), style.names)
    axes.set_yticks(range(task.n_classes), task.class_names)
    axes.set_title(f"{name}\naverage {100 * report.average:.1f}, worst {100 * report.worst_group:.1f}")
figure.colorbar(image, ax=panels, label="accuracy on test rows, %")
plt.show()

# %%
# Fifteen groups are fifteen chances to look bad
# ----------------------------------------------
# The lowest of many measured accuracies is low partly by chance. The interval of the worst group accounts for
# the choice of the lowest one, and is not the interval of that one group.

for name, report in reports.items():
    low, high = report.intervals["worst_group"]
    print(
        f"{name:13} worst group {report.worst.name} ({report.worst.n} rows): {report.worst_group:.1%}; lowest true "
        f"accuracy of any group [{low:.1%}, {high:.1%}]"
    )

# %%
# In the same way, some of fifteen changes seem to be more than chance when they are not. ``clear`` corrects
# for their number.

pair = paired_report(
    test.y,
    models["zero-shot"].predict(test.X),
    models["FairerCLIP"].predict(test.X),
    test.sensitive(),
    **names,
)
alone = [group for group in pair.groups if group.low > 0 or group.high < 0]
clear = [group for group in pair.groups if group.clear]
worse = [group.name for group in clear if group.difference < 0]
print(
    f"{len(alone)} of {len(pair.groups)} groups have an interval without 0; {len(clear)} changes are clear together."
)
print(f"Clearly worse with FairerCLIP than with zero-shot: {', '.join(worse) or 'none'}.")

order = sorted(pair.groups, key=lambda group: group.difference)
figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
for place, group in enumerate(order):
    colour = "#0072B2" if group.clear else "#767676"
    ends = [[100 * (group.difference - group.low)], [100 * (group.high - group.difference)]]
    axes.errorbar(
        100 * group.difference,
        place,
        xerr=ends,
        fmt="s" if group.clear else "o",
        color=colour,
        mfc=colour if group.clear else "white",
        capsize=3,
    )
axes.axvline(0, color="black", linewidth=1)
axes.set_yticks(range(len(order)), [group.name for group in order])
axes.set(xlabel="FairerCLIP minus zero-shot, points (filled squares: clear with all groups considered)")
axes.grid(axis="x", alpha=0.4)
plt.show()
