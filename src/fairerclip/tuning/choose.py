"""The choice among candidates, with held-out rows that decide how far to trust the search.

The best of many candidates on a few rows is partly chance. So there are several strategies, from the unchanged
parameters to the whole search. Each is applied to one half of the judged rows and evaluated on the other half; the
one with the best mean value is then applied to all rows. docs/choosing.md has figures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import F64, Ints
from fairerclip.errors import LabelError, ParameterError
from fairerclip.inputs.prompts import zero_shot
from fairerclip.tuning.candidates import Pool
from fairerclip.tuning.judge import Judge
from fairerclip.tuning.judged_rows import JudgedRows
from fairerclip.tuning.objectives import DIFFERENCES, Objective, first_best, judge_scores
from fairerclip.tuning.offsets import learn_offsets

REPEATS = 20
"""Number of random halvings; each gives two evaluations. docs/choosing.md#stability has the effect of fewer."""
OFFSET_CANDIDATES, LINE_CANDIDATES = 8, 64
"""Number of best candidates for which offsets are learned, for several and for two classes."""


@dataclass(frozen=True)
class Choice:
    """A candidate with offsets, chosen by a strategy."""

    candidate: int
    offsets: F64
    """(c,)"""


@dataclass(frozen=True)
class Chosen:
    """The choice, its strategy, and the value of every strategy on held-out rows."""

    choice: Choice
    strategy: str
    held_out: dict[str, float]
    value: float
    """On all judged rows, which it was chosen on."""


def with_floor(goal: Objective, pool: Pool, judged: JudgedRows) -> Objective:
    """Return the objective with an accuracy floor where it needs one.

    A difference between groups is smallest where one class is always predicted. Its default floor is the accuracy of
    zero-shot, or without prompts of the model with the given parameters.
    """
    if goal.name not in DIFFERENCES or goal.accuracy_floor is not None:
        return goal
    judge = judged.judge
    if judged.prompts is not None:
        return replace(goal, accuracy_floor=float(np.mean(zero_shot(judged.X, judged.prompts)[0] == judge.y)))
    if pool.given is None:
        return goal
    right = judge.hits(pool.candidates[pool.given].scores.astype(np.float64)).sum() / judge.counts.sum()
    return replace(goal, accuracy_floor=float(right))


def choose(pool: Pool, judge: Judge, objective: Objective) -> Chosen:
    """Choose by the strategy with the best value on held-out halves; the simpler one of equal strategies.

    The result does not depend on the order of rows, classes or groups. A strategy whose choice misses the accuracy
    floor on the rows is left out; if all miss it, the most accurate choice is taken.
    """
    scores = np.array([candidate.scores for candidate in pool.candidates], dtype=np.float64)  # (g, n, c)
    held_out = _held_out(pool, scores, judge, objective)
    available = strategies(pool, scores, judge, objective)
    moved = {name: scores[choice.candidate] + choice.offsets for name, choice in available.items()}
    right = {name: float((values.argmax(axis=1) == judge.y).mean()) for name, values in moved.items()}
    kept = [name for name in available if objective.is_met(right[name])]
    ranked, by = (kept, held_out) if kept else (list(available), right)
    best = ranked[first_best([by[name] for name in ranked])]
    value = float(judge_scores(judge, replace(objective, accuracy_floor=None), moved[best][None])[0])
    return Chosen(available[best], best, held_out, value)


def _held_out(pool: Pool, scores: F64, judge: Judge, objective: Objective) -> dict[str, float]:
    """Return the mean value of each strategy on the halves that it did not choose on."""
    # The floor applies where a strategy chooses; whether the other half reaches it is chance.
    free = replace(objective, accuracy_floor=None)
    trials: dict[str, list[float]] = {}
    for fold in halves(judge, row_keys(judge, scores)):
        if fold.all() or not fold.any():  # cells of one row each may all fall on one side
            continue
        for chosen_on, judged_on in ((fold, ~fold), (~fold, fold)):
            choices = strategies(pool, scores[:, chosen_on], judge.of(chosen_on), objective)
            unseen = np.array([scores[c.candidate, judged_on] + c.offsets for c in choices.values()])
            values = judge_scores(judge.of(judged_on), free, unseen)
            for name, value in zip(choices, values.tolist(), strict=True):
                trials.setdefault(name, []).append(value)
    if not trials:
        raise LabelError(
            f"{len(judge.y)} labelled rows are too few: one half is to choose on, the other to judge on"
        )
    return {name: float(np.mean(values)) for name, values in trials.items()}


def choose_by_scorer(pool: Pool, value: Callable[[F64], float]) -> Chosen:
    """Return the candidate with the largest value of a user's function, without offsets."""
    values = [value(candidate.scores.astype(np.float64)) for candidate in pool.candidates]
    if np.isnan(values).all():
        raise ParameterError(
            "the scorer gives NaN for every model of the search: there is nothing to choose by"
        )
    best = int(np.nanargmax(values))
    return Chosen(Choice(best, np.zeros(len(pool.classes))), "search", {}, float(values[best]))


def strategies(pool: Pool, scores: F64, judge: Judge, objective: Objective) -> dict[str, Choice]:
    """Return the choice of each strategy on rows with scores (g, n, c); simpler strategies first.

    For a difference between groups there is only the search without offsets: a moved boundary makes groups equal only
    where nearly all rows are on one side of it.
    """
    none = np.zeros(len(pool.classes))
    plain = judge_scores(judge, objective, scores)
    if objective.name in DIFFERENCES:
        return {"search": Choice(first_best(plain), none)}
    named = {"zero-shot": pool.zero_shot, "orthogonal prompts": pool.orthogonal, "given": pool.given}
    fixed = {name: place for name, place in named.items() if place is not None}
    many = LINE_CANDIDATES if len(pool.classes) == 2 else OFFSET_CANDIDATES
    promising = np.sort(np.argsort(-plain, kind="stable")[:many])
    places = np.concatenate([np.array(list(fixed.values()), dtype=np.int64), promising])
    values, offsets = learn_offsets(judge, objective, scores[places])
    out: dict[str, Choice] = {}
    for i, (name, place) in enumerate(fixed.items()):
        out[name] = Choice(place, none)
        out[f"{name}, offsets"] = Choice(place, offsets[i])
    out["search"] = Choice(first_best(plain), none)
    best = len(fixed) + first_best(values[len(fixed) :])
    out["search, offsets"] = Choice(int(places[best]), offsets[best])
    return out


def row_keys(judge: Judge, scores: F64) -> Ints:
    """Return keys (n,) that order rows by their margins of scores (g, n, c); equal for equal rows."""
    return np.unique(judge.margins(scores).T, axis=0, return_inverse=True)[1].reshape(-1)


def halves(judge: Judge, keys: Ints, repeats: int = REPEATS) -> list[NDArray[np.bool_]]:
    """Return masks (n,) that halve every cell at random; a cell of one row is on either side.

    Before the draws, rows of a cell are sorted by their keys (n,), and cells by their sizes and keys. So the halves do
    not depend on the order of rows, classes or groups, except that rows with equal keys may change places.
    """
    cells = [rows[keys[rows].argsort()] for rows in judge.cells()]
    cells.sort(key=lambda rows: (len(rows), keys[rows].tolist()))
    out = []
    for repeat in range(repeats):
        rng = np.random.default_rng(repeat)
        mask = np.zeros(len(judge.y), dtype=bool)
        for rows in cells:
            odd = len(rows) % 2 and rng.random() < 0.5
            mask[rng.permutation(rows)[: len(rows) // 2 + int(odd)]] = True
        out.append(mask)
    return out
