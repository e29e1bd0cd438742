"""Embeddings to apply a model to: any store, or one split of a task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fairerclip._util.files import reading
from fairerclip.data.io.npz import npz_members
from fairerclip.data.io.tensors import open_tensors
from fairerclip.data.stores import EmbeddingStore, open_store
from fairerclip.data.task import load_task
from fairerclip.errors import StoreError, TaskFileError

IMAGE_KEYS = {"image_train", "image_val", "image_test"}
"""What a task file holds and a store does not."""


@reading(StoreError)
def read_embeddings(path: Path, split: str = "test") -> tuple[Any, NDArray[Any] | None]:
    """Image embeddings (n, p), streamed where they come from a store, and their ids."""
    if is_task(path):
        rows = load_task(path).split(split)
        return rows.X, rows.ids
    store: EmbeddingStore = open_store(path)
    return store, store.ids


def is_task(path: Path) -> bool:
    """Whether a path holds a task and not bare embeddings; only names are looked at."""
    try:
        if path.suffix == ".npz":
            return not IMAGE_KEYS.isdisjoint(npz_members(path))
        if path.suffix == ".safetensors":
            return not IMAGE_KEYS.isdisjoint(open_tensors(path, TaskFileError)[0])
    except TaskFileError:
        return False  # whoever opens it says what is wrong
    return (path / "task.toml").is_file()
