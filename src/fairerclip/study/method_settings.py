"""The settings that every method may try in a comparison, the published or default one first.

Every method has the same number of candidate models, `CANDIDATES`, or one if it has nothing to vary. The cost of a
candidate does not count: it may be a point of a factorisation, a share of WiSE, a λ of Orth-Cali, a penalty of a probe,
or the state of a network after some epochs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairerclip.baselines.contrastive_adapter import PUBLISHED
from fairerclip.study.method import Parameters

CANDIDATES = 40
"""Number of models that a method may choose from, for one seed."""
CHECKPOINTS = 10
"""Number of models that one training by gradient gives, one after each tenth of its epochs."""


def _settings(name: str, first: float, values: Sequence[float]) -> list[Parameters]:
    """Return one setting per value of a parameter, beginning with ``first``."""
    return [{name: value} for value in (first, *(v for v in values if v != first))]


PENALTIES = _settings("C", 1.0, [10.0 ** (k / 5) for k in range(-25, 15)])
"""From 1e-5 to 631."""
L1_PENALTIES = _settings("C", 1.0, [10.0 ** (k / 13) for k in range(-33, 7)])
"""From 0.003 to 3, as the published grids."""
STRENGTHS = _settings("lam", 1000.0, [0.0, *(10.0 ** (k / 6) for k in range(-8, 31))])
"""Of Orth-Cali, up to 1e5."""
SHRINKAGES = _settings("shrinkage", 0.0, [10.0 ** (k / 10) for k in range(-38, 1)])
"""Of LEACE, from none to 1, the orthogonal projection."""
SHRUNK_PROBES: list[Parameters] = [
    {"shrinkage": 0.0, "C": 1.0},
    *(
        {"shrinkage": shrinkage, "C": 10.0 ** (k / 2)}
        for shrinkage in (0.0, 0.01, 0.1, 1.0)
        for k in range(-6, 4)
        if (shrinkage, k) != (0.0, 0)
    ),
]
"""Of LEACE with a probe: shrinkages, and penalties from 0.001 to 32."""
SCALES = _settings("scale", 1.0, [k / 10 for k in range(40)])
"""Of TIE, from no translation to 3.9 times the published one."""
DESCENTS: list[Parameters] = [
    {"start": "random", "lr": 0.1, "steps": 167, "margin": 0.5},
    *(
        {"start": start, "lr": lr, "steps": steps, "margin": margin}
        for start in ("random", "projection", "identity")
        for lr in (0.1, 0.01, 0.001)
        for steps in (8, 50)
        for margin in (0.5, 0.0)
    ),
    *({"start": s, "lr": 0.0001, "steps": 50, "margin": 0.5} for s in ("random", "projection", "identity")),
]
"""Of PRISM: the published setting, other starts, shorter and fewer steps, and another margin."""
BOOSTS: list[Parameters] = [
    {"remove": remove, "boost": boost}
    for boost in (1.0, 0.0, 0.5, 2.0, 4.0)
    for remove in (1.0, 0.0, 0.25, 0.5, 0.75, 0.9, 1.1, 1.25)
]
"""Of RoboShot."""
WEIGHTS = _settings("weight", 0.5, [k / 40 for k in range(1, 41)])
"""Of the rotation, up to the projection."""
TEMPERATURES: list[Parameters] = [
    {"infer": infer, **setting}
    for infer in ("classes", "contexts")
    for setting in _settings("temperature", 1.0, [10.0 ** (k / 5) for k in range(-5, 15)])
]
"""Of PerceptionCLIP, from 0.1, nearly one context, to 631, nearly the mean over all of them."""
SHARES: list[Parameters] = [
    {"alpha": 0.5, "C": 1.0},
    {"alpha": 0.0},
    *({"alpha": k / 10, "C": C} for C in (1.0, 0.01, 0.1, 10.0) for k in range(1, 10) if (k, C) != (5, 1.0)),
    *({"alpha": 1.0, "C": C} for C in (0.1, 1.0, 10.0)),
]
"""Of WiSE, from zero-shot to the probe."""
TWICE: list[Parameters] = [
    {"first_C": first, "upweight": upweight, "C": C}
    for first in (1e-3, 1e-4)
    for upweight in (100.0, 20.0, 5.0, 2.0)
    for C in (1.0, 0.1, 0.01, 1e-3, 1e-4)
]
"""Of JTT: two sizes of the error set, and weights from the published 100 down to a mild 2."""
LIKELIHOODS: list[Parameters] = [
    {"C": C, "gamma": gamma, "lam": lam}
    for C in (1.0, 0.01)
    for gamma in (14.0, 8.0, 4.0, 2.0, 0.0)
    for lam in (0.2, 2.0, 0.02, 2e-3)
]
"""Of AFR: from the published 14 down to weights that balance the classes alone."""
PRIORS: list[Parameters] = [
    {"first_C": first, "C": C, "tau": tau}
    for first in (1e-2, 1e-3)
    for C in (1.0, 0.1, 0.01, 1e-3)
    for tau in (1.0, 0.0, 0.5, 1.5, 2.0)
]
"""Of PPA: around the τ that is optimal for balanced groups."""
KEPT: list[Parameters] = _settings("keep", 400 / 512, [k / 40 for k in range(2, 41)])
"""Shares of dimensions of CLIP-clip, up to all of them."""
REPLACED: list[Parameters] = [
    {"replace": 50 / 512, "confidence": 0.7},
    *(
        {"replace": number / 512, "confidence": confidence}
        for confidence in (0.7, 0.6, 0.8, 0.9)
        for number in (6, 12, 25, 50, 75, 100, 150, 200, 250, 300)
        if (number, confidence) != (50, 0.7)
    ),
]
"""Shares of dimensions and limits of uncertainty of SFID, the published ones first."""
SUBSPACES: list[Parameters] = [
    {"directions": 5, "C": 1.0},
    *(
        {"directions": number, "C": C}
        for C in (1.0, 0.1, 0.01, 10.0)
        for number in range(1, 11)
        if (number, C) != (5, 1.0)
    ),
]
"""Of SPD: the published number of directions first, and penalties around the default."""
NEIGHBOURS: list[Parameters] = [{}, *({"neighbours": round(5 * 1.15**k)} for k in range(39))]
"""Of BendVLM: the published number for the number of values first."""
NEUTRAL: list[Parameters] = [
    {"strength": 100.0, "prompt_share": 0.5, "keep": 1.0},
    *(
        {"strength": strength, "prompt_share": share, "keep": keep}
        for strength in (1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
        for share in (0.0, 0.5, 1.0)
        for keep in (0.0, 1.0)
        if (strength, share, keep) != (100.0, 0.5, 1.0)
    ),
    *(
        {"strength": strength, "prompt_share": share, "keep": 1.0, "prefix": "learned"}
        for strength in (10.0, 100.0)
        for share in (0.5, 1.0)
    ),
]
"""Of the neutral representation, the default first, and some with learned prefixes of the prompts of S."""
RESIDUALS: list[Parameters] = [
    {},
    {"classifier_decay": 0.01},
    {"classifier_decay": 0.3},
    {"hidden": 128, "classifier_decay": 0.03},
]
"""Of DeAR: the default, and other classifiers of S."""
ADDITIONS: list[Parameters] = [{}, *({"strength": 3.0, "lr": lr} for lr in (1e-2, 3e-3, 1e-3))]
"""Of prompt debiasing: the default, and a larger weight of the hiding term with smaller and smaller changes."""
RATES = _settings("lr", 1e-3, [1e-3, 1e-2, 3e-2, 1e-1])
RATIOS: list[Parameters] = [{"lr": lr, "ratio": ratio} for ratio in (0.2, 0.6) for lr in (1e-3, 1e-2)]
"""Of CLIP-Adapter: the two that its authors found best on their datasets."""
ONCE: list[Parameters] = [{}]
SEARCH: Mapping[str, Sequence[Any]] = {
    "fits": [{"class_weight": "balanced"}, {"class_weight": "group"}],
    "taus": [0.0, 0.8, 0.98],
    "zero_shots": [0.0, 0.5, 0.75],
    "criteria": ["marginal", "conditional"],
}
"""Grid of FairerCLIP in a comparison: its defaults and the ends of their ranges. With the two zero-shot classifiers, of
plain and of orthogonal prompts, it has `CANDIDATES` models; the default grid of its search has nine times as many.
Without labels it has one more: its start values are not a point of this grid."""
RECIPES: list[Parameters] = [
    {**PUBLISHED[name], **other}
    for other in ({}, {"anchor_reduction": "mean", "lr": 3e-2})
    for name in ("waterbirds", "celeba")
]
"""Of the Contrastive Adapter: both published recipes, as published and with averaged gradients of anchors. With sums a
contrastive step is 128 times as long. With averages the step size is one of `RATES`, for unit rows."""
