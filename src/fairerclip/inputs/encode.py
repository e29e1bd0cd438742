"""Encoding of labels of any type as integer codes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.arrays import to_numpy
from fairerclip._util.types import CODES, Ints
from fairerclip.data.coded_labels import CodedLabels
from fairerclip.errors import LabelError, ParameterError

CODE_ROWS = 1 << 16
"""Rows whose codes are used as an index at a time."""


@dataclass(frozen=True)
class Encoded:
    """Labels as indices of their classes; -1 is a missing label."""

    codes: Ints
    classes: NDArray[Any]

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Mask (n,) of the rows without a label."""
        return self.codes < 0


def as_labels(labels: Any) -> NDArray[Any]:
    """Convert labels to an array, keeping mixed types and tuples, which np.asarray would convert.

    `CodedLabels` stay as they are: they have the shape, type and rows of an array of text.
    """
    if isinstance(labels, CodedLabels):
        return cast(NDArray[Any], labels)
    if isinstance(labels, (list, tuple)):
        kinds = {type(v) for v in labels}
        if len(kinds) > 1 or any(issubclass(k, (tuple, frozenset)) for k in kinds):
            out = np.empty(len(labels), dtype=object)
            out[:] = list(labels)
            return out
    return to_numpy(labels)


def _is_missing(value: Any, missing_label: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, (float, np.floating)) and np.isnan(value):
        return True
    return missing_label is not None and bool(value == missing_label)


def encode(labels: Any, *, missing_label: Any = None, classes: Iterable[Any] | None = None) -> Encoded:
    """Encode labels of any hashable type; None, NaN and ``missing_label`` are missing labels.

    Unless given, classes are sorted, by type and text if they cannot be compared.

    Examples
    --------
    >>> encode(["cat", None, "bird"]).codes
    array([ 1, -1,  0], dtype=int32)
    """
    if not isinstance(missing_label, Hashable):
        raise ParameterError(f"missing_label must be one label or None; got {missing_label!r:.200}")
    values = as_labels(labels)
    if values.ndim != 1:
        raise LabelError(f"labels should be a 1d array, got an array of shape {values.shape} instead")
    codes: Ints
    if isinstance(values, CodedLabels):
        codes, distinct = _encode_coded(values, missing_label)
    elif values.dtype.kind in "biufU":
        missing = np.zeros(len(values), dtype=bool)
        if values.dtype.kind == "f":
            missing = np.isnan(values)
        if missing_label is not None and not isinstance(missing_label, tuple):  # no label here is a tuple
            missing |= np.asarray(values == missing_label)
        distinct, known = np.unique(values[~missing], return_inverse=True)
        codes = np.full(len(values), -1, dtype=CODES)
        codes[~missing] = known
    else:
        codes, distinct = _encode_objects(values, missing_label)
    if classes is None:
        return Encoded(codes, distinct)
    return _recode(codes, distinct, as_labels(list(classes)))


def sort_labels(labels: Iterable[Any]) -> list[Any]:
    """Return the distinct labels, sorted, by type and text if they cannot be compared."""
    distinct = list(dict.fromkeys(labels))
    try:
        return sorted(distinct)
    except TypeError:
        return sorted(distinct, key=lambda label: (type(label).__name__, str(label)))


def _encode_coded(labels: CodedLabels, missing_label: Any) -> tuple[Ints, NDArray[Any]]:
    """Return codes (n,) and the sorted labels that occur, as of an array of text, without making one."""
    names = [name for name in labels.present() if name != missing_label]
    place = {name: k for k, name in enumerate(names)}
    table = np.array([*(place.get(name, -1) for name in labels.names), -1], dtype=CODES)
    return table[labels.codes], np.array(names, dtype=np.str_)


def _encode_objects(values: NDArray[Any], missing_label: Any) -> tuple[Ints, NDArray[Any]]:
    plain = [v.item() if isinstance(v, np.generic) else v for v in values.tolist()]
    present = [(i, v) for i, v in enumerate(plain) if not _is_missing(v, missing_label)]
    try:
        distinct = list(dict.fromkeys(v for _, v in present))
    except TypeError as error:
        raise LabelError(f"labels must be hashable; {error}") from None
    distinct = sort_labels(distinct)
    index = {v: k for k, v in enumerate(distinct)}
    codes = np.full(len(values), -1, dtype=CODES)
    for i, v in present:
        codes[i] = index[v]
    kinds = {type(v) for v in distinct}
    if len(kinds) == 1 and kinds <= {str, int, float, bool}:
        return codes, np.asarray(distinct)
    classes = np.empty(len(distinct), dtype=object)
    classes[:] = distinct
    return codes, classes


def _recode(codes: Ints, distinct: NDArray[Any], classes: NDArray[Any]) -> Encoded:
    place = {v: k for k, v in enumerate(classes.tolist())}
    if len(place) != len(classes):
        raise LabelError(f"classes must be distinct; got {classes.tolist()}")
    unknown = [v for v in distinct.tolist() if v not in place]
    if unknown:
        raise LabelError(f"labels {unknown[:5]} are not among the classes {classes.tolist()[:10]}")
    new_codes = np.array([place[v] for v in distinct.tolist()] + [-1], dtype=CODES)
    return Encoded(new_codes[codes], classes)


def occurring(codes: Ints) -> tuple[Ints, Ints]:
    """Return the codes that occur, in rising order, and the place of each row's code (n,) among them.

    As ``np.unique`` with inverse, for codes from 0 on, but rows are not sorted, and memory is that of the result.

    Examples
    --------
    >>> [found.tolist() for found in occurring(np.array([3, 0, 3]))]
    [[0, 3], [1, 0, 1]]
    """
    if codes.min(initial=0) < 0:
        raise AssertionError("rows without a code have no place among those that occur")
    present = np.zeros(int(codes.max(initial=-1)) + 1, dtype=bool)
    places = np.empty(len(codes), dtype=CODES)
    blocks = [slice(start, start + CODE_ROWS) for start in range(0, len(codes), CODE_ROWS)]
    for block in blocks:  # an index of all rows would be widened to 8 bytes per row
        present[codes[block]] = True
    number = np.cumsum(present, dtype=CODES) - CODES(1)
    for block in blocks:
        places[block] = number[codes[block]]
    return np.flatnonzero(present), places
