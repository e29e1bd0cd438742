"""Average and worst group of every strength, from one fit."""

import matplotlib.pyplot as plt
from story import AFTER, BEFORE, fitted, reports

task, model = fitted()
path = model.path()
points = path.evaluate(task.test.X, task.test.y, task.test.sensitive())
taus = [point["tau"] for point in points]
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
for figure_name, colour in (("average", "gray"), ("worst_group", AFTER)):
    rates = [100 * point[figure_name] for point in points]
    axes.plot(taus, rates, color=colour, marker="o", markersize=4, label=figure_name.replace("_", " "))
axes.axhline(
    100 * reports()[0].worst.accuracy, color=BEFORE, linestyle="--", label="worst group of zero-shot"
)
axes.set_xlabel("strength τ")
axes.set_ylabel("accuracy, %")
axes.legend(frameon=False, loc="lower right")
