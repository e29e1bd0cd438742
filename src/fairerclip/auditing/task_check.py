"""Content of a task, agreement of its prompts with its labels, and the commands that can use it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.numbers import worded
from fairerclip._util.types import Floats, Ints
from fairerclip.auditing.audit_options import AuditOptions
from fairerclip.auditing.run import audited_split
from fairerclip.data import task_fields as fields
from fairerclip.data.preflight import Preflight, preflight
from fairerclip.data.store_parts import StorePart, array_part
from fairerclip.data.stores import EmbeddingStore
from fairerclip.data.task import Split, Task, task_of_arrays
from fairerclip.data.task_counts import cell_name, count_cells, few_rows_note
from fairerclip.errors import FairerClipError, LabelError, TaskFileError
from fairerclip.experiment import LABELS, Experiment
from fairerclip.inputs.agreement import agreement
from fairerclip.inputs.prompts import zero_shot

CELLS_SHOWN = 40
"""Cells of one split that are printed; JSON has all."""
NOT_TUNED = "not tuned: too few validation rows have both labels"


@dataclass(frozen=True)
class Possible:
    """A command, the reason why it cannot be run (None if it can), and a note on how it would run."""

    command: str
    reason: str | None
    note: str = ""


@dataclass(frozen=True)
class SplitFacts:
    """Rows of a split: all, those with a class, those with a value of each attribute, and whether they have ids."""

    rows: int
    with_class: int
    with_value: dict[str, int]
    ids: bool


@dataclass(frozen=True)
class PromptFacts:
    """Agreement of prompts with known labels of one split.

    ``accuracy`` is the share of labelled rows that zero-shot predicts correctly; ``balanced`` the mean over classes
    after centring of the scores, ``best`` the same in the best order of the prompts. The last two are None if fewer
    than two classes have two rows.
    """

    of: str
    split: str
    rows: int
    accuracy: float
    balanced: float | None
    best: float | None
    fault: str | None


@dataclass(frozen=True)
class TaskFacts:
    """Content of a task.

    Attributes
    ----------
    name : str
        Name of the task.
    simulated : bool
        Whether its embeddings are random.
    width : int
        Width of the embeddings.
    splits : dict of str to SplitFacts
        Rows and labels of each split.
    classes : dict of str to (bool or tuple of str)
        ``names`` of the classes, and whether they have ``prompts``.
    attributes : dict of str to dict
        The same for each sensitive attribute.
    sentences : dict of str to int
        Numbers of spurious and counterfactual sentences, of free queries, and of harmful and helpful pairs.
    cells : dict of str to dict
        For each attribute, or for "class" without attributes, the rows of each split by class and value; "?" is an
        unknown label.
    agreement : tuple of PromptFacts
        Agreement of prompts with labels.
    """

    name: str
    simulated: bool
    width: int
    splits: dict[str, SplitFacts]
    classes: dict[str, Any]
    attributes: dict[str, dict[str, Any]]
    sentences: dict[str, int]
    cells: dict[str, dict[str, dict[str, int]]]
    agreement: tuple[PromptFacts, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return the content as sentences."""
        out = [f"{self.name}, width {self.width}{', simulated embeddings' if self.simulated else ''}."]
        for name, split in self.splits.items():
            values = "".join(f", {n:,} with {attribute}" for attribute, n in split.with_value.items())
            ids = "with ids" if split.ids else "without ids"
            out.append(f"{name}: {split.rows:,} rows {ids}, {split.with_class:,} with a class{values}.")
        out.append(f"Classes: {_named(self.classes)}.")
        out += [f"Sensitive attribute {name}: {_named(about)}." for name, about in self.attributes.items()]
        counts = [f"{n:,} {kind}" for kind, n in self.sentences.items()]
        out += [f"Other sentences: {', '.join(counts)}."] if counts else []
        for splits in self.cells.values():
            out += [f"{name}: {_counts(cells)}." for name, cells in splits.items() if cells]
        for name in self.splits:
            shares = [f"{a.of} {worded(a.accuracy)}" for a in self.agreement if a.split == name]
            if shares:
                out.append(f"Rows of {name} that zero-shot predicts as labelled: {', '.join(shares)}.")
        return out


def _counts(cells: Mapping[str, int]) -> str:
    shown = ", ".join(f"{cell} {n:,}" for cell, n in list(cells.items())[:CELLS_SHOWN])
    return f"{shown}, and {len(cells) - CELLS_SHOWN} more" if len(cells) > CELLS_SHOWN else shown


def _named(about: Mapping[str, Any]) -> str:
    return f"{', '.join(about['names'])} ({'with' if about['prompts'] else 'without'} prompts)"


def check_arrays(arrays: Mapping[str, NDArray[Any]], file: Path) -> tuple[Task | None, list[str], list[str]]:
    """Return the task that arrays make, or None and every fault found; and notes on arrays that nothing uses."""
    problems = []
    for key, array in arrays.items():
        if key.startswith(("image_", "text_")) and array.ndim == 2:
            try:
                fields.embeddings(array, f"{file}: {key}")
            except TaskFileError as error:
                problems.append(str(error))
    try:
        task = task_of_arrays(arrays, file)
    except TaskFileError as error:
        return None, [*problems, *([] if str(error) in problems else [str(error)])], []
    return task, [], fields.unused_arrays(arrays, list(task.sensitive), task.extra)


