"""Cross-moments for labels of which some have changed, from the rows with another label alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from fairerclip._util.types import F64, Floats
from fairerclip.solver.moments import MomentResult
from fairerclip.solver.rows import FeatureRows
from fairerclip.solver.terms import LabelDesign


class LabelChange:
    """Accumulator of Φᵀ W (J' − J) (D, K) and of its column sums, over the rows whose class changed from y to y'."""

    def __init__(self, n_features: int, n_columns: int) -> None:
        self.cross, self.label_sum = np.zeros((n_features, n_columns)), np.zeros(n_columns)

    def add(self, Phi: Floats, before: LabelDesign, after: LabelDesign, weight: F64) -> None:
        """Add a block of rows. O(c·D·K) time for c changed rows."""
        changed = np.flatnonzero(before.y != after.y)
        before, after = before[changed], after[changed]
        for part in after.steps():
            moved = weight[changed[part], None] * (after.rows(part) - before.rows(part))
            self.cross += Phi[changed[part]].T @ moved.astype(Phi.dtype)
            self.label_sum += moved.sum(axis=0)

    def merge(self, other: LabelChange) -> None:
        """Add what another accumulator has of later rows."""
        self.cross += other.cross
        self.label_sum += other.label_sum


def changed_moments(
    rows: FeatureRows, weight: F64, known: MomentResult, before: LabelDesign, after: LabelDesign
) -> MomentResult:
    """Return the moments for labels ``after``, without covariance, from those for labels ``before``.

    Mean, trace and weights do not depend on labels, and cross-moments Φ_cᵀ W J are linear in J.
    """
    start = partial(LabelChange, rows.n_features, after.n_columns)
    found = rows.sum(start, [before, after, weight])
    moved = found.cross - np.outer(known.mean, found.label_sum)
    return replace(known, covariance=None, cross=known.cross + moved / known.weight)
