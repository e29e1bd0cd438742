"""Embeddings and prompts as users give them, checked before anything is computed."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.errors import NonFiniteError, ShapeError, ZeroRowError, ZeroRowWarning

BLOCK_ROWS = 16384
"""Rows of embeddings that are looked at together."""
SMALLEST, LARGEST = 1e-15, 1e15
"""Magnitudes of X between which squares and their sums stay within float32."""
Floats = NDArray[np.floating]


def _listed(rows: Sequence[int]) -> str:
    shown = ", ".join(str(r) for r in rows[:5])
    return f"{len(rows)} rows (first: {shown})" if len(rows) > 1 else f"row {shown}"


def unit_rows(rows: Any) -> NDArray[Any]:
    """Rows of length one, float32 for float16 and float32 and float64 otherwise; a zero row stays zero.

    Lengths are summed in float64, whatever the rows are.
    """
    rows, lengths, _ = _with_lengths(rows)
    lengths = lengths.astype(rows.dtype)[:, None]
    return np.asarray(np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0))


def row_lengths(rows: Any) -> NDArray[np.float64]:
    """Euclidean lengths (n,) of rows, in float64."""
    _, lengths, scale = _with_lengths(rows)
    return lengths * scale


def _with_lengths(rows: Any) -> tuple[Floats, NDArray[np.float64], NDArray[np.float64]]:
    """Rows in working precision, their lengths (n,), and what rows of extreme size were divided by (n,)."""
    rows = np.asarray(rows)
    rows = rows.astype(working_dtype(rows.dtype), copy=False)
    with np.errstate(over="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    scale = np.ones(len(rows))
    extreme = np.flatnonzero(~((lengths > SMALLEST) & (lengths < LARGEST)))
    if len(extreme):
        largest = np.abs(rows[extreme]).max(axis=1, initial=0.0)
        scale[extreme] = np.where(largest > 0, largest, 1.0)
        rows = rows.copy()
        rows[extreme] /= scale[extreme, None].astype(rows.dtype)
        lengths[extreme] = np.sqrt(np.sum(np.square(rows[extreme], dtype=np.float64), axis=1))
    return rows, lengths, scale


def working_dtype(dtype: Any) -> type[np.floating]:
    """The precision in which rows of a dtype are worked with."""
    return np.float32 if dtype in (np.float16, np.float32) else np.float64


class UnitRows:
    """Rows of X, brought to unit length as they are read: X is neither copied nor changed.

    Parameters
    ----------
    X : (n, p) array, memory map or store.
    """

    def __init__(self, X: Any) -> None:
        self._X = X
        self.shape = (int(X.shape[0]), int(X.shape[1]))
        self.ndim = 2
        self.dtype = np.dtype(working_dtype(X.dtype))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Floats:
        return unit_rows(self._X[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        return unit_rows(self._X[:]).astype(dtype or self.dtype, copy=False)


def check_rows(X: Any, name: str, *, zero_is_error: bool) -> None:
    """Refuse rows that are not finite and refuse, or warn of, rows that are zero. O(n·p), by blocks."""
    bad: list[int] = []
    zero: list[int] = []
    for start in range(0, int(X.shape[0]), BLOCK_ROWS):
        block = np.asarray(X[start : start + BLOCK_ROWS])
        finite = np.isfinite(block).all(axis=1)
        bad += (start + np.flatnonzero(~finite)).tolist()
        zero += (start + np.flatnonzero(~block.any(axis=1))).tolist()
    if bad:
        raise NonFiniteError(
            f"Input {name} contains NaN or infinity in {_listed(bad)} of {X.shape[0]}; "
            "remove these rows or embed their images again"
        )
    if zero:
        message = f"{name} is zero in {_listed(zero)} of {X.shape[0]}"
        if zero_is_error:
            raise ZeroRowError(
                f"{message}: their cosine with a prompt is undefined; remove these rows or embed their "
                "images again"
            )
        warnings.warn(message, ZeroRowWarning, stacklevel=4)


def check_directions(X: Any) -> None:
    """Refuse rows of one column: at unit length they are all 1 or −1."""
    if X.shape[1] < 2:
        raise ShapeError(
            f"X has {X.shape[1]} feature(s), and rows of one column have no direction: give embeddings of 2 columns or "
            "more, or set normalize=False"
        )


def check_scale(X: Any) -> None:
    """Refuse magnitudes whose squares single precision cannot hold: they would turn into NaN. O(n·p)."""
    blocks = range(0, int(X.shape[0]), BLOCK_ROWS)
    largest = max(float(np.abs(X[start : start + BLOCK_ROWS]).max()) for start in blocks)
    if largest > 0 and not SMALLEST <= largest <= LARGEST:
        raise NonFiniteError(
            f"the largest magnitude in X is {largest:.3g}; embeddings must lie between {SMALLEST:g} and {LARGEST:g}: "
            "rescale X"
        )
