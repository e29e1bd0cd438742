"""`FittedMap`: the part of a mitigator's fit that new rows need, without the rows of the fit."""

from __future__ import annotations

from dataclasses import dataclass

from fairerclip.embedding.attributes import MitigatedAttribute
from fairerclip.embedding.collection_drift import CollectionSummary
from fairerclip.embedding.row_map import EmbeddingMap


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
