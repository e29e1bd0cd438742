"""The choice among the candidates of a method on labelled rows.

The rule is the same for every method and that of FairerCLIP's search: the gain of the expected worst group over the
method's default setting, after doubt is subtracted, with offsets of the class scores if they gain (`judging.choose`).
It uses the validation rows, and the training rows, scored out of fold, for methods that learn from their labels. The
choice of a method's authors is kept, too: the candidate with the best worst group on these rows, or the published
setting of a method without labels, and no offsets.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from fairerclip._util.types import F64, Ints
from fairerclip.baselines.shared_solutions import shared_solutions
from fairerclip.data.prompts.encoded_prompts import separate_prompts
from fairerclip.errors import FairerClipWarning, NonFiniteError, TextCollapseWarning
from fairerclip.experiment import UNKNOWN, Experiment
from fairerclip.judging.choose import Choice, choose
from fairerclip.judging.evidence import Evidence
from fairerclip.judging.objectives import Objective
from fairerclip.model.estimator import FairerCLIP
from fairerclip.model.fit_inputs import read_inputs
from fairerclip.study.method import Method, make
from fairerclip.study.method_settings import CHECKPOINTS, SEARCH
from fairerclip.tuning.found_rows import FoundRows, find_rows
from fairerclip.tuning.record import judged_figures

FOLDS = 4
"""Folds of the training rows, on which candidates are judged besides the validation rows."""
CHOICE_REFITS: Mapping[str, Any] = {"n_refits": 1}
"""DFR averages the weights of many draws of balanced rows; as published, it uses one draw while it chooses C."""


@dataclass(frozen=True, eq=False)
class Tried:
    """One candidate: its settings, the model, the seconds of its fit, its setting's index, its scores to judge."""

    parameters: Mapping[str, Any]
    model: Any
    seconds: float
    fit: int
    scores: F64 = field(default_factory=lambda: np.empty((0, 0)))


@dataclass(frozen=True, eq=False)
class ChosenModel:
    """A fitted model, the offsets of its scores (c,), and how it was chosen."""

    model: Any
    offsets: F64
    parameters: Mapping[str, Any]
    candidates: int
    seconds: float
    """Time of its fit only."""
    strategy: str | None = None
    value: float | None = None
    """Objective on the judged rows: expected worst group, plus half of the average."""
    as_published: Tried | None = None
    """Choice of the method's authors; the defaults of FairerCLIP without labels, None with labels."""
    failures: tuple[str, ...] = ()
    """Settings that diverged."""
    record: Mapping[str, Any] | None = None
    """How the candidates were judged, for ``diagnostics_["tuning"]``; None where no labelled rows could judge them."""

    def complete(self) -> Any:
        """Return the model with the offsets and the record of the choice, as it is saved."""
        if isinstance(self.model, FairerCLIP):  # its search has added both
            return self.model
        model = self.model.at(offsets=self.offsets)
        if self.record is not None:
            model.diagnostics_ = {**(getattr(model, "diagnostics_", None) or {}), "tuning": dict(self.record)}
        return model

    def predict(self, X: Any, **given: Any) -> NDArray[Any]:
        """Return the predicted class labels (n,); ``given`` is what the method needs besides (`Method.given_rows`)."""
        scores = self.model.scores(X, **given)
        return np.asarray(self.model.classes_[(scores + self.offsets).argmax(axis=1)])


