"""The methods that are compared, and what each needs.

`method_settings` has the settings that each may try; `choose_model` chooses among them by the same rule for all.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

from fairerclip.data.io.bounded_text import nearest
from fairerclip.errors import ParameterError
from fairerclip.experiment import LABELS
from fairerclip.study.method import Labels, Method, Parameters
from fairerclip.study.method_settings import (
    ADDITIONS,
    BOOSTS,
    DESCENTS,
    KEPT,
    L1_PENALTIES,
    LIKELIHOODS,
    NEIGHBOURS,
    NEUTRAL,
    ONCE,
    PENALTIES,
    PRIORS,
    RATES,
    RATIOS,
    RECIPES,
    REPLACED,
    RESIDUALS,
    SCALES,
    SHARES,
    SHRINKAGES,
    SHRUNK_PROBES,
    STRENGTHS,
    SUBSPACES,
    TEMPERATURES,
    TWICE,
    WEIGHTS,
)

MAX_STEPS = 20_000
"""Limit of the training of one setting by gradient, in batches, unless another is given."""
OWN = "fairerclip"
"""Key of FairerCLIP for `fit`, with any labels; a comparison has a row for each kind of labels."""
EMBEDDING = "embedding"
"""Key of `EmbeddingMitigator` for `fit`; `study/fit_mitigator.py` fits it."""


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
        SHRINKAGES,
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
        SHRUNK_PROBES,
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
    _by_gradient("contrastive-adapter", "Contrastive Adapter", "ContrastiveAdapter", RECIPES),
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
