"""A factored problem and its solution: what a fit keeps in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from fairerclip._util.arrays import beside, is_tensor, to_numpy, wide
from fairerclip._util.checks import LARGEST, check_interval, check_range
from fairerclip._util.types import F64, Ints
from fairerclip.data.embedding_rows import (
    RowSummary,
    check_directions,
    check_scale,
    measured_rows,
    unit_rows,
    unit_view,
)
from fairerclip.data.io.file_rows import FileRows
from fairerclip.errors import ConstantPredictionWarning, ParameterError
from fairerclip.inputs.sensitive import ResolvedSensitive
from fairerclip.inputs.target import ResolvedTarget
from fairerclip.model.fitted import FittedModel
from fairerclip.model.parameters import FOLLOWING, SMALLEST_RIDGE, check_offsets
from fairerclip.solver.alternation import Alternation, Encoders, Note, Round, Setting, alternate
from fairerclip.solver.decision import fit_temperature
from fairerclip.solver.problem import Problem

UNIT_COPY = 64 << 20
"""Largest size of a normalised copy of the rows in bytes; beyond it, blocks are normalised in each pass."""
TEMPERATURE_ROWS = 10_000
"""Rows that the temperature of probabilities is fitted on, at most; their number gives it within half a per cent."""
SMALLEST_FACTOR = 1e-300
"""Replaces a class weight of 0, which has no logarithm."""


@dataclass(frozen=True)
class Prepared:
    """A factored problem that can be solved for any τ, τ_z and criterion."""

    problem: Problem
    rows: Ints
    """Row numbers with a weight above zero."""
    y: Ints
    """(len(rows),) initial labels."""
    free: NDArray[np.bool_]
    """(len(rows),) labels that are guesses."""
    seed: int
    """Seed of the RBF alignment features."""
    gamma: float
    """Ridge of the image side."""
    guess_weight: float
    """Weight of a row whose label is a guess."""
    class_factors: F64 | None
    """(c,) weights of the classes where ``class_weight`` is a mapping."""
    target: ResolvedTarget
    sensitive: ResolvedSensitive

    @cached_property
    def n_present(self) -> int:
        """Number of classes that have rows."""
        return self.problem.n_present

    def at(self, gamma: Any) -> Prepared:
        """Return the same rows and labels with another ridge; see `Problem.at`."""
        check_interval("gamma", gamma, SMALLEST_RIDGE, LARGEST, "[]")
        gamma = float(gamma)
        return replace(self, problem=self.problem.at(gamma), gamma=gamma)

    def setting(self, params: Mapping[str, Any]) -> Setting:
        """Return the parameters of a model that a solution depends on."""
        r = params["n_components"]
        strengths = {name: None if params[name] is None else float(params[name]) for name in FOLLOWING}
        return Setting(
            tau=float(params["tau"]),
            tau_z=float(params["tau_z"]),
            **strengths,
            criterion=params["criterion"],
            scaling=params["scaling"],
            alignment=params["alignment"],
            zero=params["decision_zero"],
            n_components=int(r if r is not None else self.n_present - 1),
            max_iter=int(params["max_iter"]),
            seed=self.seed,
            zero_shot=float(params["zero_shot"]) if self.target.has_text else 0.0,
            decision=params["decision"],
        )

    def offsets(self, offsets: Any = None) -> F64:
        """Return offsets of the class scores (c,), checked; zeros for None."""
        return check_offsets(offsets, len(self.target.classes))

    def solve(self, setting: Setting, *, refine: bool) -> Alternation:
        """Solve one setting, starting from known and guessed labels; ``refine`` updates the guesses."""
        result = alternate(self.problem, self.y, setting, self.free if refine else None)
        if self.class_factors is None:
            return result
        offsets = self._class_offsets(result.last, np.maximum(self.class_factors, SMALLEST_FACTOR))
        return replace(result, last=result.last.with_offsets(offsets))

    def _class_offsets(self, solution: Round, factors: F64) -> F64:
        """Return offsets log(w)/β (c,): a class of weight w is predicted as if it were w times as likely."""
        known = self.known_sample()
        image = solution.sides.image
        basis = image.reduced.basis @ solution.image.coefficients
        Z = self.problem.rows.once().project_some(known, image.mean, basis)
        scores = solution.decision.scores(Z)
        y = self.y[known]
        beta = fit_temperature(scores, y, self.problem.weight[known] / factors[y])
        return np.asarray((np.log(factors) - np.log(factors).mean()) / beta)

    def known_sample(self) -> Ints:
        """Return the places of the rows whose label was given, or of all rows if none was: at most 10,000 of them."""
        known = np.flatnonzero(~self.free) if not self.free.all() else np.arange(len(self.free))
        if len(known) <= TEMPERATURE_ROWS:
            return known
        return np.asarray(known[np.linspace(0, len(known) - 1, TEMPERATURE_ROWS).astype(np.int64)])


@dataclass(frozen=True, eq=False)
class FitState:
    """Data that a fit keeps in memory besides the model: the factored problem and its solution.

    `FairerCLIP.path` and `FairerCLIP.at` continue from it. It holds the training rows, so it is not saved or pickled.
    """

    prepared: Prepared
    setting: Setting
    solution: Round
    """Both sides solved, without the offsets."""
    offsets: F64
    """(c,) added to the class scores; zeros change nothing."""
    encoders: Encoders
    """Of the solution with the offsets."""

    def with_offsets(self, offsets: F64) -> FitState:
        """Return the same solution with other offsets of its class scores."""
        encoders = self.solution.with_offsets(offsets).encoders()
        return replace(self, offsets=offsets, encoders=encoders)

    def scores(self, places: Ints | None = None) -> F64:
        """Compute the class scores (n, c) of the training rows with weight, or of some, by places in rising order."""
        rows, encoders = self.prepared.problem.rows, self.encoders
        if places is None:
            Z = rows.project(encoders.mean, encoders.components)
        else:
            Z = rows.once().project_some(places, encoders.mean, encoders.components)
        return encoders.decision.scores(Z + encoders.intercept)

    def model(self, seen: RowSummary, *, normalize: bool) -> tuple[FittedModel, list[Note]]:
        """Return the model of the solution and the warnings to give; ``seen`` summarises the training rows."""
        prepared, target = self.prepared, self.prepared.target
        # Fitted to given labels, or else to the first guesses: refined labels are predictions of the model itself, and
        # would make the probabilities too extreme.
        known = prepared.known_sample()
        scores = self.scores(known)
        prompts, prompt_classes = target.listed_prompts()
        fitted = FittedModel(
            classes=target.classes,
            features=prepared.problem.rows.features,
            text_features=prepared.problem.prompts.features,
            encoders=self.encoders,
            temperature=fit_temperature(scores, prepared.y[known], prepared.problem.weight[known]),
            prompts=prompts,
            prompt_classes=prompt_classes,
            rows=seen,
            normalize=normalize,
            weighs_classes=not self.solution.by_prompts,
            offsets=self.offsets,
            used={
                "tau": self.setting.tau,
                "zero_shot": self.setting.zero_shot,
                "gamma": prepared.gamma,
                "criterion": self.setting.criterion,
                "guess_weight": prepared.guess_weight,
            },
        )
        predicted = np.unique(scores.argmax(axis=1))
        if len(predicted) == 1 and len(scores) < len(prepared.y):
            predicted = np.unique(self.scores().argmax(axis=1))
        if len(predicted) > 1:
            return fitted, []
        message = (
            f"every training row is predicted to be {target.classes.tolist()[predicted[0]]!r}; lower tau or tau_text, "
            "or balance the classes with class_weight='balanced'"
        )
        return fitted, [(ConstantPredictionWarning, message)]

    def pseudo_labels(self, refined: Ints | None) -> NDArray[Any] | None:
        """Return labels (n,), known and guessed, with those ``refined`` of rows with weight; None if all are known.

        Rows without weight took no part in the refinement; they get predictions.
        """
        prepared, target = self.prepared, self.prepared.target
        if target.guess is None:
            return None
        labels = target.codes.copy()
        if refined is not None:
            labels[prepared.rows] = refined
            left = target.guess.rows.copy()
            left[prepared.rows] = False
            if left.any():
                Phi = prepared.problem.rows.raw(np.flatnonzero(left))
                encoders = self.solution.encoders()  # labels are refined without offsets
                Z = to_numpy(wide(Phi) @ beside(Phi, encoders.components)) - encoders.offset
                scores = encoders.decision.scores(Z)
                labels[left] = scores.argmax(axis=1)
        return np.asarray(target.classes[labels])


def solve(prepared: Prepared, params: Mapping[str, Any], offsets: F64) -> tuple[FitState, Alternation]:
    """Solve a problem with the parameters of a model, and return the state to keep and the course of the solution."""
    setting = prepared.setting(params)
    result = prepared.solve(setting, refine=params["refine"])
    encoders = result.last.with_offsets(offsets).encoders()
    return FitState(prepared, setting, result.last, offsets, encoders), result


def training_rows(X: Any, *, normalize: bool, prompted: bool) -> tuple[Any, RowSummary]:
    """Return rows (n, p), checked and at unit length if wanted, and a summary of the rows before.

    A zero row is an error where its direction is needed: for normalising, or for a comparison with prompts.
    """
    measured = measured_rows(X, "X", zero_is_error=normalize or prompted, depth=5)
    seen = measured.summary()
    if normalize:
        check_directions(X)
        whole = is_tensor(X) or isinstance(X, np.ndarray | FileRows)
        # Rows are read several times: normalise them once where that costs little memory.
        return unit_rows(X) if whole and X.nbytes <= UNIT_COPY else unit_view(X, measured.lengths), seen
    check_scale(X)
    return X, seen


def draw_seed(random_state: Any) -> int:
    """Return the seed that was given, or draw one, so that a fit can be repeated."""
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        check_range("seed", random_state, "random_state")
        return int(random_state)
    try:
        return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    except ValueError as error:
        raise ParameterError(f"random_state: {error}") from None


def diagnostics(prepared: Prepared, result: Alternation) -> dict[str, Any]:
    """Return residual, condition, ranks, objective per round and margins of guesses as JSON values."""
    problem, target, last = prepared.problem, prepared.target, result.last
    return {
        "residual": last.sides.image.residual(last.image),
        "condition": problem.factor.condition if math.isfinite(problem.factor.condition) else None,
        "solver": problem.solver,
        "solver_steps": problem.factor.steps,
        "solver_tolerance": problem.factor.tolerance,
        "solver_residual": problem.factor.relative_residual,
        "rows": problem.n_rows,
        "rank": {"image": last.image.n_positive, "text": last.text.n_positive},
        "dropped_terms": {"image": list(last.image.dropped), "text": list(last.text.dropped)},
        "objective": [{"image": h.image, "text": h.text} for h in result.history],
        "label_changes": [h.label_changes for h in result.history],
        "converged": result.converged,
        "pseudo_labels": None if target.guess is None else target.guess.summary(target.codes, target.classes),
        "pseudo_sensitive": prepared.sensitive.trust,
    }
