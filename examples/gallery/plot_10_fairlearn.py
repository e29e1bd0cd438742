"""
Predictions in fairlearn
========================

Fairlearn users have their own tables and metrics. Predictions are arrays of labels, which its ``MetricFrame``
takes as they are, and a group report turns into one.
"""

# %%

import matplotlib.pyplot as plt
import numpy as np
from fairlearn.metrics import (
    MetricFrame,
    count,
    demographic_parity_difference,
    equal_opportunity_difference,
    equalized_odds_difference,
    false_positive_rate,
    true_positive_rate,
)
from sklearn.metrics import accuracy_score

from fairerclip import FairerCLIP
from fairerclip.baselines import ZeroShot
from fairerclip.data import simulate
from fairerclip.metrics import group_report, paired_report

task = simulate("cheekbones", seed=0, width=64)
train, test, sex = task.train, task.test, task.sensitive_attribute()
value = np.array(sex.names)[test.sensitive()]
models = {
    "zero-shot": ZeroShot().fit(train.X, text=task.text_target),
    "FairerCLIP": FairerCLIP(random_state=0).fit(
        train.X, train.y, text=task.text_target, sensitive_text=sex.text
    ),
}
predictions = {name: model.predict(test.X) for name, model in models.items()}

# %%
# A MetricFrame of any metrics
# ----------------------------

METRICS = {
    "accuracy": accuracy_score,
    "true positive rate": true_positive_rate,
    "false positive rate": false_positive_rate,
    "rows": count,
}
frames = {
    name: MetricFrame(metrics=METRICS, y_true=test.y, y_pred=predicted, sensitive_features={"sex": value})
    for name, predicted in predictions.items()
}
for name, frame in frames.items():
    print(f"{name}\n{frame.by_group.round(3)}\n")

figure, panels = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained", sharey=True)
for axes, metric in zip(panels, list(METRICS)[:3], strict=True):
    for k, (name, frame) in enumerate(frames.items()):
        bars = axes.bar(
            np.arange(2) + 0.4 * k - 0.2,
            100 * frame.by_group[metric],
            width=0.38,
            color=("#D55E00", "#0072B2")[k],
            hatch=("//", "")[k],
            edgecolor="white",
            label=name,
        )
        axes.bar_label(bars, fmt="%.1f", padding=2)
    axes.set_xticks(range(2), frame.by_group.index)
    axes.set(title=metric, ylim=(0, 108))
panels[0].set_ylabel("test rows, %")
figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
plt.show()

# %%
# The same from a group report
# ----------------------------
# ``group_report`` counts rows by class, prediction and sensitive value once. Its differences are those of
# fairlearn, with intervals; ``to_metric_frame`` gives a frame of the same rows.

DIFFERENCES = {
    "equalized_odds_difference": equalized_odds_difference,
    "demographic_parity_difference": demographic_parity_difference,
    "eod": equal_opportunity_difference,
}
reports = {
    name: group_report(test.y, predicted, value, positive=1) for name, predicted in predictions.items()
}
for name, report in reports.items():
    for figure_name, function in DIFFERENCES.items():
        low, high = report.intervals[figure_name]
        theirs = function(test.y, predictions[name], sensitive_features=value)
        print(
            f"{name:10} {function.__name__:30} {theirs:.4f} by fairlearn, {getattr(report, figure_name):.4f} here, "
            f"95 % interval [{low:.4f}, {high:.4f}]"
        )
print(reports["FairerCLIP"].to_metric_frame().difference())

# %%
# Differences with their intervals
# --------------------------------
# Without intervals the bars above seem to settle the matter. With them, they may not.

figure, axes = plt.subplots(figsize=(9, 3.2), layout="constrained")
for k, (name, report) in enumerate(reports.items()):
    for place, figure_name in enumerate(DIFFERENCES):
        middle, (low, high) = getattr(report, figure_name), report.intervals[figure_name]
        axes.errorbar(
            100 * middle,
            place + 0.24 * k - 0.12,
            xerr=[[100 * (middle - low)], [100 * (high - middle)]],
            fmt="os"[k],
            color=("#D55E00", "#0072B2")[k],
            capsize=4,
            label=None if place else name,
        )
axes.set_yticks(range(3), [function.__name__.replace("_", " ") for function in DIFFERENCES.values()])
axes.invert_yaxis()
axes.set(xlabel="points, with 95 % interval", xlim=(-0.5, None))
axes.grid(axis="x", alpha=0.4)
figure.legend(loc="outside right upper")
plt.show()

# %%
# In this task cheekbones and sex depend on each other, so a demographic parity difference of 0 would need
# wrong predictions. Accuracy rose for both sexes. Whether the differences shrank is another question, and a
# paired interval answers it.

pair = paired_report(test.y, predictions["zero-shot"], predictions["FairerCLIP"], value, positive=1)
for figure_name in ("average", *DIFFERENCES):
    change = pair.change(figure_name)
    ends = f"[{100 * change.low:+.1f}, {100 * change.high:+.1f}]"
    print(f"{figure_name:30} change {100 * change.difference:+.1f} points {ends}")
