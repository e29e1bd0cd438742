"""
Without labels
==============

Labels are costly, and CLIP was made to do without them. A fit needs only prompts: it guesses the class of
each training row, and its sensitive value, from the prompts. This page shows what that can do, what it
cannot, and what some labels add.
"""

# %%
# The same fit with fewer and fewer labels
# ----------------------------------------
# ``y`` is None, or has None where the label is not known. Sensitive values are never given here; they are
# read from prompts. We repeat the draw of the known labels, because few labels give different models with
# each draw.

import matplotlib.pyplot as plt
import numpy as np

from fairerclip import FairerCLIP
from fairerclip.baselines import ZeroShot
from fairerclip.data import simulate
from fairerclip.metrics import group_report

task = simulate("waterbirds", seed=1, scale=0.2, width=64)
train, test, place = task.train, task.test, task.sensitive_attribute()
prompts = {"text": task.text_target, "sensitive_text": place.text, "classes": [0, 1]}
names = {"class_names": task.class_names, "sensitive_names": place.names}


def measure(model):
    """Report the groups of the test rows."""
    return group_report(test.y, model.predict(test.X), test.sensitive(), **names)


def fit_with(share, seed):
    """Fit with the labels of a share of the rows."""
    known = np.random.default_rng(seed).random(len(train)) < share
    y = np.where(known, train.y, -1)
    model = FairerCLIP(n_features=500, random_state=seed, missing_label=-1)
    return model.fit(train.X, y if share else None, **prompts)


zero_shot = measure(ZeroShot().fit(train.X, text=task.text_target))
shares = (0.0, 0.1, 0.3, 1.0)
models = {share: [fit_with(share, seed) for seed in range(3)] for share in shares}
reports = {share: [measure(model) for model in fitted] for share, fitted in models.items()}

print(f"zero-shot      average {zero_shot.average:.1%}, worst group {zero_shot.worst_group:.1%}")
for share, several in reports.items():
    average = np.mean([report.average for report in several])
    worst = [report.worst_group for report in several]
    print(
        f"{share:4.0%} labels    average {average:.1%}, worst group {np.mean(worst):.1%} "
        f"(from {min(worst):.1%} to {max(worst):.1%} over draws)"
    )

# %%

figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
for figure_name, colour, marker, shift in (
    ("average", "#0072B2", "o", -0.08),
    ("worst_group", "#D55E00", "s", 0.08),
):
    values = [[100 * getattr(report, figure_name) for report in reports[share]] for share in shares]
    means = [np.mean(v) for v in values]
    label = figure_name.replace("_", " ")
    axes.plot(
        np.arange(len(shares)) + shift,
        means,
        color=colour,
        marker=marker,
        markersize=8,
        label=f"FairerCLIP, {label}",
    )
    for place_x, drawn in enumerate(values):
        axes.plot([place_x + shift] * len(drawn), drawn, ".", color=colour, alpha=0.6)
    axes.axhline(
        100 * getattr(zero_shot, figure_name), color=colour, linestyle=":", label=f"zero-shot, {label}"
    )
axes.set_xticks(range(len(shares)), [f"{share:.0%}" for share in shares])
axes.set(xlabel="training rows whose class is known", ylabel="accuracy on test rows, %")
axes.grid(axis="y", alpha=0.4)
figure.legend(loc="outside right center")
plt.show()

# %%
# Prompts alone already raise the worst group far above zero-shot. Labels raise the average; but some labels
# are not always better than none for the worst group, of which a random choice of rows has hardly any.
#
# What limits a fit without labels
# --------------------------------
# The guesses carry the bias of the prompts: they are wrong most often for the group that zero-shot fails for,
# and the fit learns from them. ``pseudo_labels_`` has the guesses. Compare, on the training rows of each
# group, how many of them are right with how many test rows the models with no and with all labels get right.

unlabelled = models[0.0][0]
guesses = group_report(train.y, unlabelled.pseudo_labels_, train.sensitive(), **names)
columns = {
    "guessed labels (train)": guesses,
    "fit on guesses (test)": reports[0.0][0],
    "fit on labels (test)": reports[1.0][0],
}
figure, axes = plt.subplots(figsize=(9, 3.8), layout="constrained")
colours = ("#999999", "#56B4E9", "#0072B2")
for k, ((label, report), colour) in enumerate(zip(columns.items(), colours, strict=True)):
    accuracy = np.array([100 * group.accuracy for group in report.groups])
    ends = 100 * np.array([[group.low, group.high] for group in report.groups]).T
    axes.bar(
        np.arange(len(accuracy)) + 0.27 * (k - 1),
        accuracy,
        width=0.25,
        color=colour,
        yerr=np.abs(ends - accuracy),
        capsize=3,
        hatch=("", "//", "..")[k],
        edgecolor="white",
        label=label,
    )
ticks = [f"{group.name.replace(' × ', chr(10))}\n{group.n} training rows" for group in guesses.groups]
axes.set_xticks(range(len(ticks)), ticks)
axes.set(ylabel="right, %", ylim=(0, 125), yticks=range(0, 101, 20))
axes.legend(ncols=3, loc="upper center")
plt.show()

print("how many guesses:", unlabelled.diagnostics_["pseudo_labels"])

# %%
# A fit without labels has no labelled rows to choose its parameters on, so it keeps values that did well on
# other tasks. Where you have a few labelled rows, use them to measure first: a mitigated model that nobody
# measured may be worse than zero-shot.
