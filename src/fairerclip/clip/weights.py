"""Weights on disk: which file is meant, what it hashes to, and what to say when it is not there."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from fairerclip.clip.preprocess import read_json
from fairerclip.errors import EncoderError

_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl")
_FIRST_CHOICE = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors")
_CHUNK = 1 << 20
CONVERT = "convert it once to .safetensors yourself, as docs/encoders.md shows"


def sha256_of(files: Sequence[Path]) -> str:
    """SHA-256 of one file; of several, that of their names and hashes in order."""
    hashes = [_sha256(file) for file in files]
    if len(hashes) == 1:
        return hashes[0]
    lines = "".join(f"{digest}  {file.name}\n" for file, digest in zip(files, hashes, strict=True))
    return hashlib.sha256(lines.encode()).hexdigest()


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as handle:
        while chunk := handle.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def check_safetensors(file: Path) -> Path:
    """The file, if it exists and is one that cannot run code."""
    if file.suffix in _PICKLES:
        raise EncoderError(
            f"{file} is a pickle, which can run any code when it is read, so it is not read: {CONVERT}"
        )
    if not file.is_file():
        raise EncoderError(f"{file} is not a file: weights must be a .safetensors file or a model's folder")
    if file.suffix != ".safetensors":
        raise EncoderError(f"weights must be a .safetensors file; got {file.name}: {CONVERT}")
    return file.absolute()


def open_clip_file(folder: Path) -> Path:
    """The checkpoint of an open_clip folder: the one that open_clip itself would choose, never a pickle."""
    for name in _FIRST_CHOICE:
        if (folder / name).is_file():
            return check_safetensors(folder / name)
    safe = sorted(folder.glob("*.safetensors"))
    pickles = sorted(file.name for file in folder.iterdir() if file.suffix in _PICKLES)
    if len(safe) == 1 and not pickles:
        return check_safetensors(safe[0])
    if not safe and pickles:
        return check_safetensors(folder / pickles[0])
    raise EncoderError(
        f"{folder} must hold {_FIRST_CHOICE[0]}, or one .safetensors file and no other weights; "
        f"it holds {', '.join([*(f.name for f in safe), *pickles]) or 'none'}"
    )


def transformers_files(folder: Path) -> list[Path]:
    """The .safetensors files of a transformers folder, all shards of them."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        return [check_safetensors(single)]
    if index.is_file():
        shards = read_json(index).get("weight_map")
        names = sorted(set(shards.values())) if isinstance(shards, dict) else []
        if not names or not all(isinstance(n, str) and Path(n).name == n for n in names):
            raise EncoderError(f"{index} must map weights to files of its own folder")
        return [check_safetensors(folder / name) for name in names]
    pickles = sorted(file for file in folder.iterdir() if file.suffix in _PICKLES)
    if pickles:
        return [check_safetensors(pickles[0])]
    raise EncoderError(f"{folder} holds no model.safetensors; save the model there with save_pretrained")
