"""Accumulators of sums over rows: the weighted mean, the covariance and the label cross-moments.

`Moments` has the sums of all rows; `MomentTable` has those of each part of the rows, which can be added with weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import blas

from fairerclip._util.arrays import (
    accumulate,
    beside,
    column_sums,
    empty,
    is_tensor,
    joined,
    namespace,
    row_squares,
    sums_place,
    to_numpy,
)
from fairerclip._util.types import F64, Floats, Ints
from fairerclip.data.row_pass import cache_sized
from fairerclip.errors import ShapeError

if TYPE_CHECKING:
    from fairerclip.solver.terms import LabelDesign


PENDING_ROWS = 1024
"""Rows of a part that are gathered before their products are added: for a few rows, adding D×D sums would take longer
than the products themselves."""


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

    Sums are taken about a fixed point and corrected at the end, so a large common offset in the features does not
    cancel; see docs/math.md#moments. The point is ``shift``, or the mean of the first block. Accumulators with the same
    point are merged faster.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> Phi, J, w = rng.normal(size=(9, 3)), rng.normal(size=(9, 2)), rng.uniform(size=9)
    >>> parts = [Moments(3, 2).update(Phi[at], J[at], w[at]) for at in (slice(4), slice(4, 9))]
    >>> result = parts[0].merge(parts[1]).finalise()
    >>> bool(np.allclose(result.mean, w @ Phi / w.sum()))
    True
    """

    def __init__(self, n_features: int, n_labels: int, *, covariance: bool = True, shift: F64 | None = None):
        self._shift, self._weight = shift, 0.0
        # Sums of tensors stay on their device until they are read.
        self._first: Any = np.zeros(n_features)
        self._wants_covariance = covariance
        self._second: Any = None  # Σ w (φ−a)(φ−a)ᵀ, from the first block on
        self._square = 0.0
        self._cross: Any = np.zeros((n_features, n_labels))
        self._label_sum = np.zeros(n_labels)
        self._work: Any = None
        self._has_rows = False

    @property
    def n_features(self) -> int:
        """Number D of features."""
        return len(self._first)

    def __getstate__(self) -> dict[str, Any]:
        self._fetch()
        return {**self.__dict__, "_work": None}

    def _fetch(self) -> None:
        """Bring sums from the device of tensors to the CPU."""
        for name in ("_first", "_second", "_cross"):
            if is_tensor(value := getattr(self, name)):
                setattr(self, name, to_numpy(value))

    def update(self, Phi: Floats, J: Floats, weight: Floats) -> Moments:
        """Add rows: features Phi (b, D), label columns J (b, K), weight (b,). O(b·D²) time."""
        return self.update_parts((Phi,), J, weight)

    def update_parts(self, parts: Sequence[Floats], J: Floats, weight: Floats) -> Moments:
        """Add rows whose features come in several arrays (b, D₁), (b, D₂), … of one type, which are not joined."""
        Phi = parts[0]
        if not (len(Phi) == len(J) == len(weight)):
            raise ShapeError(
                "features, labels and weights must have the same number of rows; "
                f"got {len(Phi)}, {len(J)} and {len(weight)}"
            )
        if len(Phi) == 0:
            return self
        if self._shift is None:
            self._shift = np.concatenate([rounded_mean(part) for part in parts])
        self._has_rows = True
        w = np.asarray(weight, dtype=np.float64)
        root = np.sqrt(w)[:, None]
        offset = self._weighted(parts, self._shift, root)  # (b, D) √w (φ − a)
        columns = beside(Phi, np.column_stack([root, J * root]), Phi.dtype)
        sums = offset.T @ columns  # (D, 1 + K)
        self._first = accumulate(self._first, sums[:, 0])
        self._cross = accumulate(self._cross, sums[:, 1:])
        self._weight += float(w.sum())
        self._label_sum += w @ J
        if self._wants_covariance:
            product = offset.T @ offset
            self._second = accumulate(self._second, product)
            self._square += float(to_numpy(product.diagonal()).sum(dtype=np.float64))
        elif is_tensor(offset):
            self._square += float(row_squares(offset).sum())
        else:
            self._square += float(np.einsum("ij,ij->", offset, offset, dtype=np.float64))
        return self

    def add(self, Phi: Floats, labels: LabelDesign, weight: Floats) -> None:
        """Add rows with label columns that are made here, some rows at a time."""
        for part in labels.steps():
            self.update(Phi[part], labels.rows(part), weight[part])

    def _weighted(self, parts: Sequence[Any], shift: F64, root: F64) -> Any:
        """Return √w (φ − a) (b, D), in an array that the next block uses again."""
        Phi, b, dtype = parts[0], len(parts[0]), parts[0].dtype
        fits = self._work is not None and is_tensor(self._work) == is_tensor(Phi)
        if not fits or self._work.dtype != dtype or len(self._work) < b:
            self._work = empty(Phi, (b, len(shift)), dtype)
        xp, work = namespace(Phi), self._work[:b]
        shift, factors = beside(Phi, shift, dtype), beside(Phi, root, dtype)
        edges = np.cumsum([0, *(part.shape[1] for part in parts)]).tolist()
        for rows in cache_sized(work):
            for part, (first, stop) in zip(parts, pairwise(edges), strict=True):
                xp.subtract(part[rows], shift[first:stop], out=work[rows, first:stop])
            block = work[rows]
            block *= factors[rows]
        return work

    def merge(self, other: Moments) -> Moments:
        """Add the sums of another accumulator, as if its rows had been added here."""
        if other._shift is None or not other._has_rows:
            return self
        self._fetch()
        other._fetch()
        if self._shift is None:
            self._shift = other._shift
        # Σ w (φ−a)(φ−a)ᵀ from sums about b: φ−a = (φ−b) + (b−a).
        move = other._shift - self._shift
        if self._wants_covariance:
            if other._second is None:
                raise ShapeError("an accumulator without covariance cannot be merged into one with it")
            self._second = accumulate(self._second, other._second)
            _move_sums(self._second, move, other._first, other._weight)
        self._square += other._square + 2 * float(move @ other._first) + other._weight * float(move @ move)
        self._first += other._first + other._weight * move
        self._cross += other._cross + np.outer(move, other._label_sum)
        self._weight += other._weight
        self._label_sum += other._label_sum
        self._has_rows = True
        return self

    def finalise(self) -> MomentResult:
        """Return the centred and normalised moments. The covariance buffer of the accumulator is used up."""
        if self._shift is None or not self._weight > 0:
            raise ShapeError("no row with a positive weight was added")
        self._fetch()
        second, self._second = self._second, None  # released: C is D×D and one copy is enough
        return _centred(
            self._shift, self._weight, self._first, second, self._square, self._cross, self._label_sum
        )


