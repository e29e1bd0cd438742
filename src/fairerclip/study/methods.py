"""The methods that are compared, what each needs, and the settings that each may try.

Every method has the same number of candidate models, `CANDIDATES`, or one if it has nothing to vary. The cost of a
candidate does not count: it may be a point of a factorisation, a share of WiSE, a λ of Orth-Cali, a penalty of a probe,
or the state of a network after some epochs. `choose_model` chooses among the candidates of every method by the same
rule.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from fairerclip.data.io.bounded_text import nearest
from fairerclip.errors import ParameterError
from fairerclip.experiment import LABELS
from fairerclip.study.method import Labels, Method, Parameters

CANDIDATES = 40
"""Number of models that a method may choose from, for one seed."""
CHECKPOINTS = 10
"""Number of models that one training by gradient gives, one after each tenth of its epochs."""
MAX_STEPS = 20_000
"""Limit of the training of one setting by gradient, in batches, unless another is given."""
OWN = "fairerclip"
"""Key of FairerCLIP for `fit`, with any labels; a comparison has a row for each kind of labels."""
EMBEDDING = "embedding"
"""Key of `EmbeddingMitigator` for `fit`; `study/fit_mitigator.py` fits it."""


def _settings(name: str, first: float, values: Sequence[float]) -> list[Parameters]:
    """Return one setting per value of a parameter, beginning with ``first``."""
    return [{name: value} for value in (first, *(v for v in values if v != first))]


PENALTIES = _settings("C", 1.0, [10.0 ** (k / 5) for k in range(-25, 15)])
"""From 1e-5 to 631."""
L1_PENALTIES = _settings("C", 1.0, [10.0 ** (k / 13) for k in range(-33, 7)])
"""From 0.003 to 3, as the published grids."""
STRENGTHS = _settings("lam", 1000.0, [0.0, *(10.0 ** (k / 6) for k in range(-8, 31))])
"""Of Orth-Cali, up to 1e5."""
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
        {"strength": strength, "prompt_share": 0.5, "keep": keep}
        for strength in (0.3, 300.0)
        for keep in (0.0, 1.0)
    ),
]
"""Of the neutral representation, the default first."""
RESIDUALS: list[Parameters] = [
    {},
    {"classifier_decay": 0.01},
    {"classifier_decay": 0.3},
    {"hidden": 128, "classifier_decay": 0.03},
]
"""Of DeAR: the default, and other classifiers of S."""
ADDITIONS: list[Parameters] = [{}, {"strength": 3.0}, {"strength": 10.0}, {"lr": 3e-3}]
"""Of prompt debiasing."""
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


def _contrastive() -> list[Parameters]:
    """Return both published recipes, as published and with averaged gradients of anchors.

    With sums a contrastive step is 128 times as long. With averages the step size is one of `RATES`, for unit rows.
    """
    from fairerclip.baselines.contrastive_adapter import PUBLISHED

    averaged = {"anchor_reduction": "mean", "lr": 3e-2}
    return [{**PUBLISHED[name], **other} for other in ({}, averaged) for name in ("waterbirds", "celeba")]


def _fairerclip(labels: Literal["none", "target", "all"]) -> Method:
    used = {"none": "no labels", "target": "labels", "all": "labels and S"}[labels]
    return Method(
        f"fairerclip-{labels}",
        f"FairerCLIP, {used}",
        labels,
        "FairerCLIP",
        {},
        ONCE,
        needs_text=labels == "none",
        needs_sensitive=True,
    )


def _probe(key: str, title: str, labels: Labels, **fixed: Any) -> Method:
    needs = fixed.get("class_weight") == "group"
    return Method(
        key,
        title,
        labels,
        "LinearProbe",
        fixed,
        PENALTIES,
        seeded=False,
        needs_text=False,
        needs_sensitive=needs,
    )


def _wise(key: str, title: str, **fixed: Any) -> Method:
    return Method(key, title, "target", "WiSE", fixed, SHARES, seeded=False, needs_sensitive=bool(fixed))


def _reweighted(key: str, title: str, home: str, candidates: Sequence[Parameters], **needs: bool) -> Method:
    return Method(key, title, "target", home, {}, candidates, **needs)


def _by_gradient(key: str, title: str, home: str, candidates: Sequence[Parameters], **fixed: Any) -> Method:
    needs_text = fixed.get("solver") != "sgd"
    return Method(key, title, "target", home, fixed, candidates, gradient=True, needs_text=needs_text)


def _dfr(key: str, title: str, labels: Labels, variant: str) -> Method:
    return Method(key, title, labels, "DFR", {"variant": variant}, L1_PENALTIES, needs_text=False)


METHODS = (
    Method("zero-shot", "Zero-shot", "none", "ZeroShot", {}, ONCE, seeded=False),
    Method("orth-proj", "Orth-Proj", "none", "OrthProj", {}, ONCE, seeded=False, needs_sensitive=True),
    Method("orth-cali", "Orth-Cali", "none", "OrthCali", {}, STRENGTHS, seeded=False, needs_sensitive=True),
    Method(
        "leace",
        "LEACE, zero-shot head",
        "none",
        "LEACE",
        {"head": "zero-shot"},
        ONCE,
        seeded=False,
        needs_sensitive=True,
    ),
    Method(
        "prism-mini",
        "PRISM-mini",
        "none",
        "PRISM",
        {"variant": "mini"},
        ONCE,
        seeded=False,
        needs_sensitive=True,
    ),
    Method("prism", "PRISM", "none", "PRISM", {"variant": "learned"}, DESCENTS, needs_sensitive=True),
    Method("roboshot", "RoboShot", "none", "RoboShot", {}, BOOSTS, seeded=False, needs_sensitive=True),
    Method(
        "rotation",
        "Closed-form rotation",
        "none",
        "Rotation",
        {},
        WEIGHTS,
        seeded=False,
        needs_sensitive=True,
    ),
    Method(
        "perception-clip",
        "PerceptionCLIP",
        "none",
        "PerceptionCLIP",
        {},
        TEMPERATURES,
        seeded=False,
        needs_sensitive=True,
    ),
    Method("tie", "TIE*", "none", "TIE", {}, SCALES, seeded=False, needs_sensitive=True),
    Method(
        "tie-true",
        "TIE, true S of test rows",
        "prediction",
        "TIE",
        {},
        SCALES,
        seeded=False,
        needs_sensitive=True,
    ),
    Method("clip-clip", "CLIP-clip", "none", "CLIPClip", {}, KEPT, seeded=False, needs_sensitive=True),
    Method("sfid", "SFID", "none", "SFID", {}, REPLACED, needs_sensitive=True),
    Method("spd", "SPD", "none", "SPD", {}, SUBSPACES, needs_sensitive=True),
    Method("bend-vlm", "BendVLM", "none", "BendVLM", {}, NEIGHBOURS, needs_sensitive=True),
    Method(
        "fairclip-2022",
        "FairCLIP (2022), neutral representation",
        "none",
        "NeutralRepresentation",
        {},
        NEUTRAL,
        seeded=False,
        needs_sensitive=True,
    ),
    Method("dear", "DeAR", "none", "DeAR", {}, RESIDUALS, gradient=True, needs_sensitive=True),
    Method(
        "prompt-debiasing",
        "Prompt debiasing",
        "none",
        "PromptDebiasing",
        {},
        ADDITIONS,
        gradient=True,
        needs_sensitive=True,
    ),
    _fairerclip("none"),
    _probe("probe", "ERM probe, logistic", "target"),
    _probe("probe-balanced", "ERM probe, classes balanced", "target", class_weight="balanced"),
    _probe("probe-group", "Group-balanced probe, Ŝ", "target", class_weight="group"),
    _reweighted("jtt", "JTT, errors upweighted", "JTT", TWICE, seeded=False, needs_text=False),
    _reweighted("afr", "AFR, unlikely rows upweighted", "AFR", LIKELIHOODS, needs_text=False),
    _reweighted("ppa", "PPA, pseudo-groups", "PPA", PRIORS),
    Method(
        "leace-probe",
        "LEACE, probe head",
        "target",
        "LEACE",
        {"head": "probe"},
        PENALTIES,
        seeded=False,
        needs_text=False,
        needs_sensitive=True,
    ),
    _wise("wise", "WiSE interpolation"),
    _wise("wise-group", "WiSE interpolation, group weights on Ŝ", class_weight="group"),
    _by_gradient("probe-sgd", "ERM probe, SGD", "LinearProbe", RATES, solver="sgd"),
    _by_gradient("adapter", "ERM adapter", "Adapter", RATES),
    _by_gradient("clip-adapter", "CLIP-Adapter", "Adapter", RATIOS, variant="clip-adapter", hidden=None),
    _by_gradient("dfr-subsample", "DFR, pseudo-groups, subsample", "DFR", RATES, variant="subsample"),
    _by_gradient("dfr-upsample", "DFR, pseudo-groups, upsample", "DFR", RATES, variant="upsample"),
    _by_gradient("contrastive-adapter", "Contrastive Adapter", "ContrastiveAdapter", _contrastive()),
    _fairerclip("target"),
    _probe("probe-group-true", "Group-balanced probe, true S", "all", class_weight="group"),
    _dfr("dfr-train", "DFR, training groups", "all", "train"),
    _fairerclip("all"),
    _dfr("dfr-validation", "DFR, validation groups", "validation", "validation"),
)
"""All methods, in the order of tables: without labels, with labels, with labels and true S, on validation rows.

