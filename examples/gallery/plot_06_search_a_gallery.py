"""
Search results before and after
===============================

A photo library is searched by any words. A query such as "a photo of a nurse" does not ask for a sex, and its
results often have one. :class:`fairerclip.EmbeddingMitigator` maps image embeddings into the same space, so
that every query ranks with less dependence on a sensitive attribute, and existing text encoders and indexes
stay in use.
"""

# %%
# A gallery and its queries
# -------------------------
# The simulated gallery has portraits without classes, and free queries. Six name occupations, the last one
# asks for a sex.

import warnings

import matplotlib.pyplot as plt
import numpy as np

from fairerclip import EmbeddingMitigator
from fairerclip.data import simulate
from fairerclip.errors import SensitiveQueryWarning
from fairerclip.metrics import query_skews

task = simulate("gallery", seed=0, scale=0.4, width=128)
sex, queries = task.sensitive_attribute("sex"), task.queries
gallery, women = task.test.X, task.test.sensitive("sex") == sex.names.index("female")
print(f"{len(gallery)} portraits, {women.mean():.1%} of women")

# %%
# Fit on one collection, search another
# -------------------------------------
# No portrait has a label here: sex is read from its two prompts. Queries that are about the attribute keep
# their ranking, with a warning, since whoever asks for women wants women.

fairer = EmbeddingMitigator().fit(
    task.train.X, sensitive_text={"sex": dict(zip(sex.names, sex.text, strict=True))}
)
before = gallery @ queries.text.T
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always", SensitiveQueryWarning)
    after = fairer.scores(gallery, queries.text)
for warning in caught:
    print(warning.message)

# %%
# Who is at the top
# -----------------
# Each panel follows one ranking from its first results to the whole gallery. A line that starts far from the
# dashed one shows one sex first.

cut = np.arange(20, len(gallery) + 1)
figure, panels = plt.subplots(2, 4, figsize=(11, 5.2), layout="constrained", sharex=True, sharey=True)
for axes, query, scores_before, scores_after in zip(
    panels.ravel(), queries.prompts, before.T, after.T, strict=False
):
    for scores, colour, style, label in (
        (scores_before, "#D55E00", "--", "before"),
        (scores_after, "#0072B2", "-", "after"),
    ):
        share = np.cumsum(women[np.argsort(-scores)]) / np.arange(1, len(gallery) + 1)
        axes.plot(cut, 100 * share[cut - 1], style, color=colour, linewidth=2, label=label)
    axes.axhline(100 * women.mean(), color="black", linestyle=":", linewidth=1, label="whole gallery")
    axes.set(title=query, xscale="log", ylim=(0, 105))
    axes.set_xticks([20, 200, 2000], ["20", "200", "2000"])
    axes.set_xticks([], minor=True)
for axes in panels[:, 0]:
    axes.set_ylabel("women among the results, %")
for axes in panels[1, :3]:
    axes.set_xlabel("number of results")
panels[0, 3].xaxis.set_tick_params(labelbottom=True)
panels[1, 3].axis("off")
panels[1, 3].legend(*panels[0, 0].get_legend_handles_labels(), loc="center")
plt.show()

# %%
# Measured, with intervals
# ------------------------
# MaxSkew@k is the largest log-ratio of a group's share in the first k results to its share in the gallery: 0
# is the gallery's own composition. The share of results that stay says how much a ranking was changed.

k = 200
found = query_skews(before, after, task.test.sensitive("sex"), k, n_replicates=200, random_state=0)
for query, change, clear, kept in zip(queries.prompts, found.changes, found.clear, found.kept, strict=True):
    print(
        f"{query:26} MaxSkew {change.before:.2f} -> {change.after:.2f} [{change.low:+.2f}, {change.high:+.2f}]"
        f"{' clear' if clear else '      '}  {kept:.0%} of the top {k} stay"
    )

# %%
# How strong
# ----------
# Every strength comes from the same fit. More strength gives less skew and changes the order more, also
# inside each group, where it need not change. The rank correlation inside groups is the price.

path = fairer.path(gallery, queries.text, task.test.sensitive("sex"), k=k)
strengths = [point.strength for point in path.points]
figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for axes, name, label in zip(
    panels,
    ("max_skew", "rank_correlation"),
    ("mean MaxSkew of the queries", "rank correlation inside groups"),
    strict=True,
):
    value, low, high = np.array([getattr(point, name) for point in path.points]).T
    axes.plot(strengths, value, color="#0072B2", marker="o", markersize=5)
    axes.fill_between(strengths, low, high, color="#0072B2", alpha=0.2, linewidth=0)
    axes.set(xlabel="strength", title=label)
    axes.grid(alpha=0.4)
panels[0].set_ylim(bottom=0)
panels[1].set_ylim(0.9, 1)
plt.show()

# %%
# What stays: the map treats every query alike and knows nothing of a query's topic, race is not mitigated
# here at all, and equal shares at the top are not the same as good results for everybody. Check the
# composition by the attributes that you did not mitigate, too.

race = task.test.sensitive("race")
both = query_skews(before, after, race, k, n_replicates=100, random_state=0)
print(
    "mean MaxSkew by race, which was not mitigated:",
    f"{np.mean([change.before for change in both.changes]):.2f} ->",
    f"{np.mean([change.after for change in both.changes]):.2f}",
)
