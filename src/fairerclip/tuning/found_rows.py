"""The rows that judge the candidates of a search: validation rows, and training rows by cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.arrays import to_numpy
from fairerclip._util.types import Floats, Ints
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.errors import LabelError, ParameterError, ShapeError, UnusedRowsWarning
from fairerclip.inputs.encode import as_labels, encode
from fairerclip.judging.evidence import Evidence, row_keys
from fairerclip.model.automatic import FOLDS, MOST_ROWS, MOST_SCORES, cells_of, limit_rows, splits_of
from fairerclip.model.cross_validation import FoldSplit, deal_folds
from fairerclip.model.fit_data import FitData
from fairerclip.tuning.judged_rows import GroupAxis, JudgedRows, training_groups, validation_rows

SEARCH_SIZE = 500
"""About the number of candidates of a search, by which the rows that are judged are limited."""


class FoundRows(NamedTuple):
    """The rows that judge candidates: training rows in the order of their numbers, then validation rows."""

    judged: JudgedRows
    splits: list[FoldSplit]
    """Splits of the training rows; empty if none is judged."""
    held: Floats | None
    """(m, p) validation rows as the fit prepares its rows, or None."""
    trained_rows: int
    """Number of training rows that are judged."""
    validation_rows: int
    """Number of validation rows."""
    prompts: list[Floats] | None
    """Prompts of each class; None without text."""


def find_rows(
    data: FitData,
    X: Any,
    y: NDArray[Any] | None,
    validation: Any,
    *,
    cv: Any,
    groups: Ints | None,
    seed: int,
    missing_label: Any,
) -> FoundRows:
    """Return the rows to judge on: labelled training rows, each scored without itself, and validation rows.

    Parameters
    ----------
    data : FitData
        The training rows with their labels and sensitive attributes.
    X, y : arrays of shape (n, p) and (n,)
        The same rows and labels as they were given; y is None without labels.
    validation : (X, y, s) or None
        Validation rows, checked.
    cv, groups, seed
        As `make_splits` takes them; with validation rows, ``cv=None`` judges on these alone.
    missing_label : object
        Value that means unknown.
    """
    held = axis = None
    known: list[Ints | None] = []
    if validation is not None:
        held, axis, known = validation_rows(
            *(validation, data.target.classes, data.sensitive),
            kind=data.params["sensitive_kind"],
            missing_label=missing_label,
        )
    trained, splits = None, list[FoldSplit]()
    if y is not None and not (held is not None and cv is None):
        trained = _training_rows(data, axis, held, known)
    if trained is not None and y is not None:
        try:
            if held is not None and _is_count(cv) and len(trained.rows) < cv:
                raise LabelError(f"{len(trained.rows)} training rows have a label, fewer than the {cv} folds")
            splits = make_splits(cv, trained, data.chosen, X, y, groups, seed)
            scored = np.sort(np.concatenate([split.scored for split in splits]))
            trained = trained.at(np.searchsorted(trained.rows, scored))
        except LabelError as error:
            if held is None:
                raise
            warnings.warn(f"only the validation rows judge: {error}", UnusedRowsWarning, stacklevel=4)
    prompts = data.target.prompts if data.target.has_text else None
    held_X = None
    if held is not None:
        held_X = np.asarray(unit_rows(held.X) if data.params["normalize"] else held.X)
    if trained is None or not splits:
        if held is None:
            raise LabelError("no training row has both a target and a sensitive label to choose by")
        return FoundRows(held, [], held_X, 0, len(held.rows), prompts)
    if held is None:
        return FoundRows(trained, splits, None, len(trained.rows), 0, prompts)
    return FoundRows(_joined(trained, held), splits, held_X, len(trained.rows), len(held.rows), prompts)


def _joined(trained: JudgedRows, held: JudgedRows) -> JudgedRows:
    """Return training rows followed by validation rows."""
    return replace(
        held,
        X=np.concatenate([trained.X, held.X]),
        rows=np.concatenate([trained.rows, held.rows]),
        evidence=trained.evidence.joined(held.evidence),
    )


def _training_rows(
    data: FitData, axis: GroupAxis | None, held: JudgedRows | None, known: list[Ints | None]
) -> JudgedRows | None:
    """Return the labelled training rows with their groups; None where validation rows have other attributes."""
    labelled = np.flatnonzero(data.known)
    if not len(labelled):
        return None
    rows = data.chosen[labelled]
    found = training_groups(data.X, rows, data.sensitive, axis, None if held is None else held.X, known)
    if found is None:
        warnings.warn(
            "the training rows have other sensitive attributes than the validation rows, so that only the validation "
            "rows judge. Give sensitive_text or sensitive_features of the same attributes",
            UnusedRowsWarning,
            stacklevel=5,
        )
        return None
    P, names, source = found
    classes = data.target.classes
    evidence = Evidence(data.y[labelled], P, len(classes), row_keys(data.X, rows))
    kept = limit_rows(evidence, max(1, min(MOST_ROWS, MOST_SCORES // (SEARCH_SIZE * len(classes)))))
    return JudgedRows(rows[kept], to_numpy(data.X[rows[kept]]), evidence.at(kept), classes, names, source)


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
) -> list[FoldSplit]:
    """Return the splits of a cross-validation, each with judged rows to score.

    Rows that are not judged, because a label is missing, are fitted on in every fold of a number of folds.

    Parameters
    ----------
    cv : int, splitter, iterable of (train, test), or None
        As `FairerCLIPSearch` takes it; None means `FOLDS`.
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
    cv = FOLDS if cv is None else cv
    if _is_count(cv):
        if not 2 <= cv <= len(judged.rows):
            raise ParameterError(
                f"cv must be 2 to {len(judged.rows)} folds, the number of rows with both labels; got {cv}"
            )
        together = None if groups is None else groups[judged.rows]
        folds = deal_folds(judged.evidence.keys, cells_of(judged.evidence), int(cv), together, seed)
        splits = splits_of(folds, judged.rows, rows)
        if groups is not None:  # rows that are not judged stay with their group, too
            splits = [
                FoldSplit(s.fitted_on[~np.isin(groups[s.fitted_on], groups[s.scored])], s.scored)
                for s in splits
            ]
    else:
        splits = _given_splits(cv, judged, rows, X, y, groups)
    _check_splits(splits, judged)
    return splits


