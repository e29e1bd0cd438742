"""Zero-shot accuracy by group, of one model or of many on the same dataset."""

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
from fairerclip.data.build import Encode, build_task, encoded_prompts, from_dataset, text_encoder
from fairerclip.data.datasets import DatasetIndex
from fairerclip.data.io.strict_json import read_strict_json
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


@dataclass(frozen=True)
class AuditRow:
    """One model on one dataset, zero-shot."""

    label: str
    split: str
    report: GroupReport
    parameters: float | None = None
    """Number of parameters of the model, for the plot's sizes."""
    data: str | None = None
    """What it was trained on, for the plot's colours."""
    rows: str | None = None
    """Digest of the ids of the rows, where they have ids: what may be compared."""

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        about = {"model": self.label, "split": self.split, "parameters": self.parameters, "data": self.data}
        return {**about, **self.report.as_dict()}


@dataclass(frozen=True)
class ModelTask:
    """The task of one model that was written, and sentences on what did not match."""

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
    """Embed a dataset with each model and write a task per model; images embedded earlier are not again.

    Parameters
    ----------
    index : images and labels of the dataset.
    prompts : their names are those of the labels.
    models : each has a store of its own.
    stores : folder of the stores. Targets that share it share the embeddings of the images.
    file : where the task of a model is written.
    load : opens a model; by default as it says itself.
    workers : threads that decode images.
    progress : called with a model's label, the images gone through, and their number.
    """
    from fairerclip.encoders.embed import embed_dataset, embed_prompts

    made = []
    for model in models:
        encoder = model.load() if load is None else load(model)
        place = stores / f"{model.file_name}.store"
        told = None if progress is None else partial(_tell, progress, model.label, len(index))
        embed_dataset(index, encoder, place, workers=workers, progress=told)
        embed_prompts(prompts, encoder, place)
        store = open_store(place)
        encode = text_encoder(prompts, store, encoder, None)
        written, notes = _write(index, prompts, store, encode, file(model))
        made.append(ModelTask(model, written, notes))
    return made


def _tell(
    progress: Callable[[str, int, int], None], label: str, total: int, done: int, of: int | None
) -> None:
    progress(label, done, of or total)


def tasks_of_stores(index: DatasetIndex, prompts: PromptSet, stores: Path, folder: Path) -> list[Path]:
    """Write a task per embedding store of a folder; each store must hold the prompts, too."""
    found = (
        sorted(place for place in stores.iterdir() if (place / "store.json").is_file())
        if stores.is_dir()
        else []
    )
    if not found:
        raise StoreError(f"{stores} holds no store that `fairerclip embed` wrote")
    files = []
    for place in found:
        store = open_store(place)
        file = folder / f"{place.name.removesuffix('.store')}.npz"
        files.append(_write(index, prompts, store, text_encoder(prompts, store, None, None), file)[0])
    return files


def _write(
    index: DatasetIndex, prompts: PromptSet, store: EmbeddingStore, encode: Encode, file: Path
) -> tuple[Path, tuple[str, ...]]:
    task, notes = build_task(from_dataset(index), store, encoded_prompts(prompts, encode))
    # Cheap, and made for the prompts and labels of today.
    return save_task(task, file, overwrite=True), tuple(notes)


class KnownModel(Part):
    """What a plot shows of a model: its label instead of the file's name, its size, and what it was trained on."""

    label: Scalar = None
    parameters: Annotated[float, Field(gt=0), Called("a number above 0")] | None = None
    data: Scalar = None


def read_models(path: Path) -> dict[str, KnownModel]:
    """Return what a file tells of models, by the name of the task."""
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
    """Audit each task file zero-shot; best worst group first.

    The files must hold the same rows of the same dataset: a comparison over other rows compares the rows.
    """
    unknown = sorted(set(about or {}) - {file.stem for file in files})
    if unknown:
        raise ParameterError(f"something is said of {', '.join(unknown)}, but there is no task of that name")
    rows = []
    for done, file in enumerate(files, 1):
        rows.append(_audit(file, sensitive, split, (about or {}).get(file.stem, KnownModel())))
        if progress is not None:
            progress(done, len(files))
    kinds = {(row.split, row.rows, tuple((g.name, g.n) for g in row.report.groups)) for row in rows}
    if len(kinds) > 1:
        raise LabelError(
            "the tasks do not hold the same rows and groups, so their figures cannot be compared: audit one dataset "
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
    """The same for the same ids, in whatever order."""
    return hashlib.sha256("\n".join(sorted(map(str, ids))).encode()).hexdigest()


def check_plot(path: Path, overwrite: bool) -> None:
    """Refuse an ending that is not drawn, and a path that is taken."""
    if path.suffix not in PLOT_ENDINGS:
        raise ParameterError(f"a plot ends in {', '.join(PLOT_ENDINGS)}; got {path.name!r}")
    check_free(path, overwrite)


def draw(rows: Sequence[AuditRow], path: Path, *, overwrite: bool = False) -> None:
    """Worst group against average, with intervals; size by parameters, colour by training data."""
    check_plot(path, overwrite)
    figures = require("matplotlib.figure", "plots", "drawing")
    figure = figures.Figure(figsize=(7, 5), layout="constrained")
    axes = figure.add_subplot()
    largest = max((row.parameters or 0 for row in rows), default=0) or 1.0
    kinds = sorted({row.data or "unknown data" for row in rows})
    for kind in kinds:
        chosen = [row for row in rows if (row.data or "unknown data") == kind]
        x = [100 * row.report.average for row in chosen]
        y = [100 * row.report.worst.accuracy for row in chosen]
        ends = [row.report.intervals["worst_group"] for row in chosen]
        low = [at - 100 * end[0] for at, end in zip(y, ends, strict=True)]
        high = [100 * end[1] - at for at, end in zip(y, ends, strict=True)]
        size = [30 + 270 * (row.parameters or 0) / largest for row in chosen]
        bars = axes.errorbar(x, y, yerr=[low, high], fmt="none", alpha=0.4)
        axes.scatter(x, y, s=size, alpha=0.7, label=kind, color=bars[2][0].get_color()[0])
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
