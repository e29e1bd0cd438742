"""Scores of candidates on the training rows, each row scored by models that were fitted without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import Ints
from fairerclip.errors import LabelError, NoSolutionError, ParameterError, ShapeError
from fairerclip.inputs.encode import as_labels
from fairerclip.tuning.candidates import Candidate, Pool
from fairerclip.tuning.judge import Judge
from fairerclip.tuning.judged_rows import JudgedRows

ROW_ARGUMENTS = ("sensitive_features", "sample_weight")
"""Arguments of `FairerCLIP.fit` with one entry per row."""
MOST_ROWS = 20_000
"""Rows that are judged, at most: scores of every candidate are kept for them."""


def limit_rows(judged: JudgedRows, seed: int, most: int = MOST_ROWS) -> JudgedRows:
    """Return at most about ``most`` of the rows, the same number from every cell; small cells are kept whole."""
    if len(judged.rows) <= most:
        return judged
    rng = np.random.default_rng(seed)
    cells = judged.judge.cells()
    kept = np.sort(np.concatenate([rng.permutation(cell)[: max(1, most // len(cells))] for cell in cells]))
    return replace(
        judged,
        rows=judged.rows[kept],
        X=judged.X[kept],
        judge=Judge(
            judged.judge.y[kept], judged.judge.s[kept], judged.judge.n_classes, judged.judge.n_groups
        ),
        y=judged.y[kept],
        groups=judged.groups[kept],
    )


def deal_folds(judge: Judge, groups: NDArray[Any] | None, n_folds: int, seed: int) -> Ints:
    """Return a fold number (m,) for each judged row, so that every cell is spread evenly over the folds.

    Parameters
    ----------
    judge : Judge
        The rows, with their classes and groups.
    groups : array of shape (m,), or None
        Rows of one entry stay in one fold. They are dealt by the rarest cell among them.
    n_folds : int
        Number of folds.
    seed : int
        Seed of the order in which rows are dealt.
    """
    m = len(judge.y)
    members = np.arange(m) if groups is None else np.unique(groups, return_inverse=True)[1].reshape(-1)
    size = judge.counts[judge.y, judge.s]  # (m,) rows of the cell of each row
    cell = judge.y * judge.n_groups + judge.s
    order = np.lexsort((cell, size))
    first = order[
        np.unique(members[order], return_index=True)[1]
    ]  # (units,) a row of the rarest cell of each unit
    shuffled = np.random.default_rng(seed).permutation(len(first))
    dealt = shuffled[np.argsort(cell[first[shuffled]], kind="stable")]
    fold_of = np.empty(len(first), dtype=np.int64)
    fold_of[dealt] = np.arange(len(first)) % n_folds
    return np.asarray(fold_of[members])


def check_folds(judged: JudgedRows, folds: Ints, n_folds: int) -> None:
    """Raise if a class with labelled rows would have none left to fit on in one of the folds."""
    for code in np.unique(judged.judge.y).tolist():
        of_class = judged.judge.y == code
        if len(np.unique(folds[of_class])) == 1:
            raise LabelError(
                f"all labelled rows of class {judged.y[of_class].tolist()[0]!r} are in one of the {n_folds} folds, so "
                "that no row is left to fit on: give two rows of every class at least, in two groups where groups= is "
                "given, or validation=(X, y, s)"
            )


def check_groups(groups: Any, n: int) -> NDArray[Any] | None:
    """Return ``groups`` as an array (n,), or None."""
    if groups is None:
        return None
    array = as_labels(groups)
    if array.shape != (n,):
        raise ShapeError(f"groups must have one entry per row of X, shape ({n},); got {array.shape}")
    return array


def check_fold_count(cv: Any) -> int:
    """Return the number of folds, an integer of at least 2."""
    if isinstance(cv, bool) or not isinstance(cv, (int, np.integer)) or cv < 2:
        raise ParameterError(f"cv must be an integer of at least 2; got {cv!r:.200}")
    return int(cv)


def out_of_fold(
    gather: Callable[[Ints, Ints, int], Pool], judged: JudgedRows, n_rows: int, folds: Ints
) -> Pool:
    """Return the candidates that every fold has, with the scores of each judged row by models fitted without it.

    Parameters
    ----------
    gather : callable
        Fits the candidates on some training rows and scores others: (rows to fit on, rows to score, fold) → `Pool`.
    judged : JudgedRows
        Rows to score.
    n_rows : int
        Number of training rows. Those that are not judged are fitted on in every fold.
    folds : array of shape (m,)
        Fold of each judged row.
    """
    pools, places = [], []
    for fold in np.unique(folds).tolist():
        scored = np.flatnonzero(folds == fold)
        fitted_on = np.setdiff1d(np.arange(n_rows), judged.rows[scored])
        pools.append(gather(fitted_on, judged.rows[scored], fold))
        places.append(scored)
    keyed = [{_key(candidate): candidate for candidate in pool.candidates} for pool in pools]
    shared = [key for key in keyed[0] if all(key in other for other in keyed[1:])]
    if not shared:
        raise NoSolutionError(
            "no setting of the search has a solution in every fold: give validation=(X, y, s)"
        )
    candidates = []
    for key in shared:
        scores = np.empty((len(folds), len(pools[0].classes)), dtype=np.float32)
        for scored, found in zip(places, keyed, strict=True):
            scores[scored] = found[key].scores
        candidates.append(Candidate(keyed[0][key].parameters, keyed[0][key].fit, scores))
    return replace(
        pools[0],
        candidates=candidates,
        given=_place(pools[0], pools[0].given, shared),
        zero_shot=_place(pools[0], pools[0].zero_shot, shared),
        orthogonal=_place(pools[0], pools[0].orthogonal, shared),
        fits=sum(pool.fits for pool in pools),
        planned=sum(pool.planned for pool in pools),
        seconds=sum(pool.seconds for pool in pools),
        failures=[failure for pool in pools for failure in pool.failures],
    )


def _key(candidate: Candidate) -> str:
    """Return a key that is equal for the same candidate in two folds."""
    return json.dumps([candidate.fit, dict(candidate.parameters)], default=repr, sort_keys=True)


def _place(pool: Pool, place: int | None, shared: list[str]) -> int | None:
    """Return the place among the shared candidates of the candidate at ``place``; None where it is not shared."""
    key = None if place is None else _key(pool.candidates[place])
    return shared.index(key) if key in shared else None
