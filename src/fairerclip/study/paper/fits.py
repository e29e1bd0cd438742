"""Single fits of FairerCLIP as functions that worker processes can run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.memory import peak_memory
from fairerclip.auditing.group_results import Stage, StageReport
from fairerclip.errors import LabelError
from fairerclip.experiment import UNKNOWN, Experiment
from fairerclip.metrics import hsic_bound
from fairerclip.model.estimator import FairerCLIP
from fairerclip.study.paper.job_answers import (
    FitAnswer,
    InformationAnswer,
    PlaneAnswer,
    PlaneFigures,
    Strengths,
)
from fairerclip.study.run_method import count_parameters

QUICK_FEATURES = 300
"""Limit of the number of features if ``quick``."""
BEYOND = (1.0, 1.5, 2.0, 3.0, 5.0)
"""Strengths above the published ones: weights as the paper prints them have no upper limit."""
TAUS = [*(round(0.05 * i, 2) for i in range(20)), *BEYOND]
SHOWN = (
    "tau",
    "tau_z",
    "tau_text",
    "tau_z_text",
    "n_features",
    "gamma",
    "class_weight",
    "subsample",
    "max_iter",
    "criterion",
)


def preset_model(dataset: str, origin: str, backbone: str, *, quick: bool) -> FairerCLIP:
    """Make a model with published parameters; with fewer features if ``quick``."""
    model = FairerCLIP.preset(dataset, source=origin, backbone=backbone)
    return model.set_params(n_features=min(model.n_features, QUICK_FEATURES)) if quick else model


def fit_preset(
    experiment: Experiment, dataset: str, origin: str, backbone: str, labels: str, quick: bool
) -> FitAnswer:
    """Fit published parameters without tuning, and report on the test rows."""
    model = preset_model(dataset, origin, backbone, quick=quick)
    given = {name: getattr(model, name) for name in SHOWN}
    parameters = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
    return fitted(experiment, model, labels).model_copy(update={"parameters": parameters})


def fit_tuned(
    experiment: Experiment,
    parameters: Mapping[str, Any],
    labels: str,
    seed: int,
    taus: Sequence[float] | None,
    tau_zs: Sequence[float] | None,
) -> FitAnswer:
    """Fit, choose (τ, τ_z) among the given values on the validation rows, and report on the test rows.

    Without a validation split, or with one point, nothing is chosen. If the parameters say so, pseudo-labels are
    refined again at each point: the chosen model is the one that a fit with its parameters gives.
    """
    model = FairerCLIP(**{**parameters, "random_state": seed})
    return fitted(experiment, model, labels, taus=taus, tau_zs=tau_zs)


def fitted(
    experiment: Experiment,
    model: FairerCLIP,
    labels: str,
    *,
    taus: Sequence[float] | None = None,
    tau_zs: Sequence[float] | None = None,
) -> FitAnswer:
    """Fit a model and report on the evaluation split, with the time and the memory that the fit took."""
    name = evaluation(experiment)
    before, start = peak_memory(), time.perf_counter()
    model = experiment.fit(model, labels)
    seconds, after = time.perf_counter() - start, peak_memory()
    if (taus is not None or tau_zs is not None) and experiment.has_validation():
        plane = model.path(taus if taus is not None else [model.tau_], tau_zs)
        experiment.evaluate_path(plane, "val")
        model = plane.best(by="shrunken_worst_group")
    rows = experiment.task.split(name)
    report = experiment.report(rows, model.predict(rows.X)).as_dict()
    return FitAnswer(
        report=StageReport.model_validate(report),
        chosen=Strengths(tau=float(model.tau_), tau_z=float(model.tau_z)),
        seconds=seconds,
        peak_mb=None if before is None or after is None else max(0.0, after - before),
        learned=count_parameters(model),
        n_features=model.n_features,
        split=name,
    )


def evaluation(experiment: Experiment) -> str:
    """Return the split to report on, or raise if there is none."""
    name = experiment.evaluation_split()
    if name is None:
        raise LabelError(f"{experiment.task.name}: no split has both target and sensitive labels")
    return name


def fit_share(
    experiment: Experiment, share: float, parameters: Mapping[str, Any], seed: int, taus: Sequence[float]
) -> FitAnswer:
    """Run `fit_tuned` with labels on a share of the training rows, drawn inside each class × sensitive value."""
    fewer = subsample(experiment, share, seed)
    answer = fit_tuned(fewer, parameters, "target", seed, taus, None)
    return answer.model_copy(update={"rows": len(fewer.task.train)})


def subsample(experiment: Experiment, share: float, seed: int) -> Experiment:
    """Return the experiment with a share of the rows of each training cell, at least one row."""
    if share >= 1:
        return experiment
    y, s = experiment.labels(experiment.task.train)
    rng = np.random.default_rng([seed, round(share * 1000)])
    keep: list[NDArray[np.intp]] = []
    for cell in np.unique(np.column_stack([y, s]), axis=0):
        rows = np.flatnonzero((y == cell[0]) & (s == cell[1]))
        keep.append(rng.choice(rows, size=max(1, round(share * len(rows))), replace=False))
    chosen = np.sort(np.concatenate(keep))
    splits = {**experiment.task.splits, "train": experiment.task.train.take(chosen)}
    task = replace(experiment.task, splits=splits)
    return replace(experiment, task=task)


def plane(
    experiment: Experiment,
    parameters: Mapping[str, Any],
    labels: str,
    seed: int,
    taus: Sequence[float],
    tau_zs: Sequence[float] | None,
) -> PlaneAnswer:
    """Measure average and worst group at every (τ, τ_z) on the evaluation split, from one factorisation.

    ``rescale`` is the factor of τ_z in τ_eff = τ / (1 + rescale·τ_z); docs/math.md#one-step.
    """
    name = evaluation(experiment)
    model = experiment.fit(FairerCLIP(**{**parameters, "random_state": seed}), labels)
    table = experiment.evaluate_path(model.path(taus, tau_zs), name)
    points = [PlaneFigures(**{figure: row[figure] for figure in PlaneFigures.model_fields}) for row in table]
    return PlaneAnswer(split=name, points=tuple(points), rescale=rescale(experiment, model))


def rescale(experiment: Experiment, model: FairerCLIP) -> float | None:
    """Return d²/2 of docs/math.md#one-step if the plane is one curve under the paper's scaling, else None."""
    if len(experiment.classes) != 2 or model.scaling != "paper" or model.decision != "prompts":
        return None
    one, other = model.transform_text(experiment.text)
    return float(np.sum((other - one) ** 2) / 2)


def measure(
    experiment: Experiment, permutations: int, max_rows: int, parameters: Mapping[str, Any]
) -> InformationAnswer:
    """Measure HSIC and KCC of embeddings before and after FairerCLIP with Y and S, and the upper bounds of HSIC."""
    from fairerclip.auditing.sections.dependence import audit_representation

    rows = experiment.task.split(evaluation(experiment))
    model = experiment.fit(FairerCLIP(**parameters), "target")
    stages: dict[Stage, NDArray[Any]] = {"before": rows.X, "after": model.transform(rows.X)}
    dependence = audit_representation(
        experiment, rows, stages, permutations=permutations, random_state=0, max_rows=max_rows
    )
    y, s = experiment.labels(rows)
    known = (y != UNKNOWN) & (s != UNKNOWN)
    return InformationAnswer(
        stages=dependence or (),
        bounds={"hsic_y": hsic_bound(y[known]), "hsic_s": hsic_bound(s[known])},
    )
