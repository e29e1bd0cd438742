"""The dependence terms of the objective as small maps on the label cross-moments.

Every label factor L_j of the objective is a linear image of one matrix of label columns,

    J = [one-hot(y) ⊗ [1, ψ(s)],  v]      (n, K),  K = c·(1 + q) + c

with v the zero-shot scores of the rows (absent without prompts), so with the cross-moments Φ_cᵀWJ (D, K) in hand,
M_j = Φ_cᵀ W L_j is ``cross @ A_j`` for a map A_j (K, k_j) that depends on the label moments alone. A new term,
strength, share or criterion needs no pass over the data. See docs/math.md#terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fairerclip._util.types import F64, Floats, Ints

ROUNDING = 1e-12
"""A variance up to this share of the second moment is rounding error of a constant."""
TABLE_ROWS = 8192
"""Number of rows of a class that are summed at a time."""
SORTED_ROWS = 1 << 18
"""Number of rows that are sorted by class at a time."""
LABEL_VALUES, LEAST_ROWS = 8 << 20, 256
"""Most values of label columns that are made at a time (64 MB), and the least number of rows for it."""


class OneHot:
    """Matrix (n, v) with a one in each row, at the code of the row; rows are made when they are read.

    Examples
    --------
    >>> OneHot(np.array([1, 0, 1]), 2)[1:]
    array([[1., 0.],
           [0., 1.]])
    """

    def __init__(self, codes: Ints, n_values: int) -> None:
        self.codes = codes
        self.shape = (len(codes), n_values)

    def __getitem__(self, rows: Any) -> F64:
        codes = self.codes[rows]
        out = np.zeros((len(codes), self.shape[1]))
        out[np.arange(len(codes)), codes] = 1.0
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> F64:
        return self[:] if dtype is None else self[:].astype(dtype)

    def taken(self, rows: Any) -> OneHot:
        """Return the matrix of some rows, without making them."""
        return OneHot(self.codes[rows], self.shape[1])


@dataclass(frozen=True)
class Attribute:
    """Features ψ(s) of one sensitive attribute: one-hot for categories, RBF for quantities."""

    name: str
    psi: F64 | OneHot
    """(n, q_a)"""

    def taken(self, rows: Any) -> Attribute:
        """Return the attribute of some rows."""
        psi = self.psi.taken(rows) if isinstance(self.psi, OneHot) else self.psi[rows]
        return Attribute(self.name, psi)


@dataclass(frozen=True)
class LabelDesign:
    """Label columns J, made in blocks of rows so that the (n, K) matrix is never in memory."""

    y: Ints
    """(n,) class codes 0 … c-1."""
    n_classes: int
    attributes: tuple[Attribute, ...]
    scores: Floats | None = None
    """(n, c) zero-shot scores v, or None."""

    @property
    def width(self) -> int:
        """Number 1 + q of columns per class: the constant and the features of all attributes."""
        return 1 + sum(int(a.psi.shape[1]) for a in self.attributes)

    @property
    def n_columns(self) -> int:
        """Number K of label columns."""
        return self.n_classes * self.width + (0 if self.scores is None else self.scores.shape[1])

    def __getitem__(self, rows: Any) -> LabelDesign:
        """Return the label columns of some rows, not yet made."""
        scores = None if self.scores is None else self.scores[rows]
        attributes = tuple(a.taken(rows) for a in self.attributes)
        return LabelDesign(self.y[rows], self.n_classes, attributes, scores)

    def steps(self) -> Iterator[slice]:
        """Yield blocks of rows whose label columns take at most 64 MB."""
        step = max(LEAST_ROWS, LABEL_VALUES // self.n_columns)
        for start in range(0, len(self.y), step):
            yield slice(start, min(start + step, len(self.y)))

    def rows(self, block: slice) -> F64:
        """Return J (b, K) for a block of rows."""
        y = self.y[block]
        J = np.zeros((len(y), self.n_classes, self.width))
        row = np.arange(len(y))
        J[row, y, 0] = 1.0
        start = 1
        for attribute in self.attributes:
            stop = start + attribute.psi.shape[1]
            J[row, y, start:stop] = attribute.psi[block]
            start = stop
        flat = J.reshape(len(y), -1)
        return flat if self.scores is None else np.concatenate([flat, self.scores[block]], axis=1)


@dataclass(frozen=True)
class LabelMoments:
    """Second moments Jᵀ W J of the label columns, not centred.

    The part of the labels is block diagonal in y, so memory is O(c·(1+q)²), and O(c²·(1+q)) with zero-shot scores.
    """

    gram: F64
    """(c, 1+q, 1+q) Σ w (1, ψ)(1, ψ)ᵀ inside each class; weights sum to one."""
    mixed: F64
    """(c·(1+q), v) moments of labels with zero-shot scores; v is c, or 0 without scores."""
    scores: F64
    """(v, v) moments of the scores."""
    names: tuple[str, ...]
    slices: tuple[slice, ...]
    """Columns of each attribute within 1+q."""

    @classmethod
    def of(cls, design: LabelDesign, weight: F64) -> LabelMoments:
        """Compute the moments of rows with weights (n,). O(n·(1+q)·(1+q+v) + n·v²) time."""
        slices, start = [], 1
        for attribute in design.attributes:
            slices.append(slice(start, start + attribute.psi.shape[1]))
            start = slices[-1].stop
        w = weight / weight.sum()
        c, width = design.n_classes, design.width
        V = np.zeros((len(w), 0)) if design.scores is None else design.scores
        gram, mixed = np.zeros((c, width, width)), np.zeros((c, width, V.shape[1]))
        scores = np.zeros((V.shape[1], V.shape[1]))
        for begin in range(0, len(w), SORTED_ROWS):
            part = slice(begin, min(begin + SORTED_ROWS, len(w)))
            for y, rows in _class_rows(design.y[part]):
                rows += begin
                inner = np.column_stack([np.ones(len(rows)), *(a.psi[rows] for a in design.attributes)])
                v = V[rows].astype(np.float64)
                weighted = inner.T * w[rows]
                gram[y] += weighted @ inner
                mixed[y] += weighted @ v
                scores += (v.T * w[rows]) @ v
        names = tuple(a.name for a in design.attributes)
        return cls(gram, mixed.reshape(c * width, -1), scores, names, tuple(slices))

    @property
    def n_classes(self) -> int:
        """Number of classes c."""
        return len(self.gram)

    @property
    def width(self) -> int:
        """Number 1 + q of columns per class."""
        return int(self.gram.shape[1])

    @property
    def n_label_columns(self) -> int:
        """Number of the K columns that are labels; the rest are zero-shot scores."""
        return self.n_classes * self.width

    @property
    def has_scores(self) -> bool:
        """Whether there are zero-shot scores."""
        return len(self.scores) > 0

    def without_scores(self) -> LabelMoments:
        """Return the moments without zero-shot scores, as the text side uses them."""
        return replace(self, mixed=self.mixed[:, :0], scores=self.scores[:0, :0])

    @cached_property
    def class_share(self) -> F64:
        """(c,) weight of each class."""
        return self.gram[:, 0, 0]

    @cached_property
    def class_means(self) -> F64:
        """(c, 1+q) mean of (1, ψ) inside each class; zero for a class without rows."""
        share = self.class_share[:, None]
        return np.divide(self.gram[:, 0, :], share, out=np.zeros_like(self.gram[:, 0, :]), where=share > 0)

    @cached_property
    def class_columns(self) -> Ints:
        """(c,) numbers of those of the K columns that are class indicators."""
        return np.arange(self.n_classes) * self.width

    @cached_property
    def means(self) -> F64:
        """(K,) weighted mean of each column, from products with the class indicators, which sum to 1 in every row."""
        return np.concatenate([self.gram[:, 0, :].ravel(), self.mixed[self.class_columns].sum(axis=0)])

    def second(self, A: F64) -> F64:
        """Return Jᵀ W J A (K, k)."""
        labels, scores = A[: self.n_label_columns], A[self.n_label_columns :]
        inside = self.gram @ labels.reshape(self.n_classes, self.width, -1)
        inside = inside.reshape(labels.shape)
        if not self.has_scores:
            return inside
        return np.concatenate([inside + self.mixed @ scores, self.mixed.T @ labels + self.scores @ scores])

    def variance(self, A: F64) -> float:
        """Return Tr Cov(J A), the total variance of the label factor J A; rounding error counts as zero."""
        mean = self.means @ A
        square = float(np.sum(A * self.second(A)))
        variance = square - float(mean @ mean)
        return variance if variance > ROUNDING * square else 0.0

    def blank(self, columns: int) -> F64:
        """Return a map (K, columns) of zeros."""
        return np.zeros((self.n_label_columns + len(self.scores), columns))

    def labels_map(self, A: F64) -> F64:
        """Return a map of the label columns (c, 1+q, k) as a map of all K columns."""
        out = self.blank(A.shape[-1])
        out[: self.n_label_columns] = A.reshape(-1, A.shape[-1])
        return out


def _class_rows(y: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield each class with numbers of at most 8192 of its rows, until all rows have been given."""
    counts = np.bincount(y)
    # Short integers are sorted by their digits, ten times as fast; a search does this for every fit.
    order = np.argsort(y.astype(np.int16) if len(counts) < 1 << 15 else y, kind="stable")
    stops = np.cumsum(counts).tolist()
    for code, (first, stop) in enumerate(zip([0, *stops[:-1]], stops, strict=True)):
        for begin in range(first, stop, TABLE_ROWS):
            yield code, order[begin : min(begin + TABLE_ROWS, stop)]


