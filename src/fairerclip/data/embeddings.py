"""Embeddings in a file, with ids where it has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.data.npz import read_npy, read_npz
from fairerclip.data.task import load_task
from fairerclip.errors import TaskFileError

NAMES = ("embeddings", "image_embeddings", "X")
"""Names under which an ``.npz`` may hold its embeddings; any name will do for a single matrix."""


def read_embeddings(path: Path, split: str = "test") -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Read image embeddings (n, p) and their ids from ``.npy``, ``.npz`` or one split of a task file."""
    if path.suffix == ".npy":
        return _matrix(read_npy(path), path, "the array"), None
    if path.suffix != ".npz":
        raise TaskFileError(f"{path}: expected .npy or .npz; got {path.suffix or 'no ending'}")
    arrays = read_npz(path)
    if any(name.startswith("image_") and name not in NAMES for name in arrays):
        rows = load_task(path).split(split)
        return rows.X, rows.ids
    named = [name for name in NAMES if name in arrays]
    matrices = named or [name for name, a in arrays.items() if a.ndim == 2 and a.dtype.kind == "f"]
    if len(matrices) != 1:
        raise TaskFileError(
            f"{path}: expected one matrix of embeddings, or one called {NAMES[0]!r}; found "
            f"{', '.join(f'{k} {a.shape}' for k, a in arrays.items()) or 'nothing'}"
        )
    X = _matrix(arrays[matrices[0]], path, matrices[0])
    ids = arrays.get("ids")
    if ids is not None and ids.shape != (len(X),):
        raise TaskFileError(f"{path}: {len(X)} embeddings but ids of shape {ids.shape}")
    return X, ids


def _matrix(array: NDArray[Any], path: Path, name: str) -> NDArray[np.floating]:
    if array.ndim != 2 or array.dtype.kind != "f" or 0 in array.shape:
        raise TaskFileError(
            f"{path}: expected {name} to be a matrix (rows, width) of floats; got {array.dtype} {array.shape}"
        )
    return array
