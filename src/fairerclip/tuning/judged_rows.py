"""Labelled rows on which a search compares its candidates: validation rows, or the training rows themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import column_or_1d

from fairerclip._util.types import Floats, Ints
from fairerclip.data.embedding_rows import check_rows
from fairerclip.data.stores import EmbeddingStore
from fairerclip.errors import LabelError, ParameterError, ShapeError
from fairerclip.inputs.encode import Encoded, as_labels, encode
from fairerclip.inputs.prompts import zero_shot
from fairerclip.inputs.sensitive import known_values
from fairerclip.inputs.sensitive_columns import SoftValues, encode_groups
from fairerclip.inputs.target import known_labels
from fairerclip.tuning.judge import Judge
from fairerclip.tuning.objectives import Objective


@dataclass(frozen=True, eq=False)
class JudgedRows:
    """Rows with a target label and a group."""

    rows: Ints
    """(m,) their row numbers among all rows that were given."""
    X: Floats
    """(m, p)"""
    judge: Judge
    y: NDArray[Any]
    """(m,) class labels."""
    groups: NDArray[Any]
    """(m,) group labels."""
    group_source: str
    """"given", "read from prompts" or "none"."""
    prompts: list[Floats] | None
    """Prompts of each class; None without text."""

    def check_defined(self, objective: Objective | None) -> None:
        """Raise if the rows do not determine the objective; None is a function, which is not checked."""
        if objective is not None and not objective.is_defined(self.judge.counts):
            raise LabelError(
                f"{objective.name} is not defined on the labelled rows: it compares groups of one class, and no class "
                "that counts has rows of two groups. Give groups that differ, or another objective"
            )

    def at(self, places: Ints) -> JudgedRows:
        """Return some of the rows, by their places among the m."""
        judge = self.judge
        return replace(
            self,
            rows=self.rows[places],
            X=self.X[places],
            judge=Judge(judge.y[places], judge.s[places], judge.n_classes, judge.n_groups),
            y=self.y[places],
            groups=self.groups[places],
        )


def split_validation(validation: Any) -> tuple[NDArray[Any], Any, Any]:
    """Return X, y and s of ``validation``, with X checked; s is None where it was not given."""
    several = isinstance(validation, (tuple, list))
    if not several or len(validation) not in (2, 3):
        raise ParameterError(
            "validation must be (X, y, s), or (X, y) where groups are to be read from the sensitive prompts; got "
            f"{f'{len(validation)} entries' if several else type(validation).__name__}"
        )
    rows, labels, groups = (*validation, None)[:3]
    try:
        rows = np.asarray(rows)
    except ValueError:
        raise ShapeError("validation X must have shape (m, p); got rows of different lengths") from None
    if rows.ndim != 2 or rows.dtype.kind not in "biuf":
        raise ShapeError(
            f"validation X must be numbers of shape (m, p); got {rows.dtype} of shape {rows.shape}"
        )
    check_rows(rows, "validation X", zero_is_error=False)
    return rows, labels, groups


def check_columns(X: Any, given: Any, rows: NDArray[Any]) -> None:
    """Raise if validation rows have another width than X, or other columns where both are data frames."""
    shape = shape_of(X)
    if shape[1] != rows.shape[1]:
        raise ShapeError(
            f"validation X must be as wide as X, which has {shape[1]} columns; got {rows.shape[1]}"
        )
    if hasattr(X, "columns") and hasattr(given, "columns") and list(X.columns) != list(given.columns):
        raise ShapeError("validation X must have the columns of X in the same order")


def shape_of(X: Any) -> tuple[int, int]:
    """Return the shape of X, which must have two axes."""
    shape = tuple(X.shape) if hasattr(X, "shape") else np.shape(X)
    if len(shape) != 2:
        raise ShapeError(f"X must have shape (n, p); got {shape}")
    return shape


def label_column(y: Any) -> NDArray[Any]:
    """Return labels as an array (n,); a single column is accepted with scikit-learn's warning."""
    labels = as_labels(y)
    return column_or_1d(labels, warn=True) if labels.ndim == 2 and labels.shape[1] == 1 else labels


def take_rows(values: Any, rows: Ints) -> Any:
    """Return some rows of an array, list, data frame, store, `SoftValues` or mapping of these; None stays None."""
    if values is None:
        return None
    if isinstance(values, Mapping):
        return {name: take_rows(column, rows) for name, column in values.items()}
    if isinstance(values, SoftValues):
        return SoftValues(values.probabilities[rows], values.values)
    if isinstance(values, EmbeddingStore):
        return values[rows]
    return _safe_indexing(values, rows)


def judged_rows(
    rows: Any,
    labels: Any,
    groups: Any,
    *,
    y: Any,
    shape: tuple[int, int],
    fit_arguments: Mapping[str, Any],
    kind: str,
    missing_label: Any,
    name: str = "validation ",
) -> JudgedRows:
    """Return those rows that have both labels, with class codes in the order that a fit will have.

    Parameters
    ----------
    rows : array of shape (m, p)
        Embeddings to judge on.
    labels : array of shape (m,)
        Class labels; some may be missing.
    groups : array of shape (m,), mapping, or None
        Sensitive values; None to predict them from the sensitive prompts.
    y, shape : array of shape (n,) or None, and (n, p)
        Labels and shape of the training rows.
    fit_arguments : mapping
        Prompts, classes and sensitive features of the fit.
    kind : str
        ``sensitive_kind`` of the model.
    missing_label : object
        Value that means unknown.
    name : str
        What error messages call the rows.
    """
    if labels is None:
        raise LabelError(
            f"{name}y is needed to choose a model; without any labels the defaults are the best guess: call fit"
        )
    known, prompts = known_labels(
        y, fit_arguments.get("text"), shape, classes=fit_arguments.get("classes"), missing_label=missing_label
    )
    target = encode(labels, missing_label=missing_label, classes=known.classes)
    cells, source = _groups(rows, groups, shape, fit_arguments, kind, missing_label)
    sizes = [len(rows), len(target.codes), len(cells.codes)]
    if len(set(sizes)) > 1:
        raise ShapeError(f"{name}X, y and s must have as many rows each; got {sizes}")
    labelled = np.flatnonzero(~target.missing & ~cells.missing)
    if not len(labelled):
        raise LabelError(
            f"no {name}row has both a target and a sensitive label, so that candidates cannot be compared"
        )
    codes, group_codes = target.codes[labelled], cells.codes[labelled]
    return JudgedRows(
        labelled,
        np.asarray(take_rows(rows, labelled)),
        Judge(codes, group_codes, len(target.classes), len(cells.classes)),
        target.classes[codes],
        cells.classes[group_codes],
        source,
        prompts,
    )


def _groups(
    rows: Any, groups: Any, shape: tuple[int, int], fit_arguments: Mapping[str, Any], kind: str, missing: Any
) -> tuple[Encoded, str]:
    """Return group codes of the rows, given or predicted from the sensitive prompts, and which of these."""
    if groups is not None:
        return encode_groups(groups, missing), "given"
    features, text = fit_arguments.get("sensitive_features"), fit_arguments.get("sensitive_text")
    prompts = known_values(features, text, shape, kind=kind, missing_label=missing)[1]
    if not prompts:
        return Encoded(np.zeros(len(rows), dtype=np.int64), np.array(["all"])), "none"
    read = {name: zero_shot(rows, values.groups)[0] for name, values in prompts.items()}
    return encode_groups(read, None), "read from prompts"
