"""`EmbeddingMap`: the fitted map of embeddings into their own space, applied to rows in blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.arrays import beside, cast, empty, joined, namespace, to_numpy, type_name
from fairerclip._util.types import F64, Floats
from fairerclip.data.embedding_rows import fill_checked, unit_rows, unit_view, working_dtype
from fairerclip.data.row_pass import fill_rows
from fairerclip.embedding.value_reader import ValueReader
from fairerclip.features import FeatureMap
from fairerclip.solver.same_space import LowRankMap

PROBABILITY_SCALE = 0.024
"""Scale of probabilities beside the embeddings as features, times the root of the number of values, since each of v
probabilities varies by about 1/√v. With the ridge γ it decides how much of a change is made by probabilities, which
keep more of the order inside groups, and how much by a linear function, after which the shares of groups at the top are
more equal; docs/how-to/search.md has the figures."""
READ = ("both", "probabilities")
"""Features that need the probabilities of the sensitive values."""


@dataclass(frozen=True, eq=False)
class ProbabilityFeatures:
    """Features φ(x): probabilities of all values of each attribute, so that the order of the values does not matter.

    Attributes
    ----------
    readers : tuple of tuple of ValueReader
        Readers of each block of features; a block with several readers has the products of their probabilities,
        for the combinations of several attributes.
    scale : float or None
        Factor of the probabilities of v values, times √v, where they stand beside the embeddings. It is saved with a
        model, whose answers do not depend on `PROBABILITY_SCALE`.
    """

    readers: tuple[tuple[ValueReader, ...], ...]
    scale: float | None

    @property
    def n_features(self) -> int:
        """Number D of features."""
        return sum(int(np.prod([len(r.values) for r in block])) for block in self.readers)

    def transform(self, X: Any) -> Any:
        """Return Φ (n, D) of unit rows X (n, p)."""
        parts = [joint_probabilities(block, X) for block in self.readers]
        if self.scale is not None:
            for part in parts:
                part *= self.scale * math.sqrt(part.shape[1])
        return parts[0] if len(parts) == 1 else joined(parts, axis=1)


def joint_probabilities(readers: Sequence[ValueReader], X: Any) -> Any:
    """Return the probabilities (n, v) of all combinations of the values of some attributes."""
    out = readers[0].probabilities(X)
    for reader in readers[1:]:
        P = reader.probabilities(X)
        out = (out[:, :, None] * P[:, None, :]).reshape(len(X), -1)
    return out


@dataclass(frozen=True, eq=False)
class EmbeddingMap:
    """The map A(x) = x − (φ(x) − mean)·right·left of unit rows.

    Attributes
    ----------
    features : ProbabilityFeatures, FeatureMap or None
        Features besides the embeddings; None if there are none.
    linear : bool
        Whether the embeddings are features, too; φ(x) = [x, features(x)] then.
    low_rank : LowRankMap
        Coefficients of the map.
    """

    features: ProbabilityFeatures | FeatureMap | None
    linear: bool
    low_rank: LowRankMap

    def apply(self, rows: Any) -> Any:
        """Map a block of unit rows (b, p) in their precision. O(b·p·k) time, without kernel features."""
        part, dtype = self.low_rank, rows.dtype
        right = beside(rows, part.right, dtype)
        origin = beside(rows, -(part.mean @ part.right), dtype)
        reduced = namespace(rows).broadcast_to(origin, (len(rows), right.shape[1]))
        if self.linear:
            reduced = reduced + rows @ right[: rows.shape[1]]
        if self.features is not None:
            start = rows.shape[1] if self.linear else 0
            reduced = reduced + cast(self.features.transform(rows), dtype) @ right[start:]
        return rows - reduced @ beside(rows, part.left, dtype)

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


def probability_features(
    readers: Sequence[ValueReader], scale: float | None, *, crossed: bool
) -> ProbabilityFeatures:
    """Return the features of some readers; ``crossed`` if the combinations of their values are a term."""
    blocks = (tuple(readers),) if crossed else tuple((reader,) for reader in readers)
    return ProbabilityFeatures(blocks, scale)


def features_name(features: ProbabilityFeatures | FeatureMap | None, *, linear: bool) -> str:
    """Return the name of features, as the parameter of a mitigator has it."""
    if features is None:
        return "linear"
    if isinstance(features, ProbabilityFeatures):
        return "both" if linear else "probabilities"
    return features.kernel
