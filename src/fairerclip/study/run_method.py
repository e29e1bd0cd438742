"""One run of a comparison: choose among the candidates of a method on labelled rows, and test the chosen one once."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from fairerclip._util.memory import peak_memory
from fairerclip.auditing.group_results import StageReport
from fairerclip.data import resplit
from fairerclip.errors import LabelError
from fairerclip.experiment import Experiment
from fairerclip.study.choose_model import choose_model
from fairerclip.study.comparison import MethodRun, PublishedChoice
from fairerclip.study.method import Method


def run_method(
    method: Method, experiment: Experiment, seed: int, *, max_steps: int | None = None
) -> MethodRun:
    """Choose among the candidates of a method on labelled rows (`choose_model`) and report on the test split.

    ``max_steps`` limits the training of one setting of a method that is trained by gradient.
    """
    reason = method.why_not(experiment)
    if reason is not None:
        raise LabelError(f"{method.title}: {reason}")
    name = experiment.evaluation_split()
    if name is None:
        raise LabelError(f"{experiment.task.name}: no split has both target and sensitive labels")
    before, started = peak_memory(), time.perf_counter()
    chosen = choose_model(method, experiment, seed, max_steps=max_steps)
    seconds = time.perf_counter() - started
    rows, given = experiment.task.split(name), method.given_rows(experiment, name)
    predicted = chosen.predict(rows.X, **given)
    after = peak_memory()
    published = chosen.as_published
    return MethodRun(
        seed=seed,
        split=name,
        report=StageReport.model_validate(experiment.report(rows, predicted).as_dict()),
        predicted=tuple(experiment.classes.index(label) for label in predicted.tolist()),
        as_published=None
        if published is None
        else PublishedChoice(
            report=StageReport.model_validate(
                experiment.report(rows, published.model.predict(rows.X, **given)).as_dict()
            ),
            chosen={**method.fixed, **published.parameters},
        ),
        chosen={**method.fixed, **chosen.parameters},
        offsets=chosen.offsets.tolist(),
        strategy=chosen.strategy,
        validation_value=chosen.value,
        candidates=chosen.candidates,
        seconds=chosen.seconds,
        seconds_in_all=seconds,
        parameters=count_parameters(chosen.model),
        peak_mb=None if before is None or after is None else max(0.0, after - before),
        notes=(*_notes(chosen.model), *(f"left out: {failure}" for failure in chosen.failures)),
    )


def run_split(
    method: Method, experiment: Experiment, seed: int, *, max_steps: int | None = None
) -> MethodRun:
    """Run a method on the resampled split with this seed (`resplit`), with the same seed.

    The predicted classes are not kept: differences are paired by split, and a kept run says nothing of single rows.
    """
    task = resplit(experiment.task, seed, sensitive=experiment.sensitive)
    run = run_method(method, replace(experiment, task=task), seed, max_steps=max_steps)
    return run.model_copy(update={"predicted": ()})


def _notes(model: Any) -> list[str]:
    """Return the notes in the diagnostics of a model, such as an early stop of training by gradient."""
    diagnostics = getattr(model, "diagnostics_", None) or {}
    return [f"{name}: {diagnostics[name]}" for name in ("stopped", "note", "notes") if diagnostics.get(name)]


def count_parameters(model: Any) -> int:
    """Return the number of learned values: those of the fitted arrays, without random features."""
    names = getattr(model, "fitted", ("components_", "directions_", "zero_"))
    return int(sum(np.size(getattr(model, name)) for name in names))
