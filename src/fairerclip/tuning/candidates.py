"""Candidate models of a search, with their scores on the rows that judge them.

τ, the criterion and the share of zero-shot scores are free once a model is fitted; row weights need other sums of the
same moments, γ a new factorisation, another kernel new features. So the costly settings are fitted one by one, each
with a grid of free parameters; those with the same features share one pass over the rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairerclip._util.types import F64, Floats
from fairerclip.errors import NoSolutionError, ParameterError, TextCollapseError
from fairerclip.judging.choose import first_best, lower_gain
from fairerclip.judging.evidence import Evidence
from fairerclip.judging.objectives import Objective
from fairerclip.model.automatic import AUTOMATIC
from fairerclip.model.cross_validation import FoldedFits, FoldSplit, settings_scores
from fairerclip.model.fit_data import FitData
from fairerclip.model.parameters import CRITERIA, FREE, check_parameters
from fairerclip.model.path import path_grid
from fairerclip.model.prepare import Prepared
from fairerclip.solver.rows import FeatureRows
from fairerclip.tuning.pool import F32, Candidate, Pool, verdicts_of

Progress = Callable[[int, int], None]

TAUS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.98)
ZERO_SHOTS = (0.0, 0.25, 0.5, 0.75, 1.0)
FITS: tuple[Mapping[str, Any], ...] = tuple(
    {"class_weight": weight, "gamma": gamma}
    for gamma in (1e-3, 3e-4, 1e-4, 4e-3)
    for weight in ("balanced", "group")
)
"""Costly settings, the most promising first, for searches with little time."""
WIDER, WIDENINGS = 3.0, 3
"""Factor between the γ at the edge of the grid, if it is the best one, and the next one; how often that is done."""
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
FIXED = (AS_GIVEN, AS_ZERO_SHOT, AS_ORTHOGONAL)
"""Models that every search includes, as far as there are prompts for them."""
GRID_NAMES = ("taus", "zero_shots", "criteria")
SHARED = (*FREE, "gamma", "guess_weight", "class_offsets")
"""Parameters in which fits may differ that share their features."""
WEIGHTS = ("balanced", "group")
"""Row weights that do not change the features either; weights of single classes do."""


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


class CandidateFits:
    """Fits of a search: each scores its grid on training rows, out of fold, and on validation rows.

    Parameters
    ----------
    params : mapping
        Parameters of the estimator, none of them "auto".
    read : callable
        Returns the `FitData` for other parameters.
    splits : sequence of FoldSplit
        Splits of the training rows that are judged; empty if none is.
    held : array of shape (m, p), or None
        Validation rows, prepared as the fit prepares its rows.
    """

    def __init__(
        self,
        params: Mapping[str, Any],
        read: Callable[[Mapping[str, Any]], FitData],
        splits: Sequence[FoldSplit],
        held: Floats | None,
    ) -> None:
        self.params, self._read, self._splits, self._held_rows = params, read, splits, held
        self._planned: list[Mapping[str, Any]] = []
        self._data: dict[str, FoldedFits] = {}
        self._held: dict[str, FeatureRows] = {}
        # Judged rows are in the order of their row numbers.
        scored = np.concatenate([split.scored for split in splits]) if splits else np.zeros(0, dtype=np.int64)
        self._order = np.argsort(scored, kind="stable")

    def score(self, planned: PlannedFit, number: int) -> list[Candidate]:
        """Fit one costly setting, and return the candidates of its grid that have a solution in every split."""
        params = {**self.params, **planned.parameters}
        fits = self._fits(params)
        class_weight, gamma = params["class_weight"], float(params["gamma"])
        guess_weight, refine = params["guess_weight"], params["refine"]
        parts: list[list[F64 | None]] = []
        points: list[dict[str, Any]] = []
        held = self._held_features(params, fits)
        for place, prepared in fits.prepare(class_weight, [gamma], guess_weight, all_rows=held is not None):
            settings, points = _points(prepared.setting(params), planned.grid, fits.data)
            if held is not None and place == len(self._splits):
                parts.append(settings_scores(prepared, settings, held.project, refine=refine))
            else:
                parts.append(fits.scores(place, prepared, settings, refine=refine))
        out = []
        for point, found in zip(points, zip(*parts, strict=True), strict=True):
            solved = [part for part in found if part is not None]
            if len(solved) == len(found):
                out.append(Candidate({**planned.parameters, **point}, number, self._joined(solved)))
        if not out:
            raise NoSolutionError("no point of the grid has a solution on all rows")
        return out

    def _joined(self, parts: Sequence[F64]) -> F32:
        """Return scores of all judged rows (n, c): training rows by their row number, then validation rows."""
        n = len(self._order)
        trained = (
            np.concatenate(parts[: len(self._splits)]) if self._splits else np.zeros((0, parts[0].shape[1]))
        )
        rest = parts[len(self._splits) :]
        return np.concatenate([trained[self._order][:n], *rest]).astype(np.float32)

    def plan(self, parameters: Sequence[Mapping[str, Any]]) -> None:
        """Tell which fits will come, so that those with the same features share one pass over the rows."""
        self._planned = [{**self.params, **own} for own in parameters]

    def prepared(self, parameters: Mapping[str, Any]) -> Prepared | None:
        """Return the fit of a candidate on all rows, from features that are in memory; None if there are none.

        Its sums are taken anew, in the order of a fit without a search: it is that fit to the last digit.
        """
        params = {**self.params, **parameters}
        fits = self._data.get(_features_key(params))
        self._data, self._held = {}, {}  # the search is over: its fits may be most of the memory
        # Conjugate gradients draw rows at random, and have drawn some for the candidates already.
        if fits is None or not fits.is_direct or not _is_shared(params["class_weight"]):
            return None
        data = fits.data
        del fits
        return data.prepare(
            params["class_weight"], float(params["gamma"]), guess_weight=params["guess_weight"]
        )

    def _fits(self, params: Mapping[str, Any]) -> FoldedFits:
        """Return the fits with these features, from an earlier setting if there was one."""
        key, own = _features_key(params), _features_key(self.params)
        if key not in self._data:
            # Two tables of moments at most: that of the given features, which most fits have, and the latest.
            self._data = {name: fits for name, fits in self._data.items() if name == own}
            kept = _features_key(self.params, any_prompts=True)
            self._held = {name: rows for name, rows in self._held.items() if name == kept}
            # Other prompts change the zero-shot scores alone: their fits are summed in the same pass.
            others = {_features_key(p): p for p in self._planned if _is_variant(p, params)}
            others = {name: p for name, p in others.items() if name != key and own not in (key, name)}
            data = [
                self._read(self.params if name == own else p) for name, p in {key: params, **others}.items()
            ]
            self._check_drawn(data[0])
            fits = FoldedFits(data[0], self._splits, variants=data[1:], keeps=True)
            self._data |= {name: fits.variant(number) for number, name in enumerate([key, *others])}
        return self._data[key]

    def _held_features(self, params: Mapping[str, Any], fits: FoldedFits) -> FeatureRows | None:
        """Return the features of the validation rows, which every fit with these features needs; None without them."""
        if self._held_rows is None:
            return None
        key = _features_key(params, any_prompts=True)
        if key not in self._held:
            self._held[key] = fits.data.more_rows(self._held_rows)
        return self._held[key]

    def _check_drawn(self, data: FitData) -> None:
        """Raise if sub-sampling has left a split without any row of a class."""
        for split in self._splits:
            gone = np.setdiff1d(data.y[data.known], data.y[np.isin(data.chosen, split.fitted_on)])
            if len(gone):
                label = data.target.classes[gone[0]]
                raise NoSolutionError(f"a fold has no row of class {label!r} to fit on after sub-sampling")


def _features_key(params: Mapping[str, Any], *, any_prompts: bool = False) -> str:
    """Return what fits with the same features have in common; ``any_prompts`` ignores the zero-shot scores."""
    left_out = (*SHARED, "orthogonal") if any_prompts else SHARED
    own = {name: value for name, value in params.items() if name not in left_out}
    if _is_shared(params["class_weight"]):
        del own["class_weight"]
    return repr(sorted((name, repr(value)) for name, value in own.items()))


def _is_variant(params: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two fits have the same features, and may differ in the prompts of the zero-shot scores."""
    return _features_key(params, any_prompts=True) == _features_key(other, any_prompts=True)


