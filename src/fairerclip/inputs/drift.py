"""Whether new rows look like those that a model was fitted on: their lengths, and where they point on average."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.errors import DirectionDriftWarning, FairerClipWarning, NormDriftWarning
from fairerclip.inputs.image_rows import BLOCK_ROWS, row_lengths, unit_rows

F64 = NDArray[np.float64]

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
        for start in range(0, int(X.shape[0]), BLOCK_ROWS):
            block = np.asarray(X[start : start + BLOCK_ROWS])
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
