"""Average and worst group of every strength, from one fit."""

import matplotlib.pyplot as plt
from story import AFTER, BEFORE, fitted, reports

task, model = fitted()
path = model.path()
points = path.evaluate(task.test.X, task.test.y, task.test.sensitive())
taus = [point["tau"] for point in points]
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
axes.plot(taus, [100 * point["average"] for point in points], color="gray", marker="o", markersize=4, label="average")
axes.plot(taus, [100 * point["worst_group"] for point in points], color=AFTER, marker="o", markersize=4, label="worst group")
axes.axhline(100 * reports()[0].worst.accuracy, color=BEFORE, linestyle="--", label="worst group of zero-shot")
axes.set_xlabel("strength τ")
axes.set_ylabel("accuracy, %")
axes.legend(frameon=False, loc="lower right")
