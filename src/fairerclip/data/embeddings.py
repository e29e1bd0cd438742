"""Reading of the embeddings that a model is applied to: any store, or one split of a task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fairerclip._util.files import reading
from fairerclip.data.io.npz import npz_members
from fairerclip.data.io.remote_path import Location
from fairerclip.data.io.tensors import open_tensors
from fairerclip.data.stores import EmbeddingStore, open_store
from fairerclip.data.task import load_task
from fairerclip.errors import StoreError, TaskFileError

IMAGE_KEYS = {"image_train", "image_val", "image_test"}
"""Keys that a task file has and a store has not."""


@reading(StoreError)
def read_embeddings(path: Location, split: str = "test") -> tuple[Any, NDArray[Any] | None]:
    """Return image embeddings (n, p) and their ids; embeddings of a store are read block by block when used."""
    if isinstance(path, Path) and is_task(path):
        rows = load_task(path).split(split)
        return rows.X, rows.ids
    store: EmbeddingStore = open_store(path)
    return store, store.ids


def is_task(path: Path) -> bool:
    """Return whether a path holds a task instead of embeddings alone, by the names of its arrays or files."""
    try:
        if path.suffix == ".npz":
            return not IMAGE_KEYS.isdisjoint(npz_members(path))
        if path.suffix == ".safetensors":
            return not IMAGE_KEYS.isdisjoint(open_tensors(path, TaskFileError)[0])
    except TaskFileError:
        return False  # opening it as a store raises an error that says what is wrong
    return (path / "task.toml").is_file()
