"""Where the tasks come from: images in their official layouts, task files, or the simulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairerclip.audit.task import digest
from fairerclip.data import Task, load_task, simulate
from fairerclip.errors import DatasetError, FairerClipError, ParameterError, TaskFileError

KINDS = ("data", "suite", "simulated")
SCALES = {"waterbirds": 0.3, "celeba": 0.015, "cheekbones": 0.015, "gallery": 0.3}
"""Share of the rows of the simulated tasks: all entries together are to take minutes."""
WIDTH: int | None = None
"""Width of simulated embeddings; None is the simulation's own."""
SMALL_ROWS = 298
"""Training rows of CFD in the paper."""

SIMULATED = {"waterbirds": "waterbirds", "blond": "celeba", "cheekbones": "cheekbones", "fairface": "gallery"}
SUITE = {
    "blond": "celeba_blond.npz",
    "cheekbones": "celeba_cheekbones.npz",
    "cfd": "celeba_attractive.npz",
    "attractive": "celeba_attractive.npz",
    "pacs": "pacs.npz",
    "fairface": "fairface.npz",
}
DATA: dict[str, tuple[str, dict[str, Any]]] = {
    "waterbirds": ("waterbirds", {}),
    "blond": ("celeba", {"target": "blond"}),
    "cheekbones": ("celeba", {"target": "cheekbones"}),
    "attractive": ("celeba", {"target": "attractive"}),
    "cfd": ("cfd", {}),
    "fairface": ("fairface", {"sensitive": ("sex", "race")}),
}
BACKBONES = {"RN50": ("rn50",), "ViT-L/14": ("vit-l-14", "vit-l/14"), "ViT-B/32": ("vit-b-32", "vit-b/32")}
NOT_BACKBONES = ("336", "rn50x")


class Unavailable(FairerClipError):
    """The source has no such task; the message says why."""


@dataclass(frozen=True)
class SourceTask:
    """A task with the name of its encoder and what has to be said of it."""

    dataset: str
    encoder: str
    task: Task
    backbone: str | None = None
    """The published backbone that the encoder is, if it is one."""
    note: str = ""

    @property
    def title(self) -> str:
        """For headings."""
        return f"{self.task.name}, {self.encoder}"

    def about(self) -> dict[str, Any]:
        """What it takes to know the same data again."""
        task = self.task
        return {
            "dataset": self.dataset,
            "name": task.name,
            "encoder": self.encoder,
            "digest": digest(task),
            "rows": {name: len(split) for name, split in task.splits.items()},
            "prompts": list(task.target_prompts),
            "sensitive": {
                name: {"values": list(s.names), "prompts": list(s.prompts)}
                for name, s in task.sensitive.items()
            },
            "note": self.note,
        }


