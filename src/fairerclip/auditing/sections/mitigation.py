"""The model that an audit evaluates as "after", fitted and chosen here or given, and its plane of τ and τ_z."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from fairerclip.applying.apply import AnyModel
from fairerclip.auditing.display_names import base_name
from fairerclip.auditing.group_results import PlaneBaseline, PlaneGroup, PlanePoint, PlaneSection
from fairerclip.auditing.mitigator_facts import mitigator_section
from fairerclip.auditing.model_facts import ModelFacts, model_facts
from fairerclip.auditing.model_results import Labels, ModelSection
from fairerclip.baselines.baseline import Baseline
from fairerclip.baselines.mitigated_zero_shot import MitigatedZeroShot
from fairerclip.embedding.mitigator import EmbeddingMitigator
from fairerclip.errors import PromptError, ShapeError
from fairerclip.experiment import UNKNOWN, Experiment
from fairerclip.metrics.groups.group_report import SMALL_GROUP
from fairerclip.metrics.intervals import clopper_pearson
from fairerclip.model.estimator import FairerCLIP
from fairerclip.model.path import DEFAULT_TAUS, TauPath, effective_strength, front

CHOSEN_BY = "expected worst group"
PLACEHOLDERS = ("{tau}", "{tau_z}", "{criterion}")
"""Placeholders that a page replaces by the values of the selected point."""
CRITERIA = ("marginal", "conditional")
TAU_ZS = tuple(np.round(np.linspace(0.0, 0.9, 10), 4).tolist())
COARSE_TAUS = tuple(np.round(np.linspace(0.0, 0.9, 10), 4).tolist())
"""τ of the plane if labels are refined at every point: each takes a pass over the data, so the grid is coarser."""


@dataclass(frozen=True)
class Mitigation:
    """A fitted model, how it was fitted and chosen, and the plane of τ and τ_z around it."""

    model: AnyModel
    labels: Labels | None
    source: str
    seconds: float | None = None
    plane: TauPath | None = None
    chosen: int | None = None
    chosen_on: str | None = None
    chosen_by: str | None = None
    rows: Any = None
    """Audited rows (n, p), which a mitigator compares with those of its fit."""


def mitigate(
    experiment: Experiment,
    model: FairerCLIP,
    labels: Labels,
    split: str | None,
    progress: Callable[[int, int], None] | None = None,
    *,
    by_hand: bool = False,
) -> Mitigation:
    """Tune and fit a model, and solve the plane of τ and τ_z around it.

    The model is tuned on the validation rows by their worst group. If these rows are too few, or the parameters were
    set ``by_hand``, it is fitted with the parameters it has. The plane is evaluated on the validation rows, or on
    ``split`` if these have no labels.
    """
    start = time.perf_counter()
    plane_split = "val" if experiment.is_labelled("val") else split
    tune = not by_hand and experiment.can_tune()
    # A copy without "auto" has the values that were chosen for it.
    model = experiment.tune(model, labels) if tune else experiment.fit(model, labels).at()
    seconds = time.perf_counter() - start
    if plane_split is None or not experiment.is_labelled(plane_split):
        return Mitigation(model, labels, "fitted here", seconds)
    refine = model.refine and (labels == "none" or _has_gaps(experiment))
    taus = {model.tau_, *(COARSE_TAUS if refine else DEFAULT_TAUS)}
    tau_zs = {model.tau_z, *(() if refine else TAU_ZS)}
    plane = model.path(
        sorted(taus), sorted(tau_zs), criterion=list(CRITERIA), refine=refine, progress=progress
    )
    experiment.evaluate_path(plane, plane_split)
    chosen = _place(plane, model)
    return Mitigation(
        model,
        labels,
        "fitted here",
        seconds,
        plane,
        chosen,
        plane_split,
        CHOSEN_BY if tune else "given",
    )


def mitigate_embeddings(
    experiment: Experiment, mitigator: EmbeddingMitigator, labels: Labels, split: str
) -> Mitigation:
    """Fit a mitigator on the training rows, to be compared with zero-shot on the rows of a split."""
    start = time.perf_counter()
    X, given = experiment.mitigator_arguments(labels)
    fitted = clone(mitigator).fit(X, **given)
    seconds = time.perf_counter() - start
    model = mitigated_classifier(experiment, fitted)
    return Mitigation(model, labels, "fitted here", seconds, rows=experiment.task.split(split).X)


def _has_gaps(experiment: Experiment) -> bool:
    """Return whether target labels of training rows are missing: pseudo-labels fill them and are refined."""
    y = experiment.target(experiment.task.train)
    return y is None or bool((y == UNKNOWN).any())


def _place(plane: TauPath, model: FairerCLIP) -> int:
    wanted = (model.tau_, model.tau_z, model.criterion_)
    return next(
        g
        for g, point in enumerate(plane.points)
        if (point.setting.tau, point.setting.tau_z, point.setting.criterion) == wanted
    )


def fit_command(
    experiment: Experiment, source: str, model: FairerCLIP, labels: str, strengths: tuple[str, str, str]
) -> str:
    """Return the shell command that fits this model, with ``strengths`` for τ, τ_z and criterion."""
    words = ["--labels", labels, "--no-tune"]
    words += [
        word for pair in zip(("--tau", "--tau-z", "--criterion"), strengths, strict=True) for word in pair
    ]
    words += ["--seed", str(model.random_state or 0)]
    words += _fit_options(experiment, model, {"tau", "tau_z", "criterion", "random_state"})
    if model.offsets_.any():
        words += ["--offsets", ",".join(map(repr, model.offsets_.tolist()))]
    return _fit_line(source, words)


def mitigator_command(experiment: Experiment, source: str, mitigator: EmbeddingMitigator, labels: str) -> str:
    """Return the shell command that fits this mitigator."""
    words = ["--method", "embedding", "--labels", labels, *_fit_options(experiment, mitigator, set())]
    return _fit_line(source, words)


def _fit_options(
    experiment: Experiment, model: FairerCLIP | EmbeddingMitigator, left_out: Collection[str]
) -> list[str]:
    """Return the options of a fit that both kinds of models have: attributes, classes and parameters."""
    words = []
    if len(experiment.task.sensitive) > 1:
        words += ["--sensitive", ",".join(experiment.sensitive)]
    if experiment.classes != tuple(experiment.task.class_names):
        words += ["--classes", ",".join(experiment.classes)]
    defaults = type(model)().get_params()
    for name, value in sorted(model.get_params().items()):
        if name not in left_out and value != defaults[name]:
            words += ["--set", f"{name}={_as_option(value)}"]
    return words


def _fit_line(source: str, words: Sequence[str]) -> str:
    words = ["fairerclip", "fit", base_name(source), "-o", "MODEL", *words]
    return " ".join(word if word in PLACEHOLDERS else shlex.quote(word) for word in words)


def _as_option(value: Any) -> str:
    """Return the value of a parameter in the form that ``--set`` reads."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)