def onehot_map(table: LabelMoments) -> F64:
    """Return the map (K, c) of L = one-hot of y (delta kernel)."""
    A = table.blank(table.n_classes)
    A[table.class_columns, np.arange(table.n_classes)] = 1.0
    return A


def scores_map(table: LabelMoments) -> F64:
    """Return the map (K, c) of L = the zero-shot scores, scaled to the total variance of the one-hot of y."""
    A = table.blank(table.n_classes)
    A[table.n_label_columns :] = np.eye(table.n_classes)
    variance = table.variance(A)
    return A * np.sqrt(table.variance(onehot_map(table)) / variance) if variance > 0 else A


def target_map(table: LabelMoments, zero_shot: float) -> F64:
    """Return the map (K, c) of Dep(Z, Y) in Eq. (7), with a share of zero-shot scores; docs/math.md#zero-shot-share.

    A share of 0 is the paper's delta kernel on y; 1 takes the scores in place of labels.
    """
    if zero_shot == 0 or not table.has_scores:
        return onehot_map(table)
    return (1 - zero_shot) * onehot_map(table) + zero_shot * scores_map(table)


def marginal_map(table: LabelMoments, attribute: slice) -> F64:
    """Return the map (K, q_a) of Dep(Z, S) in Eq. (7): L_S = ψ(s)."""
    A = np.zeros((table.n_classes, table.width, attribute.stop - attribute.start))
    A[:, attribute, :] = np.eye(attribute.stop - attribute.start)
    return table.labels_map(A)