TIE is beside TIE*, although it is given S of the rows that it predicts."""


ALIASES = {"group-balanced-probe": "probe-group"}
"""Other names of methods."""
GIVEN_ROWS = frozenset(method.key for method in METHODS if method.needs_known_rows)
"""Methods that are given S of the rows that they predict: no rivals, and no models that could be used without S."""
FITTABLE = {method.key: method for method in METHODS if not method.is_own and method.key not in GIVEN_ROWS}
"""Methods that `fit` trains besides FairerCLIP, by key."""
LEARNS_FROM = {
    "none": "no labels",
    "target": "target labels",
    "all": "target and sensitive labels",
    "validation": "the labels of validation rows",
    "prediction": "S, also of the rows it predicts",
}
"""Words for the labels that a method learns from."""


def chosen_methods(keys: Sequence[str] | None, methods: Sequence[Method] = METHODS) -> list[Method]:
    """Return the methods of a comparison by key or alias, each once; all of ``methods`` unless given."""
    if keys is None:
        return list(methods)
    known = {method.key: method for method in methods}
    named = list(dict.fromkeys(ALIASES.get(key, key) for key in keys))
    if not named:
        raise ParameterError(f"no method is named; there are {', '.join(known)}")
    check_known(named, known)
    return [known[key] for key in named]


def fit_key(name: str) -> str:
    """Return the key of a method that `fit` trains, from its key or alias; raise for any other name."""
    key = ALIASES.get(name, name)
    variant = next((method for method in METHODS if method.is_own and method.key == key), None)
    if variant is not None:
        raise ParameterError(f"{key} is a row of a comparison: use {OWN} with labels {variant.labels}")
    if key in GIVEN_ROWS:
        raise ParameterError(
            f"{key} is a row of a comparison: it needs S of every row that it predicts, which commands do not give "
            "to a saved model. Use tie, whose model takes true values in Python: model.predict(X, sensitive_features=s)"
        )
    check_known([key], [OWN, EMBEDDING, *FITTABLE])
    return key


def check_known(names: Sequence[str], known: Collection[str]) -> None:
    """Raise for the first unknown name, with the most similar one."""
    for name in names:
        if name not in known:
            near = nearest(name, [*known, *ALIASES])
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ParameterError(f"no method {name!r}{hint}; there are {', '.join(known)}")


def check_labels(method: Method, labels: str | None) -> None:
    """Raise if ``labels`` contradict those that a method learns from; None contradicts nothing."""
    if labels is None or labels == method.labels:
        return
    if labels not in LABELS:
        raise ParameterError(f"labels must be one of {', '.join(LABELS)}; got {labels!r}")
    others = [key for key, other in FITTABLE.items() if other.labels == labels]
    raise ParameterError(
        f"{method.key} learns from {LEARNS_FROM[method.labels]}, but labels are {labels!r}: leave labels out, or take "
        f"a method that learns from {LEARNS_FROM[labels]}: {', '.join([*others, OWN])}"
    )
