"""Checks of arrays and integer codes of labels that all metrics share."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.data.coded_labels import CodedLabels
from fairerclip.errors import LabelError, NonFiniteError, ParameterError, ShapeError
from fairerclip.inputs import encode as labels

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
Names = Sequence[str] | Mapping[Any, str]


def name_rows(mask: NDArray[np.bool_], most: int = 5) -> str:
    """Return the rows where ``mask`` (n,) is True as text: ``rows 3, 8`` or ``rows 0, … and 7 more``."""
    rows = np.flatnonzero(mask)
    text = ", ".join(str(row) for row in rows[:most])
    more = f" and {rows.size - most} more" if rows.size > most else ""
    return f"row{'s' if rows.size > 1 else ''} {text}{more}"


def matrix(values: Any, name: str) -> FloatArray:
    """Return ``values`` as a finite float64 array (n, d); a vector becomes one column."""
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biuf":
            array = np.asarray(values, dtype=np.float64)
        array = array.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise ShapeError(f"{name} must be an array of real numbers; got {type(values).__name__}") from error
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] == 0:
        raise ShapeError(f"{name} must have shape (n,) or (n, d) with d > 0; got {np.shape(values)}")
    if not np.isfinite(array).all():
        bad = ~np.isfinite(array).all(axis=1)
        raise NonFiniteError(f"{name} holds NaN or infinity in {name_rows(bad)}; drop or impute those rows")
    return array


def as_labels(values: Any, name: str) -> NDArray[Any]:
    """Return ``values`` as an array (n,) or (n, m), of objects if numpy would change a label."""
    try:
        array = labels.as_labels(values)
    except (TypeError, ValueError) as error:
        raise ShapeError(f"{name} must be a sequence of labels: {error}") from error
    if array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[1] == 0):
        raise ShapeError(f"{name} must have shape (n,) or (n, m) with m > 0; got {array.shape}")
    return array


def refuse_missing(array: NDArray[Any], name: str) -> None:
    """Raise if labels (n,) or (n, m) hold None, NaN or infinity."""
    if array.dtype.kind == "f":
        bad = ~np.isfinite(array)
    elif array.dtype.kind in "OM":
        # NaN and NaT are the only labels that differ from themselves.
        flat = [v is None or bool(v != v) for v in array.ravel().tolist()]
        bad = np.array(flat, dtype=bool).reshape(array.shape)
    else:
        return
    if bad.any():
        rows = name_rows(bad.reshape(len(array), -1).any(axis=1))
        raise NonFiniteError(f"{name} is missing (None, NaN or infinity) in {rows}; drop those rows")


def encode(values: Any, name: str) -> tuple[IntArray, list[Any]]:
    """Return codes (n,) and the sorted labels that they stand for; several columns (n, m) are intersected.

    O(n log n) time, O(n) memory. The labels of an intersection are tuples, one entry per column.
    """
    array = as_labels(values, name)
    refuse_missing(array, name)
    if array.ndim == 1:
        encoded = labels.encode(array)
        return encoded.codes.astype(np.intp, copy=False), encoded.classes.tolist()
    codes, tuples = np.zeros(len(array), dtype=np.intp), [()]
    for column in array.T:
        encoded = labels.encode(column)
        values, k = encoded.classes.tolist(), len(encoded.classes)
        # Renumbered after each column: a product of all cardinalities could overflow.
        pairs, codes = np.unique(codes * k + encoded.codes, return_inverse=True)
        tuples = [(*tuples[pair // k], values[pair % k]) for pair in pairs.tolist()]
    return codes.astype(np.intp, copy=False), tuples


def recode(codes: IntArray, given: Sequence[Any], order: Sequence[Any]) -> IntArray:
    """Convert codes into ``given`` to codes into ``order``, which contains all labels of ``given``."""
    index = {label: code for code, label in enumerate(order)}
    table = np.array([index[label] for label in given], dtype=np.intp)
    return table[codes]


def same_length(**arrays: Any) -> int:
    """Return the common number of rows, and raise if the lengths differ."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise ShapeError(f"all arguments must have the same number of rows; {listed}")
    return next(iter(lengths.values()))


def check_replicates(n_replicates: int) -> None:
    """Raise if there are too few replicates for a standard error."""
    if n_replicates < 100:
        raise ParameterError(f"n_replicates must be at least 100 for standard errors; got {n_replicates}")


def is_missing(array: NDArray[Any], missing: Any) -> NDArray[np.bool_]:
    """Return a mask (n,) of rows with the label ``missing`` in any column; labels of another type never match."""
    if missing is None:
        return np.zeros(len(array), dtype=bool)
    if isinstance(array, CodedLabels):
        return np.asarray(array == missing) if isinstance(missing, str) else np.zeros(len(array), dtype=bool)
    rows = array[:, None] if array.ndim == 1 else array
    same_kind = isinstance(missing, str) == (array.dtype.kind in "US")
    if array.dtype.kind == "O":
        return np.array(
            [any(type(v) is type(missing) and v == missing for v in row) for row in rows], dtype=bool
        )
    if not same_kind or (array.dtype.kind == "f") != isinstance(missing, float):
        return np.zeros(len(array), dtype=bool)
    return np.asarray(np.any(rows == missing, axis=1))


def name_labels(given: list[Any], names: Names | None, axis: str) -> tuple[list[Any], list[str]]:
    """Return all labels of an axis and their names; ``names`` may add labels that have no row."""
    if names is None:
        return given, [v if isinstance(v, str) else f"{axis}={v}" for v in given]
    if isinstance(names, Mapping):
        unknown = [label for label in given if label not in names]
        if unknown:
            raise LabelError(f"no name is given for {axis} label {unknown[0]!r}; names are for {list(names)}")
        all_labels = labels.sort_labels([*given, *names])
        return all_labels, [str(names[label]) for label in all_labels]
    if all(isinstance(label, int) for label in given):
        beyond = [label for label in given if not 0 <= label < len(names)]
        if beyond:
            raise LabelError(
                f"a list of {len(names)} names is for {axis} labels 0..{len(names) - 1}; got label "
                f"{beyond[0]}: pass a mapping from label to name, or missing={beyond[0]} to drop such rows"
            )
        return list(range(len(names))), [str(name) for name in names]
    if len(names) != len(given):
        raise LabelError(f"{len(names)} names are given for {len(given)} {axis} labels {given}")
    return given, [str(name) for name in names]
