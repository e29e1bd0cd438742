"""Sources of tasks: images in their official layouts, task files, or the simulation."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fairerclip.auditing.run import digest
from fairerclip.data import Task, load_task, simulate
from fairerclip.encoders.choice import ModelChoice
from fairerclip.errors import DatasetAbsentError, FairerClipError, ParameterError, TaskFileError
from fairerclip.study.paper.entry_result import EntryTask, PromptedValues
from fairerclip.study.paper.official_tasks import OfficialImages
from fairerclip.study.paper.task_finder import NAMES, FoundTask, find_tasks, row_notes

KINDS = ("data", "suite", "simulated")
SCALES = {"waterbirds": 0.3, "celeba": 0.015, "cheekbones": 0.015, "gallery": 0.3}
"""Scale of the simulated tasks, so that all entries together take minutes."""
WIDTH: int | None = None
"""Width of simulated embeddings; None is the default of the simulation."""
SMALL_ROWS = 298
"""Training rows of CFD in the paper."""

SIMULATED = {"waterbirds": "waterbirds", "blond": "celeba", "cheekbones": "cheekbones", "fairface": "gallery"}
BACKBONES = {"RN50": ("rn50",), "ViT-L/14": ("vit-l-14", "vit-l/14"), "ViT-B/32": ("vit-b-32", "vit-b/32")}
NOT_BACKBONES = ("336", "rn50x")
OPENAI = "openai"


class Unavailable(FairerClipError):
    """Error of a source that does not have a task; the message has the reason."""


@dataclass(frozen=True)
class SourceTask:
    """A task of a source, with its encoder and notes for the pages that use it."""

    dataset: str
    encoder: str
    task: Task
    backbone: str | None = None
    """The published backbone that the encoder is; None if it is none of them."""
    note: str = ""
    """Which data replace the published data, in a few words."""
    notes: tuple[str, ...] = ()
    """Sentences on differences between its rows and the official rows."""

    @property
    def title(self) -> str:
        """Task and encoder, for headings."""
        return f"{self.task.name}, {self.encoder}"

    def about(self) -> EntryTask:
        """Return the identification of the data: digest, number of rows, and prompts."""
        task = self.task
        return EntryTask(
            dataset=self.dataset,
            name=task.name,
            encoder=self.encoder,
            digest=digest(task),
            rows={name: len(split) for name, split in task.splits.items()},
            prompts=tuple(task.target_prompts),
            sensitive={
                name: PromptedValues(values=tuple(s.names), prompts=tuple(s.prompts))
                for name, s in task.sensitive.items()
            },
            note=self.note,
            notes=self.notes,
        )


@dataclass
class TaskSource:
    """A source of tasks, each of which is made once.

    Parameters
    ----------
    kind : {"data", "suite", "simulated"}
        "data" has real images, comparable with published figures on the same data; "suite" has task files, whose
        figures are for orientation; "simulated" has simulated rows.
    root : Path or None
        Folder of finished tasks, for "suite", and for "data" without `images`.
    images : OfficialImages or None
        For "data", the datasets in their official layouts and how they are embedded.
    """

    kind: str
    root: Path | None = None
    images: OfficialImages | None = None
    _made: dict[str, list[SourceTask] | Unavailable] = field(default_factory=dict, repr=False)
    _files: dict[str, list[FoundTask]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ParameterError(f"a source is one of {', '.join(KINDS)}; got {self.kind!r}")
        folder = self.root if self.images is None else self.images.root
        if self.kind != "simulated" and (folder is None or not folder.is_dir()):
            raise TaskFileError(f"{folder} is not a folder; give the folder of the datasets or tasks")
        if self.kind != "simulated" and self.images is None and folder is not None:
            self._files = find_tasks(folder, encoders=self.kind == "data")

    @property
    def sentence(self) -> str:
        """First line of every output."""
        if self.kind == "simulated":
            return (
                "Simulated tasks: rows were drawn at random and show no person. These figures reproduce no published "
                "number; they show that the whole comparison runs."
            )
        if self.images is not None:
            by = ", ".join(model.label for model in self.images.models)
            return f"Real images in their official layouts{f', embedded by {by}' if by else ''}."
        where = self.root.name if self.root else ""
        if self.kind == "suite":
            return (
                f"Task files of {where}/ with embeddings of their own encoders: not the paper's CLIP models or rows, "
                "so that published figures are for orientation only."
            )
        return (
            f"Tasks of {where}/, embedded elsewhere from real images. Encoders are those that files and folders are "
            "named after; published figures are to be compared with those of the same encoder."
        )

    def why_not(self, dataset: str) -> str | None:
        """Return the reason why the source does not have a task, without making it; None if it does."""
        if self.kind == "simulated":
            return None if dataset in SIMULATED or dataset == "cfd" else "it is not simulated"
        if self.images is not None:
            problem = self.images.problem(dataset)
            return None if problem is None else str(problem)
        if self._files_of(dataset):
            return None
        names = " or ".join(f"{name}.npz" for name in NAMES[dataset])
        return f"there is no {names} in {'the suite' if self.kind == 'suite' else 'the folder of tasks'}"

    def absent(self, dataset: str) -> bool:
        """Return whether a dataset does not exist; a dataset that exists and cannot be read is not absent."""
        if self.images is not None:
            return isinstance(self.images.problem(dataset), DatasetAbsentError)
        return self.why_not(dataset) is not None

    def check(self, datasets: Collection[str]) -> None:
        """Raise for options that would fail only after hours; see `OfficialImages.check`."""
        if self.images is not None:
            self.images.check(datasets)

    def tasks(self, dataset: str) -> list[SourceTask]:
        """Return the tasks of a dataset, one per encoder, or raise `Unavailable`."""
        if dataset not in self._made:
            try:
                self._made[dataset] = self._make(dataset)
            except FairerClipError as error:  # kept, so that the next entry gets the same error at once
                self._made[dataset] = Unavailable(f"{dataset}: {error}")
        tasks = self._made[dataset]
        if isinstance(tasks, Unavailable):
            raise tasks
        return tasks

    def _make(self, dataset: str) -> list[SourceTask]:
        reason = self.why_not(dataset)
        if reason is not None:
            raise Unavailable(reason)
        if self.kind == "simulated":
            return [_simulated(dataset)]
        if self.images is None:
            read = _from_suite if self.kind == "suite" else _finished
            return [read(dataset, found) for found in self._files_of(dataset)]
        notes = self.images.index(dataset).notes
        return [
            SourceTask(
                dataset,
                made.model.label,
                load_task(made.file),
                published_backbone(made.model),
                notes=(*notes, *made.notes),
            )
            for made in self.images.tasks(dataset)
        ]

    def _files_of(self, dataset: str) -> list[FoundTask]:
        if self.kind == "suite" and dataset == "cfd":  # another dataset replaces CFD if it is missing
            return self._files.get("cfd") or self._files.get("attractive", [])
        return self._files.get(dataset, [])


def published_backbone(model: ModelChoice) -> str | None:
    """Return the published backbone of a model if its weights are OpenAI's, by name or by preprocessing; else None.

    Examples
    --------
    >>> published_backbone(ModelChoice("ViT-L/14")), published_backbone(ModelChoice("open_clip:RN50", "yfcc15m"))
    ('ViT-L/14', None)
    >>> published_backbone(ModelChoice("open_clip:RN50", "rn50.safetensors", preprocessing="openai"))
    'RN50'
    """
    # A file of weights does not tell whose they are; OpenAI's preprocessing means that they are OpenAI's.
    is_openai = model.weights in (None, OPENAI) or model.preprocessing == OPENAI
    return backbone_of(replace(model, weights=None).label) if is_openai else None


def backbone_of(model: str) -> str | None:
    """Return the published backbone in the name of a model; None if there is none.

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


