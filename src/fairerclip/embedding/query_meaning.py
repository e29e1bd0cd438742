"""Queries in embedding space: their checks, and how much of their meaning is a sensitive attribute."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.arrays import as_numbers
from fairerclip._util.types import F64, Floats
from fairerclip.data.embedding_rows import check_rows, unit_rows
from fairerclip.errors import SensitiveQueryWarning, ShapeError
from fairerclip.inputs.prompts import prototypes

SHOWN = 5


@dataclass(frozen=True, eq=False)
class QueryMeaning:
    """Share of each query in the span of the sensitive prompts.

    Attributes
    ----------
    attributes : tuple of str
        Attributes that have prompts.
    shares : array of shape (m, a)
        Squared length of the query, seen from the mean of the prompts of an attribute, in the span of their
        differences, divided by its whole squared length: 1 for the prompt of a value, near 0 for other queries.
    mitigated : array of shape (m,) of bool
        Whether a query is mitigated: none of its shares reaches the threshold.
    """

    attributes: tuple[str, ...]
    shares: F64
    mitigated: NDArray[np.bool_]

    def about(self, query: int) -> str | None:
        """Return the attribute that a query is about, or None."""
        return None if self.mitigated[query] else self.attributes[int(self.shares[query].argmax())]


def check_queries(queries: Any, width: int) -> F64:
    """Return query embeddings (m, p) as unit rows."""
    Q = as_numbers(queries, "queries")
    if Q.ndim != 2 or Q.shape[1] != width or not len(Q):
        raise ShapeError(
            f"queries must be embeddings of shape (m, {width}), from the model of the images; got {Q.dtype} of shape "
            f"{Q.shape}"
        )
    check_rows(Q, "queries", zero_is_error=True)
    return np.asarray(unit_rows(np.asarray(Q, dtype=np.float64)))


def meaning_of(Q: F64, prompts: Mapping[str, Sequence[Floats]], threshold: float | None) -> QueryMeaning:
    """Compute the share of unit queries Q (m, p) in the span of the prompts of each attribute; docs/math.md#same-space.

    O(m·p·v) time.
    """
    shares = np.zeros((len(Q), len(prompts)))
    for column, groups in enumerate(prompts.values()):
        T = prototypes(groups)
        centre = T.mean(axis=0)
        _, sizes, basis = np.linalg.svd(T - centre, full_matrices=False)
        basis = basis[sizes > 1e-6 * sizes[0]]
        seen = Q - centre
        whole = np.maximum((seen**2).sum(axis=1), np.finfo(np.float64).tiny)
        shares[:, column] = ((seen @ basis.T) ** 2).sum(axis=1) / whole
    largest = shares.max(axis=1, initial=0.0)
    kept = np.ones(len(Q), dtype=bool) if threshold is None else largest < threshold
    return QueryMeaning(tuple(prompts), shares, kept)


def warn_of_sensitive(meaning: QueryMeaning) -> None:
    """Warn of queries that are about a sensitive attribute and are therefore not mitigated."""
    left = np.flatnonzero(~meaning.mitigated)
    if len(left):
        first = ", ".join(f"{k} ({meaning.about(int(k))})" for k in left[:SHOWN])
        warnings.warn(
            f"{len(left)} of {len(meaning.mitigated)} queries ask for a sensitive attribute and are not mitigated: "
            f"queries {first}. Set about=None to mitigate every query",
            SensitiveQueryWarning,
            stacklevel=3,
        )
