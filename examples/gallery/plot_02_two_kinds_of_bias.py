"""
Two kinds of bias
=================

A **spurious correlation** holds in the training rows and not where the model is used: birds and backgrounds.
An **intrinsic dependence** holds everywhere: in a collection of faces, cheekbones that people call high and
sex depend on each other, in the test rows too. Mitigation does different things to the two.
"""

# %%
# Where target and sensitive attribute depend on each other
# ---------------------------------------------------------
# For each task, this is the share of rows of the second class among the rows with each sensitive value.

import matplotlib.pyplot as plt
import numpy as np

from fairerclip import FairerCLIP
from fairerclip.data import simulate
from fairerclip.metrics import group_report

COLOURS, MARKERS = ("#0072B2", "#D55E00"), ("o", "s")
tasks = {
    "spurious correlation": simulate("waterbirds", seed=0, scale=0.3, width=64),
    "intrinsic dependence": simulate("cheekbones", seed=0, width=64),
}

figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained", sharey=True)
for axes, (kind, task) in zip(panels, tasks.items(), strict=True):
    attribute = task.sensitive_attribute()
    for value, name in enumerate(attribute.names):
        shares = [np.mean(split.y[split.sensitive() == value] == 1) for split in (task.train, task.test)]
        bars = axes.bar(
            np.arange(2) + 0.4 * value - 0.2,
            100 * np.array(shares),
            width=0.38,
            color=COLOURS[value],
            hatch=("", "//")[value],
            edgecolor="white",
            label=name,
        )
        axes.bar_label(bars, fmt="%.0f")
    axes.set_xticks([0, 1], ["train", "test"])
    axes.set_title(f"{kind}\n{task.name}")
    axes.legend(title="sensitive value")
panels[0].set(ylabel="rows of the second class, %", ylim=(0, 115))
plt.show()

# %%
# The whole trade-off of each task
# --------------------------------
# One fit gives the models of all strengths τ. We measure three figures on the test rows: accuracy on average,
# accuracy of the worst group, and the equal opportunity difference (EOD), which is the difference in recall
# of the second class between sensitive values. The curves describe the trade-off; they choose nothing.

taus = np.linspace(0, 0.95, 20)
curves = {}
for kind, task in tasks.items():
    model = FairerCLIP(random_state=0, criterion="marginal", zero_shot=0.0, class_offsets=None)
    s_text = task.sensitive_attribute().text
    model.fit(task.train.X, task.train.y, text=task.text_target, sensitive_text=s_text)
    path = model.path(taus, criterion=["marginal", "conditional"])
    curves[kind] = path.evaluate(task.test.X, task.test.y, task.test.sensitive())

FIGURES = {"average": "average", "worst_group": "worst group", "eod": "EOD"}
figure, panels = plt.subplots(2, 3, figsize=(10, 5.4), layout="constrained", sharex=True, sharey="col")
for row, (kind, table) in zip(panels, curves.items(), strict=True):
    for axes, (name, label) in zip(row, FIGURES.items(), strict=True):
        for k, criterion in enumerate(("marginal", "conditional")):
            points = [point for point in table if point["criterion"] == criterion]
            axes.plot(
                [point["tau"] for point in points],
                [100 * point[name] for point in points],
                color=COLOURS[k],
                marker=MARKERS[k],
                markersize=4,
                label=criterion,
            )
        axes.grid(alpha=0.4)
        axes.set_title(f"{label}, {'points' if name == 'eod' else '%'}")
    row[0].set_ylabel(kind)
for axes in panels[1]:
    axes.set_xlabel("strength τ")
handles = panels[0, 0].get_legend_handles_labels()
figure.legend(*handles, title="dependence that is penalised", loc="outside upper center", ncols=2)
plt.show()

# %%
# Reading the curves
# ------------------

for kind, table in curves.items():
    for criterion in ("marginal", "conditional"):
        points = [point for point in table if point["criterion"] == criterion]
        best = max(points, key=lambda point: point["worst_group"])
        print(f"{kind}, {criterion}:")
        for words, point in (("τ = 0", points[0]), ("highest worst group", best), ("largest τ", points[-1])):
            print(
                f"    {words:20} τ = {point['tau']:.2f}: average {point['average']:.1%}, "
                f"worst group {point['worst_group']:.1%}, EOD {100 * point['eod']:.1f} points"
            )

# %%
# With a spurious correlation, a prediction that depends less on S is also better on the test rows, on average
# and in the worst group: mitigation costs nothing until it is too strong. The training rows set that limit.
# In them the class itself depends on S, so that a strong *marginal* penalty, on the dependence of the
# prediction on S, begins to penalise the class. *Conditional* penalises the dependence inside each class, and
# does not turn.
#
# With an intrinsic dependence there is no such gain. The difference between the groups shrinks while the
# average stays or falls a little: part of what predicts S also predicts the target. And a prediction that is
# right for everybody still depends on S, because the target does. A model with parameters that were chosen on
# the training rows:

for kind, task in tasks.items():
    model = FairerCLIP(random_state=0)
    attribute = task.sensitive_attribute()
    model.fit(task.train.X, task.train.y, text=task.text_target, sensitive_text=attribute.text)
    report = group_report(task.test.y, model.predict(task.test.X), task.test.sensitive(), positive=1)
    low, high = report.intervals["eod"]
    rate, parity = 100 * report.eod, 100 * report.demographic_parity_difference
    print(f"{kind}: with parameters chosen on training rows (τ = {model.tau_:.2f}, {model.criterion_}),")
    print(f"    EOD {rate:.1f} points [{100 * low:.1f}, {100 * high:.1f}], ", end="")
    print(f"demographic parity difference {parity:.1f} points")
