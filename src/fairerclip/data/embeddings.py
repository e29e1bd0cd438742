"""Embeddings to apply a model to: any store, or one split of a task."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from fairerclip.data.stores import EmbeddingStore, open_store
from fairerclip.data.task import load_task

IMAGE_KEYS = {"image_train", "image_val", "image_test"}
"""What a task file holds and a store does not."""


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
            with zipfile.ZipFile(path) as archive:
                return any(name.removesuffix(".npy") in IMAGE_KEYS for name in archive.namelist())
        if path.suffix == ".safetensors":
            with safe_open(path, framework="numpy") as tensors:
                return not IMAGE_KEYS.isdisjoint(tensors.keys())
    except (OSError, ValueError, zipfile.BadZipFile, SafetensorError):
        return False  # whoever opens it says what is wrong
    return (path / "task.toml").is_file()
