"""`EmbeddingMap`: the fitted map of embeddings into their own space, applied to rows in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairerclip._util.types import Floats
from fairerclip.data.embedding_rows import BLOCK_ROWS, unit_rows, working_dtype
from fairerclip.embedding.value_reader import ValueReader
from fairerclip.features import FeatureMap
from fairerclip.solver.same_space import LowRankMap

SOFTENING = 2 / 3
"""Factor of the logits of the probabilities that are features. Softer probabilities give a lower skew at the top of a
ranking and change more of the order inside groups; docs/math.md#same-space has the figures."""


@dataclass(frozen=True, eq=False)
class ProbabilityFeatures:
    """Features φ(x): softened probabilities of the values of each attribute, without the first value of each.

    Attributes
    ----------
    readers : tuple of tuple of ValueReader
        Readers of each block of features; a block with several readers has the products of their probabilities,
        for the combinations of several attributes.
    """

    readers: tuple[tuple[ValueReader, ...], ...]

    @property
    def n_features(self) -> int:
        """Number D of features."""
        return sum(int(np.prod([len(r.values) for r in block])) - 1 for block in self.readers)

    def transform(self, X: Floats) -> Floats:
        """Return Φ (n, D) of unit rows X (n, p)."""
        parts = [joint_probabilities(block, X, SOFTENING)[:, 1:] for block in self.readers]
        return parts[0] if len(parts) == 1 else np.hstack(parts)


def joint_probabilities(readers: Sequence[ValueReader], X: Floats, softening: float = 1.0) -> Floats:
    """Return the probabilities (n, v) of all combinations of the values of some attributes."""
    out = readers[0].probabilities(X, softening)
    for reader in readers[1:]:
        P = reader.probabilities(X, softening)
        out = (out[:, :, None] * P[:, None, :]).reshape(len(X), -1)
    return out


@dataclass(frozen=True, eq=False)
class EmbeddingMap:
    """The map A(x) = x − (φ(x) − mean)·right·left of unit rows; φ(x) = x if ``features`` is None."""

    features: ProbabilityFeatures | FeatureMap | None
    low_rank: LowRankMap

    def apply(self, rows: Floats) -> Floats:
        """Map a block of unit rows (b, p) in their precision. O(b·p·k) time for probabilities."""
        Phi = rows if self.features is None else self.features.transform(rows)
        dtype = rows.dtype
        part = self.low_rank
        reduced = Phi @ part.right.astype(dtype) - (part.mean @ part.right).astype(dtype)  # (b, k)
        return np.asarray(rows - reduced @ part.left.astype(dtype))

    def transform(self, X: Any, *, unit: bool) -> Floats:
        """Map rows X (n, p) in blocks, at unit length before and, if ``unit``, after; float16 rows give float16."""
        n, p = int(X.shape[0]), int(X.shape[1])
        out = np.empty((n, p), dtype=np.float16 if X.dtype == np.float16 else working_dtype(X.dtype))
        for start in range(0, n, BLOCK_ROWS):
            mapped = self.apply(unit_rows(X[start : start + BLOCK_ROWS]))
            out[start : start + BLOCK_ROWS] = unit_rows(mapped) if unit else mapped
        return out


def features_name(features: ProbabilityFeatures | FeatureMap | None) -> str:
    """Return the name of features, as the parameter of a mitigator has it."""
    if features is None:
        return "linear"
    return "probabilities" if isinstance(features, ProbabilityFeatures) else features.kernel
