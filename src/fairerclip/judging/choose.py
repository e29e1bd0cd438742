"""The choice among models: the one whose gain over a reference is largest, after doubt about the gain is subtracted.

The best of many models on a few rows is partly chance. A model that is known to be good on other data, the reference,
is therefore kept unless the rows show a gain. How well they show it depends on the smallest cells: the gain of a model
there has a wide posterior. docs/explanation/choosing.md has figures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fairerclip._util.types import F64, Floats
from fairerclip.errors import ParameterError
from fairerclip.judging.evidence import Evidence
from fairerclip.judging.objectives import Objective, judge_margins, judge_scores
from fairerclip.judging.offsets import boundaries, learn_offsets
from fairerclip.judging.verdicts import Verdicts, right_share

DOUBT = 1.5
"""Standard deviations of the posterior of a gain that are subtracted from its mean."""
LEAST_ROWS = 10
"""Rows below which nothing is chosen: a few rows that are all right, or all wrong, would seem certain."""
EQUAL = 1e-6
"""Values that differ by less count as equal, so that rounding does not decide."""
LINE_CANDIDATES, OFFSET_BUDGET = 16, 64
"""Number of best models for which offsets are learned: for two classes, and for more classes times their number."""


@dataclass(frozen=True)
class Choice:
    """A model with offsets, and its gain over the reference."""

    candidate: int
    offsets: F64
    """(c,)"""
    gain: float
    """Posterior mean of its value minus that of the reference."""
    doubt: float
    """Standard deviation of the same."""
    value: float
    """Posterior mean of its value."""
    is_reference: bool

    @property
    def strategy(self) -> str:
        """Name of the choice: given (the reference) or search (another model), with offsets where some were learned."""
        name = "given" if self.is_reference else "search"
        return f"{name}, offsets" if np.any(self.offsets) else name


def choose(
    scores: Floats,
    evidence: Evidence,
    objective: Objective,
    reference: int,
    verdicts: Verdicts | None = None,
    *,
    learns_offsets: bool = True,
) -> Choice:
    """Choose among models with scores (g, n, c) on labelled rows, with their ``verdicts`` if these are known already.

    Models that miss the accuracy floor of the objective are left out; if all miss it, the most accurate one is taken.
    With fewer than `LEAST_ROWS` rows the reference is kept.
    The result does not depend on the order of rows, classes or groups.
    """
    if len(evidence.y) < LEAST_ROWS:
        own = judge_scores(evidence, objective, scores[reference][None])[0]
        return _chosen(reference, np.zeros(scores.shape[2]), own, own, True)
    if objective.compares_groups:
        return _smallest_difference(scores, evidence, objective, reference, learns_offsets=learns_offsets)
    verdicts = Verdicts.of(evidence, objective, scores) if verdicts is None else verdicts
    draws, right = verdicts.draws, verdicts.right
    if draws is None:
        raise AssertionError("a named objective has draws")
    allowed = objective.is_met(right)
    none = np.zeros(scores.shape[2])
    if not allowed.any():
        best = first_best(right)
        return _chosen(best, none, draws[best], draws[reference], best == reference)
    lower = np.where(allowed, lower_gain(draws, draws[reference]), -np.inf)
    best = first_best(lower)
    if allowed[reference] and lower[best] <= EQUAL:
        best = reference
    # No row would show what offsets do to a class without rows.
    if not learns_offsets or not evidence.present.any(axis=1).all():
        return _chosen(best, none, draws[best], draws[reference], best == reference)

    def judge(moved: F64, tried: F64) -> F64:
        margins = evidence.margins(moved + tried[:, None, :]).astype(np.float32)
        found = lower_gain(judge_margins(evidence, objective, margins), draws[reference])
        return np.asarray(np.where(objective.is_met(right_share(margins)), found, -np.inf))

    most = LINE_CANDIDATES if scores.shape[2] == 2 else max(2, OFFSET_BUDGET // scores.shape[2])
    places = np.unique([reference, *np.argsort(-lower, kind="stable")[:most].tolist()])
    found, offsets = learn_offsets(np.asarray(scores[places], dtype=np.float64), lower[places], judge)
    top = first_best(found)
    if found[top] <= lower[best] + EQUAL:
        return _chosen(best, none, draws[best], draws[reference], best == reference)
    place = int(places[top])
    moved = judge_scores(evidence, objective, scores[place][None] + offsets[top])[0]
    return _chosen(place, offsets[top], moved, draws[reference], place == reference)


def _smallest_difference(
    scores: Floats, evidence: Evidence, objective: Objective, reference: int, *, learns_offsets: bool
) -> Choice:
    """Choose the model, and for two classes its boundary, with the smallest difference that reaches the floor.

    Differences are of expected accuracies. All models are tried with all boundaries: one that misses the floor may
    reach it with another boundary.
    """
    best, place, offsets = -np.inf, reference, np.zeros(scores.shape[2])
    most_right = -np.inf
    # The reference first: it is kept among equals.
    for g in [reference, *(g for g in range(len(scores)) if g != reference)]:
        own, tried = scores[g], np.zeros((1, scores.shape[2]))
        if learns_offsets and scores.shape[2] == 2 and objective.accuracy_floor is not None:
            own = np.asarray(own, dtype=np.float64)
            steps = -boundaries(own[:, 1] - own[:, 0])
            tried = np.concatenate([tried, steps[:, None] * np.array([-0.5, 0.5])])
        margins = evidence.margins(own[None] + tried[:, None, :])
        right = right_share(margins)
        values = objective.difference_values(evidence.rates(margins), right)
        allowed = objective.is_met(right)
        if allowed.any():
            values = np.where(allowed, values, -np.inf)
        elif best > -np.inf or right.max() <= most_right:
            continue
        else:  # no model so far reaches the floor: the most accurate one
            most_right, top = right.max(), int(right.argmax())
            place, offsets = g, tried[top]
            continue
        top = first_best(values)
        if values[top] > best + EQUAL:
            best, place, offsets = values[top], g, tried[top]
    moved = judge_scores(evidence, objective, np.stack([scores[place] + offsets, scores[reference]]))
    return _chosen(place, offsets, moved[0], moved[1], place == reference)


def _chosen(place: int, offsets: F64, draws: F64, reference: F64, is_reference: bool) -> Choice:
    gain = draws - reference
    return Choice(place, offsets, float(gain.mean()), float(gain.std()), float(draws.mean()), is_reference)


def lower_gain(draws: F64, reference: F64) -> F64:
    """Return the mean gain (g,) of draws (g, b) over the reference (b,), minus `DOUBT` standard deviations."""
    gain = draws - reference
    return np.asarray(gain.mean(axis=1) - DOUBT * gain.std(axis=1))


def choose_by_scorer(scores: Floats, value: Callable[[F64], float], reference: int) -> Choice:
    """Return the model with the largest value of a user's function of scores (n, c), without offsets."""
    values = [value(np.asarray(own, dtype=np.float64)) for own in scores]
    if np.isnan(values).all():
        raise ParameterError(
            "the scorer gives NaN for every model of the search: there is nothing to choose by"
        )
    best = int(np.nanargmax(values))
    gain = float(values[best] - values[reference])
    return Choice(best, np.zeros(scores.shape[2]), gain, 0.0, float(values[best]), best == reference)


def first_best(values: F64) -> int:
    """Return the index of the first of the largest values, up to rounding."""
    values = np.asarray(values)
    return int(np.flatnonzero(values >= values.max() - EQUAL)[0])
