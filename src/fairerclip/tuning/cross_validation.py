"""Splits of the training rows for the cross-validation of a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import Ints
from fairerclip.errors import LabelError, ParameterError, ShapeError
from fairerclip.inputs.encode import as_labels, encode
from fairerclip.model.automatic import cells_of, splits_of
from fairerclip.model.cross_validation import Split, deal_folds
from fairerclip.tuning.judged_rows import JudgedRows


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
    cv: Any, judged: JudgedRows, rows: Ints, X: Any, y: NDArray[Any], groups: Ints | None, seed: int
) -> list[Split]:
    """Return the splits of a cross-validation, each with judged rows to score.

    Rows that are not judged, because a label is missing, are fitted on in every fold of a number of folds.

    Parameters
    ----------
    cv : int, splitter or iterable of (train, test)
        As `FairerCLIPSearch` takes it.
    judged : JudgedRows
        Rows that may be scored.
    rows : int array
        Numbers of the rows that take part in the fit.
    X, y : arrays of shape (n, p) and (n,)
        Training rows and their labels, for a splitter.
    groups : int array of shape (n,), or None
        Rows with equal entries stay together.
    seed : int
        Seed of the folds.
    """
    codes = judged.evidence.y
    if len(np.unique(codes)) < 2:
        raise LabelError(
            f"y has one class only ({np.unique(judged.y).tolist()}): there is nothing to tell apart"
        )
    if isinstance(cv, (int, np.integer)) and not isinstance(cv, bool):
        if not 2 <= cv <= len(judged.rows):
            raise ParameterError(
                f"cv must be 2 to {len(judged.rows)} folds, the number of rows with both labels; got {cv}"
            )
        together = None if groups is None else groups[judged.rows]
        folds = deal_folds(judged.evidence.keys, cells_of(judged.evidence), int(cv), together, seed)
        splits = splits_of(folds, judged.rows, rows)
        if groups is not None:  # rows that are not judged stay with their group, too
            splits = [
                Split(s.fitted_on[~np.isin(groups[s.fitted_on], groups[s.scored])], s.scored) for s in splits
            ]
    else:
        splits = _given_splits(cv, judged, rows, X, y, groups)
    _check_splits(splits, judged)
    return splits


def _given_splits(
    cv: Any, judged: JudgedRows, rows: Ints, X: Any, y: NDArray[Any], groups: Ints | None
) -> list[Split]:
    """Return the splits of a splitter of scikit-learn, or of pairs of row numbers."""
    from sklearn.model_selection import check_cv  # slow to load

    every = np.arange(X.shape[0])
    try:
        given = list(check_cv(cv, y, classifier=True).split(X, y, groups))
        pairs = [(every[train], every[test]) for train, test in given]
    except (TypeError, ValueError, IndexError) as error:
        raise ParameterError(
            f"cv must be a number of folds, a splitter of scikit-learn or pairs of row numbers; {error}. A "
            "splitter that stratifies needs a label for every row"
        ) from None
    splits = [Split(np.intersect1d(rows, train), np.intersect1d(judged.rows, test)) for train, test in pairs]
    return [split for split in splits if len(split.scored)]


def _check_splits(splits: Sequence[Split], judged: JudgedRows) -> None:
    """Raise if no row would be judged, or a row twice, or if a fold has a class without rows to fit on."""
    codes = judged.evidence.y
    scored = np.concatenate([split.scored for split in splits]) if splits else np.zeros(0, dtype=np.int64)
    if not len(scored) or len(np.unique(scored)) < len(scored):
        raise ParameterError(
            "cv must put each labelled row into at most one test fold, and at least one row into a test fold; it puts "
            f"{len(scored)} into test folds, {len(np.unique(scored))} of them different"
        )
    for split in splits:
        gone = np.setdiff1d(codes, codes[np.isin(judged.rows, split.fitted_on)])
        if len(gone):
            label = judged.y[codes == gone[0]].tolist()[0]
            raise LabelError(
                f"a fold of the cross-validation has no labelled row of class {label!r} to fit on: give two rows of "
                "every class at least, in two groups where groups= is given, or validation=(X, y, s)"
            )
