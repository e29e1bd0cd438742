"""Zero-shot accuracy by group of several models on the same dataset."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, ValidationError

from fairerclip._util.extras import require
from fairerclip._util.files import atomic_file, check_free
from fairerclip.auditing.validation import Called, Part, Scalar, refusal
from fairerclip.data import open_task, save_task
from fairerclip.data.build import Encode, build_task, encoded_prompts, text_encoder
from fairerclip.data.datasets import DatasetIndex
from fairerclip.data.io.strict_json import read_strict_json
from fairerclip.data.labelled_rows import from_dataset
from fairerclip.data.prompts import PromptSet
from fairerclip.data.stores import EmbeddingStore, open_store
from fairerclip.errors import LabelError, ParameterError, StoreError, TaskFileError
from fairerclip.experiment import Experiment
from fairerclip.metrics import GroupReport
from fairerclip.metrics.names import FIGURES

if TYPE_CHECKING:
    from fairerclip.encoders.choice import ModelChoice
    from fairerclip.encoders.encoder import Encoder

PLOT_ENDINGS = (".png", ".svg", ".pdf")
MAX_ABOUT_BYTES = 1 << 20
"""Limit of the size of a file that describes models."""


@dataclass(frozen=True)
class AuditRow:
    """Zero-shot results of one model on one dataset."""

    label: str
    split: str
    report: GroupReport
    parameters: float | None = None
    """Number of parameters of the model: size of its mark in a plot."""
    data: str | None = None
    """Training data of the model: colour of its mark in a plot."""
    rows: str | None = None
    """Digest of the ids of the rows, if they have ids; only models with equal digests are compared."""

    def as_dict(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        about = {"model": self.label, "split": self.split, "parameters": self.parameters, "data": self.data}
        return {**about, **self.report.as_dict()}


@dataclass(frozen=True)
class ModelTask:
    """The task file written for one model, and sentences on ids that did not match."""

    model: ModelChoice
    file: Path
    notes: tuple[str, ...]


def tasks_of_models(
    index: DatasetIndex,
    prompts: PromptSet,
    models: Sequence[ModelChoice],
    stores: Path,
    file: Callable[[ModelChoice], Path],
    *,
    load: Callable[[ModelChoice], Encoder] | None = None,
    workers: int = 2,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[ModelTask]:
    """Embed a dataset with each model and write a task per model; images in the stores are not embedded again.

    Parameters
    ----------
    index : DatasetIndex
        Images and labels of the dataset.
    prompts : PromptSet
        Prompts whose names are those of the labels.
    models : sequence of ModelChoice
        Each model has its own store.
    stores : Path
        Folder of the stores. Targets with the same folder share the embeddings of the images.
    file : callable
        Returns the path of a model's task file.
    load : callable, optional
        Loads a model; None for `ModelChoice.load`.
    workers : int, default=2
        Number of threads that decode images.
    progress : callable, optional
        Called with the label of a model, the number of images done, and their total.

    Returns
    -------
    list of ModelTask
        One per model.
    """
    from fairerclip.encoders.embed import embed_dataset, embed_prompts

    tasks = []
    for model in models:
        encoder = model.load() if load is None else load(model)
        place = stores / f"{model.file_name}.store"
        report = None if progress is None else partial(_report_progress, progress, model.label, len(index))
        embed_dataset(index, encoder, place, workers=workers, progress=report)
        embed_prompts(prompts, encoder, place)
        store = open_store(place)
        encode = text_encoder(prompts, store, encoder, None)
        written, notes = _write(index, prompts, store, encode, file(model))
        tasks.append(ModelTask(model, written, notes))
    return tasks


def _report_progress(
    progress: Callable[[str, int, int], None], label: str, total: int, done: int, of: int | None
) -> None:
    progress(label, done, of or total)


def tasks_of_stores(index: DatasetIndex, prompts: PromptSet, stores: Path, folder: Path) -> list[Path]:
    """Write a task for each embedding store of a folder and return their paths; stores must hold the prompts, too."""
    places = (
        sorted(place for place in stores.iterdir() if (place / "store.json").is_file())
        if stores.is_dir()
        else []
    )
    if not places:
        raise StoreError(
            f"{stores}: expected stores that `fairerclip embed` wrote, got none; embed the images first"
        )
    files = []
    for place in places:
        store = open_store(place)
        file = folder / f"{place.name.removesuffix('.store')}.npz"
        files.append(_write(index, prompts, store, text_encoder(prompts, store, None, None), file)[0])
    return files


def _write(
    index: DatasetIndex, prompts: PromptSet, store: EmbeddingStore, encode: Encode, file: Path
) -> tuple[Path, tuple[str, ...]]:
    task, notes = build_task(from_dataset(index), store, encoded_prompts(prompts, encode))
    # Overwritten without asking: a task is quick to make and must match the current prompts and labels.
    return save_task(task, file, overwrite=True), tuple(notes)


class KnownModel(Part):
    """Description of a model for a plot: a label in place of the file name, its size, and its training data."""

    label: Scalar = None
    parameters: Annotated[float, Field(gt=0), Called("a number above 0")] | None = None
    data: Scalar = None


def read_models(path: Path) -> dict[str, KnownModel]:
    """Read the descriptions of models from a file, by the name of the task."""
    about = read_strict_json(path, TaskFileError, limit=MAX_ABOUT_BYTES)
    try:
        return TypeAdapter(dict[str, KnownModel]).validate_python(about)
    except ValidationError as error:
        raise TaskFileError(
            f"{path}: expected an object from task name to {{label, parameters, data}}; {refusal(error)}"
        ) from None


def audit_tasks(
    files: Sequence[Path],
    sensitive: Sequence[str] | None = None,
    split: str | None = None,
    about: Mapping[str, KnownModel] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[AuditRow]:
    """Audit each task file zero-shot and return the results, highest accuracy of the worst group first.

    The files must have the same rows: on different rows, figures of two models cannot be compared.
    """
    unknown = sorted(set(about or {}) - {file.stem for file in files})
    if unknown:
        raise ParameterError(
            f"models are described for {', '.join(unknown)}, but there is no task of that name"
        )
    rows = []
    for done, file in enumerate(files, 1):
        rows.append(_audit(file, sensitive, split, (about or {}).get(file.stem, KnownModel())))
        if progress is not None:
            progress(done, len(files))
    audited = {(row.split, row.rows, tuple((g.name, g.n) for g in row.report.groups)) for row in rows}
    if len(audited) > 1:
        raise LabelError(
            "the tasks do not have the same rows and groups, so their figures cannot be compared: audit one dataset "
            "and one split at a time"
        )
    return sorted(rows, key=lambda row: -row.report.worst.accuracy)


def _audit(file: Path, sensitive: Sequence[str] | None, split: str | None, about: KnownModel) -> AuditRow:
    experiment = Experiment.of(open_task(file), sensitive)
    name = split or experiment.evaluation_split()
    if name is None:
        raise LabelError(f"{file}: no split has both target and sensitive labels")
    rows = experiment.task.split(name)
    return AuditRow(
        label=file.stem if about.label is None else str(about.label),
        split=name,
        report=experiment.report(rows, experiment.zero_shot(rows)),
        parameters=about.parameters,
        data=None if about.data is None else str(about.data),
        rows=None if rows.ids is None else _digest(rows.ids),
    )


def _digest(ids: NDArray[Any]) -> str:
    """Return a digest of ids that does not depend on their order."""
    return hashlib.sha256("\n".join(sorted(map(str, ids))).encode()).hexdigest()


def check_plot(path: Path, overwrite: bool) -> None:
    """Raise for a file ending that cannot be drawn, and for a file that exists unless ``overwrite``."""
    if path.suffix not in PLOT_ENDINGS:
        raise ParameterError(f"a plot ends in {', '.join(PLOT_ENDINGS)}; got {path.name!r}")
    check_free(path, overwrite)


def draw(rows: Sequence[AuditRow], path: Path, *, overwrite: bool = False) -> None:
    """Draw the worst group against the average, with intervals; size by parameters, colour by training data."""
    check_plot(path, overwrite)
    figures = require("matplotlib.figure", "plots", "drawing")
    figure = figures.Figure(figsize=(7, 5), layout="constrained")
    axes = figure.add_subplot()
    largest = max((row.parameters or 0 for row in rows), default=0) or 1.0
    for data in sorted({row.data or "unknown data" for row in rows}):
        chosen = [row for row in rows if (row.data or "unknown data") == data]
        x = [100 * row.report.average for row in chosen]
        y = [100 * row.report.worst.accuracy for row in chosen]
        ends = [row.report.intervals["worst_group"] for row in chosen]
        low = [at - 100 * end[0] for at, end in zip(y, ends, strict=True)]
        high = [100 * end[1] - at for at, end in zip(y, ends, strict=True)]
        size = [30 + 270 * (row.parameters or 0) / largest for row in chosen]
        bars = axes.errorbar(x, y, yerr=[low, high], fmt="none", alpha=0.4)
        axes.scatter(x, y, s=size, alpha=0.7, label=data, color=bars[2][0].get_color()[0])
    if len(rows) <= 20:
        for row in rows:
            axes.annotate(
                row.label,
                (100 * row.report.average, 100 * row.report.worst.accuracy),
                xytext=(4, 4),
                textcoords="offset points",
                fontsize=7,
                parse_math=False,  # labels come from files
            )
    average, worst = (FIGURES[name].axis for name in ("average", "worst_group"))
    axes.set(xlabel=average, ylabel=f"{worst} [95 %], {rows[0].split} split")
    axes.legend(title="trained on", fontsize=8)
    with atomic_file(path, overwrite=overwrite) as handle:
        figure.savefig(handle, format=path.suffix[1:], dpi=150)
