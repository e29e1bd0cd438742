"""Search for finished tasks in a folder by their names."""

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
"""Names that the task of a dataset may have."""
ALL = "the task"
PUBLISHED: dict[str, Mapping[str, int]] = {
    "waterbirds": {split: sum(rows) for split, rows in WATERBIRDS_ROWS.items()},
    **dict.fromkeys(("blond", "cheekbones", "attractive"), celeba.PUBLISHED),
    "cfd": {ALL: cfd.PUBLISHED_MODELS},
    "fairface": {"train": fairface.PUBLISHED_ROWS["train"], "test": fairface.PUBLISHED_ROWS["val"]},
}
"""Number of rows of the official splits. The official val part of FairFace is the test split here."""


@dataclass(frozen=True)
class FoundTask:
    """A task file, with the encoder in its name or in that of its folder; None if neither has one."""

    dataset: str
    encoder: str | None
    file: Path


def find_tasks(root: Path, *, encoders: bool) -> dict[str, list[FoundTask]]:
    """Find the tasks of a folder by dataset, sorted by encoder; files with other names are left out.

    Parameters
    ----------
    root : Path
        Folder with ``NAME.npz`` or ``NAME.safetensors``, with a name of `NAMES`.
    encoders : bool
        Whether ``NAME-ENCODER.npz`` and ``ENCODER/NAME.npz`` are tasks, too.

    Returns
    -------
    dict from str to list of FoundTask
        Tasks by dataset.

    Raises
    ------
    ParameterError
        Two tasks have the same dataset and encoder.
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
    for dataset, tasks_of_dataset in found.items():
        tasks_of_dataset.sort(key=lambda task: task.encoder or "")
        for first, second in pairwise(tasks_of_dataset):
            if first.encoder == second.encoder:
                by = "" if first.encoder is None else f" by {first.encoder}"
                raise ParameterError(f"{first.file} and {second.file} are both {dataset}{by}; keep one")
    return found


def row_notes(dataset: str, task: Task) -> tuple[str, ...]:
    """Return sentences on splits whose number of rows differs from the official one."""
    counts = {name: len(split) for name, split in task.splits.items()}
    return common.total_notes({**counts, ALL: sum(counts.values())}, PUBLISHED.get(dataset, {}))


def _is_task(path: Path) -> bool:
    return path.suffix.lower() in WRITTEN and path.is_file()


def _named(path: Path, encoder: str | None) -> FoundTask | None:
    dataset = next((d for d, names in NAMES.items() if path.stem.lower() in names), None)
    return None if dataset is None else FoundTask(dataset, encoder, path)


def _of_encoder(path: Path) -> FoundTask | None:
    stem = path.stem
    for dataset, names in NAMES.items():
        for name in names:
            if stem.lower().startswith(f"{name}-") and len(stem) > len(name) + 1:
                return FoundTask(dataset, stem[len(name) + 1 :], path)
    return None