class MomentTable:
    """Accumulate the moments of several parts of the rows, such as the cells of each fold of a cross-validation.

    Sums of rows are additive, and rows of one part have a common factor in every set of weights by class or group. So
    the moments of any union of parts, under any such weights, follow without another pass; docs/math.md#folds.
    Memory is D² + D·K float64 for each part, and `PENDING_ROWS` rows of features.

    Parameters
    ----------
    n_parts : int
        Number of parts.
    n_features, n_labels : int
        Numbers D of features and K of label columns.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> Phi, J, part = rng.normal(size=(9, 3)), rng.normal(size=(9, 2)), np.arange(9) % 3
    >>> table = MomentTable(3, 3, 2).update(Phi, J, np.ones(9), part)
    >>> (left,) = table.combine([[1, 0, 2]])  # the rows of the first part, and twice those of the last one
    >>> w = np.array([1, 0, 2])[part]
    >>> bool(np.allclose(left.mean, w @ Phi / w.sum()))
    True
    """

    def __init__(self, n_parts: int, n_features: int, n_labels: int, *, shift: F64 | None = None) -> None:
        self._shift = shift
        self._weight = np.zeros(n_parts)
        self._first = np.zeros((n_parts, n_features))
        self._second: Any = np.zeros((n_parts, n_features, n_features))
        self._cross = np.zeros((n_parts, n_features, n_labels))
        self._label_sum = np.zeros((n_parts, n_labels))
        self._pending: dict[int, list[tuple[Any, F64, F64]]] = {}

    def update(self, Phi: Floats, J: Floats, weight: Floats, part: Ints) -> MomentTable:
        """Add rows: features Phi (b, D), label columns J (b, K), weight (b,) and numbers of their parts (b,)."""
        if len(Phi) == 0:
            return self
        if self._shift is None:
            # One point for all parts, so that their sums can be added.
            self._shift = rounded_mean(Phi)
        shift = beside(Phi, self._shift, Phi.dtype)
        w = np.asarray(weight, dtype=np.float64)
        wJ = J * w[:, None]  # (b, K) float64
        for number in np.unique(part).tolist():
            rows = np.flatnonzero(part == number)
            offset = Phi[rows]  # (rows, D), a copy
            offset -= shift
            pending = self._pending.setdefault(number, [])
            pending.append((offset, w[rows], wJ[rows]))
            if sum(len(kept) for _, kept, _ in pending) >= PENDING_ROWS:
                self._add(number)
        return self

    def _settle(self) -> None:
        """Add all pending rows to the sums."""
        for number in [*self._pending]:
            self._add(number)

    def __getstate__(self) -> dict[str, Any]:
        self._settle()
        return {**self.__dict__, "_second": to_numpy(self._second)}

    def add(self, Phi: Floats, labels: LabelDesign, weight: Floats, part: Ints) -> None:
        """Add rows with label columns that are made here, some rows at a time."""
        for rows in labels.steps():
            self.update(Phi[rows], labels.rows(rows), weight[rows], part[rows])

    def merge(self, other: MomentTable) -> MomentTable:
        """Add the sums of another table of the same parts, as if its rows had been added here."""
        other._settle()
        if other._shift is None:
            return self
        if self._shift is None:
            self._shift = other._shift
        self._second, seconds = to_numpy(self._second), to_numpy(other._second)
        move = other._shift - self._shift
        for number in np.flatnonzero(other._weight).tolist():
            weight, first = float(other._weight[number]), other._first[number]
            mixed = np.outer(move, first)
            self._second[number] += seconds[number] + mixed + mixed.T + weight * np.outer(move, move)
            self._cross[number] += other._cross[number] + np.outer(move, other._label_sum[number])
            self._first[number] += first + weight * move
        self._weight += other._weight
        self._label_sum += other._label_sum
        return self

    def _add(self, number: int) -> None:
        """Add the pending rows of a part to its sums."""
        columns = list(zip(*self._pending.pop(number), strict=True))
        offset, w, wJ = (c[0] if len(c) == 1 else joined(c) for c in columns)
        sums = to_numpy(offset.T @ beside(offset, np.column_stack([w, wJ]), offset.dtype))  # (D, 1 + K)
        self._weight[number] += float(w.sum())
        self._first[number] += sums[:, 0]
        self._cross[number] += sums[:, 1:]
        self._label_sum[number] += wJ.sum(axis=0)
        offset *= beside(offset, np.sqrt(w)[:, None], offset.dtype)
        product = offset.T @ offset
        self._second = sums_place(self._second, product)
        self._second[number] += product if is_tensor(self._second) else to_numpy(product)

    def combine(self, factors: ArrayLike) -> list[MomentResult]:
        """Return the moments of all parts, each part multiplied by a factor, for each row of factors (m, parts).

        O(m·parts·D²) time, in one matrix product.
        """
        self._settle()
        factors = np.asarray(factors, dtype=np.float64)
        totals = factors @ self._weight
        if self._shift is None or not np.all(totals > 0):
            raise ShapeError("no row with a positive weight is left in a combination of parts")
        n_parts, D, K = self._cross.shape
        first, label_sum = factors @ self._first, factors @ self._label_sum
        cross = (factors @ self._cross.reshape(n_parts, -1)).reshape(-1, D, K)
        second = (factors @ to_numpy(self._second).reshape(n_parts, -1)).reshape(-1, D, D)
        sums = zip(totals.tolist(), first, second, cross, label_sum, strict=True)
        return [_centred(self._shift, total, f, S, float(np.trace(S)), X, j) for total, f, S, X, j in sums]


