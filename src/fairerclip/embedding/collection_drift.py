"""Comparison of a collection with the one that a mitigator was fitted on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fairerclip._util.arrays import column_sums
from fairerclip._util.numbers import number
from fairerclip._util.types import F64
from fairerclip.data.embedding_rows import RowSummary, unit_view
from fairerclip.data.row_drift import compare_rows
from fairerclip.data.row_pass import sum_rows
from fairerclip.errors import (
    CollectionDriftWarning,
    DirectionDriftWarning,
    FairerClipWarning,
    SensitiveDriftWarning,
)
from fairerclip.solver.moments import Moments
from fairerclip.solver.rows import sum_threads

if TYPE_CHECKING:
    from fairerclip.embedding.attributes import MitigatedAttribute
    from fairerclip.embedding.fitted_map import FittedMap

MEAN_SHIFT = 0.5
"""Distance of the means, in units of the root of the total variance, from which a collection is another one."""
OVERLAP = 0.8
"""Smallest share of the variance of the fitted rows' main directions that the main directions of new rows hold."""
MAIN = 0.9
"""Share of the variance that main directions hold."""
SHARE_CHANGE = 0.15
"""Change of the share of a sensitive value that is reported."""

SAMPLING = 4.0
"""Multiple of the sampling variance that is added to the limits: a few rows of the same collection are no drift."""


@dataclass(frozen=True, eq=False)
class CollectionSummary:
    """Summary of a collection; single rows cannot be recovered from it.

    Attributes
    ----------
    rows : RowSummary
        Number, lengths and mean direction of the rows.
    mean, covariance : array of shape (p,) and (p, p)
        Moments of the rows at unit length.
    shares : array of shape (K,)
        Means of the label columns: shares of all sensitive values but the first of each attribute.
    """

    rows: RowSummary
    mean: F64
    covariance: F64
    shares: F64

    @classmethod
    def of(cls, X: Any, rows: RowSummary, attributes: Sequence[MitigatedAttribute]) -> CollectionSummary:
        """Summarise rows X (n, p), with shares of the values that can be read; one pass by blocks, O(n·p²).

        ``rows`` is the summary that the check of the rows gave.
        """
        p = int(X.shape[1])
        start = partial(_CollectionSums, p, attributes)
        sums = sum_rows(unit_view(X), start, threads=sum_threads(p * p))
        found = sums.moments.finalise()
        if found.covariance is None:
            raise AssertionError("the covariance is accumulated")
        return cls(rows, found.mean, found.covariance, sums.shares / rows.rows)


class _CollectionSums:
    """Accumulator of a pass over unit rows: their moments, and the sums of the probabilities of sensitive values."""

    def __init__(self, width: int, attributes: Sequence[MitigatedAttribute]) -> None:
        self._attributes = attributes
        self.moments = Moments(width, 0)
        self.shares = np.zeros(sum(attribute.n_columns for attribute in attributes))

    def add(self, rows: Any) -> None:
        self.moments.update(rows, np.empty((len(rows), 0)), np.ones(len(rows)))
        parts = [
            np.full(attribute.n_columns, np.nan)
            if attribute.reader is None
            else column_sums(attribute.reader.probabilities(rows)[:, 1:])
            for attribute in self._attributes
        ]
        self.shares += np.concatenate([np.zeros(0), *parts])

    def merge(self, other: _CollectionSums) -> None:
        self.moments.merge(other.moments)
        self.shares += other.shares


@dataclass(frozen=True)
class CollectionDrift:
    """Difference between a collection and the one of the fit.

    Attributes
    ----------
    mean_shift : float
        Distance of the means, in units of the root of the total variance of the fitted rows.
    variance_kept : float
        Variance of the new rows in the main directions of the fitted rows, divided by the most that as many directions
        could hold.
    shares : dict
        Attribute → value → share in the fit and share here, both read as the mitigator reads them.
    warnings : tuple of (warning class, str)
        Warnings to give, with their messages.
    """

    mean_shift: float
    variance_kept: float
    shares: dict[str, dict[str, tuple[float, float]]]
    warnings: tuple[tuple[type[FairerClipWarning], str], ...]


def compare_collections(fitted: FittedMap, new: CollectionSummary) -> CollectionDrift:
    """Compare a collection with that of the fit; docs/how-to/search.md has the thresholds."""
    old = fitted.summary
    size = float(np.sqrt(max(np.trace(old.covariance), np.finfo(np.float64).tiny)))
    shift = float(np.linalg.norm(new.mean - old.mean)) / size
    kept = _variance_kept(old.covariance, new.covariance)
    messages = [
        w for w in compare_rows(old.rows, new.rows, normalize=True).warnings if w[0] is DirectionDriftWarning
    ]
    few = SAMPLING / new.rows.rows
    far, least = np.sqrt(MEAN_SHIFT**2 + few), OVERLAP - np.sqrt(few * MAIN * (1 - MAIN))
    if shift > far or kept < least:
        messages.append(
            (
                CollectionDriftWarning,
                f"these rows differ from the collection of the fit: their mean is {number(shift, 2)} of its spread "
                f"away (limit {number(far, 2)}), and its main directions hold {number(kept, 2)} of the variance "
                f"that they could (limit {number(least, 2)}). Rankings may become worse than without mitigation: "
                "fit on this collection",
            )
        )
    shares = _shares(fitted, new)
    for name, values in shares.items():
        changed = [
            value
            for value, (a, b) in values.items()
            if abs(a - b) > SHARE_CHANGE + np.sqrt(few * a * (1 - a))
        ]
        if changed:
            value = changed[0]
            messages.append(
                (
                    SensitiveDriftWarning,
                    f"{name}: the share of {value!r} is read as {number(values[value][1], 2)} here and was "
                    f"{number(values[value][0], 2)} in the fit; check how it is read, or fit on this collection",
                )
            )
    return CollectionDrift(shift, kept, shares, tuple(messages))


def _variance_kept(old: F64, new: F64) -> float:
    """Return the variance of new rows in the main directions of the old ones, as a share of the best possible."""
    values, vectors = np.linalg.eigh(old)
    order = np.argsort(values)[::-1]
    total = float(values.sum())
    if not total > 0:
        return 1.0
    count = int(np.searchsorted(np.cumsum(values[order]) / total, MAIN)) + 1
    main = vectors[:, order[:count]]
    best = float(np.sort(np.linalg.eigvalsh(new))[::-1][:count].sum())
    return float(np.einsum("ij,ik,kj->", main, new, main)) / best if best > 0 else 1.0


def _shares(fitted: FittedMap, new: CollectionSummary) -> dict[str, dict[str, tuple[float, float]]]:
    out: dict[str, dict[str, tuple[float, float]]] = {}
    start = 0
    for attribute in fitted.attributes:
        block = slice(start, start + attribute.n_columns)
        start += attribute.n_columns
        # Combinations have other columns than the attributes one by one.
        if (
            attribute.reader is None
            or attribute.values is None
            or len(fitted.summary.shares) != len(new.shares)
        ):
            continue
        before, after = (
            np.array([1 - s[block].sum(), *s[block]]) for s in (fitted.summary.shares, new.shares)
        )
        out[attribute.name] = {
            str(value): (float(a), float(b))
            for value, a, b in zip(attribute.values.tolist(), before, after, strict=True)
        }
    return out