def choose_model(
    method: Method,
    experiment: Experiment,
    seed: int,
    *,
    max_steps: int | None = None,
    use_validation: bool = True,
) -> ChosenModel:
    """Fit the candidates of a method and return the one that is best on the labelled rows.

    These are the validation rows, unless ``use_validation`` is False, and the training rows, scored out of fold, of a
    method that learns from their labels. Without any, the first setting is used; without validation rows FairerCLIP
    has its defaults, which its fit chooses from the training rows.
    """
    if method.is_own:
        return _own(method, experiment, seed, use_validation)
    found = _found_rows(method, experiment, seed, use_validation)
    if found is None:
        first = _train(method, method.candidates[0], experiment, seed, 0, max_steps)[-1]
        none = _no_offsets(first.model)
        return ChosenModel(first.model, none, first.parameters, 1, first.seconds, as_published=first)
    failures: list[str] = []
    with shared_solutions():
        if method.labels == "validation":
            tried = _cross_fitted(method, experiment, seed, found.judged.rows)
        else:
            tried, failures = _fitted(method, experiment, seed, found, max_steps)
    evidence, reference = found.judged.evidence, _given(tried)
    scores = np.array([t.scores for t in tried], dtype=np.float32)
    chosen = choose(scores, evidence, Objective("worst_group"), reference or 0)
    if reference is None:  # the first of the others was compared with: it was not given
        chosen = replace(chosen, is_reference=False)
    best = tried[chosen.candidate]
    published = _as_published(method, tried, evidence)
    if not method.gradient:
        # Fitted again: candidates of DFR use fewer refits, and times of shared solutions are not those of one fit.
        best = _train(method, best.parameters, experiment, seed, best.fit, None)[-1]
        with _not_chosen():
            published = _train(method, published.parameters, experiment, seed, published.fit, None)[-1]
    return ChosenModel(
        best.model,
        chosen.offsets,
        best.parameters,
        len(tried),
        best.seconds,
        chosen.strategy,
        chosen.value,
        published,
        tuple(failures),
        _record(found, tried, chosen, failures),
    )


def _record(found: FoundRows, tried: list[Tried], chosen: Choice, failures: list[str]) -> dict[str, Any]:
    """Return how the candidates were judged, with the entries that the record of FairerCLIP's search has."""
    best, judged = tried[chosen.candidate], found.judged
    shown = judged.at(np.arange(found.trained_rows if found.validation_rows else 0, len(judged.rows)))
    return {
        "objective": "worst_group",
        "rows": len(judged.rows),
        "validation_rows": found.validation_rows,
        "groups": judged.group_source,
        "strategy": chosen.strategy,
        "gain": chosen.gain,
        "doubt": chosen.doubt,
        "candidates": len(tried),
        "failures": failures,
        "folds": len(found.splits) or None,
        "value": chosen.value,
        "chosen": {
            "parameters": {**best.parameters, "offsets": chosen.offsets.tolist()},
            **judged_figures(best.scores, chosen.offsets, shown),
        },
    }


def _found_rows(method: Method, experiment: Experiment, seed: int, use_validation: bool) -> FoundRows | None:
    """Return the rows that judge the candidates of a method, as FairerCLIP's search finds them; None without any."""
    validation = None
    if use_validation and experiment.has_validation():
        val = experiment.task.val
        validation = (val.X, experiment.target(val), experiment.group_columns(val))
    # Training by gradient would take as many times longer as there are folds.
    labels = method.fit_labels if method.fit_labels in ("target", "all") and not method.gradient else "none"
    if validation is None and labels == "none":
        return None
    can_guess = all(experiment.task.sensitive[name].text is not None for name in experiment.sensitive)
    arguments = experiment.arguments(labels, guess=can_guess)
    X, y = arguments.pop("X"), arguments.pop("y")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairerClipWarning)  # the fits themselves warn
        params = FairerCLIP(random_state=seed).get_params()
        data = read_inputs(params, X, y, **arguments, learns=labels != "none").data
        return find_rows(*(data, X, y, validation), cv=FOLDS, groups=None, seed=seed, missing_label=UNKNOWN)


def _as_published(method: Method, tried: list[Tried], evidence: Evidence) -> Tried:
    """Return the candidate with the best worst group, then average; without labels, the published setting."""
    given = _given(tried)
    if method.fit_labels == "none" and given is not None:
        return tried[given]

    def merit(candidate: Tried) -> tuple[float, float]:
        hits, counts = evidence.hits(candidate.scores)
        there = evidence.present
        return float((hits[there] / counts[there]).min()), float(hits.sum() / counts.sum())

    return max(tried, key=merit)