def model_section(experiment: Experiment, source: str, mitigation: Mitigation) -> ModelSection:
    """Describe the model: its parameters, how it was made, and the command that fits it."""
    model, facts = mitigation.model, model_facts(mitigation.model)
    if isinstance(model, MitigatedZeroShot):
        return _mitigator_model(experiment, source, model, facts, mitigation)
    if isinstance(model, Baseline):
        return _baseline_section(model, facts, mitigation.source)
    strengths = (repr(float(model.tau_)), repr(float(model.tau_z)), model.criterion_)
    parameters = {**model.get_params(), **model.used_parameters()}
    return ModelSection(
        labels=mitigation.labels,
        tau=float(model.tau_),
        tau_z=float(model.tau_z),
        criterion=model.criterion_,
        n_iter=int(model.n_iter_),
        parameters={name: _plain(value) for name, value in sorted(parameters.items())} | _learned(model),
        command=None
        if mitigation.labels is None
        else fit_command(experiment, source, model, mitigation.labels, strengths),
        seconds=mitigation.seconds,
        source=mitigation.source,
        method=facts.method,
        training=facts.training,
        tuning=facts.tuning,
    )


def _baseline_section(model: Baseline, facts: ModelFacts, source: str) -> ModelSection:
    """Describe a baseline, which was given: its method, the labels it learns from, and its parameters."""
    needs = model.requirements
    parameters = {name: _plain(value) for name, value in sorted(model.get_params(deep=False).items())}
    offsets = {"offsets_": str(model.offsets_.tolist())} if model.offsets_.any() else {}
    return ModelSection.model_validate(
        {
            "labels": needs.labels,
            "parameters": parameters | offsets,
            "source": source,
            "method": facts.method,
            "paper": needs.paper,
            "tuning": facts.tuning,
        }
    )


def _mitigator_model(
    experiment: Experiment,
    source: str,
    model: MitigatedZeroShot,
    facts: ModelFacts,
    mitigation: Mitigation,
) -> ModelSection:
    """Describe a mitigator, and the command that fits it unless it was given."""
    mitigator, labels = model.mitigator_, mitigation.labels
    parameters = {name: _plain(value) for name, value in sorted(mitigator.get_params(deep=False).items())}
    return ModelSection(
        labels=labels,
        parameters=parameters,
        command=None if labels is None else mitigator_command(experiment, source, mitigator, labels),
        seconds=mitigation.seconds,
        source=mitigation.source,
        method=facts.method,
        paper=model.requirements.paper,
        tuning=facts.tuning,
        mitigator=mitigator_section(mitigator, mitigation.rows),
    )


