"""A mitigator and the rows of a store: width, drift and values are checked, and rows are read block by block."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fairerclip._util.files import reading
from fairerclip._util.types import Floats, Ints
from fairerclip.data.embedding_rows import working_dtype
from fairerclip.data.io.remote_path import RemotePath, as_location
from fairerclip.data.row_pass import BLOCK_ROWS
from fairerclip.data.stores import EmbeddingStore, open_store
from fairerclip.data.task import load_task
from fairerclip.data.task_files import is_task
from fairerclip.embedding.mitigator import EmbeddingMitigator
from fairerclip.embedding.mitigator_file import contents
from fairerclip.errors import (
    DirectionDriftWarning,
    NonFiniteError,
    ParameterError,
    ShapeError,
    StoreError,
    ZeroRowWarning,
)
from fairerclip.model.archive import fingerprint

DRIFT_ROWS = 20_000
"""Largest number of rows that are compared with those of the fit; of a larger store a random sample of this size."""
FEWEST_ROWS = 100
"""Fewest rows whose shares of sensitive values and spread are compared; those of fewer rows differ by chance."""
IN_DIGEST = ("kind", "parameters", "n_features_in", "feature_names_in", "state")
"""Entries of the file of a mitigator that change its map; of the parameters one does, `sensitive_terms`."""


def as_mitigator(model: Any) -> EmbeddingMitigator:
    """Return a fitted mitigator, read from its folder where a path is given; raise for any other model."""
    from fairerclip.model.archive import load

    found = load(model) if isinstance(model, str | Path) else model
    if not isinstance(found, EmbeddingMitigator):
        raise ParameterError(
            f"expected an EmbeddingMitigator, got a {type(found).__name__}: only a mitigator maps embeddings into "
            "their own space, for any query"
        )
    return found


def as_store(source: Any, split: str = "test") -> EmbeddingStore:
    """Return a store of embeddings: a store as it is, a path opened, one split of a task, or an array (n, p)."""
    if isinstance(source, EmbeddingStore):
        return source
    if not isinstance(source, str | Path | RemotePath):
        return EmbeddingStore.from_array(source)
    location = as_location(source)
    with reading(StoreError):
        if isinstance(location, Path) and is_task(location):
            rows = load_task(location).split(split)
            return EmbeddingStore.from_array(rows.X, rows.ids, path=str(source))
        return open_store(location)


def check_widths(model: Any, store: EmbeddingStore, name: str = "the mitigator") -> None:
    """Raise if a store has another width than the rows of the fit."""
    if store.shape[1] != model.n_features_in_:
        raise ShapeError(
            f"{store.path}: {store.shape[1]} wide, but {name} was fitted on embeddings "
            f"{model.n_features_in_} wide; embed with the same CLIP model"
        )


def warn_of_collection(model: EmbeddingMitigator, store: EmbeddingStore, *, seed: int = 0) -> None:
    """Warn by name if a store differs from the collection of the fit; reads at most `DRIFT_ROWS` rows."""
    n = len(store)
    numbers = np.arange(n)
    if n > DRIFT_ROWS:
        numbers = np.sort(np.random.default_rng(seed).choice(n, DRIFT_ROWS, replace=False))
    rows = store[numbers]
    # Zero rows have no direction; `checked_blocks` warns of them.
    rows = np.delete(rows, _check_finite(store, rows, numbers), axis=0)
    for kind, message in model.drift(rows).warnings if len(rows) else ():
        if len(rows) >= FEWEST_ROWS or kind is DirectionDriftWarning:
            warnings.warn(message, kind, stacklevel=3)


def checked_blocks(store: EmbeddingStore, *, block: int = BLOCK_ROWS) -> Iterator[tuple[int, Floats]]:
    """Yield the number of the first row, and rows (b, p) in working precision; raise if a row is not finite.

    Rows are not scaled. A `ZeroRowWarning` is given at the end if rows were zero.
    """
    zero: list[int] = []
    for first in range(0, len(store), block):
        rows, none = checked_rows(store, first, min(first + block, len(store)))
        zero += none
        yield first, rows
    warn_of_zero_rows(store, zero)


def checked_rows(store: EmbeddingStore, start: int, stop: int) -> tuple[Floats, list[int]]:
    """Return rows in working precision and the numbers of zero rows; raise if a row is not finite."""
    rows = store.raw(slice(start, stop))
    rows = np.asarray(rows, dtype=working_dtype(rows.dtype.newbyteorder("=")))
    return rows, (start + _check_finite(store, rows, range(start, stop))).tolist()


def warn_of_zero_rows(store: EmbeddingStore, zero: Sequence[int]) -> None:
    """Warn of rows, by number, that are zero."""
    if zero:
        warnings.warn(
            f"{store.path}: {len(zero)} rows are zero, the first is row {zero[0]}; they say nothing about an image",
            ZeroRowWarning,
            stacklevel=4,
        )


def _check_finite(store: EmbeddingStore, rows: Floats, numbers: range | Ints) -> Ints:
    """Raise if a row is not finite; return the places of zero rows."""
    # A sum of squares is a single quick pass; rows where it over- or underflows are looked at again.
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.einsum("ij,ij->i", rows, rows)
        suspects = np.flatnonzero(~((squares > 0) & np.isfinite(squares)))
    bad = suspects[~np.isfinite(rows[suspects]).all(axis=1)]
    if len(bad):
        number = int(numbers[int(bad[0])])
        name = f" ({str(store.ids[number])!r})" if store.ids is not None else ""
        raise NonFiniteError(
            f"{store.path}: row {number}{name} holds NaN or infinity; embed its image again, or remove the row"
        )
    return suspects[~rows[suspects].any(axis=1)]


def mitigator_digest(model: EmbeddingMitigator) -> str:
    """Return a SHA-256 of the map of a fitted mitigator: that of its file, without what does not change the map.

    A saved and loaded copy has the same one.
    """
    held = contents(model)
    terms = {"sensitive_terms": held.parameters["sensitive_terms"]}
    return fingerprint(replace(held, parameters=terms), IN_DIGEST)
