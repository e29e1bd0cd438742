"""Write a task as a folder: ``task.toml`` and the parts that it names."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.files import atomic_folder
from fairerclip.data import task_fields as fields
from fairerclip.data.io.bounded_text import MAX_TOML_BYTES
from fairerclip.data.io.npz import write_npz
from fairerclip.data.task_fields import SPLITS, part_key, s_key
from fairerclip.data.task_formats import PLAIN, STRINGS, TEXTS, TOML
from fairerclip.errors import OutputExistsError, TaskFileError

Array = NDArray[Any]


def write_folder(path: Path, arrays: Mapping[str, Array]) -> Path:
    """Write the arrays of a task file as a folder that `load_task` reads back; it appears whole or not at all."""
    if os.path.lexists(path):  # tables of the user's own may be in it
        raise OutputExistsError(f"{path} exists; choose another name, or remove it first")
    names = fields.attributes(arrays, str(path))
    extra = fields.unknown_keys(arrays, names, str(path))
    if extra:
        raise TaskFileError(
            f"{path}: a folder has no place for {', '.join(extra)}; write .npz or .safetensors"
        )
    with atomic_folder(path) as folder:
        lines = [
            f"name = {_toml(str(arrays['name']))}",
            f"simulated = {str(bool(arrays['simulated'])).lower()}",
        ]
        lines += [f"{key} = {_strings(arrays[key])}" for key in STRINGS if key in arrays]
        lines += [f"{key} = {_saved(folder, key, arrays[key])}" for key in (*TEXTS, *PLAIN) if key in arrays]
        for name in names:
            lines += ["", f"[sensitive.{_toml(name)}]", *_attribute(folder, name, arrays)]
        for split in SPLITS:
            if f"image_{split}" in arrays:
                lines += ["", f"[splits.{split}]", *_split(folder, split, names, arrays)]
        text = ("\n".join(lines) + "\n").encode()
        if len(text) > MAX_TOML_BYTES:
            raise TaskFileError(
                f"{path}: names and prompts take {len(text):,} bytes, {TOML} has room for {MAX_TOML_BYTES:,}; write "
                ".npz or .safetensors"
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
    given = [name for name in names if s_key(name, split) in arrays]
    labels = [f"{_toml(n)} = {_saved(folder, s_key(n, split), arrays[s_key(n, split)])}" for n in given]
    return [*out, f"s = {{ {', '.join(labels)} }}"] if labels else out


def _saved(folder: Path, name: str, array: Array) -> str:
    np.save(folder / f"{name}.npy", array, allow_pickle=False)
    return _toml(f"{name}.npy")


def _strings(array: Array) -> str:
    return "[" + ", ".join(_toml(str(value)) for value in array) + "]"


def _toml(text: str) -> str:
    """A TOML basic string: JSON's escapes are TOML's, but for the delete character, which JSON leaves bare."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
