"""
How many rows of a group
========================

The rarest group decides what an audit can say. Ten people in a group make an accuracy that changes by ten
points with each of them. This page shows how wide intervals are, and how many rows to collect.
"""

# %%
# The same model, measured on fewer and fewer rows
# ------------------------------------------------
# We fit once, and measure the same predictions on random subsets with n test rows of each class × background.

import matplotlib.pyplot as plt
import numpy as np

from fairerclip import FairerCLIP
from fairerclip.baselines import ZeroShot
from fairerclip.data import simulate
from fairerclip.metrics import group_report, paired_report

task = simulate("waterbirds", seed=0, scale=0.4, width=64)
test, place = task.test, task.sensitive_attribute()
model = FairerCLIP(random_state=0).fit(
    task.train.X, task.train.y, text=task.text_target, sensitive_text=place.text
)
before = ZeroShot().fit(task.train.X, text=task.text_target).predict(test.X)
after = model.predict(test.X)
full = group_report(test.y, after, test.sensitive())

cells = 2 * test.y + test.sensitive()
rng = np.random.default_rng(0)


def subset(n):
    """Row numbers of n random rows of each cell."""
    return np.concatenate([rng.choice(np.flatnonzero(cells == cell), n, replace=False) for cell in range(4)])


sizes = (5, 10, 20, 50, 100, 200)
drawn = {n: [subset(n) for _ in range(50)] for n in sizes}
worst = {
    n: [group_report(test.y[rows], after[rows], test.sensitive()[rows]).worst_group for rows in several]
    for n, several in drawn.items()
}

figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
for spot, n in enumerate(sizes):
    jitter = spot + rng.uniform(-0.25, 0.25, size=len(worst[n]))
    axes.plot(jitter, 100 * np.array(worst[n]), ".", color="#0072B2", alpha=0.5)
    axes.plot(
        spot, 100 * np.mean(worst[n]), "s", color="#D55E00", markersize=8, label="mean" if spot == 0 else None
    )
axes.axhline(100 * full.worst_group, color="black", linestyle=":", label="all test rows")
axes.set_xticks(range(len(sizes)), sizes)
axes.set(xlabel="test rows of each group", ylabel="measured worst group, %")
axes.grid(axis="y", alpha=0.4)
axes.legend(loc="lower right")
plt.show()

for n in sizes:
    low, high = np.quantile(worst[n], [0.05, 0.95])
    print(f"{n:4} rows of each group: 90 % of measured worst groups lie in [{low:.1%}, {high:.1%}]")

# %%
# Few rows do two things. They scatter the measured accuracy, and they push the *worst* one down: the lowest
# of four noisy numbers is lower than the lowest of four exact ones.
#
# How wide an interval will be
# ----------------------------
# An exact interval depends only on the number of rows and on how many are right. So one can know its width
# before collecting.


def half_width(n, accuracy):
    """Half the width of the 95 % interval of one group with n rows, in points."""
    correct = round(accuracy * n)
    report = group_report([1] * n, [1] * correct + [0] * (n - correct), ["group"] * n)
    return 50 * (report.worst.high - report.worst.low)


numbers = np.arange(20, 1001, 20)  # so that every share of right rows is a whole number of them
figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
for accuracy, colour, style in ((0.5, "#D55E00", "-"), (0.8, "#009E73", "--"), (0.95, "#0072B2", "-.")):
    widths = [half_width(n, accuracy) for n in numbers]
    axes.plot(numbers, widths, style, color=colour, linewidth=2, label=f"accuracy about {accuracy:.0%}")
    wanted = {
        goal: next((n for n, width in zip(numbers, widths, strict=True) if width <= goal), None)
        for goal in (10, 5)
    }
    print(
        f"accuracy about {accuracy:.0%}: "
        + ", ".join(f"about {n} rows for ±{goal} points" for goal, n in wanted.items())
    )
for goal in (10, 5):
    axes.axhline(goal, color="black", linewidth=1, linestyle=":")
axes.set(xscale="log", xlabel="rows of the group", ylabel="half the interval, points", ylim=(0, 25))
axes.set_xticks([20, 50, 100, 300, 1000], ["20", "50", "100", "300", "1000"])
axes.set_xticks([], minor=True)
axes.grid(alpha=0.4)
axes.legend()
plt.show()

# %%
# Changes need fewer rows
# -----------------------
# Two models that are measured on the same rows share most of the chance. How often is the change of the worst
# group clear?

for n in sizes:
    clear = []
    for rows in drawn[n][:20]:
        change = paired_report(test.y[rows], before[rows], after[rows], test.sensitive()[rows]).change(
            "worst_group"
        )
        clear.append(change.low > 0)
    print(f"{n:4} rows of each group: the gain over zero-shot is clear in {np.mean(clear):.0%} of the draws")

# %%
# A rare group cannot be repaired by a better interval. Either collect rows of that group, or say that nothing
# is known about it.