def conditional_map(table: LabelMoments, attribute: slice) -> F64:
    """Return the map (K, ≤ c·q_a) of Σ_y Dep(Z, S | Y=y), for equal opportunity and equalized odds.

    ψ is centred inside each class, divided by the weight of the class and scaled to unit total variance, so
    that a rare class counts as much as a frequent one; docs/math.md#conditional. A class in which S does not
    vary has no columns.
    """
    q = attribute.stop - attribute.start
    kept: dict[int, float] = {}
    for y in range(table.n_classes):
        share, means = table.class_share[y], table.class_means[y, attribute]
        if share <= 0:
            continue
        second = np.diagonal(table.gram[y])[attribute] / share
        spread = float(np.sum(second - means**2))
        if spread > ROUNDING * float(np.sum(second)):
            kept[y] = 1 / (share * np.sqrt(spread))
    A = table.blank(len(kept) * q)
    for place, (y, scale) in enumerate(kept.items()):
        columns, start = slice(place * q, (place + 1) * q), y * table.width
        A[start, columns] = -scale * table.class_means[y, attribute]
        A[start + attribute.start : start + attribute.stop, columns] = scale * np.eye(q)
    return A


def alignment_map(target: F64, other: F64) -> F64:
    """Return the map (K, r) of Dep(Z_I, Z_T) in Lemma 1, for the class means (c, r) of the other side.

    A prompt is paired with the images of its class, so the other side enters through its class means. If the target
    map (K, c) has a share of zero-shot scores, so has the pairing; docs/math.md#alignment.
    """
    return np.asarray(target @ other)


def sensitive_maps(table: LabelMoments, criterion: str) -> Sequence[tuple[str, F64]]:
    """Return a pair (name, map) per sensitive attribute, marginal or conditional on the target."""
    build = conditional_map if criterion == "conditional" else marginal_map
    return [(name, build(table, where)) for name, where in zip(table.names, table.slices, strict=True)]
