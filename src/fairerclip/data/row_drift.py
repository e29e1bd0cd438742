"""Comparison of new rows with the rows of a fit: their lengths and their mean direction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairerclip.data.embedding_rows import RowSummary
from fairerclip.errors import DirectionDriftWarning, FairerClipWarning, NormDriftWarning

LENGTH_SLACK = 1.25
"""Factor by which a median length may lie outside the range of the fitted lengths."""
SAME_DIRECTION = 0.25
"""Smallest accepted cosine of two means: one class among many stays above it, another encoder is near 0."""
SHORTEST_MEAN = 0.2
"""Smallest length of the mean of unit rows; below it the rows have no common direction."""
FEW_ROWS = 3.0
"""Smallest ratio of the squared length of the fitted mean to the sampling variance of the new mean."""


@dataclass(frozen=True)
class Drift:
    """Difference between new rows and the rows of the fit.

    Parameters
    ----------
    length, fitted_length : float
        Median lengths of the new and of the fitted rows, before any scaling.
    cosine : float or None
        Cosine of the two mean directions; None if there are too few rows or they have no common direction.
    warnings : tuple of (warning class, str)
        Warnings to give, with their messages.
    """

    length: float
    fitted_length: float
    cosine: float | None
    warnings: tuple[tuple[type[FairerClipWarning], str], ...]


def compare_rows(fitted: RowSummary, new: RowSummary, *, normalize: bool) -> Drift:
    """Compare new rows with the rows of the fit; docs/how-to/fit.md#drift has the thresholds."""
    low, middle, high = fitted.lengths.tolist()
    length = float(new.lengths[1])
    messages: list[tuple[type[FairerClipWarning], str]] = []
    if not low / LENGTH_SLACK <= length <= high * LENGTH_SLACK:
        effect = (
            "The model scales rows to unit length, so predictions do not change; check that the same encoder made both"
            if normalize
            else "This model was fitted without normalize=True: scale the rows to the lengths that it was fitted on"
        )
        messages.append(
            (
                NormDriftWarning,
                f"the rows have a median length of {length:.4g}, those of the fit had {middle:.4g} (98 % of them "
                f"{low:.4g} to {high:.4g}). {effect}",
            )
        )
    cosine = _mean_cosine(fitted, new)
    if cosine is not None and cosine < SAME_DIRECTION:
        messages.append(
            (
                DirectionDriftWarning,
                f"the mean of the rows has another direction than that of the fit (cosine {cosine:.2f}): they may come "
                "from another encoder, another preprocessing or another kind of image than the model was fitted on",
            )
        )
    return Drift(length, float(middle), cosine, tuple(messages))


def _mean_cosine(fitted: RowSummary, new: RowSummary) -> float | None:
    size = float(np.linalg.norm(fitted.mean))
    sampling = (1 - size**2) / new.rows
    if size < SHORTEST_MEAN or size**2 < FEW_ROWS * sampling:
        return None
    other = float(np.linalg.norm(new.mean))
    return float(fitted.mean @ new.mean) / (size * other) if other > 0 else 0.0