def mitigated_classifier(experiment: Experiment, mitigator: EmbeddingMitigator) -> MitigatedZeroShot:
    """Return the zero-shot classifier of mitigated embeddings; raise if the task does not fit the mitigator."""
    check_is_fitted(mitigator, "fitted_")
    text = check_prompts(experiment)
    if mitigator.n_features_in_ != experiment.task.width:
        raise ShapeError(
            f"the mitigator is for embeddings of width {mitigator.n_features_in_}, but those of "
            f"{experiment.task.name} have width {experiment.task.width}"
        )
    return MitigatedZeroShot.of(mitigator, text)


def check_prompts(experiment: Experiment) -> dict[str, NDArray[np.floating]]:
    """Return the class prompts by name; raise without any."""
    if experiment.named_text is None:
        raise PromptError(
            f"{experiment.task.name} has no class prompts (text_target), which rank and classify mitigated embeddings"
        )
    return experiment.named_text


def _learned(model: FairerCLIP) -> dict[str, str]:
    """Return the offsets of the class scores as text; nothing where there are none."""
    return {"offsets_": str(model.offsets_.tolist())} if model.offsets_.any() else {}


def _plain(value: Any) -> str | float | bool | None:
    if np.ndim(value) > 1 or callable(value):
        return f"array of shape {np.shape(value)}" if np.ndim(value) else "a function"
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


def plane_section(
    experiment: Experiment, source: str, mitigation: Mitigation, confidence: float
) -> PlaneSection | None:
    """Return the (τ, τ_z) plane with the number of correct rows of each group at each point, or None without one."""
    plane, split = mitigation.plane, mitigation.chosen_on
    if plane is None or plane.table is None or plane.cells is None or split is None:
        return None
    if mitigation.labels is None or mitigation.chosen is None or mitigation.chosen_by is None:
        raise AssertionError("a plane is of a model fitted here, so its labels and its point are known")
    cells = plane.cells
    places = np.argwhere(cells.counts)
    groups = tuple(
        _group(str(cells.classes[i]), str(cells.groups[j]), int(cells.counts[i, j])) for i, j in places
    )
    correct = cells.hits[:, places[:, 0], places[:, 1]].tolist()  # (points, groups)
    baseline = _baseline(experiment, split, groups)
    model = mitigation.model
    if not isinstance(model, FairerCLIP):
        raise AssertionError("only FairerCLIP has a plane")
    points = tuple(_point(experiment, model, row, c) for row, c in zip(plane.table, correct, strict=True))
    counted = [c for c in (*(point.correct for point in points), baseline and baseline.correct) if c]
    settings = [point.setting for point in plane.points]
    return PlaneSection(
        split=split,
        taus=tuple(dict.fromkeys(s.tau for s in settings)),
        tau_zs=tuple(dict.fromkeys(s.tau_z for s in settings)),
        criteria=tuple(dict.fromkeys(s.criterion for s in settings)),
        groups=groups,
        intervals=tuple(
            _lookup({c[g] for c in counted}, group.n, confidence) for g, group in enumerate(groups)
        ),
        points=points,
        chosen=mitigation.chosen,
        chosen_by=mitigation.chosen_by,
        front=tuple(front(plane.table)),
        one_curve=points[0].lambda_eff is not None,
        baseline=baseline,
        command=fit_command(experiment, source, model, mitigation.labels, PLACEHOLDERS),
    )


def _group(y: str, s: str, n: int) -> PlaneGroup:
    return PlaneGroup(name=f"{y} × {s}", y=y, s=s, n=n, small=n < SMALL_GROUP)


def _point(
    experiment: Experiment, model: FairerCLIP, row: Mapping[str, Any], correct: Sequence[int]
) -> PlanePoint:
    return PlanePoint(
        lambda_eff=effective_strength(len(experiment.classes), model.scaling, row["tau"], row["tau_z"]),
        correct=None if row["failure"] else tuple(correct),
        **{name: row[name] for name in PlanePoint.model_fields.keys() - {"lambda_eff", "correct"}},
    )


def _lookup(correct: set[int], n: int, confidence: float) -> dict[str, tuple[float, float]]:
    """Return the exact interval for each distinct count."""
    counts = sorted(correct)
    low, high = clopper_pearson(np.array(counts), np.full(len(counts), n), confidence)
    return {str(k): (float(a), float(b)) for k, a, b in zip(counts, low, high, strict=True)}


def _baseline(experiment: Experiment, split: str, groups: Sequence[PlaneGroup]) -> PlaneBaseline | None:
    """Evaluate zero-shot on the rows of the plane."""
    if experiment.text is None:
        return None
    rows = experiment.task.split(split)
    report = experiment.report(rows, experiment.zero_shot(rows))
    correct = {(group.y, group.s): group.correct for group in report.groups}
    return PlaneBaseline(
        average=report.average,
        worst_group=report.worst.accuracy,
        gap=report.gap,
        eod=report.eod,
        correct=tuple(correct[group.y, group.s] for group in groups),
    )
