"""Candidate models of a search, with their scores on the rows that judge them.

τ, the criterion and the share of zero-shot scores are free once a model is fitted; row weights need new moments, γ a
new factorisation, another kernel new features. So the costly settings are fitted one by one, each with a grid of free
parameters.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from fairerclip.errors import NoSolutionError, ParameterError, TextCollapseError
from fairerclip.model.parameters import CRITERIA, check_parameters

if TYPE_CHECKING:
    from fairerclip.model.estimator import FairerCLIP

F32 = NDArray[np.float32]
Progress = Callable[[int, int], None]

TAUS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.98)
ZERO_SHOTS = (0.0, 0.25, 0.5, 0.75, 1.0)
FITS: tuple[Mapping[str, Any], ...] = tuple(
    {"class_weight": weight, "gamma": gamma}
    for gamma in (1e-3, 3e-4, 4e-3)
    for weight in ("balanced", "group")
)
"""Costly settings, the most promising first, for searches with little time."""
AS_ZERO_SHOT: Mapping[str, Any] = {
    "kernel": "linear",
    "gamma": 1e-6,
    "class_weight": None,
    "subsample": None,
    "tau_z": 0.0,
    "zero_shot": 1.0,
    "decision": "target",
}
"""At τ = 0 this is the zero-shot classifier: its scores are linear in the rows, with a negligible ridge."""
AS_ORTHOGONAL: Mapping[str, Any] = {**AS_ZERO_SHOT, "orthogonal": True}
"""The same with class prompts that are orthogonal to the sensitive prompts."""
AS_GIVEN: Mapping[str, Any] = {}
FIXED = {"given": AS_GIVEN, "zero-shot": AS_ZERO_SHOT, "orthogonal prompts": AS_ORTHOGONAL}
"""Models that every search includes, as far as there are prompts for them."""
GRID_NAMES = ("taus", "zero_shots", "criteria")


@dataclass(frozen=True, eq=False)
class Candidate:
    """One model of a search: parameters that fit it, and its scores (n, c) on the validation rows."""

    parameters: Mapping[str, Any]
    fit: int
    """Number of its costly fit; candidates of one fit differ in free parameters."""
    scores: F32 = field(repr=False)


@dataclass(frozen=True)
class Pool:
    """The candidates of a search, and the course of the search."""

    candidates: list[Candidate]
    given: int | None
    """Index of the candidate with the given parameters; None where they have no solution."""
    zero_shot: int | None
    """Index of the zero-shot classifier; None without prompts."""
    classes: NDArray[Any]
    grid: Mapping[str, Sequence[Any]]
    fits: int
    planned: int
    seconds: float
    failures: list[str]
    orthogonal: int | None = None
    """Index of the zero-shot classifier with orthogonal prompts; None without prompts of the sensitive values."""


def search_space(
    search: Mapping[str, Any] | None,
) -> tuple[list[Mapping[str, Any]], dict[str, Sequence[Any]]]:
    """Return the costly settings and the free grid: the defaults, replaced by entries of ``search``.

    ``search`` has any of ``fits`` (a list of mappings of parameters), ``taus``, ``zero_shots`` and ``criteria``.
    """
    if search is not None and not isinstance(search, Mapping):
        raise ParameterError(
            f"search_space must be a mapping with any of fits, {', '.join(GRID_NAMES)}; got {search!r}"
        )
    given = dict(search or {})
    single = [
        name for name, values in given.items() if isinstance(values, str) or not isinstance(values, Iterable)
    ]
    if single:
        raise ParameterError(f"search_space[{single[0]!r}] must be a list; got {given[single[0]]!r}")
    unknown = sorted(set(given) - {"fits", *GRID_NAMES})
    if unknown:
        raise ParameterError(
            f"search_space has unknown entries {unknown}; there are fits, {', '.join(GRID_NAMES)}"
        )
    fits: list[Mapping[str, Any]] = list(given.get("fits", FITS))
    if not fits or not all(isinstance(f, Mapping) for f in fits):
        raise ParameterError(
            "search_space['fits'] must be a list of mappings from parameter to value, one at least"
        )
    defaults: dict[str, Sequence[Any]] = {"taus": TAUS, "zero_shots": ZERO_SHOTS, "criteria": CRITERIA}
    grid: dict[str, Sequence[Any]] = {
        name: list(given.get(name, default)) for name, default in defaults.items()
    }
    empty = [name for name, values in grid.items() if not values]
    if empty:
        raise ParameterError(f"search_space[{empty[0]!r}] must have one value at least")
    return fits, grid


@dataclass(frozen=True)
class PlannedFit:
    """One costly fit of a search."""

    parameters: Mapping[str, Any]
    grid: Mapping[str, Sequence[Any]]
    """Free parameters to try on it; empty for the fit itself alone."""
    required: bool
    """Whether an invalid parameter is an error. The default fits suit most data, and a failure of one is recorded."""


def gather(
    model: FairerCLIP,
    fit: Callable[[FairerCLIP], FairerCLIP],
    X: Any,
    *,
    search: Mapping[str, Any] | None,
    has_text: bool,
    max_seconds: float | None,
    progress: Progress | None,
    has_sensitive_text: bool = False,
) -> Pool:
    """Fit every costly setting and score its grid on the rows X.

    The model with the given parameters and, with prompts, the zero-shot classifier are always included.
    ``max_seconds`` stops before a fit that would end later, but at least one fit of the search itself is done.
    """
    plan, grid = _plan(model, search, has_text=has_text, has_sensitive_text=has_sensitive_text)
    n_fixed = sum(any(planned.parameters is fixed for fixed in FIXED.values()) for planned in plan)
    candidates: list[Candidate] = []
    places: dict[str, int] = {}
    failures: list[str] = []
    classes: NDArray[Any] | None = None
    started, done = time.perf_counter(), 0
    for number, planned in enumerate(plan):
        spent = time.perf_counter() - started
        if max_seconds is not None and number > n_fixed and spent * (number + 1) / number > max_seconds:
            break
        try:
            fitted = fit(clone(model).set_params(**planned.parameters))
            scored = _scored(fitted, planned, X, number)
        except (NoSolutionError, TextCollapseError, ParameterError) as error:
            if isinstance(error, ParameterError) and planned.required:
                raise
            failures.append(str(error))
        else:
            classes = fitted.classes_
            for name, parameters in FIXED.items():
                if planned.parameters is parameters:
                    places[name] = len(candidates)
            candidates += scored
        done = number + 1
        if progress is not None:
            progress(done, len(plan))
    if not candidates or classes is None:
        raise NoSolutionError(f"no setting of the search has a solution: {failures[0] if failures else ''}")
    return Pool(
        candidates,
        places.get("given"),
        places.get("zero-shot"),
        classes,
        grid,
        done,
        len(plan),
        time.perf_counter() - started,
        failures,
        places.get("orthogonal prompts"),
    )


def _plan(
    model: FairerCLIP, search: Mapping[str, Any] | None, *, has_text: bool, has_sensitive_text: bool
) -> tuple[list[PlannedFit], Mapping[str, Sequence[Any]]]:
    """Return the fits of a search in their order, fixed models first, and the grid of free parameters."""
    fits, grid = search_space(search)
    _check_fits(model, fits)
    if not has_text:
        grid = {**grid, "zero_shots": [0.0]}
    plan = [PlannedFit(AS_GIVEN, {}, required=True)]
    if has_text:
        prompts_alone = {**grid, "taus": _with_zero(grid["taus"]), "zero_shots": [1.0]}
        plan.append(PlannedFit(AS_ZERO_SHOT, prompts_alone, required=True))
        if has_sensitive_text:
            plan.append(PlannedFit(AS_ORTHOGONAL, prompts_alone, required=True))
    # Weights by group need groups, and there may be none; what the user asked for by name must work.
    named = "fits" in (search or {})
    return plan + [PlannedFit(parameters, grid, required=named) for parameters in fits], grid


def _check_fits(model: FairerCLIP, fits: Sequence[Mapping[str, Any]]) -> None:
    """Raise for invalid parameters before the first fit."""
    own = model.get_params(deep=False)
    for parameters in fits:
        unknown = [name for name in parameters if name not in own]
        if unknown:
            raise ParameterError(
                f"search_space['fits'] names {unknown}; each entry maps parameters of FairerCLIP to values"
            )
        check_parameters({**own, **parameters})


def _with_zero(taus: Sequence[float]) -> list[float]:
    return [0.0, *(tau for tau in taus if tau != 0)]


def _scored(fitted: FairerCLIP, planned: PlannedFit, X: Any, number: int) -> list[Candidate]:
    """Return the candidates of one fit: its whole grid, or the fit itself where there is none."""
    parameters, grid = planned.parameters, planned.grid
    with warnings.catch_warnings():
        # X has no column names any more; they were compared before.
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        if not grid:
            return [Candidate(dict(parameters), number, fitted.scores(X).astype(np.float32))]
        path = fitted.path(grid["taus"], zero_shots=grid["zero_shots"], criterion=list(grid["criteria"]))
        blocks = [found for _, found in path.scores(X)]
    if not blocks:
        raise NoSolutionError(f"no point of the grid has a solution: {path.points[0].failure}")
    seen: set[float] = set()
    out = []
    for g in blocks[0]:
        setting = path.points[g].setting
        if setting.tau == 0:  # without an S term the criterion has no effect: one is enough
            if setting.zero_shot in seen:
                continue
            seen.add(setting.zero_shot)
        free = {"tau": setting.tau, "criterion": setting.criterion, "zero_shot": setting.zero_shot}
        scores = np.concatenate([found[g] for found in blocks])
        out.append(Candidate({**parameters, **free}, number, scores.astype(np.float32)))
    return out


def neighbours(pool: Pool, best: Candidate) -> list[Candidate]:
    """Return the candidates of the same fit that are one grid step away in one free parameter."""
    if "tau" not in best.parameters:
        return []
    out = []
    for candidate in pool.candidates:
        if candidate.fit != best.fit or candidate is best:
            continue
        steps = int(candidate.parameters["criterion"] != best.parameters["criterion"])
        for name in ("tau", "zero_shot"):
            order = sorted({c.parameters[name] for c in pool.candidates if c.fit == best.fit})
            steps += abs(order.index(candidate.parameters[name]) - order.index(best.parameters[name]))
        if steps == 1:
            out.append(candidate)
    return out