def _from_suite(dataset: str, found: FoundTask) -> SourceTask:
    task, encoder = load_task(found.file), "the suite's encoder"
    if dataset == found.dataset:
        task, note = whole_training(dataset, task)
        return SourceTask(dataset, encoder, task, note=note)
    note = f"{task.name} with {SMALL_ROWS} training rows stands in for CFD"
    return SourceTask(dataset, encoder, small(task), note=note)


def _finished(dataset: str, found: FoundTask) -> SourceTask:
    task = load_task(found.file)
    if task.simulated:
        raise TaskFileError(f"{found.file} is simulated, and --tasks is for tasks of real images")
    task, note = whole_training(dataset, task)
    encoder = found.encoder or "an encoder without a name"
    backbone = None if found.encoder is None else backbone_of(found.encoder)
    return SourceTask(dataset, encoder, task, backbone, note, row_notes(dataset, task))


def whole_training(dataset: str, task: Task) -> tuple[Task, str]:
    """Move the val rows of FairFace that are of the official training list to the training split; return a note, too.

    Nothing is tuned on FairFace, and the published fits used the whole list. Ids tell which rows are of it.
    """
    if dataset != "fairface" or not {"train", "val"} <= set(task.splits):
        return task, ""
    train, val = task.train, task.val
    if val.ids is None or train.ids is None:
        return task, f"{len(val)} val rows are not fitted on: they have no ids to say which list they are of"
    if not all(str(name).startswith("train/") for name in val.ids):
        return task, f"{len(val)} val rows are not fitted on: they are not of the official training list"
    if set(train.s) != set(val.s):
        return task, f"{len(val)} val rows are not fitted on: they have labels of other attributes"
    joined = replace(
        train,
        X=np.concatenate([train.X, val.X]),
        y=None,
        s={name: np.concatenate([train.s[name], val.s[name]]) for name in train.s},
        ids=np.concatenate([train.ids, val.ids]),
    )
    splits = {name: split for name, split in task.splits.items() if name != "val"}
    note = f"train and val, {len(train)} + {len(val)} rows of the official training list, were joined"
    return replace(task, splits={**splits, "train": joined}), note


def small(task: Task) -> Task:
    """Return a task with as many training rows as CFD: those that it names as ``small_train``, else the first."""
    rows = task.extra.get("small_train")
    keep = slice(SMALL_ROWS) if rows is None else rows
    extra = {name: array for name, array in task.extra.items() if name != "small_train"}
    return replace(
        task, name=f"{task.name}, small", splits={**task.splits, "train": task.train.take(keep)}, extra=extra
    )
