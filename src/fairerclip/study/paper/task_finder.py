"""Finished tasks in a folder, found by their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from fairerclip.data import Task
from fairerclip.data.datasets import celeba, cfd, common, fairface
from fairerclip.data.simulate import WATERBIRDS_ROWS
from fairerclip.data.task_files import WRITTEN
from fairerclip.errors import ParameterError

NAMES: dict[str, tuple[str, ...]] = {
    "waterbirds": ("waterbirds",),
    "blond": ("blond", "celeba_blond", "celeba-blond"),
    "cheekbones": ("cheekbones", "celeba_cheekbones", "celeba-cheekbones"),
    "attractive": ("attractive", "celeba_attractive", "celeba-attractive"),
    "cfd": ("cfd",),
    "pacs": ("pacs",),
    "fairface": ("fairface",),
}
"""Dataset of an entry → what its task may be called."""
ALL = "the task"
PUBLISHED: dict[str, Mapping[str, int]] = {
    "waterbirds": {split: sum(rows) for split, rows in WATERBIRDS_ROWS.items()},
    **dict.fromkeys(("blond", "cheekbones", "attractive"), celeba.PUBLISHED),
    "cfd": {ALL: cfd.PUBLISHED_MODELS},
    "fairface": {"train": fairface.PUBLISHED_ROWS["train"], "test": fairface.PUBLISHED_ROWS["val"]},
}
"""Rows of the official splits. FairFace's own val part is our test."""


@dataclass(frozen=True)
class FoundTask:
    """A task file or folder, with the encoder that its name or its folder says; None where neither does."""

    dataset: str
    encoder: str | None
    file: Path


def find_tasks(root: Path, *, encoders: bool) -> dict[str, list[FoundTask]]:
    """Tasks of a folder by dataset, sorted by encoder; what has another name is left out.

    Parameters
    ----------
    root : holds ``NAME.npz``, ``NAME.safetensors`` or task folders ``NAME/``, with a name of `NAMES`.
    encoders : whether ``NAME-ENCODER.npz`` and ``ENCODER/NAME.npz`` are tasks, too.

    Raises
    ------
    ParameterError
        Two of them are of the same dataset and encoder.
    """
    found: dict[str, list[FoundTask]] = {}
    for path in sorted(root.iterdir()):
        if _is_task(path):
            tasks = [_named(path, None) or (_of_encoder(path) if encoders else None)]
        elif path.is_dir() and encoders:
            tasks = [_named(file, path.name) for file in sorted(path.iterdir()) if _is_task(file)]
        else:
            continue
        for task in tasks:
            if task is not None:
                found.setdefault(task.dataset, []).append(task)
    for dataset, several in found.items():
        several.sort(key=lambda task: task.encoder or "")
        for one, other in pairwise(several):
            if one.encoder == other.encoder:
                by = "" if one.encoder is None else f" by {one.encoder}"
                raise ParameterError(f"{one.file} and {other.file} are both {dataset}{by}; keep one")
    return found


def row_notes(dataset: str, task: Task) -> tuple[str, ...]:
    """Sentences on splits that have not the rows of the official ones."""
    counts = {name: len(split) for name, split in task.splits.items()}
    return common.total_notes({**counts, ALL: sum(counts.values())}, PUBLISHED.get(dataset, {}))


def _is_task(path: Path) -> bool:
    return (path.suffix.lower() in WRITTEN and path.is_file()) or (path / "task.toml").is_file()


def _stem(path: Path) -> str:
    return path.name if path.is_dir() else path.stem


def _named(path: Path, encoder: str | None) -> FoundTask | None:
    dataset = next((d for d, names in NAMES.items() if _stem(path).lower() in names), None)
    return None if dataset is None else FoundTask(dataset, encoder, path)


def _of_encoder(path: Path) -> FoundTask | None:
    stem = _stem(path)
    for dataset, names in NAMES.items():
        for name in names:
            if stem.lower().startswith(f"{name}-") and len(stem) > len(name) + 1:
                return FoundTask(dataset, stem[len(name) + 1 :], path)
    return None
