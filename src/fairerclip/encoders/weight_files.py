"""Weight files: finding the right file of a folder, hashing it, and checks before it is loaded."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairerclip.data.io.tensors import open_tensors
from fairerclip.encoders.preprocess import read_json
from fairerclip.errors import EncoderError

_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl")
_FIRST_CHOICE = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors")
_MAX_WEIGHTS = 10_000
"""Most tensors of one file, more than any CLIP model has."""
_MAX_GROWTH = 2
"""Largest ratio of a model's size to that of its weights: positions are interpolated for other image sizes."""
CONVERT = "convert it once to .safetensors yourself, as docs/how-to/encoders.md shows"


def sha256_of(files: Sequence[Path]) -> str:
    """Compute the SHA-256 of one file, or of the list of hashes and names of several files."""
    hashes = [_sha256(file) for file in files]
    if len(hashes) == 1:
        return hashes[0]
    lines = "".join(f"{digest}  {file.name}\n" for file, digest in zip(files, hashes, strict=True))
    return hashlib.sha256(lines.encode()).hexdigest()


def _sha256(file: Path) -> str:
    try:
        with file.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise EncoderError(f"{file} cannot be read: {error.strerror or error}") from None


def member(folder: Path, name: str) -> Path:
    """Return the path of a file in a folder, which need not exist; raise if it is a link to another place.

    A link may point to another file of the folder, or, in the Hugging Face cache, to the blobs of its repository.
    """
    path = folder / name
    target, root = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
    homes = [root, root.parent.parent / "blobs"] if root.parent.name == "snapshots" else [root]
    if not any(target.is_relative_to(home) for home in homes):
        raise EncoderError(f"{path} is a link to a place outside its folder: copy the file there instead")
    return path


def check_fits(model: Any, files: Sequence[Path]) -> None:
    """Raise, before memory is allocated, if a model is more than twice as large as its weights.

    Parameters
    ----------
    model : torch.nn.Module
        Model on torch's meta device, where it has shapes but takes no memory.
    files : sequence of Path
        Files of the weights.
    """
    held = 0
    for file in files:
        tensors, _ = open_tensors(file, EncoderError, most=_MAX_WEIGHTS)
        held += sum(tensor.count for tensor in tensors.values())
    needed = sum(tensor.numel() for tensor in model.state_dict().values())
    if needed > _MAX_GROWTH * held:
        raise EncoderError(
            f"the configuration describes a model of {needed:,} numbers and {files[0]} holds {held:,}: they do not "
            "belong together"
        )


def check_safetensors(file: Path) -> Path:
    """Return the absolute path of a .safetensors file; raise if it is absent or in a format that can run code."""
    if file.suffix in _PICKLES:
        raise EncoderError(
            f"{file} is a pickle, which can run any code when it is read, so it is not read: {CONVERT}"
        )
    if not os.path.isfile(file):
        raise EncoderError(f"{file} is not a file: weights must be a .safetensors file or a model's folder")
    if file.suffix != ".safetensors":
        raise EncoderError(f"weights must be a .safetensors file; got {file.name}: {CONVERT}")
    return file.absolute()


def open_clip_file(folder: Path) -> Path:
    """Return the checkpoint of an open_clip folder that open_clip itself would choose, but never a pickle."""
    names = _names(folder)
    for name in _FIRST_CHOICE:
        if name in names:
            return check_safetensors(member(folder, name))
    safe = [name for name in names if name.endswith(".safetensors")]
    pickles = [name for name in names if name.endswith(_PICKLES)]
    if len(safe) == 1 and not pickles:
        return check_safetensors(member(folder, safe[0]))
    if not safe and pickles:
        return check_safetensors(folder / pickles[0])
    raise EncoderError(
        f"{folder} must hold {_FIRST_CHOICE[0]}, or one .safetensors file and no other weights; "
        f"it holds {', '.join([*safe, *pickles]) or 'none'}"
    )


def transformers_files(folder: Path) -> list[Path]:
    """Return the .safetensors file of a transformers folder, or all its shards."""
    single, index = "model.safetensors", "model.safetensors.index.json"
    names = _names(folder)
    if single in names:
        return [check_safetensors(member(folder, single))]
    if index in names:
        shards = read_json(member(folder, index)).get("weight_map")
        listed = list(shards.values()) if isinstance(shards, dict) else []
        if not listed or not all(isinstance(name, str) and name in names for name in listed):
            raise EncoderError(f"{folder / index} must map weights to files of its own folder")
        return [check_safetensors(member(folder, name)) for name in sorted(set(listed))]
    pickles = [name for name in names if name.endswith(_PICKLES)]
    if pickles:
        return [check_safetensors(folder / pickles[0])]
    raise EncoderError(f"{folder} holds no {single}; save the model there with save_pretrained")


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise EncoderError(f"{folder} cannot be read: {error.strerror or error}") from None
