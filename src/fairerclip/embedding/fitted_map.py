"""What a mitigator's fit ends in: the affine map of embeddings into their own space, and what is known of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.arrays import beside, empty, to_numpy, type_name
from fairerclip._util.types import F64, Floats
from fairerclip.data.embedding_rows import fill_checked, unit_rows, unit_view, working_dtype
from fairerclip.data.row_pass import fill_rows
from fairerclip.embedding.attributes import MitigatedAttribute
from fairerclip.embedding.collection_drift import CollectionSummary


@dataclass(frozen=True, eq=False)
class EmbeddingMap:
    """The map A(x) = x − (x − mean)·right·left of unit rows, with mean (p,), right (p, k) and left (k, p)."""

    mean: F64
    right: F64
    left: F64

    def apply(self, rows: Any) -> Any:
        """Map a block of unit rows (b, p) in their precision. O(b·p·k) time."""
        right, left = beside(rows, self.right, rows.dtype), beside(rows, self.left, rows.dtype)
        origin = beside(rows, -(self.mean @ self.right), rows.dtype)
        return rows - (rows @ right + origin) @ left

    def transform(self, X: Any, *, unit: bool, name: str | None = None, depth: int = 3) -> Floats:
        """Map rows X (n, p) in blocks, at unit length before and, if ``unit``, after; float16 rows give float16.

        A tensor gives a tensor on its device.
        Rows that have a ``name`` are checked in the same pass, with warnings at stack level ``depth``.
        """
        n, p = int(X.shape[0]), int(X.shape[1])
        half = type_name(X.dtype) in ("float16", "bfloat16")
        out: Floats = empty(X, (n, p), X.dtype if half else working_dtype(X.dtype))
        function = self.unit_apply if unit else self.apply
        if name is None:
            return fill_rows(unit_view(X), function, out)
        return fill_checked(X, name, function, out, unit=True, depth=depth + 1)

    def scores(self, Q: F64, rows: Any, *, mitigated: NDArray[np.bool_], unit: bool) -> Floats:
        """Return the scores (b, m) of unit rows for queries Q (m, p): of the mapped rows where ``mitigated`` (m,)."""
        columns = beside(rows, Q.T, rows.dtype)
        scores = (self.unit_apply(rows) if unit else self.apply(rows)) @ columns
        if not mitigated.all():
            scores[:, ~mitigated] = rows @ columns[:, ~mitigated]
        return to_numpy(scores)

    def unit_apply(self, rows: Any) -> Any:
        """Map a block of unit rows (b, p), and scale the result to unit length."""
        return unit_rows(self.apply(rows))


@dataclass(frozen=True, eq=False)
class FittedMap:
    """The part of a fit that new rows need, without the rows of the fit.

    Attributes
    ----------
    map : EmbeddingMap
        The map of unit rows.
    attributes : tuple of MitigatedAttribute
        Sensitive attributes that vary.
    strengths : tuple of float
        Strength of each term.
    remaining : tuple of float
        Share of the dependence of the embeddings on S that is left on the rows of the fit, for each term.
    summary : CollectionSummary
        Means, covariance and shares of the sensitive values of the rows of the fit.
    """

    map: EmbeddingMap
    attributes: tuple[MitigatedAttribute, ...]
    strengths: tuple[float, ...]
    remaining: tuple[float, ...]
    summary: CollectionSummary