def rounded_mean(Phi: Any) -> F64:
    """Return the mean (D,), rounded to the features' precision: what is subtracted is what is added back."""
    return to_numpy(beside(Phi, column_sums(Phi) / len(Phi), Phi.dtype)).astype(np.float64)


def _move_sums(second: F64, move: F64, first: F64, weight: float) -> None:
    """Change sums (D, D) about b, with first sums (D,), to sums about a, in place; ``move`` is b − a."""
    if not move.any():
        return
    half = first + (weight / 2) * move
    for left, right in ((move, half), (half, move)):
        blas.dger(1.0, left, right, a=second.T, overwrite_a=1)


def _centred(
    shift: F64, total: float, first: F64, second: F64 | None, square: float, cross: F64, label_sum: F64
) -> MomentResult:
    """Return moments about the mean from sums about ``shift``; the buffer of the second moments is used up."""
    d = first / total  # (D,) mean about the shift
    if second is not None:
        second /= total
        # In place and in one pass; dger needs Fortran order, and the matrix is symmetric.
        blas.dger(-1.0, d, d, a=second.T, overwrite_a=1)
    return MomentResult(
        weight=total,
        mean=shift + d,
        covariance=second,
        cross=cross / total - np.outer(d, label_sum / total),
        trace=max(square / total - float(d @ d), 0.0),
    )
