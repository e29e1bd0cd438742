"""Accumulator of sums over rows: the weighted mean, the covariance and the label cross-moments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas

from fairerclip._util.types import F64, Floats
from fairerclip.errors import ShapeError


@dataclass(frozen=True)
class MomentResult:
    """Finalised moments; weights are normalised to sum to one."""

    weight: float
    """Total weight of all rows."""
    mean: F64
    """(D,) weighted mean of Φ."""
    covariance: F64 | None
    """(D, D) Φ_cᵀ W Φ_c, or None if only cross-moments were computed."""
    cross: F64
    """(D, K) Φ_cᵀ W J."""
    trace: float
    """tr(Φ_cᵀ W Φ_c), the total variance of the features."""


class Moments:
    """Accumulate weighted first and second moments of features Φ and label columns J.

    Rows may come in any order and in blocks of any size, and accumulators of different machines can be merged.
    Memory is D² + D·K float64 (D·K without the covariance) for any number of rows.

    Sums are taken about a fixed point (the mean of the first block) and corrected at the end, so a
    large common offset in the features does not cancel; see docs/math.md#moments.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> Phi, J, w = rng.normal(size=(9, 3)), rng.normal(size=(9, 2)), rng.uniform(size=9)
    >>> left = Moments(3, 2).update(Phi[:4], J[:4], w[:4])
    >>> right = Moments(3, 2).update(Phi[4:], J[4:], w[4:])
    >>> result = left.merge(right).finalise()
    >>> bool(np.allclose(result.mean, w @ Phi / w.sum()))
    True
    """

    def __init__(self, n_features: int, n_labels: int, *, covariance: bool = True) -> None:
        self._shift: F64 | None = None
        self._weight = 0.0
        self._first = np.zeros(n_features)
        self._wants_covariance = covariance
        self._second: F64 | None = None  # Σ w (φ−a)(φ−a)ᵀ, from the first block on
        self._square = 0.0
        self._cross = np.zeros((n_features, n_labels))
        self._label_sum = np.zeros(n_labels)

    def update(self, Phi: Floats, J: Floats, weight: Floats) -> Moments:
        """Add rows: features Phi (b, D), label columns J (b, K), weight (b,). O(b·D²) time."""
        if not (len(Phi) == len(J) == len(weight)):
            raise ShapeError(
                "features, labels and weights must have the same number of rows; "
                f"got {len(Phi)}, {len(J)} and {len(weight)}"
            )
        if len(Phi) == 0:
            return self
        if self._shift is None:
            # Rounded to the features' precision, so that what is subtracted is what is added back.
            self._shift = Phi.mean(axis=0, dtype=np.float64).astype(Phi.dtype).astype(np.float64)
        offset = Phi - self._shift.astype(Phi.dtype)  # (b, D)
        w = np.asarray(weight, dtype=np.float64)
        wJ = J * w[:, None]  # (b, K) float64
        sums = offset.T @ np.column_stack([w, wJ]).astype(Phi.dtype)  # (D, 1 + K)
        self._first += sums[:, 0]
        self._cross += sums[:, 1:]
        self._weight += float(w.sum())
        self._label_sum += wJ.sum(axis=0)
        offset *= np.sqrt(w)[:, None].astype(Phi.dtype)
        if self._wants_covariance:
            product = offset.T @ offset
            self._add(product)
            self._square += float(np.trace(product, dtype=np.float64))
        else:
            self._square += float(np.einsum("ij,ij->", offset, offset, dtype=np.float64))
        return self

    def _add(self, product: Floats) -> None:
        if self._second is None:
            self._second = product.astype(np.float64)
        else:
            self._second += product

    def merge(self, other: Moments) -> Moments:
        """Add the sums of another accumulator, as if its rows had been added here."""
        if other._shift is None:
            return self
        if self._shift is None:
            self._shift = other._shift
        # Σ w (φ−a)(φ−a)ᵀ from sums about b: φ−a = (φ−b) + (b−a).
        move = other._shift - self._shift
        if self._wants_covariance:
            if other._second is None:
                raise ShapeError("an accumulator without covariance cannot be merged into one with it")
            mixed = np.outer(move, other._first)
            self._add(other._second + mixed + mixed.T + other._weight * np.outer(move, move))
        self._square += other._square + 2 * float(move @ other._first) + other._weight * float(move @ move)
        self._first += other._first + other._weight * move
        self._cross += other._cross + np.outer(move, other._label_sum)
        self._weight += other._weight
        self._label_sum += other._label_sum
        return self

    def finalise(self) -> MomentResult:
        """Return the centred and normalised moments. The covariance buffer of the accumulator is used up."""
        if self._shift is None or not self._weight > 0:
            raise ShapeError("no row with a positive weight was added")
        total = self._weight
        d = self._first / total  # (D,) mean about the shift
        covariance = self._second
        if covariance is not None:
            self._second = None  # released: C is D×D and one copy is enough
            covariance /= total
            # In place and in one pass; dger needs Fortran order, and the matrix is symmetric.
            blas.dger(-1.0, d, d, a=covariance.T, overwrite_a=1)
        cross = self._cross / total - np.outer(d, self._label_sum / total)
        return MomentResult(
            weight=total,
            mean=self._shift + d,
            covariance=covariance,
            cross=cross,
            trace=max(self._square / total - float(d @ d), 0.0),
        )
