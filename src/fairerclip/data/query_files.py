"""Reading of free queries: embeddings of texts with their names, from any file or folder of embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from fairerclip._util.files import reading
from fairerclip._util.types import Floats
from fairerclip.data.io.npz import npz_members
from fairerclip.data.layouts import CLIP_RETRIEVAL, MANIFEST
from fairerclip.data.stores import EmbeddingStore, open_store
from fairerclip.data.task import load_task
from fairerclip.data.task_files import is_task
from fairerclip.errors import StoreError, TaskFileError

MAX_QUERIES = 100_000
NAMES = ("ids", "queries", "query_prompts", "prompts")
"""Arrays of an ``.npz`` that may hold the texts of the queries; the first that is there is used."""


class Queries(NamedTuple):
    """Embeddings (m, p) of queries, and their texts; without texts they are called "query 1" and so on."""

    embeddings: Floats
    names: list[str]


@reading(StoreError)
def read_queries(path: str | Path) -> Queries:
    """Read free queries: ``.npy``, ``.npz``, ``.safetensors``, parquet, the text embeddings of a store, or a task.

    Parameters
    ----------
    path : path-like
        One matrix of floats in a file; in an ``.npz`` its texts may be an array ``ids``, ``queries``, ``query_prompts``
        or ``prompts``. Of a task its free queries are read.

    Raises
    ------
    StoreError
        There are no queries, more than `MAX_QUERIES`, or two of the same name.
    """
    path = Path(path)
    if is_task(path):
        queries = load_task(path).queries
        if queries is None:
            raise StoreError(f"{path}: expected free queries (text_queries), this task has none")
        return _checked(path, Queries(queries.text, list(queries.prompts)))
    named = path / MANIFEST
    text = path.is_dir() and (named.is_file() or (path / CLIP_RETRIEVAL["text"]).is_dir())
    store: EmbeddingStore = open_store(path, modality="text" if text else "image")
    if len(store) > MAX_QUERIES:
        raise StoreError(f"{path}: expected at most {MAX_QUERIES:,} queries, got {len(store):,}")
    names = _names_beside(path, len(store)) if path.suffix.lower() == ".npz" else store.ids
    texts = [f"query {k}" for k in range(1, len(store) + 1)] if names is None else [str(n) for n in names]
    return _checked(path, Queries(store[:], texts))


def _names_beside(path: Path, rows: int) -> np.ndarray | None:
    """Return the texts of the queries in an ``.npz``, or None."""
    try:
        members = npz_members(path)
        name = next((name for name in NAMES if name in members), None)
        if name is None:
            return None
        member = members[name]
        if member.shape != (rows,) or member.dtype.kind not in "Uiu":
            raise StoreError(
                f"{path}: expected {name!r} to hold a text for each of the {rows} queries, got {member.dtype} of shape "
                f"{member.shape}"
            )
        return np.array(member.array()).astype(np.str_)
    except TaskFileError as error:
        raise StoreError(str(error)) from error


def _checked(path: Path, queries: Queries) -> Queries:
    seen: set[str] = set()
    repeated = next((n for n in queries.names if n in seen or seen.add(n)), None)  # type: ignore[func-returns-value]
    if repeated is not None:
        raise StoreError(f"{path}: expected queries of different names, got {repeated!r:.80} twice")
    return queries