def check_task(task: Task, name: str) -> tuple[TaskFacts, Preflight, list[Possible], list[str]]:
    """Return the content of a task, checks of its rows, the commands for it, and notes."""
    facts = TaskFacts(
        name=task.name,
        simulated=task.simulated,
        width=task.width,
        splits={
            split: SplitFacts(
                len(rows),
                0 if rows.y is None else int((rows.y >= 0).sum()),
                {attribute: int((codes >= 0).sum()) for attribute, codes in rows.s.items()},
                rows.ids is not None,
            )
            for split, rows in task.splits.items()
        },
        classes={"names": task.class_names, "prompts": task.text_target is not None},
        attributes={a: {"names": v.names, "prompts": v.text is not None} for a, v in task.sensitive.items()},
        sentences={
            **{kind: len(given.prompts) for kind, given in task.sentences.items()},
            **{f"{kind} pairs": len(given.prompts) for kind, given in task.sentence_pairs.items()},
        },
        cells={a: _cells(task, [a]) for a in task.sensitive} or {"class": _cells(task, [])},
        agreement=tuple(_agreements(task)),
    )
    notes = [a.fault for a in facts.agreement if a.fault is not None] + few_rows_note(task)
    return facts, preflight(EmbeddingStore(_parts(task), path=name)), _commands(task, name), notes


def _cells(task: Task, attributes: Sequence[str]) -> dict[str, dict[str, int]]:
    counts = count_cells(task, attributes)
    return {split: {cell_name(cell): n for cell, n in cells.items()} for split, cells in counts.items()}


def _parts(task: Task) -> list[StorePart]:
    """Return the rows of all splits as parts of one store, without a copy."""

    def part(name: str, rows: Split) -> StorePart:
        return array_part(name, lambda: rows.X, rows.X.shape, rows.X.dtype)

    return [part(name, rows) for name, rows in task.splits.items()]


def _agreements(task: Task) -> list[PromptFacts]:
    out = []
    for split, rows in task.splits.items():
        pairs = [("class", task.text_target, rows.y)]
        pairs += [(a, task.sensitive[a].text, codes) for a, codes in rows.s.items()]
        for of, text, codes in pairs:
            if text is not None and codes is not None and len(text) > 1 and (codes >= 0).any():
                out.append(_agreement(of, split, rows.X, text, codes))
    return out


def _agreement(of: str, split: str, X: Any, text: Floats, codes: Ints) -> PromptFacts:
    known = codes >= 0
    prompts = [prompt[None] for prompt in text]
    predicted = zero_shot(X[known], prompts)[0]
    compared = agreement(X, prompts, codes)
    fault = None
    if compared is not None and compared.prefers_another_order:
        fault = (
            f"the prompts of {of} agree better with the labels of {split} in another order ({worded(compared.best)} of "
            f"the rows of a class against {worded(compared.given)}): check prompts and labels"
        )
    elif compared is not None and compared.is_chance:
        fault = (
            f"the prompts of {of} predict the labels of {split} no better than chance ({worded(compared.given)} of the "
            "rows of a class): check that prompts, labels and images belong together"
        )
    return PromptFacts(
        of,
        split,
        int(known.sum()),
        float(np.mean(predicted == codes[known])),
        None if compared is None else compared.given,
        None if compared is None else compared.best,
        fault,
    )


def _commands(task: Task, name: str) -> list[Possible]:
    """Return the commands for each sensitive attribute."""
    name, out = shlex.quote(name), []
    attributes: Sequence[str | None] = list(task.sensitive) or [None]
    for attribute in attributes:
        chosen = ""
        if attribute is not None and len(task.sensitive) > 1:
            chosen = f" --sensitive {shlex.quote(attribute)}"
        try:
            experiment = Experiment.of(task, [] if attribute is None else [attribute])
        except FairerClipError as error:
            out.append(Possible(f"fairerclip audit {name}{chosen}", str(error)))
            continue
        out.append(Possible(f"fairerclip audit {name}{chosen}", _reason(_audit, experiment)))
        how = "tuned by worst_group" if experiment.can_tune() else NOT_TUNED
        how = "EmbeddingMitigator, for rankings" if experiment.is_gallery() else how
        for labels in LABELS:
            reason = _reason(_fit, experiment, labels)
            command = f"fairerclip fit {name}{chosen} --labels {labels} -o MODEL"
            out.append(Possible(command, reason, how if reason is None else ""))
    return out


def _reason(call: Callable[..., None], *arguments: Any) -> str | None:
    """Return the message of the error that a call raises, None if it raises none."""
    try:
        call(*arguments)
    except FairerClipError as error:
        return str(error)
    return None


def _audit(experiment: Experiment) -> None:
    audited_split(experiment, AuditOptions(), needs_training=False)


def _fit(experiment: Experiment, labels: str) -> None:
    if experiment.is_gallery():
        experiment.mitigator_arguments(labels)
        return
    y = experiment.arguments(labels)["y"]
    if y is not None:
        present = set(y.tolist()) & set(experiment.classes)
        if len(present) < 2:
            raise LabelError(f"the training split has rows of {len(present)} classes; a fit needs two")