def _given(tried: list[Tried]) -> int | None:
    """Return the index of the published or default setting, trained to its end; None if it diverged."""
    return max((place for place, candidate in enumerate(tried) if candidate.fit == 0), default=None)


def _own(method: Method, experiment: Experiment, seed: int, use_validation: bool) -> ChosenModel:
    """Choose FairerCLIP by its own search over as many candidates as every method has; without it, as it comes."""
    model = make(method, {}, seed)
    parameters: dict[str, Any] = {}
    candidates, strategy, value, published = 1, None, None, None
    searched = use_validation and experiment.has_validation()
    if searched:
        model = experiment.tune(model, method.labels, search_space=SEARCH)
        tuning = model.diagnostics_["tuning"]
        parameters = tuning["chosen"]["parameters"]
        strategy, value = tuning["strategy"], tuning["value"]
        # A search also tries the start values; those with labels are a point of `SEARCH` already.
        candidates = tuning["candidates"] - (method.labels != "none")
    if method.labels == "none":
        published = Tried({}, experiment.fit(make(method, {}, seed), method.labels), 0.0, 0)
    # Fitted again after a search, too: the seconds are those of one fit, as for every method.
    start = time.perf_counter()
    fitted = experiment.fit(clone(model), method.labels)
    seconds = time.perf_counter() - start
    model = model if searched else fitted
    return ChosenModel(
        *(model, _no_offsets(model), parameters, candidates, seconds, strategy, value), as_published=published
    )


def _no_offsets(model: Any) -> F64:
    return np.zeros(len(model.classes_))


def _fitted(
    method: Method, experiment: Experiment, seed: int, found: FoundRows, max_steps: int | None
) -> tuple[list[Tried], list[str]]:
    """Fit every candidate; return those with their scores on judged rows, and errors of those that diverged."""
    tried: list[Tried] = []
    failures: list[str] = []
    for number, parameters in enumerate(method.candidates):
        try:
            tried += _train(method, parameters, experiment, seed, number, max_steps, choosing=True)
        except NonFiniteError as error:
            failures.append(str(error))
    if not tried:
        raise NonFiniteError(f"{method.title}: training failed with every setting: {failures[0]}")
    held = found.judged.X[found.trained_rows :]
    known = method.given_rows(experiment, "val", found.judged.rows[found.trained_rows :]) if len(held) else {}
    parts = [[t.model.scores(held, **known)] if len(held) else [] for t in tried]
    trained = found.judged.rows[: found.trained_rows]
    out_of_fold = np.zeros((len(tried), len(trained), len(experiment.classes)))
    X = experiment.task.train.X
    for split in found.splits:
        places = np.searchsorted(trained, split.scored)
        for number, t in enumerate(
            tried
        ):  # candidate after candidate on the same rows, which share solutions
            (fit,) = _train(
                method, t.parameters, experiment, seed, t.fit, None, rows=split.fitted_on, choosing=True
            )
            out_of_fold[number, places] = fit.model.scores(X[split.scored])
    return [
        replace(t, scores=np.concatenate([own, *part]))
        for t, own, part in zip(tried, out_of_fold, parts, strict=True)
    ], failures


