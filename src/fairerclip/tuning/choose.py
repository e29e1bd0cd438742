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

from fairerclip._util.types import F64, Ints
from fairerclip.errors import LabelError, ParameterError
from fairerclip.tuning.candidates import Pool
from fairerclip.tuning.judge import Judge
from fairerclip.tuning.objectives import DIFFERENCES, Objective, first_best, judge_scores
from fairerclip.tuning.offsets import learn_offsets

REPEATS = 20
"""Times that the rows are halved; each gives two judgements. docs/choosing.md#stability has what fewer would change."""
OFFSET_CANDIDATES, LINE_CANDIDATES = 8, 64
"""Offsets are learned for so many of the best candidates; more where two classes leave one line to search."""


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
    """Pick by the strategy that holds up best on held-out halves; the simpler one of equals.

    The result does not depend on the order of rows, classes or groups. A strategy whose choice misses the accuracy
    floor on the rows is not picked; if all miss it, the most accurate choice is.
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
    """Mean value of each strategy on the halves of the rows that it did not choose on."""
    # A strategy keeps to the floor where it chooses; whether the other half reaches it is chance.
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
            f"{len(judge.y)} labelled validation rows are too few: one half is to choose on, the other to judge on"
        )
    return {name: float(np.mean(values)) for name, values in trials.items()}


def choose_by_scorer(pool: Pool, value: Callable[[F64], float]) -> Chosen:
    """The candidate with the largest value of a scorer, without offsets: what a scorer goes by is not known."""
    values = [value(candidate.scores.astype(np.float64)) for candidate in pool.candidates]
    if np.isnan(values).all():
        raise ParameterError(
            "the scorer gives NaN for every model of the search: there is nothing to choose by"
        )
    best = int(np.nanargmax(values))
    return Chosen(Choice(best, np.zeros(len(pool.classes))), "search", {}, float(values[best]))


def strategies(pool: Pool, scores: F64, judge: Judge, objective: Objective) -> dict[str, Choice]:
    """What each strategy takes when it sees these rows alone, scores (g, n, c); simpler ones first.

    For a difference between groups there is the search alone: moving a boundary evens groups out only where nearly all
    rows fall on one side of it.
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
    """(n,) numbers that put rows in an order of their margins by scores (g, n, c); equal for rows that are alike."""
    return np.unique(judge.margins(scores).T, axis=0, return_inverse=True)[1].reshape(-1)


def halves(judge: Judge, keys: Ints, repeats: int = REPEATS) -> list[NDArray[np.bool_]]:
    """Masks (n,) that halve every cell, at random and repeatedly; a cell of one row falls on either side.

    Before anything is drawn the rows of a cell are put in the order of their keys (n,), and cells in that of their
    sizes and keys. So the halves do not depend on the order of rows, classes or groups, except that rows with equal
    keys may change places.
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
