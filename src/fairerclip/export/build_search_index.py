"""`build_index`: an index of the original and one of the mitigated rows of a collection, in one folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fairerclip._util.checks import check_choice, check_range
from fairerclip._util.files import atomic_folder, check_folder
from fairerclip._util.types import Floats, Ints
from fairerclip.applying.mitigated_rows import (
    as_mitigator,
    as_store,
    check_widths,
    checked_blocks,
    mitigator_digest,
    warn_of_collection,
)
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.data.stores import EmbeddingStore
from fairerclip.embedding.mitigator import EmbeddingMitigator
from fairerclip.errors import OutputExistsError
from fairerclip.export import faiss_index
from fairerclip.export.flat_index import write_flat
from fairerclip.export.index_manifest import IDS, KINDS, MANIFEST, SIDES, IndexManifest

FLAT_ROWS = 200_000
"""Most rows of a flat index, unless it is asked for: a search then compares every row, in some 0.1 s."""
IVF_ROWS = 5_000_000
"""Most rows of an index of kind ivf, unless it is asked for; with more, rows are compressed (pq)."""


@dataclass(frozen=True, eq=False)
class _Side:
    """The rows of one of the two indexes, read from the store as often as they are needed."""

    model: EmbeddingMitigator | None
    store: EmbeddingStore
    unit: bool

    def rows(self, rows: Floats) -> Floats:
        """Return rows at unit length, or mapped by the model."""
        if self.model is None:
            return unit_rows(rows)
        return self.model.fitted_.map.transform(rows, unit=self.unit)

    def blocks(self, done: Callable[[int], None]) -> Iterator[Floats]:
        """Yield all rows, block by block."""
        for start, rows in checked_blocks(self.store):
            yield self.rows(rows)
            done(start + len(rows))

    def sample(self, numbers: Ints) -> Floats:
        """Return some rows; zero rows are left out, and rows that are not finite are an error of `blocks`."""
        rows = self.store[numbers]
        return self.rows(rows[np.isfinite(rows).all(axis=1) & rows.any(axis=1)])


def build_index(
    model: Any,
    source: Any,
    output: str | Path,
    *,
    kind: str | None = None,
    unit: bool | None = None,
    split: str = "test",
    seed: int = 0,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> IndexManifest:
    """Write a folder with two indexes of a collection, of its original and of its mitigated rows.

    faiss reads both; ``index.json`` describes them. The folder appears as a whole, when everything is written.

    Parameters
    ----------
    model, source, split
        As in `fairerclip.applying.mitigate_store`.
    output : str or Path
        Folder to write.
    kind : {"flat", "ivf", "pq"}, optional
        "flat" compares every row and needs no faiss; "ivf" searches a part of the rows; "pq" also compresses rows, and
        its scores are approximate. Default: by the number of rows, see `FLAT_ROWS` and `IVF_ROWS`.
    unit : bool, optional
        Scale mitigated rows to unit length, so that scores are cosines. Default: the mitigator's ``unit``.
    seed : int
        Seed of the sample on which ivf and pq are trained, and of their clusters.
    overwrite : bool
        Replace an index.
    progress : callable, optional
        Called after each block with the numbers of rows done, and of all rows; each row counts twice.

    Returns
    -------
    IndexManifest
        Memory: one block for "flat"; one index, and its training rows, for the others.
    """
    path = Path(output)
    check_range("seed", seed)
    fitted = as_mitigator(model)
    _check_taken(path, overwrite)
    store = as_store(source, split)
    check_widths(fitted, store)
    chosen = _checked_kind(kind, len(store))
    warn_of_collection(fitted, store)
    scaled = fitted.unit if unit is None else unit
    with atomic_folder(path, overwrite=overwrite, ours=(IDS,), last=(MANIFEST,)) as fresh:
        for place, (side, name) in enumerate(SIDES.items()):
            rows = _Side(fitted if side == "mitigated" else None, store, scaled)
            _write_side(fresh / name, rows, chosen, seed, _part_of(progress, place, len(store)))
        _write_ids(fresh / IDS, store)
        files = {file.name: _described(file) for file in sorted(fresh.iterdir())}
        made = None if store.provenance is None else store.provenance.to_dict()
        digest = mitigator_digest(fitted)
        manifest = IndexManifest(chosen, *store.shape, scaled, digest, store.has_ids, files, made)
        (fresh / MANIFEST).write_bytes(manifest.to_bytes())
    return manifest


def _part_of(progress: Callable[[int, int], None] | None, place: int, rows: int) -> Callable[[int], None]:
    """Return what is called after each block of one of the two indexes."""

    def done(count: int) -> None:
        if progress is not None:
            progress(place * rows + count, len(SIDES) * rows)

    return done


def _write_ids(file: Path, store: EmbeddingStore) -> None:
    if store.ids is not None:
        with file.open("w", encoding="ascii") as handle:
            handle.writelines(json.dumps(str(name)) + "\n" for name in store.ids)


def default_kind(rows: int) -> str:
    """Return the kind of index for a number of rows.

    Examples
    --------
    >>> [default_kind(rows) for rows in (200_000, 200_001, 5_000_001)]
    ['flat', 'ivf', 'pq']
    """
    if rows <= FLAT_ROWS:
        return "flat"
    return "ivf" if rows <= IVF_ROWS else "pq"


def _checked_kind(kind: str | None, rows: int) -> str:
    """Return the kind of index, after checking that it can be built."""
    if kind is not None:
        check_choice("kind", kind, KINDS)
    chosen = kind or default_kind(rows)
    if chosen != "flat":
        faiss_index.library(chosen)
        faiss_index.sample_size(rows, chosen)
    return chosen


def _check_taken(path: Path, overwrite: bool) -> None:
    """Raise before the work if the folder cannot be written, or is not an index."""
    check_folder(path, overwrite)
    if path.is_dir() and not (path / MANIFEST).is_file():
        raise OutputExistsError(f"{path} exists and is not a search index; it is left alone")


def _write_side(file: Path, rows: _Side, kind: str, seed: int, done: Callable[[int], None]) -> None:
    if kind == "flat":
        with file.open("wb") as handle:
            write_flat(handle, rows.blocks(done), rows.store.shape)
        return
    n = len(rows.store)
    size = faiss_index.sample_size(n, kind)
    numbers = np.sort(np.random.default_rng(seed).choice(n, size, replace=False))
    faiss_index.write_trained(file, kind, n, rows.sample(numbers), rows.blocks(done), seed=seed)


def _described(file: Path) -> list[Any]:
    with file.open("rb") as handle:
        return [file.stat().st_size, hashlib.file_digest(handle, "sha256").hexdigest()]
