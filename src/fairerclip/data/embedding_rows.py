"""Rows of embeddings: of unit length, checked before anything is computed, and compared with those of a fit."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import F64, Floats
from fairerclip.errors import (
    DirectionDriftWarning,
    FairerClipWarning,
    NonFiniteError,
    NormDriftWarning,
    ShapeError,
    ZeroRowError,
    ZeroRowWarning,
)

BLOCK_ROWS = 8192
"""Rows per block: large enough for BLAS to be at full speed, small enough for any laptop."""
READ_ROWS = 16384
"""Rows per block where blocks are summed or multiplied with prompts: of another size, sums would differ in the last
digits from those of models that were saved before."""
SMALLEST, LARGEST = 1e-15, 1e15
"""Magnitudes of X between which squares and their sums stay within float32."""

TAILS = (0.01, 0.5, 0.99)
"""Quantiles of the lengths that are kept."""
LENGTH_SLACK = 1.25
"""A median length may lie so many times outside the range of the fitted lengths."""
SAME_DIRECTION = 0.25
"""Least cosine of two means: that of one class among many stays above it, that of another encoder is near 0."""
SHORTEST_MEAN = 0.2
"""Unit rows whose mean is shorter point everywhere, so that their mean direction says nothing."""
FEW_ROWS = 3.0
"""The squared length of the fitted mean must be so many times the sampling variance of the new one."""


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


def row_lengths(rows: Any) -> F64:
    """Euclidean lengths (n,) of rows, in float64."""
    _, lengths, scale = _with_lengths(rows)
    return lengths * scale


def _with_lengths(rows: Any) -> tuple[Floats, F64, F64]:
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


@dataclass(frozen=True, eq=False)
class RowSummary:
    """What is kept of rows to recognise others by: no row can be told from it.

    Parameters
    ----------
    rows : number of rows.
    lengths : (3,) the 1 %, 50 % and 99 % quantiles of their lengths, as they came.
    mean : (p,) mean of the rows at unit length.
    """

    rows: int
    lengths: F64
    mean: F64

    @classmethod
    def of(cls, X: Any) -> RowSummary:
        """Summarise X (n, p) in one pass, by blocks. O(n·p)."""
        total, lengths = np.zeros(int(X.shape[1])), []
        for start in range(0, int(X.shape[0]), READ_ROWS):
            block = np.asarray(X[start : start + READ_ROWS])
            lengths.append(row_lengths(block))
            total += unit_rows(block).sum(axis=0, dtype=np.float64)
        n = int(X.shape[0])
        return cls(n, np.quantile(np.concatenate(lengths), TAILS), total / n)


@dataclass(frozen=True)
class Drift:
    """How new rows differ from the fitted ones.

    Parameters
    ----------
    length, fitted_length : median lengths of the rows, new and fitted, as they came.
    cosine : of the two mean directions; None where too few rows, or rows that point everywhere, cannot tell.
    warnings : what is worth a warning, with its class.
    """

    length: float
    fitted_length: float
    cosine: float | None
    warnings: tuple[tuple[type[FairerClipWarning], str], ...]


def compare_rows(fitted: RowSummary, new: RowSummary, *, normalize: bool) -> Drift:
    """Compare new rows with the fitted ones; docs/guide.md#drift has the thresholds."""
    low, middle, high = fitted.lengths.tolist()
    length = float(new.lengths[1])
    found: list[tuple[type[FairerClipWarning], str]] = []
    if not low / LENGTH_SLACK <= length <= high * LENGTH_SLACK:
        effect = (
            "Lengths are divided out, so this changes no answer by itself; check that the same encoder made both"
            if normalize
            else "This model was fitted without normalize=True: bring the rows to the lengths it was fitted on"
        )
        found.append(
            (
                NormDriftWarning,
                f"the rows have a median length of {length:.4g}, those of the fit had {middle:.4g} (98 % of them "
                f"{low:.4g} to {high:.4g}). {effect}",
            )
        )
    cosine = _mean_cosine(fitted, new)
    if cosine is not None and cosine < SAME_DIRECTION:
        found.append(
            (
                DirectionDriftWarning,
                f"the mean of the rows points elsewhere than that of the fit (cosine {cosine:.2f}): they may come from "
                "another encoder, another preprocessing or another kind of image, for which the model was not fitted",
            )
        )
    return Drift(length, float(middle), cosine, tuple(found))


def _mean_cosine(fitted: RowSummary, new: RowSummary) -> float | None:
    size = float(np.linalg.norm(fitted.mean))
    sampling = (1 - size**2) / new.rows
    if size < SHORTEST_MEAN or size**2 < FEW_ROWS * sampling:
        return None
    other = float(np.linalg.norm(new.mean))
    return float(fitted.mean @ new.mean) / (size * other) if other > 0 else 0.0