@dataclass
class Source:
    """One of the three kinds, with its tasks made once.

    Parameters
    ----------
    kind : "data", "suite" or "simulated".
    root : folder of the datasets, or of the task files.
    models : CLIP models, for "data".
    work : folder for embeddings, for "data".
    """

    kind: str
    root: Path | None = None
    models: Sequence[str] = ()
    work: Path | None = None
    progress: Callable[[int, int], None] | None = None
    notes: list[str] = field(default_factory=list)
    _made: dict[str, list[SourceTask] | Unavailable] = field(default_factory=dict, repr=False)
    _read: dict[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ParameterError(f"a source is one of {', '.join(KINDS)}; got {self.kind!r}")
        if self.kind == "data" and not self.models:
            raise ParameterError(
                "--data needs --model, the CLIP model to embed images with (may be repeated)"
            )
        if self.kind != "simulated" and (self.root is None or not self.root.is_dir()):
            raise TaskFileError(f"{self.root} is not a folder; give the one that holds the datasets or tasks")

    @property
    def sentence(self) -> str:
        """The first line of everything that is written."""
        if self.kind == "data":
            return f"Real images in their official layouts, embedded by {', '.join(self.models)}."
        if self.kind == "suite":
            return (
                f"Task files of {self.root.name if self.root else ''}/ with embeddings of their own encoders: not the "
                "paper's CLIP models or rows, so that published figures are for orientation only."
            )
        return (
            "Simulated tasks: rows were drawn, of nobody. These figures reproduce no published number; they show that "
            "the whole comparison runs."
        )

    def why_not(self, dataset: str) -> str | None:
        """Why a task cannot be had, without making it; None where it can."""
        if self.kind == "simulated":
            return None if dataset in SIMULATED or dataset == "cfd" else "it is not simulated"
        if self.kind == "suite":
            file = SUITE.get(dataset)
            return (
                None
                if file and (self._root / file).is_file()
                else f"there is no {file or dataset} in the suite"
            )
        if dataset not in DATA:
            return "it has no official layout"
        try:
            self._index(dataset)
        except FairerClipError as error:
            return str(error)
        return None

    def tasks(self, dataset: str) -> list[SourceTask]:
        """The task of a dataset, once per encoder; `Unavailable` where there is none."""
        if dataset not in self._made:
            self._made[dataset] = self._try(dataset)
        found = self._made[dataset]
        if isinstance(found, Unavailable):
            raise found
        return found

    def _try(self, dataset: str) -> list[SourceTask] | Unavailable:
        reason = self.why_not(dataset)
        if reason is not None:
            return Unavailable(f"{dataset}: {reason}")
        if self.kind == "simulated":
            return [_simulated(dataset)]
        if self.kind == "suite":
            return [_from_suite(dataset, self._root / SUITE[dataset])]
        return self._embedded(dataset)

    @property
    def _root(self) -> Path:
        if self.root is None:
            raise AssertionError("checked when it was made")
        return self.root

    def _index(self, dataset: str) -> Any:
        """The lists of a dataset, read once."""
        if dataset not in self._read:
            self._read[dataset] = self._find(dataset)
        return self._read[dataset]

    def _find(self, dataset: str) -> Any:
        from fairerclip.data.datasets import read_dataset

        name, options = DATA[dataset]
        inside = [p for p in sorted(self._root.iterdir()) if p.is_dir() and p.name.lower() == name]
        errors = []
        for folder in [*inside, self._root]:
            try:
                return read_dataset(name, folder, **options)
            except DatasetError as error:
                errors.append(error)
        raise errors[0]

    def _embedded(self, dataset: str) -> list[SourceTask]:
        from fairerclip.audit.models import tasks_of_models
        from fairerclip.data.prompts import load_prompts

        if self.work is None:
            raise ParameterError("a source of images needs a folder for their embeddings")
        index = self._index(dataset)
        if index.prompts is None:
            raise Unavailable(f"{dataset}: no prompts are shipped for it")
        # Targets of one dataset share a folder: its images are embedded once.
        place = self.work / DATA[dataset][0]
        place.mkdir(parents=True, exist_ok=True)
        files = tasks_of_models(index, load_prompts(index.prompts), self.models, place, self.progress)
        self.notes += [f"{dataset}: {note}" for note in index.notes]
        return [
            SourceTask(dataset, model, load_task(file), backbone_of(model))
            for model, file in zip(self.models, files, strict=True)
        ]


def backbone_of(model: str) -> str | None:
    """The published backbone that a model's name says it is.

    Examples
    --------
    >>> backbone_of("open_clip:ViT-L-14"), backbone_of("RN50x4"), backbone_of("ViT-L/14@336px")
    ('ViT-L/14', None, None)
    """
    name = model.lower().replace("_", "-")
    if any(part in name for part in NOT_BACKBONES):
        return None
    return next((b for b, parts in BACKBONES.items() if any(part in name for part in parts)), None)


def _simulated(dataset: str) -> SourceTask:
    if dataset == "cfd":
        task = small(_simulated("cheekbones").task)
        note = f"the simulated cheekbones with {SMALL_ROWS} training rows stand in for CFD"
        return SourceTask("cfd", "simulated encoder", task, note=note)
    name = SIMULATED[dataset]
    task = simulate(name, scale=SCALES[name], width=WIDTH)
    return SourceTask(dataset, "simulated encoder", task)


def _from_suite(dataset: str, file: Path) -> SourceTask:
    task = load_task(file)
    if dataset != "cfd":
        return SourceTask(dataset, "the suite's encoder", task)
    note = f"{task.name} with {SMALL_ROWS} training rows stands in for CFD"
    return SourceTask("cfd", "the suite's encoder", small(task), note=note)


def small(task: Task) -> Task:
    """A task with as many training rows as CFD: those that it names as ``small_train``, else the first."""
    rows = task.extra.get("small_train")
    keep = slice(SMALL_ROWS) if rows is None else rows
    train = task.train
    fewer = replace(
        train,
        X=train.X[keep],
        y=None if train.y is None else train.y[keep],
        s={name: codes[keep] for name, codes in train.s.items()},
        ids=None if train.ids is None else train.ids[keep],
    )
    extra = {name: array for name, array in task.extra.items() if name != "small_train"}
    return replace(task, name=f"{task.name}, small", splits={**task.splits, "train": fewer}, extra=extra)
