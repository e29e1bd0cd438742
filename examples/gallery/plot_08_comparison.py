"""
Comparison with other methods
=============================

A comparison is fair if every method may see the same labels and choose among about as many settings on the same rows. Here
are methods that fit in seconds. ``fairerclip compare`` does this for a task with all methods, seeds and intervals.
"""

# %%
# What each method is told
# ------------------------
# ``needs`` says what a method cannot do without. We put the methods in three classes by the labels they see, and compare inside
# a class only.

import matplotlib.pyplot as plt
import numpy as np

from fairerclip import FairerCLIP, FairerCLIPSearch
from fairerclip.baselines import DFR, LEACE, LinearProbe, OrthCali, OrthProj, WiSE, ZeroShot
from fairerclip.data import simulate
from fairerclip.metrics import group_report

for method in (ZeroShot, OrthProj, OrthCali, LEACE, LinearProbe, WiSE, DFR):
    needs = method.needs
    wanted = [word for word in ("text", "sensitive", "validation") if getattr(needs, word)]
    print(f"{method.__name__:12} labels: {needs.labels:7} also: {', '.join(wanted) or '-':20} {needs.paper}")


def no_labels(task, seed):
    """Methods that see prompts only."""
    S = task.sensitive_attribute().text
    given = {"text": task.text_target, "sensitive_text": S}
    for model in (ZeroShot(), OrthProj(), OrthCali(), LEACE(), FairerCLIP(random_state=seed)):
        yield model.fit(task.train.X, **given)


def target_labels(task, seed):
    """Methods that see the classes of the training rows, and sensitive prompts."""
    X, y, S = task.train.X, task.train.y, task.sensitive_attribute().text
    yield LinearProbe(random_state=seed).fit(X, y)
    yield WiSE(random_state=seed).fit(X, y, text=task.text_target)
    yield FairerCLIP(random_state=seed).fit(X, y, text=task.text_target, sensitive_text=S)


SPACE = {"fits": [{"class_weight": "balanced"}, {"class_weight": "group"}], "taus": [0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95]}


def validation_groups(task, seed):
    """Methods that see the classes of the training rows, and classes and groups of the validation rows."""
    X, y, S = task.train.X, task.train.y, task.sensitive_attribute().text
    validation = (task.val.X, task.val.y, task.val.sensitive())
    yield DFR(random_state=seed).fit(X, y, validation=validation)
    search = FairerCLIPSearch(FairerCLIP(random_state=seed, n_features=500), search_space=SPACE)
    yield search.fit(X, y, text=task.text_target, sensitive_text=S, validation=validation)


# %%
# Three draws of the data
# -----------------------
# Each draw is a new task: other rows, other prompts. Methods see the same draws, so their differences vary less than their
# accuracies.

BUDGETS = {"no labels": no_labels, "labels of the target": target_labels, "groups of validation rows": validation_groups}
found = {}
for seed in range(3):
    task = simulate("waterbirds", seed=seed, scale=0.2, width=64)
    for budget, methods in BUDGETS.items():
        for model in methods(task, seed):
            report = group_report(task.test.y, model.predict(task.test.X), task.test.sensitive())
            key = budget, type(model).__name__
            found.setdefault(key, []).append((100 * report.average, 100 * report.worst_group))
found = {key: np.array(values) for key, values in found.items()}
for (budget, name), values in found.items():
    (average, worst), spread = values.mean(axis=0), values.std(axis=0, ddof=1)
    print(f"{budget:26} {name:17} average {average:.1f} ± {spread[0]:.1f}, worst group {worst:.1f} ± {spread[1]:.1f}")

# %%
# Average against worst group
# ---------------------------
# Up and to the right is better. Small marks are the draws, large ones their means. On the diagonal all groups are treated alike.

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#767676")
MARKERS = ("o", "s", "^", "D", "v")
figure, panels = plt.subplots(1, 3, figsize=(11, 4), layout="constrained", sharex=True, sharey=True)
for axes, budget in zip(panels, BUDGETS, strict=True):
    own = {name: values for (other, name), values in found.items() if other == budget}
    own = dict(sorted(own.items(), key=lambda item: not item[0].startswith("FairerCLIP")))
    for (name, values), colour, marker in zip(own.items(), COLOURS, MARKERS, strict=False):
        axes.plot(*values.T, marker, color=colour, alpha=0.4, markersize=5)
        axes.plot(*values.mean(axis=0), marker, color=colour, markeredgecolor="black", markersize=10, label=name)
    axes.plot([0, 100], [0, 100], ":", color="black", linewidth=1)
    axes.set(title=budget, xlabel="average, %")
    axes.grid(alpha=0.4)
    axes.legend(loc="lower left")
every = np.concatenate(list(found.values()))
panels[0].set(ylabel="worst group, %", xlim=(every[:, 0].min() - 2, 100), ylim=(min(every[:, 1].min() - 2, 30), 100))
plt.show()

# %%
# Who wins
# --------

for budget in BUDGETS:
    own = {name: values[:, 1] for (other, name), values in found.items() if other == budget}
    ours = next(name for name in own if name.startswith("FairerCLIP"))
    rival = max((name for name in own if name != ours), key=lambda name: own[name].mean())
    lead = own[ours] - own[rival]
    print(
        f"{budget}: worst group of {ours} minus {rival}, by draw: "
        + ", ".join(f"{value:+.1f}" for value in lead)
        + f" (mean {lead.mean():+.1f} points)"
    )

# %%
# Three simulated draws rank methods on this simulation and nowhere else. A lead that changes its sign between draws is no lead.
# With groups of validation rows, balancing these rows (DFR) is strong and simple. Measure on your own task.
