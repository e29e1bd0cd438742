"""True sensitive values of rows to predict, as places among the values that a method was fitted with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fairerclip._util.types import Ints
from fairerclip.errors import LabelError, ShapeError
from fairerclip.inputs.sensitive_columns import SensitiveColumn, sensitive_columns


def value_places(given: Any, values: Mapping[str, tuple[Any, ...]]) -> Ints:
    """Return the places (n, a) of the values of each row among all values of all attributes, one after the other.

    Parameters
    ----------
    given : array of shape (n,) or (n, a), DataFrame, or mapping from attribute to array of shape (n,)
        A value of every attribute for every row. Columns are found by name; a single column needs none.
    values : mapping from str to tuple
        Values of each attribute in the fit.

    Examples
    --------
    >>> value_places(["m", "f", "m"], {"sex": ("f", "m")}).tolist()
    [[1], [0], [1]]
    >>> value_places({"age": ["old"], "sex": ["f"]}, {"sex": ("f", "m"), "age": ("old", "young")}).tolist()
    [[0, 2]]
    """
    columns = {column.name: column for column in sensitive_columns(given, kind="categorical")}
    named = isinstance(given, Mapping) or hasattr(given, "columns")
    if len(values) == len(columns) == 1 and not named:
        columns = dict(zip(values, columns.values(), strict=True))
    if set(columns) != set(values):
        raise LabelError(
            f"sensitive_features must have the attributes of the fit, {list(values)}; got {list(columns)}"
        )
    found = {name: _places(columns[name], name, known) for name, known in values.items()}
    lengths = {name: len(places) for name, places in found.items()}
    if len(set(lengths.values())) > 1:
        raise ShapeError(f"attributes of sensitive_features must have the same number of rows; got {lengths}")
    first = np.cumsum([0, *map(len, values.values())])[:-1]
    return np.column_stack([start + places for start, places in zip(first, found.values(), strict=True)])


def _places(column: SensitiveColumn, name: str, values: tuple[Any, ...]) -> Ints:
    """Return the place of each row's value (n,) among the values of one attribute; raise if a row has none of them."""
    if column.codes is None or column.categories is None or column.soft is not None:
        raise LabelError(f"sensitive attribute {name!r} must have one value per row; got probabilities")
    missing = np.flatnonzero(column.codes < 0)
    if len(missing):
        raise LabelError(
            f"sensitive attribute {name!r} is missing in {len(missing)} of {len(column.codes)} rows, first in row "
            f"{missing[0]}: drop these rows, or leave sensitive_features out to read the values from the images"
        )
    place = {value: k for k, value in enumerate(values)}
    known = np.array([place.get(value, -1) for value in column.categories.tolist()], dtype=np.int64)
    found = known[column.codes]
    unknown = np.flatnonzero(found < 0)
    if len(unknown):
        value = column.categories.tolist()[column.codes[unknown[0]]]
        raise LabelError(
            f"sensitive attribute {name!r} has the value {value!r:.60} in row {unknown[0]}, which the fit has no "
            f"prompt of; its values are {list(values)[:10]}"
        )
    return np.asarray(found)
