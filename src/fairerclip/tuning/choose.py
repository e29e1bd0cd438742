"""The choice among candidates: how far to trust a search is itself decided on rows that it did not see.

The best of many candidates on a few rows is partly luck. So there are several strategies, from leaving things as they
are to the whole search; each is carried out on one half of the validation rows and judged on the other, and the one
that holds up best is carried out on all of them. docs/choosing.md measures what this is worth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fairerclip.errors import LabelError, ParameterError
from fairerclip.tuning.judge import Judge
from fairerclip.tuning.objectives import DIFFERENCES, Objective, judge_scores
from fairerclip.tuning.offsets import learn_offsets
from fairerclip.tuning.search import Pool

F64 = NDArray[np.float64]

REPEATS = 2
"""Times that the rows are halved; each gives two judgements."""
OFFSET_CANDIDATES = 8
"""With more than two classes, offsets are learned for so many of the best candidates."""


@dataclass(frozen=True)
class Choice:
    """A candidate with offsets: what a strategy takes."""

    candidate: int
    offsets: F64
    """(c,)"""


@dataclass(frozen=True)
class Chosen:
    """What was chosen, by which strategy, and what each strategy was worth on rows it had not seen."""

    choice: Choice
    strategy: str
    held_out: dict[str, float]
    value: float
    """On all rows, the ones it was chosen on among them."""


def choose(pool: Pool, judge: Judge, objective: Objective) -> Chosen:
    """Pick by the strategy that holds up best on held-out halves; the simpler one of equals."""
    scores = [candidate.scores.astype(np.float64) for candidate in pool.candidates]
    # On a half a floor falls to chance: a strategy keeps to it where it chooses, and is held to it over all halves.
    free = replace(objective, accuracy_floor=None)
    trials: dict[str, list[float]] = {}
    averages: dict[str, list[float]] = {}
    for fold in halves(judge):
        if fold.all() or not fold.any():  # cells of one row each may all fall on one side
            continue
        for chosen_on, judged_on in ((fold, ~fold), (~fold, fold)):
            unseen = judge.of(judged_on)
            for name, choice in strategies(pool, scores, judge, objective, chosen_on).items():
                held = scores[choice.candidate][judged_on] + choice.offsets
                trials.setdefault(name, []).append(judge_scores(unseen, free, held))
                averages.setdefault(name, []).append(unseen.hits(held).sum() / len(held))
    if not trials:
        raise LabelError(
            f"{len(judge.y)} labelled validation rows are too few: one half is to choose on, the other to judge on"
        )
    held_out = {name: float(np.mean(values)) for name, values in trials.items()}
    everything = np.ones(len(judge.y), dtype=bool)
    available = strategies(pool, scores, judge, objective, everything)
    accurate = {name: float(np.mean(values)) for name, values in averages.items()}
    best = max(_feasible(accurate, objective, len(judge.y)), key=lambda name: held_out[name])
    choice = available[best]
    value = judge_scores(judge, free, scores[choice.candidate] + choice.offsets)
    return Chosen(choice, best, held_out, value)


def _feasible(accurate: dict[str, float], objective: Objective, n: int) -> list[str]:
    """Strategies whose held-out average reaches the floor, give or take its standard error; else the most accurate."""
    floor = objective.accuracy_floor
    if floor is None:
        return list(accurate)
    doubt = float(np.sqrt(floor * (1 - floor) / n))
    kept = [name for name, average in accurate.items() if average >= floor - doubt]
    return kept or [max(accurate, key=lambda name: accurate[name])]


def choose_by_scorer(pool: Pool, value: Callable[[F64], float]) -> Chosen:
    """The candidate with the largest value of a scorer, without offsets: what a scorer goes by is not known."""
    values = [value(candidate.scores.astype(np.float64)) for candidate in pool.candidates]
    if np.isnan(values).all():
        raise ParameterError(
            "the scorer gives NaN for every model of the search: there is nothing to choose by"
        )
    best = int(np.nanargmax(values))
    return Chosen(Choice(best, np.zeros(len(pool.classes))), "search", {}, float(values[best]))


def strategies(
    pool: Pool, scores: list[F64], judge: Judge, objective: Objective, rows: NDArray[np.bool_]
) -> dict[str, Choice]:
    """What each strategy takes when it sees these rows (n,) alone; simpler ones first.

    For a difference between groups there is the search alone: moving a boundary evens groups out only where nearly all
    rows fall on one side of it.
    """
    seen = judge.of(rows)
    none = np.zeros(len(pool.classes))
    plain = np.array([judge_scores(seen, objective, s[rows]) for s in scores])
    if objective.name in DIFFERENCES:
        return {"search": Choice(int(plain.argmax()), none)}
    out: dict[str, Choice] = {}
    fixed = {"zero-shot": pool.zero_shot, "orthogonal prompts": pool.orthogonal, "given": pool.given}
    for name, place in fixed.items():
        if place is None:
            continue
        out[name] = Choice(place, none)
        out[f"{name}, offsets"] = Choice(place, learn_offsets(seen, objective, scores[place][rows])[1])
    out["search"] = Choice(int(plain.argmax()), none)
    promising = np.arange(len(scores))
    if len(pool.classes) > 2:
        promising = np.argsort(-plain, kind="stable")[:OFFSET_CANDIDATES]
    learned = [(learn_offsets(seen, objective, scores[i][rows]), int(i)) for i in promising]
    (_, offsets), place = max(learned, key=lambda found: found[0][0])
    out["search, offsets"] = Choice(place, offsets)
    return out


def halves(judge: Judge) -> list[NDArray[np.bool_]]:
    """Masks (n,) that halve every cell, at random and repeatedly; a cell of one row falls on either side."""
    out = []
    for repeat in range(REPEATS):
        rng = np.random.default_rng(repeat)
        mask = np.zeros(len(judge.y), dtype=bool)
        for rows in judge.cells():
            shuffled = rng.permutation(rows)
            odd = len(rows) % 2 and rng.random() < 0.5
            mask[shuffled[: len(rows) // 2 + int(odd)]] = True
        out.append(mask)
    return out
