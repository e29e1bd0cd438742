"""`SearchIndex`: a query answered by the original and by the mitigated rows of a collection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.checks import check_interval
from fairerclip._util.types import F64, Ints
from fairerclip.applying.apply import check_k
from fairerclip.applying.free_queries import queries_about
from fairerclip.applying.mitigated_rows import as_mitigator, mitigator_digest
from fairerclip.data.layouts import read_id_file
from fairerclip.data.provenance import Provenance
from fairerclip.embedding.query_meaning import check_queries
from fairerclip.errors import IndexFileError, ParameterError, ShapeError, StoreError
from fairerclip.export.faiss_index import TrainedIndex
from fairerclip.export.flat_index import FlatIndex
from fairerclip.export.index_manifest import IDS, SIDES, read_index_manifest


class Hit(NamedTuple):
    """One result of a search."""

    rank: int
    """1 is the best match."""
    row: int
    """Number of the row, from 0."""
    id: str
    """Id of the row, or its number as text."""
    score: float


@dataclass(frozen=True)
class SearchResult:
    """Results of one query.

    Attributes
    ----------
    query : str
        Text of the query.
    about : str or None
        Sensitive attribute that the query asks for; its mitigated results are then the original ones.
    original, mitigated : tuple of Hit
        Results by the original and by the mitigated rows, best first.
    """

    query: str
    about: str | None
    original: tuple[Hit, ...]
    mitigated: tuple[Hit, ...]

    @property
    def shared(self) -> int:
        """Number of rows that both results hold."""
        return len({hit.row for hit in self.original} & {hit.row for hit in self.mitigated})


class SearchIndex:
    """A folder that `build_index` wrote, opened for searches.

    Parameters
    ----------
    path : str or Path
        The folder. A flat index is mapped; one of kind ivf or pq is read into memory by faiss, and must be trusted.
    probe : float, optional
        Share of the cells of an index of kind ivf or pq that are searched, in (0, 1]. Default: 0.25.

    Attributes
    ----------
    manifest : IndexManifest
        Description of the index.
    """

    def __init__(self, path: str | Path, *, probe: float | None = None) -> None:
        self.path, self._probe = Path(path), probe
        if probe is not None:
            check_interval("probe", probe, 0, 1, "(]")
        if not self.path.is_dir():
            raise IndexFileError(f"{path}: expected a folder that build_index (fairerclip index) wrote")
        self.manifest = read_index_manifest(self.path)
        if probe is not None and self.manifest.kind == "flat":
            raise ParameterError(f"{path} is flat and compares every row: leave probe out")
        self._sides = {side: self._open(name) for side, name in SIDES.items()}

    def __len__(self) -> int:
        return self.manifest.rows

    def __repr__(self) -> str:
        m = self.manifest
        return f"SearchIndex({str(self.path)!r}, kind={m.kind!r}, rows={m.rows}, width={m.width})"

    def _open(self, name: str) -> FlatIndex | TrainedIndex:
        m = self.manifest
        if m.kind == "flat":
            return FlatIndex(self.path / name, m.rows, m.width)
        size, digest = m.files[name]
        return TrainedIndex(self.path / name, m.kind, (m.rows, m.width), size, digest, self._probe)

    @property
    def provenance(self) -> Provenance | None:
        """Model that embedded the images, if known."""
        return None if self.manifest.provenance is None else Provenance.from_dict(self.manifest.provenance)

    @cached_property
    def ids(self) -> NDArray[np.str_] | None:
        """Ids (n,) of the rows, or None."""
        if not self.manifest.named:
            return None
        try:
            ids = read_id_file(self.path / IDS, len(self))
        except StoreError as error:
            raise IndexFileError(str(error)) from None
        if len(ids) != len(self):
            raise IndexFileError(f"{self.path / IDS}: expected {len(self):,} ids, got {len(ids):,}")
        return ids

    def search(
        self, queries: Any, k: int = 10, *, names: Sequence[str] | None = None, model: Any = None
    ) -> list[SearchResult]:
        """Search both indexes for each query.

        Parameters
        ----------
        queries : array of shape (m, p) or (p,)
            Embeddings of texts, from the model that embedded the images.
        k : int
            Number of results.
        names : list of str, optional
            Texts of the queries. Default: "query 1" and so on.
        model : EmbeddingMitigator, str or Path, optional
            The mitigator of the index. With it, queries that are about a sensitive attribute are known; they get the
            original results in both places, with a `SensitiveQueryWarning`.
        """
        check_k(k, len(self))
        given = np.asarray(queries)
        Q = check_queries(given[None] if given.ndim == 1 else given, self.manifest.width)
        texts = [f"query {place}" for place in range(1, len(Q) + 1)] if names is None else list(names)
        if len(texts) != len(Q):
            raise ShapeError(f"expected a name for each of the {len(Q)} queries; got {len(texts)}")
        about: dict[str, str] = {}
        if model is not None:
            fitted = as_mitigator(model)
            if mitigator_digest(fitted) != self.manifest.model:
                raise ParameterError(
                    f"{self.path} was built with another mitigator than the one given; give that one, or build the "
                    "index again"
                )
            about = queries_about(fitted.query_meaning(Q), texts)
        found = {side: index.search(Q, k) for side, index in self._sides.items()}
        results = []
        for place, text in enumerate(texts):
            original, mitigated = (
                self._hits(found[side][0][place], found[side][1][place]) for side in ("original", "mitigated")
            )
            asked = about.get(text)
            results.append(SearchResult(text, asked, original, original if asked else mitigated))
        return results

    def _hits(self, rows: Ints, scores: F64) -> tuple[Hit, ...]:
        ids = self.ids
        return tuple(
            Hit(rank, row, str(row) if ids is None else str(ids[row]), score)
            for rank, (row, score) in enumerate(zip(rows.tolist(), scores.tolist(), strict=True), 1)
        )


def open_index(path: str | Path, *, probe: float | None = None) -> SearchIndex:
    """Open a folder that `build_index` wrote; parameters as of `SearchIndex`."""
    return SearchIndex(path, probe=probe)
