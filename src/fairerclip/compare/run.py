"""One method on one task with one seed: every setting tried on the same validation rows, the best read once on test."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.compare.methods import Method, make
from fairerclip.data import Split
from fairerclip.errors import LabelError
from fairerclip.metrics import shrunken_worst_group
from fairerclip.path import PRIOR
from fairerclip.workflow import UNKNOWN, Experiment


def run_method(
    method: Method, experiment: Experiment, seed: int, *, max_seconds: float | None = None
) -> dict[str, Any]:
    """Tune a method on the validation split and report on the test split.

    FairerCLIP is tuned by its own search. Without labelled validation rows the first setting is taken as it is, and
    FairerCLIP with its defaults. ``max_seconds`` caps the training of one
    setting of a method that is trained by gradient.

    Returns
    -------
    dict
        JSON-ready: the report, what was chosen of how many, seconds of the chosen fit and of all, parameters, and the
        memory that fitting took beyond what was there before (None where the system does not tell).
    """
    reason = method.why_not(experiment)
    if reason is not None:
        raise LabelError(f"{method.title}: {reason}")
    name = experiment.evaluation_split()
    if name is None:
        raise LabelError(f"{experiment.task.name}: no split has both target and sensitive labels")
    val = experiment.task.val if name != "val" and experiment.is_labelled("val") else None
    before, started = peak_memory(), time.perf_counter()
    best: dict[str, Any] | None = None
    fits = 0
    for parameters in method.candidates:
        tried = _try(method, parameters, experiment, seed, val, max_seconds)
        fits += tried["fits"]
        if best is None or tried["score"] > best["score"]:
            best = tried
        if val is None:
            break
    if best is None:
        raise AssertionError("a method has at least one candidate")
    seconds = time.perf_counter() - started
    rows = experiment.task.split(name)
    model = best["model"]
    after = peak_memory()
    return {
        "seed": seed,
        "split": name,
        "report": experiment.report(rows, model.predict(rows.X)).as_dict(),
        "chosen": {**method.fixed, **best["parameters"]},
        "validation_score": None if val is None else best["score"][0],
        "settings": fits,
        "seconds": best["seconds"],
        "seconds_in_all": seconds,
        "parameters": count_parameters(model),
        "peak_mb": None if before is None or after is None else max(0.0, after - before),
        "notes": best["notes"],
    }


def _try(
    method: Method,
    parameters: Mapping[str, Any],
    experiment: Experiment,
    seed: int,
    val: Split | None,
    max_seconds: float | None,
) -> dict[str, Any]:
    """Fit one setting; its model, validation score (with the average to break ties) and seconds."""
    model = make(method, parameters, seed, max_seconds)
    arguments = fit_arguments(method, experiment)
    if method.validation and val is not None:
        y, s = experiment.labels(val)
        arguments["validation"] = (val.X, y, s)
    chosen, fits = dict(parameters), 1
    if method.home == "FairerCLIP" and val is not None:
        tuning = experiment.tune(model, method.labels).diagnostics_["tuning"]
        chosen |= tuning["chosen"]["parameters"]
        fits = tuning["fits"]
    # Also where a search has just fitted it: its seconds are those of one fit, as for every method.
    start = time.perf_counter()
    model.fit(arguments.pop("X"), arguments.pop("y"), **arguments)
    seconds = time.perf_counter() - start
    notes = _notes(model)
    score = (0.0, 0.0) if val is None else _score(experiment, val, model.predict(val.X))
    return {
        "model": model,
        "parameters": chosen,
        "score": score,
        "fits": fits,
        "seconds": seconds,
        "notes": notes,
    }


def _notes(model: Any) -> list[str]:
    """What a training by gradient says of itself."""
    diagnostics = getattr(model, "diagnostics_", None) or {}
    return [f"{name}: {diagnostics[name]}" for name in ("stopped", "note", "notes") if diagnostics.get(name)]


def fit_arguments(method: Method, experiment: Experiment) -> dict[str, Any]:
    """What the method's `fit` takes: what it is allowed to see, and no more."""
    return (
        experiment.arguments(method.labels) if method.needs_sensitive else _without_groups(method, experiment)
    )


def _without_groups(method: Method, experiment: Experiment) -> dict[str, Any]:
    rows = experiment.task.train
    return {
        "X": rows.X,
        "y": None if method.labels == "none" else experiment.target(rows),
        "text": experiment.named_text,
        "classes": experiment.classes,
        "sensitive_features": experiment.groups(rows) if method.labels == "all" else None,
        "missing_label": UNKNOWN,
    }


def _score(experiment: Experiment, val: Split, predicted: NDArray[Any]) -> tuple[float, float]:
    """The shrunken worst group, and the average."""
    report = experiment.report(val, predicted)
    hits = np.array([[group.correct for group in report.groups]])
    counts = np.array([[group.n for group in report.groups]])
    return float(shrunken_worst_group(hits, counts, prior=PRIOR)), report.average


def count_parameters(model: Any) -> int:
    """Learned numbers: those of the fitted arrays, without random features that a seed draws."""
    names = getattr(model, "fitted", ("components_", "directions_", "zero_"))
    return int(sum(np.size(getattr(model, name)) for name in names))


def peak_memory() -> float | None:
    """Most memory this process has held so far, in MB; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # not a Unix
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20) if sys.platform == "darwin" else peak / 1024
