"""
A sensitive attribute that is a number
======================================

Age has no natural groups. A fit takes the years as they are and reduces the dependence of the prediction on
them. Groups are needed to report, and only there.
"""

# %%
# Data
# ----
# We draw embeddings of 32 numbers with one direction for a trait (does this person smile?), one for age, and
# noise. In the training rows older people smile less often; in the test rows smiling and age are independent.
# The class prompts point along the trait and a little along age, as captions of young, smiling people would
# make them do.

import matplotlib.pyplot as plt
import numpy as np

from fairerclip import FairerCLIP
from fairerclip.baselines import LinearProbe, ZeroShot
from fairerclip.metrics import group_report, hsic, permutation_test

WIDTH = 32
rng = np.random.default_rng(0)
trait, age_direction = np.linalg.qr(rng.normal(size=(WIDTH, 2)))[0].T


def draw(n, correlation):
    """Draw embeddings, labels and ages."""
    age = rng.uniform(18, 80, size=n)
    standard = (age - 49) / 31
    y = rng.random(n) < 0.5 - 0.5 * correlation * standard
    X = np.outer(2 * y - 1, 0.9 * trait) + np.outer(standard, 1.6 * age_direction)
    return X + rng.normal(scale=0.6, size=(n, WIDTH)), np.where(y, "smiling", "not smiling"), age


X_train, y_train, age_train = draw(2000, correlation=0.95)
X_test, y_test, age_test = draw(3000, correlation=0.0)
prompts = {"smiling": trait - 0.5 * age_direction, "not smiling": -trait + 0.5 * age_direction}

# %%
# Fit
# ---
# Floats with fractions are taken for a quantity; ``sensitive_kind="continuous"`` says so for whole years.
# Parameters that are left to the data are chosen for the worst group; a quantity has no groups, only classes,
# so we set the strength by hand.

models = {
    "zero-shot": ZeroShot().fit(X_train, text=prompts),
    "linear probe": LinearProbe(random_state=0).fit(X_train, y_train),
    "FairerCLIP": FairerCLIP(tau=0.9, criterion="conditional", random_state=0).fit(
        X_train, y_train, text=prompts, sensitive_features=age_train
    ),
}


def margins(model):
    """Score for smiling: above 0 it is predicted."""
    scores = model.scores(X_test)
    smiling = list(model.classes_).index("smiling")
    return scores[:, smiling] - scores[:, 1 - smiling]


# %%
# Scores against age
# ------------------
# A line is the mean score of a class at each age. Where it slopes, a smile counts for less at one end of
# life. Scores have no common unit, so each is divided by its standard deviation.

bins = np.linspace(18, 80, 9)
middle = (bins[1:] + bins[:-1]) / 2
place = np.digitize(age_test, bins[1:-1])
LOOK = {"smiling": ("#0072B2", "o"), "not smiling": ("#D55E00", "s")}
figure, panels = plt.subplots(1, 3, figsize=(10, 3.8), layout="constrained", sharex=True, sharey=True)
for axes, (name, model) in zip(panels, models.items(), strict=True):
    score = margins(model) / np.std(margins(model))
    for label, (colour, marker) in LOOK.items():
        own = y_test == label
        axes.plot(age_test[own], score[own], ".", color=colour, alpha=0.12, markersize=4, rasterized=True)
        means = [score[own & (place == b)].mean() for b in range(len(middle))]
        axes.plot(
            middle,
            means,
            color=colour,
            marker=marker,
            markeredgecolor="white",
            markersize=8,
            linewidth=2.5,
            label=label,
        )
    axes.axhline(0, color="black", linewidth=1)
    axes.set(title=name, xlabel="age, years")
panels[0].set_ylabel("score for smiling, standard deviations")
panels[0].legend(loc="lower left")
plt.show()

# %%
# Measured
# --------
# HSIC measures any dependence of the scores on age, inside each class; a permutation test says whether what
# is left is more than chance.

for name, model in models.items():
    score = margins(model)
    for label in LOOK:
        own = np.flatnonzero(y_test == label)[:500]
        test = permutation_test(score[own, None], age_test[own, None], n_permutations=199, random_state=0)
        value = hsic(score[own, None], age_test[own, None])
        print(f"{name:13} {label:12} HSIC {value:.5f}, p = {test.p_value:.3f}")

# %%
# Accuracy by age needs groups, so we cut age into decades (people below 30 are one group), for the report
# only.

decades = np.where(age_test < 30, "18–29", np.char.add((age_test // 10).astype(int).astype(str), "0s"))
colours = {"zero-shot": ("#767676", "^"), "linear probe": ("#D55E00", "s"), "FairerCLIP": ("#0072B2", "o")}
figure, panels = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained", sharey=True)
for name, model in models.items():
    report = group_report(y_test, model.predict(X_test), decades, positive="smiling")
    worst = report.worst
    print(
        f"{name:13} average {report.average:.1%}, worst group {worst.name} {worst.accuracy:.1%} ({worst.n} rows)"
    )
    for axes, label in zip(panels, LOOK, strict=True):
        groups = [group for group in report.groups if group.y == label]
        low = [100 * (group.accuracy - group.low) for group in groups]
        high = [100 * (group.high - group.accuracy) for group in groups]
        axes.errorbar(
            [group.s for group in groups],
            [100 * group.accuracy for group in groups],
            yerr=[low, high],
            color=colours[name][0],
            marker=colours[name][1],
            capsize=3,
            label=name,
        )
        axes.set(title=f"people who are {label}", xlabel="age")
        axes.grid(axis="y", alpha=0.4)
panels[0].set_ylabel("accuracy on test rows, %")
panels[0].legend()
plt.show()
