"""Cross-validation of a search: every judged training row is scored by models that were fitted without it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import Ints
from fairerclip.errors import LabelError, NoSolutionError, ParameterError, ShapeError
from fairerclip.inputs.encode import as_labels, encode
from fairerclip.tuning.candidates import Candidate, Pool
from fairerclip.tuning.judge import Judge
from fairerclip.tuning.judged_rows import JudgedRows

MOST_ROWS = 20_000
"""Rows that are judged, at most: scores of every candidate are kept for them."""


class Fold(NamedTuple):
    """Rows to fit on and rows to score, by row number, and the places of the latter among the judged rows."""

    fitted_on: Ints
    scored: Ints
    places: Ints


def limit_rows(judged: JudgedRows, seed: int, most: int = MOST_ROWS) -> JudgedRows:
    """Return at most about ``most`` of the rows, the same number from every cell; small cells are kept whole."""
    if len(judged.rows) <= most:
        return judged
    rng = np.random.default_rng(seed)
    cells = judged.judge.cells()
    kept = [rng.permutation(cell)[: max(1, most // len(cells))] for cell in cells]
    return judged.at(np.sort(np.concatenate(kept)))


def check_groups(groups: Any, n: int) -> Ints | None:
    """Return ``groups`` as codes (n,), or None."""
    if groups is None:
        return None
    array = as_labels(groups)
    if array.shape != (n,):
        raise ShapeError(f"groups must have one entry per row of X, shape ({n},); got {array.shape}")
    encoded = encode(array)
    if encoded.missing.any():
        raise LabelError(
            f"groups has no entry for row {np.flatnonzero(encoded.missing)[0]}: give each row one"
        )
    return encoded.codes


def make_splits(
    cv: Any, judged: JudgedRows, X: Any, y: NDArray[Any], groups: NDArray[Any] | None, seed: int
) -> list[Fold]:
    """Return the splits of a cross-validation, each with judged rows to score.

    Training rows that are not judged, because a label is missing, are fitted on in every fold of a number of folds.

    Parameters
    ----------
    cv : int, splitter or iterable of (train, test)
        As `FairerCLIPSearch` takes it.
    judged : JudgedRows
        Rows that may be scored.
    X, y : arrays of shape (n, p) and (n,)
        Training rows and their labels.
    groups : array of shape (n,), or None
        Rows with equal entries stay together.
    seed : int
        Seed of the folds.
    """
    n = X.shape[0]
    if len(np.unique(judged.judge.y)) < 2:
        raise LabelError(
            f"y has one class only ({np.unique(judged.y).tolist()}): there is nothing to tell apart"
        )
    if isinstance(cv, (int, np.integer)) and not isinstance(cv, bool):
        if not 2 <= cv <= len(judged.rows):
            raise ParameterError(
                f"cv must be 2 to {len(judged.rows)} folds, the number of rows with both labels; got {cv}"
            )
        folds = deal_folds(judged.judge, None if groups is None else groups[judged.rows], int(cv), seed)
        tests = [judged.rows[folds == fold] for fold in range(int(cv))]
        pairs = [(np.setdiff1d(np.arange(n), test), test) for test in tests]
    else:
        from sklearn.model_selection import check_cv  # slow to load

        try:
            given = list(check_cv(cv, y, classifier=True).split(X, y, groups))
            pairs = [(np.arange(n)[train], np.arange(n)[test]) for train, test in given]
        except (TypeError, ValueError, IndexError) as error:
            raise ParameterError(
                f"cv must be a number of folds, a splitter of scikit-learn or pairs of row numbers; {error}. A "
                "splitter that stratifies needs a label for every row"
            ) from None
    splits = []
    for fitted_on, test in pairs:
        places = np.flatnonzero(np.isin(judged.rows, test))
        if len(places):
            splits.append(Fold(fitted_on, judged.rows[places], places))
    _check_splits(splits, judged)
    return splits


def _check_splits(splits: Sequence[Fold], judged: JudgedRows) -> None:
    """Raise if no row would be judged, or a row twice, or if a fold has a class without rows to fit on."""
    codes = judged.judge.y
    places = np.concatenate([split.places for split in splits]) if splits else np.zeros(0, dtype=np.int64)
    if not len(places) or len(np.unique(places)) < len(places):
        raise ParameterError(
            "cv must put each labelled row into at most one test fold, and at least one row into a test fold; it puts "
            f"{len(places)} into test folds, {len(np.unique(places))} of them different"
        )
    for split in splits:
        fitted = codes[np.isin(judged.rows, split.fitted_on)]
        gone = np.setdiff1d(codes, fitted)
        if len(gone):
            label = judged.y[codes == gone[0]].tolist()[0]
            raise LabelError(
                f"a fold of the cross-validation has no labelled row of class {label!r} to fit on: give two rows of "
                "every class at least, in two groups where groups= is given, or validation=(X, y, s)"
            )


def deal_folds(judge: Judge, groups: NDArray[Any] | None, n_folds: int, seed: int) -> Ints:
    """Return a fold number (m,) for each judged row, so that every cell is spread evenly over the folds.

    Parameters
    ----------
    judge : Judge
        The rows, with their classes and groups.
    groups : array of shape (m,), or None
        Rows with equal entries stay in one fold. They are dealt by the rarest cell among them.
    n_folds : int
        Number of folds.
    seed : int
        Seed of the order in which rows are dealt.
    """
    m = len(judge.y)
    unit = np.arange(m) if groups is None else np.unique(groups, return_inverse=True)[1].reshape(-1)
    cell = judge.y * judge.n_groups + judge.s
    rarest_first = np.lexsort((cell, judge.counts[judge.y, judge.s]))
    row_of_unit = rarest_first[np.unique(unit[rarest_first], return_index=True)[1]]
    shuffled = np.random.default_rng(seed).permutation(len(row_of_unit))
    dealt = shuffled[np.argsort(cell[row_of_unit[shuffled]], kind="stable")]
    fold_of_unit = np.empty(len(row_of_unit), dtype=np.int64)
    fold_of_unit[dealt] = np.arange(len(dealt)) % n_folds
    return np.asarray(fold_of_unit[unit])


def out_of_fold(pools: Sequence[Pool]) -> Pool:
    """Join the candidates of all splits: those that every split has, with the scores of one split after the other."""
    keyed = [{_key(candidate): candidate for candidate in pool.candidates} for pool in pools]
    shared = [key for key in keyed[0] if all(key in other for other in keyed[1:])]
    if not shared:
        raise NoSolutionError(
            "no setting of the search has a solution in every fold: give validation=(X, y, s)"
        )
    first = pools[0]
    return replace(
        first,
        candidates=[
            Candidate(
                keyed[0][key].parameters, keyed[0][key].fit, np.concatenate([k[key].scores for k in keyed])
            )
            for key in shared
        ],
        given=_place(first, first.given, shared),
        zero_shot=_place(first, first.zero_shot, shared),
        orthogonal=_place(first, first.orthogonal, shared),
        fits=sum(pool.fits for pool in pools),
        planned=sum(pool.planned for pool in pools),
        seconds=sum(pool.seconds for pool in pools),
        failures=[failure for pool in pools for failure in pool.failures],
    )


def _key(candidate: Candidate) -> str:
    """Return a key that is equal for the same candidate in two splits."""
    return json.dumps([candidate.fit, dict(candidate.parameters)], default=repr, sort_keys=True)


def _place(pool: Pool, place: int | None, shared: list[str]) -> int | None:
    """Return the place among the shared candidates of the candidate at ``place``; None where it is not shared."""
    key = None if place is None else _key(pool.candidates[place])
    return shared.index(key) if key in shared else None
