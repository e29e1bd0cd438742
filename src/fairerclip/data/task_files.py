"""Reading and writing of the arrays of a task: ``.npz``, ``.safetensors`` and folders with ``task.toml``.

Only the file formats are checked here; `load_task` checks the arrays.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.files import atomic_folder, reading
from fairerclip.data import task_fields as fields
from fairerclip.data.io.bounded_text import MAX_TOML_BYTES
from fairerclip.data.io.npy import Limits
from fairerclip.data.io.npz import npz_members, read_npz, write_npz
from fairerclip.data.io.tensors import metadata_texts, open_tensors, widen_bfloat16, write_tensors
from fairerclip.data.task_fields import SPLITS, part_key, s_key
from fairerclip.errors import OutputExistsError, TaskFileError

Array = NDArray[Any]

WRITTEN = (".npz", ".safetensors")
TOML = "task.toml"
STRINGS = (
    *("class_names", "target_prompts", "target_templates"),
    *("spurious_prompts", "counterfactual_prompts", "query_prompts"),
)
"""Keys of a task that are lists of text in ``task.toml``."""
PAIRS = ("harmful_prompts", "helpful_prompts")
"""Keys that are lists of pairs of text."""
TEXTS = ("text_target", "text_spurious", "text_counterfactual", "text_queries")
"""Keys that give the path of a store of embeddings in ``task.toml``."""
PLAIN = ("text_target_variants", "counterfactual_classes", "text_harmful", "text_helpful")
"""Keys that give the path of an ``.npy`` in ``task.toml``."""
FORMAT = {"format": "fairerclip-task", "format_version": "1"}
ORDER = "keys"
"""Metadata key of the list of keys in order: tensors are stored widest first, but attributes have an order."""


def task_files(paths: Sequence[Path]) -> list[Path]:
    """Return the paths of tasks; a folder that is not a task itself is replaced by the sorted tasks in it."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir() and not (path / TOML).is_file():
            tasks = sorted(f for f in path.iterdir() if f.suffix in WRITTEN or (f / TOML).is_file())
            if not tasks:
                raise TaskFileError(
                    f"{path} holds no task: expected .npz, .safetensors or folders with task.toml"
                )
            files += tasks
        else:
            files.append(path)
    return files


@reading(TaskFileError)
def is_task(path: Path) -> bool:
    """Return whether a file or folder is a task and not a store of embeddings: it has images of a split.

    Only names are read. A file of another ending, or no file, is no task.
    """
    if path.is_dir():
        return (path / TOML).is_file()
    keys: Collection[str] = ()
    if path.suffix.lower() == ".npz":
        keys = npz_members(path)
    elif path.suffix.lower() == ".safetensors":
        keys = open_tensors(path, TaskFileError)[0]
    return any(f"image_{split}" in keys for split in SPLITS)


def read_arrays(path: Path, limits: Limits) -> dict[str, Array]:
    """Read the arrays of a task file or folder by key, unchecked."""
    if path.is_dir():
        from fairerclip.data.task_folder import read_folder  # imports the stores, which a file does not need

        return read_folder(path)
    if check_suffix(path, "or a folder with task.toml") == ".npz":
        return read_npz(path, limits=limits)
    return _read_tensors(path)


def write_arrays(path: Path, arrays: Mapping[str, Array], *, overwrite: bool, compress: bool) -> Path:
    """Write arrays in the format of the path's ending, or a folder if it has none; it appears whole or not at all."""
    if not path.suffix:
        return _write_folder(path, arrays)
    if check_suffix(path, "to write to") == ".npz":
        return write_npz(path, arrays, overwrite=overwrite, compress=compress)
    if compress:
        raise TaskFileError(f"{path}: .safetensors is not compressed; use .npz, or leave compress out")
    return _write_tensors(path, arrays, overwrite=overwrite)


def check_suffix(path: Path, more: str) -> str:
    """Return the ending of a task file in lower case; raise if it is another."""
    suffix = path.suffix.lower()
    if suffix not in WRITTEN:
        raise TaskFileError(
            f"{path}: expected a task file ({', '.join(WRITTEN)}) {more}, got {path.suffix or 'no suffix'}"
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


def _write_folder(path: Path, arrays: Mapping[str, Array]) -> Path:
    """Write ``task.toml`` and the files that it names."""
    if os.path.lexists(path):  # the folder may hold the user's own files
        raise OutputExistsError(f"{path} exists; choose another name, or remove it first")
    names = fields.attributes(arrays, str(path))
    extra = fields.unknown_keys(arrays, names, str(path))
    if extra:
        raise TaskFileError(
            f"{path}: a task folder cannot hold the extra arrays {', '.join(extra)}; write .npz or .safetensors"
        )
    with atomic_folder(path) as folder:
        lines = [
            f"name = {_toml(str(arrays['name']))}",
            f"simulated = {str(bool(arrays['simulated'])).lower()}",
        ]
        lines += [f"{key} = {_strings(arrays[key])}" for key in (*STRINGS, *PAIRS) if key in arrays]
        lines += [f"{key} = {_saved(folder, key, arrays[key])}" for key in (*TEXTS, *PLAIN) if key in arrays]
        for name in names:
            lines += ["", f"[sensitive.{_toml(name)}]", *_attribute(folder, name, arrays)]
        for split in SPLITS:
            if f"image_{split}" in arrays:
                lines += ["", f"[splits.{split}]", *_split(folder, split, names, arrays)]
        text = ("\n".join(lines) + "\n").encode()
        if len(text) > MAX_TOML_BYTES:
            raise TaskFileError(
                f"{path}: expected names and prompts of at most {MAX_TOML_BYTES:,} bytes for {TOML}, got "
                f"{len(text):,}; write .npz or .safetensors"
            )
        (folder / TOML).write_bytes(text)
    return path


def _attribute(folder: Path, name: str, arrays: Mapping[str, Array]) -> list[str]:
    out = []
    for key, part in (("names", "sensitive_names"), ("prompts", "sensitive_prompts")):
        if part_key(part, name) in arrays:
            out.append(f"{key} = {_strings(arrays[part_key(part, name)])}")
    text = part_key("text_sensitive", name)
    return [*out, f"text = {_saved(folder, text, arrays[text])}"] if text in arrays else out


def _split(folder: Path, split: str, names: list[str], arrays: Mapping[str, Array]) -> list[str]:
    rows = {"embeddings": arrays[f"image_{split}"]}
    if f"ids_{split}" in arrays:
        rows["ids"] = arrays[f"ids_{split}"]
    write_npz(folder / f"{split}.npz", rows)
    out = [f"store = {_toml(f'{split}.npz')}"]
    if f"y_{split}" in arrays:
        out.append(f"y = {_saved(folder, f'y_{split}', arrays[f'y_{split}'])}")
    labelled = [name for name in names if s_key(name, split) in arrays]
    labels = [f"{_toml(n)} = {_saved(folder, s_key(n, split), arrays[s_key(n, split)])}" for n in labelled]
    return [*out, f"s = {{ {', '.join(labels)} }}"] if labels else out


def _saved(folder: Path, name: str, array: Array) -> str:
    np.save(folder / f"{name}.npy", array, allow_pickle=False)
    return _toml(f"{name}.npy")


def _strings(array: Array) -> str:
    return "[" + ", ".join(_strings(value) if np.ndim(value) else _toml(str(value)) for value in array) + "]"


def _toml(text: str) -> str:
    """Return a TOML basic string: JSON with the delete character escaped, which JSON does not require."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
