"""`search_queries`: the best rows of a mitigated collection for free queries, found block by block."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairerclip._util.types import F64, Floats
from fairerclip.applying.apply import TopRow, check_k, named_rows
from fairerclip.applying.best_rows import BestRows
from fairerclip.applying.mitigated_rows import (
    as_mitigator,
    as_store,
    check_widths,
    checked_blocks,
    warn_of_collection,
)
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.data.row_pass import BLOCK_ROWS
from fairerclip.embedding.mitigator import EmbeddingMitigator
from fairerclip.embedding.query_meaning import QueryMeaning, check_queries
from fairerclip.errors import ParameterError, SensitiveQueryWarning, ShapeError

SCORES = 2**23
"""Most scores that are held at a time; with many queries, fewer rows are scored at once."""
SHOWN = 5


@dataclass(frozen=True, eq=False)
class QueryResults:
    """The best rows of some queries.

    Attributes
    ----------
    rows : list of TopRow
        k for each query, query by query and best first.
    about : dict
        Queries that ask for a sensitive attribute → the attribute; these rank by the original embeddings.
    """

    rows: list[TopRow]
    about: dict[str, str]


def search_queries(
    model: Any,
    source: Any,
    queries: Any,
    k: int,
    *,
    names: Sequence[str] | None = None,
    unit: bool | None = None,
    split: str = "test",
    progress: Callable[[int, int], None] | None = None,
) -> QueryResults:
    """Find the k best rows of a collection for each query, by the mitigated embeddings.

    A query that is about a sensitive attribute ranks by the original embeddings; a `SensitiveQueryWarning` names it.

    Parameters
    ----------
    model, source, unit, split, progress
        As in `mitigate_store`.
    queries : array of shape (m, p)
        Embeddings of texts, from the model that embedded the images.
    k : int
        Number of rows of each query, at most n.
    names : list of str, optional
        Texts of the queries. Default: "query 1" and so on.

    Returns
    -------
    QueryResults
        The earlier row comes first where scores tie. O(n·p·m) time; memory of one block and its scores.
    """
    fitted, store = as_mitigator(model), as_store(source, split)
    check_widths(fitted, store)
    check_k(k, len(store))
    Q = check_queries(queries, fitted.n_features_in_)
    texts = [f"query {place}" for place in range(1, len(Q) + 1)] if names is None else list(names)
    if len(texts) != len(Q):
        raise ShapeError(f"expected a name for each of the {len(Q)} queries; got {len(texts)}")
    meaning = fitted.query_meaning(Q)
    about = queries_about(meaning, texts)
    warn_of_collection(fitted, store)
    best, chosen = BestRows(len(Q), k), fitted.unit if unit is None else unit
    block = max(1, min(BLOCK_ROWS, SCORES // len(Q)))
    for start, rows in checked_blocks(store, block=block):
        best.add(start, _scores(fitted, rows, Q, meaning, chosen))
        if progress is not None:
            progress(start + len(rows), len(store))
    return QueryResults(named_rows(best, texts, store.ids), about)


def queries_about(meaning: QueryMeaning, names: Sequence[str]) -> dict[str, str]:
    """Return the queries that ask for a sensitive attribute with the attribute, and warn of them by name."""
    about = {name: a for place, name in enumerate(names) if (a := meaning.about(place)) is not None}
    if about:
        first = ", ".join(f"{name!r} ({attribute})" for name, attribute in [*about.items()][:SHOWN])
        warnings.warn(
            f"{len(about)} of {len(names)} queries ask for a sensitive attribute and rank by the original embeddings: "
            f"{first}",
            SensitiveQueryWarning,
            stacklevel=3,
        )
    return about


def _scores(model: EmbeddingMitigator, rows: Floats, Q: F64, meaning: QueryMeaning, unit: bool) -> Floats:
    """Return the scores (b, m) of rows: of the mapped ones, or the original ones for queries about S."""
    columns = Q.T.astype(rows.dtype)
    scores = model.fitted_.map.transform(rows, unit=unit) @ columns
    if not meaning.mitigated.all():
        left = ~meaning.mitigated
        scores[:, left] = unit_rows(rows) @ columns[:, left]
    return np.asarray(scores)


def chosen_queries(
    queries: Floats, names: Sequence[str], kept: Sequence[str] | None
) -> tuple[Floats, list[str]]:
    """Return the embeddings and names of some queries, by name, or of all."""
    if not kept:
        return queries, list(names)
    unknown = [name for name in kept if name not in names]
    if unknown:
        shown = ", ".join(list(names)[:SHOWN])
        raise ParameterError(
            f"{unknown[0]!r} is not among the {len(names)} queries, which begin with {shown}"
        )
    places = [list(names).index(name) for name in dict.fromkeys(kept)]
    return queries[places], [names[place] for place in places]
