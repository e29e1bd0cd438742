"""Labelled rows on which a search compares its candidates: validation rows, and the training rows themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d

from fairerclip._util.arrays import as_numbers
from fairerclip._util.types import F64, Floats, Ints
from fairerclip.data.embedding_rows import check_rows
from fairerclip.errors import LabelError, ParameterError, ShapeError
from fairerclip.inputs.encode import as_labels, encode
from fairerclip.inputs.prompts import PromptValues
from fairerclip.inputs.sensitive import ResolvedSensitive
from fairerclip.inputs.sensitive_columns import SensitiveColumn, sensitive_columns
from fairerclip.judging.evidence import Evidence, row_keys
from fairerclip.judging.group_doubt import (
    calibrated_probabilities,
    group_probabilities,
    mixture_probabilities,
    prompt_cosines,
)
from fairerclip.judging.objectives import Objective


@dataclass(frozen=True, eq=False)
class JudgedRows:
    """Rows with a target label, and the probability of each group."""

    rows: Ints
    """(m,) their row numbers among all rows that were given."""
    X: Floats
    """(m, p)"""
    evidence: Evidence
    classes: NDArray[Any]
    """(c,) class labels."""
    group_names: NDArray[Any]
    """(v,) names of the groups."""
    group_source: str
    """"given", "read from prompts" or "none"."""

    @property
    def y(self) -> NDArray[Any]:
        """(m,) class labels of the rows."""
        return np.asarray(self.classes[self.evidence.y])

    @property
    def groups(self) -> NDArray[Any]:
        """(m,) most likely group of each row."""
        return np.asarray(self.group_names[self.evidence.groups.argmax(axis=1)])

    def check_defined(self, objective: Objective | None) -> None:
        """Raise if the rows do not determine the objective; None is a function, which is not checked."""
        if objective is not None and not objective.is_defined(self.evidence.present):
            raise LabelError(
                f"{objective.name} is not defined on the labelled rows: it compares groups of one class, and no class "
                "that counts has rows of two groups. Give groups that differ, or another objective"
            )

    def at(self, places: Ints) -> JudgedRows:
        """Return some of the rows, by their places among the m."""
        return JudgedRows(
            self.rows[places],
            self.X[places],
            self.evidence.at(places),
            self.classes,
            self.group_names,
            self.group_source,
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
    rows = as_numbers(rows, "validation X")
    if rows.ndim != 2:
        raise ShapeError(f"validation X must have shape (m, p); got {rows.dtype} of shape {rows.shape}")
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


@dataclass(frozen=True)
class GroupAxis:
    """The groups of all judged rows: combinations of the values of each attribute."""

    names: tuple[str, ...]
    """Attributes."""
    values: tuple[tuple[Any, ...], ...]
    """Values of each attribute."""

    @property
    def labels(self) -> NDArray[Any]:
        """(v,) name of each group: the value of the only attribute, or the values of all, joined."""
        if not self.names:
            return np.array(["all"])
        if len(self.names) == 1:
            out = np.empty(len(self.values[0]), dtype=object)
            out[:] = self.values[0]
            return out
        grids = np.meshgrid(*(np.arange(len(v)) for v in self.values), indexing="ij")
        combined = zip(*(grid.reshape(-1).tolist() for grid in grids), strict=True)
        joined = [tuple(v[k] for v, k in zip(self.values, codes, strict=True)) for codes in combined]
        out = np.empty(len(joined), dtype=object)
        out[:] = [", ".join(map(str, values)) for values in joined]
        return out

    def joint(self, parts: Sequence[F64]) -> F64:
        """Return the probabilities (m, v) of the groups from those of each attribute."""
        out = parts[0]
        for P in parts[1:]:
            out = (out[:, :, None] * P[:, None, :]).reshape(len(out), -1)
        return out


def validation_rows(
    validation: tuple[NDArray[Any], Any, Any],
    classes: NDArray[Any],
    sensitive: ResolvedSensitive,
    *,
    kind: str,
    missing_label: Any,
) -> tuple[JudgedRows, GroupAxis, list[Ints | None]]:
    """Return the validation rows that have both labels, the axis of their groups, and the codes of each attribute.

    Parameters
    ----------
    validation : (X, y, s)
        s may be None, to predict groups from the sensitive prompts.
    classes : array of shape (c,)
        Classes of the fit.
    sensitive : ResolvedSensitive
        Sensitive attributes of the fit, with their prompts.
    kind : str
        "categorical" if fractions are categories, too; the fit may have quantities, but groups need categories.
    missing_label : object
        Value that means unknown.
    """
    rows, labels, groups = validation
    if labels is None:
        raise LabelError(
            "validation y is needed to choose a model; without any labels the defaults are the best guess: call fit"
        )
    target = encode(labels, missing_label=missing_label, classes=classes)
    kind = "categorical" if kind == "categorical" else "auto"
    columns = (
        []
        if groups is None
        else _categories(sensitive_columns(groups, kind=kind, missing_label=missing_label))
    )
    sizes = [len(rows), len(target.codes), *(len(c.codes) for c in columns if c.codes is not None)]
    if len(set(sizes)) > 1:
        raise ShapeError(
            f"validation X, y and s must have as many rows each; got {[*sizes[:2], *sizes[2:3]]}"
        )
    codes = [c.codes for c in columns if c.codes is not None]
    labelled = np.flatnonzero(~np.any([target.missing, *(c < 0 for c in codes)], axis=0))
    if not len(labelled):
        raise LabelError(
            "no validation row has both a target and a sensitive label, so that candidates cannot be compared"
        )
    read = groups is None
    axis, parts, known = _validation_groups(rows, labelled, None if read else columns, sensitive)
    P = axis.joint(parts) if parts else np.ones((len(labelled), 1))
    evidence = Evidence(target.codes[labelled], P, len(classes), row_keys(rows[labelled]))
    source = "given" if not read else "read from prompts" if sensitive.prompts else "none"
    return JudgedRows(labelled, rows[labelled], evidence, classes, axis.labels, source), axis, known


def _validation_groups(
    rows: NDArray[Any],
    labelled: Ints,
    columns: Sequence[SensitiveColumn] | None,
    sensitive: ResolvedSensitive,
) -> tuple[GroupAxis, list[F64], list[Ints | None]]:
    """Return the axis of the groups, and probabilities and codes of each attribute on the labelled rows.

    Without ``columns`` the groups are predicted from the sensitive prompts, and have no codes.
    """
    if columns is None:
        read = sensitive.prompts
        axis = GroupAxis(tuple(read), tuple(_value_names(prompts) for prompts in read.values()))
        parts = [mixture_probabilities(prompt_cosines(rows[labelled], p.groups)) for p in read.values()]
        return axis, parts, [None] * len(parts)
    axis, places = _shared_axis(columns, sensitive)
    codes = [place[labelled] for place in places]
    parts = [np.eye(len(values))[place] for values, place in zip(axis.values, codes, strict=True)]
    return axis, parts, [*codes]


def _categories(columns: Sequence[SensitiveColumn]) -> list[SensitiveColumn]:
    quantities = [c.name for c in columns if c.continuous]
    if quantities:
        raise LabelError(f"groups need categories; {', '.join(quantities)} is a quantity: bin it first")
    return list(columns)


def _value_names(prompts: PromptValues) -> tuple[Any, ...]:
    """Return the values of an attribute in the order of its prompts; without names they are numbers."""
    return tuple(range(len(prompts.groups))) if prompts.values is None else tuple(prompts.values)


def _shared_axis(
    columns: Sequence[SensitiveColumn], sensitive: ResolvedSensitive
) -> tuple[GroupAxis, list[Ints]]:
    """Return the groups of validation rows, in the order of the training's values, and the codes of each attribute.

    Prompts without names have numbers as their values. Where all training values were predicted from such prompts and
    the validation rows have as many other values, these are the groups; the prompts are calibrated on them.
    """
    values, codes = [], []
    for column in columns:
        own = [] if column.categories is None else column.categories.tolist()
        trained = next((c for c in sensitive.attributes if c.name == column.name), None)
        if trained is None and len(columns) == len(sensitive.attributes) == 1:
            trained = sensitive.attributes[0]  # one attribute each: the name of an array does not matter
        first = [] if trained is None or trained.categories is None else trained.categories.tolist()
        if trained is not None and _is_renamed(trained, own, sensitive):
            first = []
        names = [*first, *(value for value in own if value not in first)]
        places = np.array([names.index(value) for value in own], dtype=np.int64)
        values.append(tuple(names))
        if column.codes is None:
            raise AssertionError("categories have codes")
        codes.append(np.where(column.codes < 0, -1, places[column.codes]))
    return GroupAxis(tuple(c.name for c in columns), tuple(values)), codes


def _is_renamed(trained: SensitiveColumn, values: Sequence[Any], sensitive: ResolvedSensitive) -> bool:
    """Return whether all training values were predicted from prompts without names, and ``values`` are other names."""
    guess, prompts = sensitive.guesses.get(trained.name), sensitive.prompts.get(trained.name)
    if guess is None or prompts is None or prompts.values is not None or not guess.rows.all():
        return False
    return len(values) == len(prompts.groups) and set(values).isdisjoint(range(len(values)))


def training_groups(
    X: Any,
    rows: Ints,
    sensitive: ResolvedSensitive,
    axis: GroupAxis | None,
    held: Floats | None,
    known: Sequence[Ints | None],
) -> tuple[F64, NDArray[Any], str] | None:
    """Return the probability (m, v) of the groups of training rows, the names of the groups, and their source.

    With validation rows ``held``, the groups are those of their ``axis``, and values that the fit predicted from
    prompts are calibrated on the ``known`` values of the held rows. None if the fit has other attributes.
    """
    columns = [c for c in sensitive.attributes if c.codes is not None and c.categories is not None]
    source = "none" if not columns else "read from prompts" if sensitive.guesses else "given"
    if axis is None:
        names = GroupAxis(
            tuple(c.name for c in columns),
            tuple(tuple(c.categories.tolist()) for c in columns if c.categories is not None),
        ).labels
        return group_probabilities(X, rows, sensitive), names, source
    by_name = {c.name: c for c in columns}
    if len(axis.names) == len(columns) == 1:
        by_name = {axis.names[0]: columns[0]}
    if set(by_name) != set(axis.names):
        return None
    parts = [
        _on_axis(X, rows, by_name[name], sensitive, values, held, codes)
        for name, values, codes in zip(axis.names, axis.values, known, strict=True)
    ]
    return axis.joint(parts) if parts else np.ones((len(rows), 1)), axis.labels, source


def _on_axis(
    X: Any,
    rows: Ints,
    column: SensitiveColumn,
    sensitive: ResolvedSensitive,
    values: Sequence[Any],
    held: Floats | None,
    known: Ints | None,
) -> F64:
    """Return the probability of each of the ``values`` of one attribute for training rows."""
    own = [] if column.categories is None else column.categories.tolist()
    guess = sensitive.guesses.get(column.name)
    read: F64 | None = None
    # A value that no held row has could not be calibrated.
    seen = known is not None and len(np.unique(known)) == len(values) == len(own)
    if guess is not None and held is not None and known is not None and seen:
        prompts = sensitive.prompts[column.name].groups
        read = calibrated_probabilities(
            prompt_cosines(X, prompts, rows), prompt_cosines(held, prompts), known
        )
        if guess.rows[rows].all():
            return read
    P = np.zeros((len(rows), len(values)))
    if set(own) <= set(values):
        one = replace(sensitive, attributes=[column])
        P[:, [values.index(value) for value in own]] = group_probabilities(X, rows, one)
    return P if read is None or guess is None else np.where(guess.rows[rows][:, None], read, P)
