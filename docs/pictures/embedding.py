"""Test rows by how much they look like a water background, and like a waterbird: zero-shot and after."""

import matplotlib.pyplot as plt
import numpy as np
from story import LAND, WATER, fitted

STYLES = ({"s": 9, "linewidths": 0, "alpha": 0.6}, {"s": 26, "linewidths": 0.5, "edgecolors": "black"})

task, model = fitted()
test, place = task.test, task.sensitive_attribute()
rows = np.random.default_rng(0).choice(len(test.y), 1200, replace=False)
X, y, s = test.X[rows], test.y[rows], test.sensitive()[rows]
background = X @ (place.text[1] - place.text[0])
scores = {"zero-shot": X @ task.text_target.T, "FairerCLIP": model.scores(X)}
figure, both = plt.subplots(1, 2, figsize=(9, 4), layout="constrained", sharex=True)
for axes, (title, score) in zip(both, scores.items(), strict=True):
    bird = score[:, 1] - score[:, 0]
    bird = bird / bird.std()
    for value, colour in ((0, LAND), (1, WATER)):
        for kind, marker in ((0, "o"), (1, "^")):
            chosen = (s == value) & (y == kind)
            label = f"{task.class_names[kind]} on {place.names[value].removesuffix(' background')}"
            axes.scatter(
                background[chosen], bird[chosen], facecolor=colour, marker=marker, label=label, **STYLES[kind]
            )
    axes.axhline(0, color="black", linewidth=1)
    correlation = np.corrcoef(background, bird)[0, 1]
    axes.set_title(f"{title}: correlation {correlation:.2f}", fontsize=10)
    axes.set_xlabel("land  ←  background read from the prompts  →  water")
    axes.set_xticks([])
    axes.set_yticks([])
both[0].set_ylabel("landbird  ←  score  →  waterbird")
figure.legend(
    *both[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, markerscale=1.3
)
