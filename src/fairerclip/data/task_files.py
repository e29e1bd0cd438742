"""Reading and writing of the arrays of a task: ``.npz`` and ``.safetensors``.

Only the file formats are checked here; `load_task` checks the arrays.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.data.io.npy import Limits
from fairerclip.data.io.npz import npz_members, read_npz, write_npz
from fairerclip.data.io.tensors import metadata_texts, open_tensors, widen_bfloat16, write_tensors
from fairerclip.data.task_fields import SPLITS
from fairerclip.errors import TaskFileError

Array = NDArray[Any]

WRITTEN = (".npz", ".safetensors")
FORMAT = {"format": "fairerclip-task", "format_version": "1"}
ORDER = "keys"
"""Metadata key of the list of keys in order: tensors are stored widest first, but attributes have an order."""


def task_files(paths: Sequence[Path]) -> list[Path]:
    """Return the paths of tasks; a folder is replaced by the sorted tasks in it."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            tasks = sorted(f for f in path.iterdir() if f.suffix in WRITTEN)
            if not tasks:
                raise TaskFileError(f"{path} holds no task: expected {' or '.join(WRITTEN)}")
            files += tasks
        else:
            files.append(path)
    return files


def is_task(path: Path) -> bool:
    """Return whether a file is a task and not a store of embeddings: it has images of a split.

    Only names are read. A file that cannot be read is no task: opening it as a store says what is wrong.
    """
    keys: Collection[str] = ()
    try:
        if path.suffix.lower() == ".npz":
            keys = npz_members(path)
        elif path.suffix.lower() == ".safetensors":
            keys = open_tensors(path, TaskFileError)[0]
    except TaskFileError:
        return False
    return any(f"image_{split}" in keys for split in SPLITS)


def read_arrays(path: Path, limits: Limits) -> dict[str, Array]:
    """Read the arrays of a task file by key, unchecked."""
    return read_npz(path, limits=limits) if task_suffix(path) == ".npz" else _read_tensors(path)


def write_arrays(path: Path, arrays: Mapping[str, Array], *, overwrite: bool, compress: bool) -> Path:
    """Write arrays in the format of the path's ending; the file appears whole or not at all."""
    if task_suffix(path) == ".npz":
        return write_npz(path, arrays, overwrite=overwrite, compress=compress)
    if compress:
        raise TaskFileError(f"{path}: .safetensors is not compressed; use .npz, or leave compress out")
    return _write_tensors(path, arrays, overwrite=overwrite)


def task_suffix(path: Path) -> str:
    """Return the ending of a task file in lower case; raise if it is another."""
    suffix = path.suffix.lower()
    if suffix not in WRITTEN:
        raise TaskFileError(
            f"{path}: expected a task file ({', '.join(WRITTEN)}), got {path.suffix or 'no suffix'}"
        )
    return suffix


def _read_tensors(path: Path) -> dict[str, Array]:
    tensors, metadata = open_tensors(path, TaskFileError)
    arrays: dict[str, Array] = {}
    is_task = metadata.get("format") == FORMAT["format"]
    if is_task and metadata.get("format_version") != FORMAT["format_version"]:
        raise TaskFileError(
            f"{path}: expected format_version {FORMAT['format_version']}, got {metadata.get('format_version')!r}"
        )
    for key, text in metadata.items():
        if key not in FORMAT and key != ORDER:
            arrays[key] = metadata_texts(text, f"{path}: metadata {key!r:.80}", TaskFileError)
    for name, tensor in tensors.items():
        if name in arrays:
            raise TaskFileError(f"{path}: expected {name!r} once, it is both a tensor and metadata")
        array = np.array(tensor.array())
        if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
            raise TaskFileError(f"{path}: {name!r}: expected booleans of 0 or 1, got other bytes")
        arrays[name] = widen_bfloat16(array) if tensor.kind == "BF16" else array
    listed = _order(metadata, path)
    return {key: arrays[key] for key in dict.fromkeys([*listed, *arrays]) if key in arrays}


def _order(metadata: Mapping[str, str], path: Path) -> list[str]:
    """Return the keys in the order that the metadata give, or an empty list."""
    if ORDER not in metadata:
        return []
    return list(metadata_texts(metadata[ORDER], f"{path}: metadata {ORDER!r}", TaskFileError).ravel())


def _write_tensors(path: Path, arrays: Mapping[str, Array], *, overwrite: bool) -> Path:
    """Write numbers as tensors, and text as JSON in the metadata."""
    metadata, tensors = {**FORMAT, ORDER: json.dumps(list(arrays))}, {}
    for key, array in arrays.items():
        array = np.asarray(array)
        if key in (*FORMAT, ORDER, "__metadata__"):
            raise TaskFileError(f"{path}: {key!r} is a reserved name; give the array another name")
        if array.dtype.kind == "U":
            metadata[key] = json.dumps(array.tolist())
        elif array.dtype.kind in "fiub":
            tensors[key] = array
        else:
            raise TaskFileError(f"{path}: array {key!r}: expected numbers or text, got dtype {array.dtype}")
    return write_tensors(path, tensors, metadata, overwrite=overwrite)