def _is_shared(class_weight: Any) -> bool:
    return class_weight is None or (isinstance(class_weight, str) and class_weight in WEIGHTS)


def _points(
    setting: Any, grid: Mapping[str, Sequence[Any]], data: FitData
) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return the settings of a grid, and the free parameters of each; the setting itself without a grid."""
    if not grid:
        return [setting], [{}]
    settings = path_grid(
        setting, grid["taus"], None, list(grid["criteria"]), grid["zero_shots"], has_text=data.target.has_text
    )
    kept: list[Any] = []
    seen: set[float] = set()
    for point in settings:
        if point.tau == 0:  # without an S term the criterion has no effect: one is enough
            if point.zero_shot in seen:
                continue
            seen.add(point.zero_shot)
        kept.append(point)
    free = [{"tau": p.tau, "criterion": p.criterion, "zero_shot": p.zero_shot} for p in kept]
    return kept, free


def gather(
    fits: CandidateFits,
    evidence: Evidence,
    objective: Objective | None,
    *,
    search: Mapping[str, Any] | None,
    has_text: bool,
    has_sensitive_text: bool,
    max_seconds: float | None,
    progress: Progress | None,
) -> Pool:
    """Fit every costly setting and score its grid on the judged rows.

    The model with the given parameters and, with prompts, the zero-shot classifier are always included.
    ``max_seconds`` stops before a fit that would end later, but at least one fit of the search itself is done. If the
    best γ of the default grid is at its edge, further values are tried.
    """
    plan, grid = _plan(fits.params, search, has_text=has_text, has_sensitive_text=has_sensitive_text)
    fits.plan([planned.parameters for planned in plan])
    n_fixed = sum(any(planned.parameters is fixed for fixed in FIXED) for planned in plan)
    candidates: list[Candidate] = []
    failures: list[str] = []
    given: int | None = None
    started, number, widened = time.perf_counter(), 0, 0
    while number < len(plan):
        planned = plan[number]
        spent = time.perf_counter() - started
        if max_seconds is not None and number > n_fixed and spent * (number + 1) / number > max_seconds:
            break
        try:
            scored = fits.score(planned, number)
        except (NoSolutionError, TextCollapseError, ParameterError) as error:
            if isinstance(error, ParameterError) and planned.required:
                raise
            failures.append(str(error))
        else:
            if planned.parameters is AS_GIVEN:
                given = len(candidates)
            candidates += scored
            verdicts_of(scored, evidence, objective)  # while the scores are in the cache of the processor
        number += 1
        if progress is not None:
            progress(number, len(plan))
        if number == len(plan) and widened < WIDENINGS and "fits" not in (search or {}) and candidates:
            wider = _wider(candidates, evidence, objective, given or 0, grid)
            plan += wider
            widened += 1
    if not candidates:
        raise NoSolutionError(f"no setting of the search has a solution: {failures[0] if failures else ''}")
    seconds = time.perf_counter() - started
    return Pool(candidates, given, grid, number, len(plan), seconds, failures)


def _wider(
    candidates: Sequence[Candidate],
    evidence: Evidence,
    objective: Objective | None,
    given: int,
    grid: Mapping[str, Sequence[Any]],
) -> list[PlannedFit]:
    """Return a fit with the next γ beyond the edge of the grid if the best candidate has the γ at the edge."""
    if objective is None:
        return []
    draws = verdicts_of(candidates, evidence, objective).draws
    if draws is None:
        raise AssertionError("a named objective has draws")
    best = candidates[first_best(lower_gain(draws, draws[given]))].parameters
    if "class_weight" not in best or "gamma" not in best or "kernel" in best:
        return []
    tried = [
        c.parameters["gamma"]
        for c in candidates
        if c.parameters.get("class_weight") == best["class_weight"] and "kernel" not in c.parameters
    ]
    steps = {min(tried): 1 / WIDER, max(tried): WIDER}
    if best["gamma"] not in steps:
        return []
    gamma = best["gamma"] * steps[best["gamma"]]
    return [PlannedFit({"class_weight": best["class_weight"], "gamma": gamma}, grid, required=False)]


def _plan(
    params: Mapping[str, Any], search: Mapping[str, Any] | None, *, has_text: bool, has_sensitive_text: bool
) -> tuple[list[PlannedFit], Mapping[str, Sequence[Any]]]:
    """Return the fits of a search in their order, fixed models first, and the grid of free parameters."""
    fits, grid = search_space(search)
    _check_fits(params, fits)
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


def _check_fits(params: Mapping[str, Any], fits: Sequence[Mapping[str, Any]]) -> None:
    """Raise for invalid parameters before the first fit."""
    for parameters in fits:
        unknown = [name for name in parameters if name not in params]
        if unknown:
            raise ParameterError(
                f"search_space['fits'] names {unknown}; each entry maps parameters of FairerCLIP to values"
            )
        check_parameters({**params, **parameters})
        left = [name for name in AUTOMATIC if parameters.get(name) == "auto"]
        if left:
            raise ParameterError(f"search_space['fits'] must give {left[0]} a value; got 'auto'")


def _with_zero(taus: Sequence[float]) -> list[float]:
    return [0.0, *(tau for tau in taus if tau != 0)]
