"""Checks and label codes that every metric shares."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.errors import LabelError, NonFiniteError, ParameterError, ShapeError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
Names = Sequence[str] | Mapping[Any, str]


def name_rows(mask: NDArray[np.bool_], shown: int = 5) -> str:
    """Rows where ``mask`` (n,) holds, for an error message: ``rows 3, 8`` or ``rows 0, … and 7 more``."""
    rows = np.flatnonzero(mask)
    text = ", ".join(str(row) for row in rows[:shown])
    more = f" and {rows.size - shown} more" if rows.size > shown else ""
    return f"row{'s' if rows.size > 1 else ''} {text}{more}"


def matrix(values: Any, name: str) -> FloatArray:
    """``values`` as a finite float64 array (n, d); a vector becomes one column."""
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
    """``values`` as an array (n,) or (n, m), of objects where numpy would change a label."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "US" and not hasattr(values, "dtype"):
            array = np.asarray(values, dtype=object)  # numpy would turn the 1 of ["a", 1] into "1"
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
        # NaN and NaT are the labels that differ from themselves.
        flat = [v is None or bool(v != v) for v in array.ravel().tolist()]
        bad = np.array(flat, dtype=bool).reshape(array.shape)
    else:
        return
    if bad.any():
        rows = name_rows(bad.reshape(len(array), -1).any(axis=1))
        raise NonFiniteError(f"{name} is missing (None, NaN or infinity) in {rows}; drop those rows")


def sort_labels(labels: Iterable[Hashable]) -> list[Any]:
    """Distinct ``labels`` in their own order, or by type and text where they have none in common."""
    distinct: list[Any] = list(dict.fromkeys(labels))
    try:
        return sorted(distinct)
    except TypeError:
        return sorted(distinct, key=lambda label: (type(label).__name__, str(label)))


def _encode_column(column: NDArray[Any]) -> tuple[IntArray, list[Any]]:
    if column.dtype.kind != "O":
        values, codes = np.unique(column, return_inverse=True)
        return codes.astype(np.intp, copy=False), values.tolist()
    labels = sort_labels(column.tolist())
    index = {label: code for code, label in enumerate(labels)}
    return np.fromiter((index[v] for v in column.tolist()), dtype=np.intp, count=len(column)), labels


def encode(values: Any, name: str) -> tuple[IntArray, list[Any]]:
    """Codes (n,) and the sorted labels they stand for; several columns (n, m) are intersected.

    O(n log n) time, O(n) memory. The labels of an intersection are tuples, one entry per column.
    """
    array = as_labels(values, name)
    refuse_missing(array, name)
    if array.ndim == 1:
        return _encode_column(array)
    codes, tuples = np.zeros(len(array), dtype=np.intp), [()]
    for column in array.T:
        new, labels = _encode_column(column)
        # Renumbered after each column: a product of all cardinalities could overflow.
        pairs, codes = np.unique(codes * len(labels) + new, return_inverse=True)
        tuples = [(*tuples[pair // len(labels)], labels[pair % len(labels)]) for pair in pairs.tolist()]
    return codes.astype(np.intp, copy=False), tuples


def recode(codes: IntArray, labels: Sequence[Any], order: Sequence[Any]) -> IntArray:
    """``codes`` into ``labels`` turned into codes into ``order``, which holds every one of them."""
    index = {label: code for code, label in enumerate(order)}
    table = np.array([index[label] for label in labels], dtype=np.intp)
    return table[codes]


def same_length(**arrays: Any) -> int:
    """Return the common number of rows."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise ShapeError(f"all arguments must have the same number of rows; {listed}")
    return next(iter(lengths.values()))


def one_of(value: Any, allowed: Sequence[str], name: str) -> None:
    """Refuse a ``value`` that is not among ``allowed``."""
    if value not in allowed:
        listed = ", ".join(repr(option) for option in allowed)
        raise ParameterError(f"{name} must be one of {listed}; got {value!r}")


def is_missing(array: NDArray[Any], missing: int | None) -> NDArray[np.bool_]:
    """Rows (n,) that hold the integer ``missing``; labels that are not integers are never missing."""
    rows = array[:, None] if array.ndim == 1 else array
    if missing is None or array.dtype.kind not in "iuO":
        return np.zeros(len(array), dtype=bool)
    if array.dtype.kind == "O":
        integers = (int, np.integer)
        return np.array(
            [any(isinstance(v, integers) and v == missing for v in row) for row in rows], dtype=bool
        )
    found: NDArray[np.bool_] = np.any(rows == missing, axis=1)
    return found


def name_labels(labels: list[Any], names: Names | None, axis: str) -> tuple[list[Any], list[str]]:
    """All labels of an axis and how to print them; names may add labels that have no row."""
    if names is None:
        return labels, [v if isinstance(v, str) else f"{axis}={v}" for v in labels]
    if isinstance(names, Mapping):
        unknown = [label for label in labels if label not in names]
        if unknown:
            raise LabelError(f"no name is given for {axis} label {unknown[0]!r}; names are for {list(names)}")
        labels = sort_labels([*labels, *names])
        return labels, [str(names[label]) for label in labels]
    if all(isinstance(label, int) for label in labels):
        beyond = [label for label in labels if not 0 <= label < len(names)]
        if beyond:
            raise LabelError(
                f"a list of {len(names)} names is for {axis} labels 0..{len(names) - 1}; got label "
                f"{beyond[0]}: pass a mapping from label to name, or missing={beyond[0]} to drop such rows"
            )
        return list(range(len(names))), [str(name) for name in names]
    if len(names) != len(labels):
        raise LabelError(f"{len(names)} names are given for {len(labels)} {axis} labels {labels}")
    return labels, [str(name) for name in names]
