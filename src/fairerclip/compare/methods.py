"""The methods that are compared, what each needs, and the settings that each may try.

Every method gets the same budget, `BUDGET` fits, and the same validation rows to choose among what they gave, by the
shrunken worst group. FairerCLIP is what its own `tune` gives, which goes by the expected worst group and takes no more
fits than that; all points of one factorisation are one fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairerclip.errors import ParameterError
from fairerclip.workflow import Experiment

BUDGET = 12
"""Fits that a method may try for one seed."""
GRADIENT_FITS = 3
"""Fits of a method trained by gradient, whose time is capped besides."""

Parameters = Mapping[str, Any]


@dataclass(frozen=True)
class Method:
    """One row of a comparison.

    Attributes
    ----------
    key : how the command line names it.
    title : how tables name it.
    labels : labels of the training rows that it sees: "none", "target" or "all".
    home : name in `fairerclip.baselines`, or "FairerCLIP".
    fixed, candidates : parameters that stay, and the settings to try.
    gradient : whether it is trained by gradient (extra ``torch``), within a time cap.
    validation : whether its fit sees the validation rows, to stop or to learn from.
    seeded : whether a seed changes it; else one run stands for all seeds.
    needs_text, needs_sensitive : whether it needs class prompts, and sensitive values (true or read from prompts).
    """

    key: str
    title: str
    labels: str
    home: str
    fixed: Parameters
    candidates: Sequence[Parameters]
    gradient: bool = False
    validation: bool = False
    seeded: bool = True
    needs_text: bool = True
    needs_sensitive: bool = False

    @property
    def needs(self) -> list[str]:
        """What a task and an installation must have for it, as words for machines."""
        parts = {
            "target_labels": self.labels != "none",
            "sensitive_labels": self.labels == "all",
            "class_prompts": self.needs_text,
            "sensitive_prompts": self.needs_sensitive and self.labels != "all",
            "torch": self.gradient,
        }
        return [name for name, needed in parts.items() if needed]

    def why_not(self, experiment: Experiment) -> str | None:
        """Why a task does not allow it; None where it does."""
        task = experiment.task
        if "train" not in task.splits:
            return "the task has no training split"
        train = task.train
        if self.labels != "none" and (train.y is None or (train.y < 0).all()):
            return "there are no target labels in training"
        without = [name for name in experiment.sensitive if name not in train.s]
        if self.labels == "all" and (without or not experiment.sensitive):
            return "there are no sensitive labels in training"
        if self.needs_text and experiment.text is None:
            return "there are no class prompts"
        silent = [name for name in experiment.sensitive if task.sensitive[name].text is None]
        if self.needs_sensitive and self.labels != "all" and (silent or not experiment.sensitive):
            return "there are no prompts to read the sensitive attribute from"
        return None


PENALTIES = [{"C": 10.0**power} for power in (-4, -3.5, -3, -2.5, -2, -1.5, -1, -0.5, 0, 0.5, 1, 2)]
RATES = [{"lr": rate} for rate in (1e-3, 1e-2, 1e-1)]
CELEBA_RECIPE = {"epochs": 50, "anchor_share": 0.1, "resample": "upsample"}
"""Of the Contrastive Adapter: a tenth of the anchors in a contrastive epoch. Its defaults are those for Waterbirds."""
CONTRASTIVE: list[Parameters] = [{"lr": 1e-3, **CELEBA_RECIPE}, {"lr": 1e-2, **CELEBA_RECIPE}, {"lr": 1e-2}]
ONCE: list[Parameters] = [{}]


def _fairerclip(labels: str) -> Method:
    told = {"none": "no labels", "target": "labels", "all": "labels and S"}[labels]
    return Method(
        f"fairerclip-{labels}",
        f"FairerCLIP, {told}",
        labels,
        "FairerCLIP",
        {},
        ONCE,
        needs_text=labels == "none",
        needs_sensitive=True,
    )


def _probe(key: str, title: str, labels: str, **fixed: Any) -> Method:
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


METHODS = (
    Method("zero-shot", "Zero-shot", "none", "ZeroShot", {}, ONCE, seeded=False),
    Method("orth-proj", "Orth-Proj", "none", "OrthProj", {}, ONCE, seeded=False, needs_sensitive=True),
    Method(
        "orth-cali",
        "Orth-Cali",
        "none",
        "OrthCali",
        {},
        [{"lam": lam} for lam in (0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 500.0, 1000.0, 3000.0, 1e4, 1e5)],
        seeded=False,
        needs_sensitive=True,
    ),
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
    _fairerclip("none"),
    _probe("probe", "ERM probe, logistic", "target"),
    _probe("probe-balanced", "ERM probe, classes balanced", "target", class_weight="balanced"),
    _probe("probe-group", "Group-balanced probe, Ŝ", "target", class_weight="group"),
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
    Method(
        "wise",
        "WiSE interpolation",
        "target",
        "WiSE",
        {},
        [{"alpha": alpha, "C": C} for C in (0.01, 1.0) for alpha in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)],
        seeded=False,
    ),
    Method(
        "probe-sgd",
        "ERM probe, SGD",
        "target",
        "LinearProbe",
        {"solver": "sgd"},
        RATES,
        True,
        True,
        needs_text=False,
    ),
    Method("adapter", "ERM adapter", "target", "Adapter", {}, RATES, True, True),
    Method(
        "dfr-subsample",
        "DFR, pseudo-groups, subsample",
        "target",
        "DFR",
        {"variant": "subsample"},
        RATES,
        True,
        True,
    ),
    Method(
        "dfr-upsample",
        "DFR, pseudo-groups, upsample",
        "target",
        "DFR",
        {"variant": "upsample"},
        RATES,
        True,
        True,
    ),
    Method(
        "contrastive-adapter",
        "Contrastive Adapter",
        "target",
        "ContrastiveAdapter",
        {},
        CONTRASTIVE,
        True,
        True,
    ),
    _fairerclip("target"),
    Method(
        "dfr-validation",
        "DFR, validation groups",
        "target",
        "DFR",
        {"variant": "validation"},
        ONCE,
        validation=True,
        needs_text=False,
    ),
    _probe("probe-group-true", "Group-balanced probe, true S", "all", class_weight="group"),
    Method(
        "dfr-train",
        "DFR, training groups",
        "all",
        "DFR",
        {"variant": "train"},
        ONCE,
        validation=True,
        needs_text=False,
    ),
    _fairerclip("all"),
)
"""All methods, in the order of tables: without labels, with labels, with labels and true S."""


def chosen_methods(keys: Sequence[str] | None) -> list[Method]:
    """Methods by key, all unless given."""
    known = {method.key: method for method in METHODS}
    unknown = [key for key in keys or () if key not in known]
    if unknown:
        raise ParameterError(f"no method {unknown[0]!r}; there are {', '.join(known)}")
    return list(METHODS) if keys is None else [known[key] for key in keys]


def make(method: Method, parameters: Parameters, seed: int, max_seconds: float | None = None) -> Any:
    """An unfitted estimator; ``max_seconds`` caps training by gradient."""
    if method.home == "FairerCLIP":
        from fairerclip.model import FairerCLIP

        return FairerCLIP(**method.fixed, **parameters, random_state=seed)
    from fairerclip import baselines

    maker: Callable[..., Any] = getattr(baselines, method.home)
    names = maker().get_params()
    given = {**method.fixed, **parameters, **({"max_seconds": max_seconds} if method.gradient else {})}
    own = {name: value for name, value in given.items() if name in names}
    rest = {name: value for name, value in given.items() if name not in names}
    if rest:  # how a probe is trained by gradient is not part of what it is
        own["recipe"] = rest
    return maker(**own, **({"random_state": seed} if "random_state" in names else {}))