def _train(
    method: Method,
    parameters: Mapping[str, Any],
    experiment: Experiment,
    seed: int,
    number: int,
    max_steps: int | None,
    *,
    validation: tuple[Any, Any, Any] | None = None,
    rows: Ints | None = None,
    choosing: bool = False,
) -> list[Tried]:
    """Fit one setting, on some of the training ``rows`` or all of them, and return its model.

    For training by gradient, return the models after each tenth of the epochs.
    """
    states: list[dict[str, Any]] = []
    drafted = CHOICE_REFITS if choosing and method.home == "DFR" and not method.gradient else {}
    model = make(
        method, {**parameters, **drafted}, seed, max_steps, lambda record: states.append(record["fitted"]())
    )
    arguments = fit_arguments(method, experiment)
    if rows is not None:
        arguments |= {"X": arguments["X"][rows], "y": arguments["y"][rows]}
        columns = arguments["sensitive_features"]
        if isinstance(columns, Mapping):
            columns = {name: column[rows] for name, column in columns.items()}
        arguments["sensitive_features"] = columns[rows] if isinstance(columns, np.ndarray) else columns
    if method.labels == "validation":
        val = experiment.task.val
        arguments["validation"] = validation or (val.X, *experiment.labels(val))
    start = time.perf_counter()
    with _not_chosen() if choosing else nullcontext():
        model.fit(arguments.pop("X"), arguments.pop("y"), **arguments)
    seconds = time.perf_counter() - start
    if not method.gradient:
        return [Tried(parameters, model, seconds, number)]
    models = []
    for epoch in checkpoints(len(states)):
        checkpoint = copy.copy(model)
        checkpoint.__dict__.update(states[epoch - 1])
        models.append(Tried({**parameters, "epoch": epoch}, checkpoint, seconds, number))
    return models


@contextmanager
def _not_chosen() -> Iterator[None]:
    """Give no warning that is about the fitted model: it is not the chosen one, which is fitted again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TextCollapseWarning)
        yield


def checkpoints(epochs: int) -> list[int]:
    """Return the epochs, up to the last, after which models are candidates.

    Examples
    --------
    >>> checkpoints(50), checkpoints(3)
    ([5, 10, 15, 20, 25, 30, 35, 40, 45, 50], [1, 2, 3])
    """
    return sorted({max(1, round(epochs * k / CHECKPOINTS)) for k in range(1, CHECKPOINTS + 1)})


def _cross_fitted(method: Method, experiment: Experiment, seed: int, rows: Ints) -> list[Tried]:
    """Fit candidates that learn from validation rows; each half is scored by the model fitted on the other half."""
    from fairerclip.baselines.dfr import halves

    val = experiment.task.val
    y, s = experiment.labels(val)
    cell = np.unique(np.column_stack([y, s])[rows], axis=0, return_inverse=True)[1].reshape(-1)
    folds = [rows[half] for half in halves(cell, np.random.RandomState(seed))]
    tried = []
    for number, parameters in enumerate(method.candidates):
        scores = np.empty((len(y), len(experiment.classes)))
        for learned, held_out in (folds, folds[::-1]):
            given = (val.X[learned], y[learned], s[learned])
            (fit,) = _train(
                method, parameters, experiment, seed, number, None, validation=given, choosing=True
            )
            scores[held_out] = fit.model.scores(val.X[held_out])
        tried.append(Tried(parameters, fit.model, fit.seconds, number, scores[rows]))
    return tried


def fit_arguments(method: Method, experiment: Experiment) -> dict[str, Any]:
    """Return the arguments of the method's `fit`, with no other labels than the method may use."""
    given = (
        experiment.arguments(method.fit_labels)
        if method.needs_sensitive
        else _without_groups(method, experiment)
    )
    if method.needs_known_rows:
        columns = experiment.group_columns(experiment.task.train)
        known = all(column is not None for column in columns.values())
        given["sensitive_features"] = columns if known else None
    if method.fixed.get("encoder") is not None:  # it embeds the prompts itself
        prompts = dict(zip(experiment.task.class_names, experiment.task.target_prompts, strict=True))
        given["text"] = {name: separate_prompts(prompts[name]) for name in experiment.classes}
    used = () if method.is_own else method.estimator.sentences
    return given | {name: texts for name, texts in experiment.sentences().items() if name in used}


def _without_groups(method: Method, experiment: Experiment) -> dict[str, Any]:
    rows = experiment.task.train
    return {
        "X": rows.X,
        "y": None if method.fit_labels == "none" else experiment.target(rows),
        "text": experiment.named_text,
        "classes": experiment.classes,
        "sensitive_features": experiment.groups(rows) if method.labels == "all" else None,
        "missing_label": UNKNOWN,
    }