def _is_count(cv: Any) -> bool:
    return isinstance(cv, (int, np.integer)) and not isinstance(cv, bool)


def _given_splits(
    cv: Any, judged: JudgedRows, rows: Ints, X: Any, y: NDArray[Any], groups: Ints | None
) -> list[FoldSplit]:
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
    splits = [
        FoldSplit(np.intersect1d(rows, train), np.intersect1d(judged.rows, test)) for train, test in pairs
    ]
    return [split for split in splits if len(split.scored)]


def _check_splits(splits: Sequence[FoldSplit], judged: JudgedRows) -> None:
    """Raise if no row would be judged, or one twice or by a fit on it, or if a fold has a class without rows."""
    codes = judged.evidence.y
    scored = np.concatenate([split.scored for split in splits]) if splits else np.zeros(0, dtype=np.int64)
    if not len(scored) or len(np.unique(scored)) < len(scored):
        raise ParameterError(
            "cv must put each labelled row into at most one test fold, and at least one row into a test fold; it puts "
            f"{len(scored)} into test folds, {len(np.unique(scored))} of them different"
        )
    for split in splits:
        seen = np.intersect1d(split.fitted_on, split.scored)
        if len(seen):
            raise ParameterError(
                f"cv must not fit on rows that it tests on; row {seen[0]} is in both parts of a pair"
            )
        gone = np.setdiff1d(codes, codes[np.isin(judged.rows, split.fitted_on)])
        if len(gone):
            label = judged.y[codes == gone[0]].tolist()[0]
            raise LabelError(
                f"a fold of the cross-validation has no labelled row of class {label!r} to fit on: give two rows of "
                "every class at least, in two groups where groups= is given, or validation=(X, y, s)"
            )
