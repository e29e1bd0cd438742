"""`CodedLabels`: labels as small integers and the names that they stand for, for more rows than text would allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.errors import LabelError

Array = NDArray[Any]

UNKNOWN = ""
"""Text of an unknown label."""


def smallest_type(values: int) -> np.dtype[Any]:
    """Return the smallest signed integer type for the codes of this number of values, and -1.

    Examples
    --------
    >>> smallest_type(2), smallest_type(1000)
    (dtype('int8'), dtype('int16'))
    """
    kinds = (np.dtype(np.int8), np.dtype(np.int16), np.dtype(np.int32))
    return next((kind for kind in kinds if values <= int(np.iinfo(kind).max)), np.dtype(np.int64))


@dataclass(frozen=True, eq=False)
class CodedLabels:
    """Labels (n,) of a fit or a metric that take one to four bytes per row.

    They can be given wherever labels are taken: as ``y``, or as one of the ``sensitive_features``. `numpy.asarray`
    makes an array of text of them, which takes far more memory.

    Parameters
    ----------
    codes : array of shape (n,)
        Places in ``names``; -1 is an unknown label.
    names : sequence of str
        Names of the values, distinct and not empty.

    Examples
    --------
    >>> labels = CodedLabels(np.array([1, -1, 0], dtype=np.int8), ("cat", "dog"))
    >>> np.asarray(labels).tolist(), (labels == "dog").tolist()
    (['dog', '', 'cat'], [True, False, False])
    """

    codes: Array
    names: tuple[str, ...]

    ndim = 1

    def __post_init__(self) -> None:
        codes, names = np.asarray(self.codes), tuple(str(name) for name in self.names)
        if codes.ndim != 1 or codes.dtype.kind not in "iu":
            raise LabelError(f"expected codes (n,) of integers, got {codes.dtype} of shape {codes.shape}")
        if len(set(names)) != len(names) or UNKNOWN in names:
            raise LabelError(f"expected distinct names that are not empty, got {list(names)[:10]}")
        if len(codes) and not (-1 <= int(codes.min()) and int(codes.max()) < len(names)):
            raise LabelError(
                f"expected codes from -1 to {len(names) - 1}, got {int(codes.min())} to {int(codes.max())}"
            )
        object.__setattr__(self, "codes", codes)
        object.__setattr__(self, "names", names)

    @property
    def shape(self) -> tuple[int]:
        """(n,)."""
        return (len(self.codes),)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the array of text."""
        return np.array([*self.names, UNKNOWN]).dtype

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: slice | Array) -> CodedLabels:
        return CodedLabels(self.codes[rows], self.names)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        text = np.array([*self.names, UNKNOWN])[self.codes]
        return text if dtype is None else text.astype(dtype, copy=False)

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, str):
            return NotImplemented
        place = self.names.index(other) if other in self.names else len(self.names)
        return self.codes == (-1 if other == UNKNOWN else place)

    def __ne__(self, other: object) -> Any:
        return NotImplemented if not isinstance(other, str) else ~(self == other)

    __hash__ = None  # type: ignore[assignment]  # as an array

    def only(self, names: Sequence[str]) -> CodedLabels:
        """Return the labels with some of the names, in their order; labels of other names become unknown."""
        place = {name: k for k, name in enumerate(names)}
        table = [place.get(name, -1) for name in self.names]
        return CodedLabels(np.array([*table, -1], dtype=smallest_type(len(names)))[self.codes], tuple(names))

    def present(self) -> list[str]:
        """Return the names that occur, sorted."""
        counts = np.bincount(self.codes[self.codes >= 0], minlength=len(self.names))
        return sorted(name for name, count in zip(self.names, counts, strict=True) if count)


def cross_labels(columns: Sequence[CodedLabels], separator: str = ", ") -> CodedLabels:
    """Return the combinations of several labels of the same rows; unknown where one of them is.

    Examples
    --------
    >>> sex, age = CodedLabels(np.array([0, 1]), ("f", "m")), CodedLabels(np.array([1, -1]), ("old", "young"))
    >>> np.asarray(cross_labels([sex, age])).tolist()
    ['f, young', '']
    """
    names, codes = columns[0].names, columns[0].codes
    for column in columns[1:]:
        total = len(names) * len(column.names)
        kind = smallest_type(total)
        known = (codes >= 0) & (column.codes >= 0)
        crossed = codes.astype(kind) * kind.type(len(column.names)) + column.codes.astype(kind)
        codes = np.where(known, crossed, kind.type(-1))
        names = tuple(f"{a}{separator}{b}" for a in names for b in column.names)
    return CodedLabels(codes, names)


def count_pairs(first: Any, second: Any) -> dict[tuple[str, str], int]:
    """Return the number of rows of each pair of known labels that occurs; both are text (n,) or `CodedLabels`.

    Examples
    --------
    >>> count_pairs(np.array(["a", "b", "a", ""]), np.array(["x", "x", "x", "x"]))
    {('a', 'x'): 2, ('b', 'x'): 1}
    """
    if not (isinstance(first, CodedLabels) and isinstance(second, CodedLabels)):
        cells, counts = np.unique(np.column_stack([first, second]), axis=0, return_counts=True)
        known = (cells != UNKNOWN).all(axis=1)
        return {(str(a), str(b)): int(n) for (a, b), n in zip(cells[known], counts[known], strict=True)}
    k = len(second.names)
    both = np.flatnonzero((first.codes >= 0) & (second.codes >= 0))
    joint = first.codes[both].astype(np.int64) * k + second.codes[both]
    totals = np.bincount(joint, minlength=len(first.names) * k)
    return {
        (first.names[cell // k], second.names[cell % k]): int(totals[cell])
        for cell in np.flatnonzero(totals).tolist()
    }


def with_gaps(values: Any) -> Any:
    """Return text (n,) as objects, with None for an unknown label; `CodedLabels`, which know it, as they are."""
    if isinstance(values, CodedLabels):
        return values
    out = values.astype(object)
    out[values == UNKNOWN] = None
    return out
