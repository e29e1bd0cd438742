"""
Comparison with other methods
=============================

A comparison is fair if every method may see the same labels and choose among about as many settings on the
same rows. Here are methods that fit in seconds. ``fairerclip compare`` does this for a task with all methods,
seeds and intervals.
"""

# %%
# What each method is told
# ------------------------
# ``needs`` says what a method cannot do without. We put the methods in three classes by the labels they see,
# and compare inside a class only.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GridSearchCV

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
    for model in (ZeroShot(), OrthProj(), OrthCali(), LEACE(), FairerCLIP(n_features=500, random_state=seed)):
        yield model.fit(task.train.X, **given)


STRENGTHS = np.logspace(-3, 1, 5)


def target_labels(task, seed):
    """Methods that see the classes of the training rows, and sensitive prompts; they choose on the training rows."""
    X, y, S = task.train.X, task.train.y, task.sensitive_attribute().text
    yield GridSearchCV(LinearProbe(), {"C": STRENGTHS}, cv=4).fit(X, y).best_estimator_
    yield WiSE().fit(X, y, text=task.text_target)
    yield LinearProbe(class_weight="group").fit(X, y, sensitive_text=S)
    yield FairerCLIP(n_features=500, random_state=seed).fit(X, y, text=task.text_target, sensitive_text=S)


FITS = [{"class_weight": "balanced"}, {"class_weight": "group"}]


def validation_groups(task, seed):
    """Methods that also see classes and groups of the validation rows, and choose, or learn, on them."""
    X, y, S = task.train.X, task.train.y, task.sensitive_attribute().text
    validation = (task.val.X, task.val.y, task.val.sensitive())
    yield DFR(random_state=seed).fit(X, y, validation=validation)
    probe = LinearProbe(C=STRENGTHS, class_weight="group", select="worst_group")
    yield probe.fit(X, y, sensitive_text=S, validation=validation)
    search = FairerCLIPSearch(FairerCLIP(n_features=500, random_state=seed), search_space={"fits": FITS})
    yield search.fit(X, y, text=task.text_target, sensitive_text=S, validation=validation)


def name_of(model):
    """Name of a method in the tables."""
    balanced = getattr(model, "class_weight", None) == "group"
    return type(model).__name__ + (", balanced groups" if balanced else "")


# %%
# Three draws of the data
# -----------------------
# Each draw is a new task: other rows, other prompts. Methods see the same draws, so their differences vary
# less than their accuracies.

BUDGETS = {
    "no labels": no_labels,
    "labels of the target": target_labels,
    "groups of validation rows": validation_groups,
}
found = {}
for seed in range(3):
    task = simulate("waterbirds", seed=seed, scale=0.2, width=64)
    for budget, methods in BUDGETS.items():
        for model in methods(task, seed):
            report = group_report(task.test.y, model.predict(task.test.X), task.test.sensitive())
            key = budget, name_of(model)
            found.setdefault(key, []).append((100 * report.average, 100 * report.worst_group))
found = {key: np.array(values) for key, values in found.items()}
for (budget, name), values in found.items():
    (average, worst), spread = values.mean(axis=0), values.std(axis=0, ddof=1)
    print(
        f"{budget:26} {name:28} average {average:.1f} ± {spread[0]:.1f}, worst group {worst:.1f} ± {spread[1]:.1f}"
    )

# %%
# Average and worst group
# -----------------------
# Small marks are the draws, large ones their means.

MARKS = (("average", "#767676", "o"), ("worst group", "#0072B2", "s"))
rows = [key for budget in BUDGETS for key in found if key[0] == budget]
figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
for place, key in enumerate(rows):
    for k, (label, colour, marker) in enumerate(MARKS):
        values = found[key][:, k]
        axes.plot(values, [place] * len(values), marker, color=colour, alpha=0.5, markersize=4)
        axes.plot(
            values.mean(), place, marker, color=colour, markersize=9, label=label if place == 0 else None
        )
    if place and key[0] != rows[place - 1][0]:
        axes.axhline(place - 0.5, color="black", linewidth=0.8)
for budget in BUDGETS:
    first = next(place for place, key in enumerate(rows) if key[0] == budget)
    axes.text(1.01, first, f"sees {budget}", transform=axes.get_yaxis_transform(), va="center")
axes.set_yticks(range(len(rows)), [name for _, name in rows])
axes.invert_yaxis()
axes.set(xlabel="accuracy on test rows, %")
axes.grid(axis="x", alpha=0.4)
axes.legend(loc="lower left")
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
# Three simulated draws rank methods on this simulation and nowhere else. A lead that changes its sign between
# draws is no lead. Note which methods are close: without labels, a projection of the prompts does about as
# much as a fit. DFR learns from the validation rows alone, and gains with their number. Measure on your own
# task.
