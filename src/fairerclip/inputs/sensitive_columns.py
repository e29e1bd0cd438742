"""Columns of sensitive features: categories, probabilities of categories, or quantities."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.arrays import to_numpy
from fairerclip._util.types import F64, Ints
from fairerclip.errors import LabelError, ManyCategoriesWarning
from fairerclip.inputs.encode import Encoded, as_labels, encode

MANY_CATEGORIES = 50
"""Number of values above which a categorical attribute is probably a quantity."""


@dataclass(frozen=True, eq=False)
class SoftValues:
    """A sensitive attribute given as probabilities of its values, one row of them per image.

    Parameters
    ----------
    probabilities : array of shape (n, v)
        Probability of each value; each row sums to one.
    values : array of shape (v,)
        Values of the columns.

    Examples
    --------
    >>> SoftValues([[0.9, 0.1], [0.4, 0.6]], ["female", "male"]).codes
    array([0, 1])
    """

    probabilities: F64
    values: NDArray[Any]

    def __post_init__(self) -> None:
        try:
            P = np.asarray(self.probabilities, dtype=np.float64)
        except (TypeError, ValueError):
            raise LabelError("probabilities must be an array (n, v) of numbers") from None
        values = as_labels(self.values)
        if P.ndim != 2 or values.ndim != 1 or P.shape[1] != len(values):
            raise LabelError(
                f"probabilities must have shape (n, v) with one column per value; got {P.shape} for {len(values)}"
            )
        if (
            not np.all(np.isfinite(P))
            or P.min(initial=0.0) < 0
            or not np.allclose(P.sum(axis=1), 1, atol=1e-4)
        ):
            raise LabelError("probabilities must be finite, nowhere negative, and sum to one in each row")
        if len(set(values.tolist())) != len(values):
            raise LabelError(f"values must be distinct, one per column; got {values.tolist()[:10]}")
        object.__setattr__(self, "probabilities", P)
        object.__setattr__(self, "values", values)

    @property
    def codes(self) -> Ints:
        """Codes (n,) of the most likely value."""
        return np.asarray(self.probabilities.argmax(axis=1), dtype=np.int64)

    def column(self, name: str) -> SensitiveColumn:
        """Return the values as a column of sensitive features."""
        return SensitiveColumn(name, self.codes, self.values, None, self.probabilities)


@dataclass(frozen=True)
class SensitiveColumn:
    """One sensitive attribute: categories (codes, perhaps with probabilities) or a quantity (values)."""

    name: str
    codes: Ints | None
    categories: NDArray[Any] | None
    values: F64 | None
    soft: F64 | None = None
    """Probabilities (n, v) of the categories, if they were given."""

    @property
    def continuous(self) -> bool:
        """Whether the attribute is a quantity."""
        return self.values is not None


def sensitive_columns(
    features: Any, *, kind: str = "auto", missing_label: Any = None, depth: int = 4
) -> list[SensitiveColumn]:
    """Split ``sensitive_features`` into columns, each categorical or a quantity.

    As for targets in scikit-learn, columns of floats with a non-integer value are quantities and all others are
    categorical, unless ``kind`` says otherwise. `SoftValues` are used unchanged. ``depth`` is the stack level of a
    warning.
    """
    if isinstance(features, SoftValues):
        return [features.column("s")]
    if isinstance(features, Mapping) and any(isinstance(v, SoftValues) for v in features.values()):
        out: list[SensitiveColumn] = []
        for name, value in features.items():
            if isinstance(value, SoftValues):
                out.append(value.column(str(name)))
            else:
                out += sensitive_columns(
                    {name: value}, kind=kind, missing_label=missing_label, depth=depth + 1
                )
        return out
    names, columns = _columns(features)
    out = []
    for name, column in zip(names, columns, strict=True):
        numeric = column.dtype.kind == "f"
        finite = column[~np.isnan(column)] if numeric else column
        continuous = kind == "continuous" or (
            kind == "auto" and numeric and bool(np.any(finite != np.floor(finite)))
        )
        if not continuous:
            encoded = encode(column, missing_label=missing_label)
            if len(encoded.classes) > MANY_CATEGORIES:
                warnings.warn(
                    f"sensitive attribute {name!r} has {len(encoded.classes)} distinct values and is treated as "
                    "categories; if it is a quantity, set sensitive_kind='continuous'",
                    ManyCategoriesWarning,
                    stacklevel=depth,
                )
            out.append(SensitiveColumn(name, encoded.codes, encoded.classes, None))
            continue
        try:
            values = np.asarray(to_numpy(column), dtype=np.float64)
        except (TypeError, ValueError):
            raise LabelError(
                f"continuous sensitive attribute {name!r} must be numeric; leave out sensitive_kind='continuous'"
            ) from None
        if not np.all(np.isfinite(values)):
            rows = np.flatnonzero(~np.isfinite(values))
            raise LabelError(
                f"continuous sensitive attribute {name!r} has {len(rows)} missing or infinite values, first in "
                f"row {rows[0]}; a quantity cannot be predicted from prompts: drop those rows or bin the values"
            )
        out.append(SensitiveColumn(name, None, None, values))
    return out


def _columns(features: Any) -> tuple[list[str], list[NDArray[Any]]]:
    if isinstance(features, Mapping):
        columns = [as_labels(v) for v in features.values()]
        for name, column in zip(features, columns, strict=True):
            if column.ndim != 1:
                raise LabelError(f"sensitive attribute {name!r} must have one axis; got shape {column.shape}")
        return [str(k) for k in features], columns
    if hasattr(features, "columns") and hasattr(features, "to_numpy"):  # a data frame of any library
        return [str(c) for c in features.columns], [np.asarray(features[c]) for c in features.columns]
    array = as_labels(features)
    if array.ndim == 1:
        name = getattr(features, "name", None)
        return [str(name) if name is not None else "s"], [array]
    if array.ndim == 2:
        names = ["s"] if array.shape[1] == 1 else [f"s{j}" for j in range(array.shape[1])]
        return names, [array[:, j] for j in range(array.shape[1])]
    raise LabelError(f"sensitive_features must have one or two axes; got shape {array.shape}")


def intersect(columns: Sequence[SensitiveColumn]) -> SensitiveColumn:
    """Combine several categorical attributes into one whose values are the combinations that occur."""
    quantities = [c.name for c in columns if c.continuous]
    if quantities:
        raise LabelError(f"an intersection needs categories; {quantities} are quantities: bin them first")
    soft = [c.name for c in columns if c.soft is not None]
    if soft:
        raise LabelError(
            f"an intersection needs known categories; {soft} are probabilities: use terms 'each'"
        )
    stacked = np.column_stack([c.codes for c in columns if c.codes is not None])
    combinations, codes = np.unique(stacked, axis=0, return_inverse=True)
    categories = np.empty(len(combinations), dtype=object)
    for k, combination in enumerate(combinations):
        categories[k] = tuple(
            c.categories[v] for c, v in zip(columns, combination, strict=True) if c.categories is not None
        )
    return SensitiveColumn("×".join(c.name for c in columns), codes.reshape(-1), categories, None)


def encode_groups(sensitive_features: Any, missing_label: Any, *, kind: str = "auto") -> Encoded:
    """Encode the groups of labelled rows: the values of one attribute, or the combinations of several."""
    columns = sensitive_columns(sensitive_features, kind=kind, missing_label=missing_label)
    quantities = [c.name for c in columns if c.continuous]
    if quantities:
        raise LabelError(f"groups need categories; {', '.join(quantities)} is a quantity: bin it first")
    if len(columns) == 1 and columns[0].codes is not None and columns[0].categories is not None:
        return Encoded(columns[0].codes, columns[0].categories)
    missing = np.any([c.codes < 0 for c in columns if c.codes is not None], axis=0)
    crossed = intersect(columns)
    if crossed.codes is None or crossed.categories is None:
        raise AssertionError("an intersection of categories has codes")
    return Encoded(np.where(missing, -1, crossed.codes), crossed.categories)
