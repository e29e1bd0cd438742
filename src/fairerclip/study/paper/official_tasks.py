"""Tasks from images in the datasets' official layouts: read, embedded, and written as task files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from fairerclip.auditing.many_models import ModelTask, tasks_of_models
from fairerclip.data.build import check_prompts
from fairerclip.data.datasets import DatasetIndex, read_dataset
from fairerclip.data.datasets.fairface import MARGINS
from fairerclip.data.labelled_rows import from_dataset
from fairerclip.data.prompts import PromptSet, load_prompts
from fairerclip.encoders.choice import ModelChoice
from fairerclip.encoders.encoder import Encoder
from fairerclip.errors import DatasetAbsentError, DatasetError, FairerClipError, ParameterError, PromptError

DATA: dict[str, tuple[str, dict[str, Any]]] = {
    "waterbirds": ("waterbirds", {}),
    "blond": ("celeba", {"target": "blond"}),
    "cheekbones": ("celeba", {"target": "cheekbones"}),
    "attractive": ("celeba", {"target": "attractive"}),
    "cfd": ("cfd", {}),
    # Nothing is tuned on FairFace, so that no row of the official training list is held out.
    "fairface": ("fairface", {"sensitive": ("sex", "race"), "val_share": 0.0}),
}
"""Reader and its options by dataset of an entry."""


@dataclass
class OfficialImages:
    """The datasets in a folder, and how their images are embedded.

    Parameters
    ----------
    root : Path
        Folder of the datasets, each in a folder of its name or directly in it.
    work : Path
        Folder for embeddings and tasks; those in it are used again.
    models : sequence of ModelChoice
        Encoders; empty if nothing is embedded.
    prompts : mapping from str to str
        Prompt set by dataset; other datasets use their default.
    margin : str or None
        Margin of FairFace's images.
    workers : int
        Number of threads that decode images.
    progress : callable or None
        Called with a text, the number of images done, and their total.
    """

    root: Path
    work: Path
    models: Sequence[ModelChoice] = ()
    prompts: Mapping[str, str] = field(default_factory=dict)
    margin: str | None = None
    workers: int = 2
    progress: Callable[[str, int, int], None] | None = None
    _found: dict[str, DatasetIndex | FairerClipError] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.margin is not None and self.margin not in MARGINS:
            raise ParameterError(f"margin must be one of {', '.join(MARGINS)}, got {self.margin!r}")
        # The last model stays loaded: most runs embed all datasets with one model.
        self._load: Callable[[ModelChoice], Encoder] = lru_cache(maxsize=1)(lambda model: model.load())

    def problem(self, dataset: str) -> FairerClipError | None:
        """Return the error of reading a dataset, `DatasetAbsentError` if it does not exist; None if it can be read."""
        try:
            self.index(dataset)
        except FairerClipError as error:
            return error
        return None

    def index(self, dataset: str) -> DatasetIndex:
        """Return images and labels of a dataset, which is read once."""
        if dataset not in self._found:
            try:
                self._found[dataset] = self._find(dataset)
            except FairerClipError as error:
                self._found[dataset] = error
        index = self._found[dataset]
        if isinstance(index, FairerClipError):
            raise index
        return index

    def check(self, datasets: Collection[str]) -> None:
        """Raise for prompts and models that would fail only after hours of embedding."""
        if self.margin is not None and "fairface" not in datasets:
            raise ParameterError(
                "--margin selects images of FairFace, which none of the chosen tables uses; leave it out"
            )
        readable = [dataset for dataset in datasets if self.problem(dataset) is None]
        for dataset in readable:
            self._prompts(dataset)
        for model in reversed(
            self.models if readable else ()
        ):  # the first model is used first: it stays loaded
            self._load(model)

    def tasks(self, dataset: str) -> list[ModelTask]:
        """Embed a dataset and return its tasks, one per model."""
        index, prompts = self.index(dataset), self._prompts(dataset)
        name, _ = DATA[dataset]
        # Targets of one dataset share its stores, so that images are embedded once. Images of two margins have the same
        # ids and must not share a store.
        stores = self.work / (f"{name}-{self.margin}" if name == "fairface" and self.margin else name)
        tasks = self.work / "tasks"
        for folder in (stores, *(tasks / model.file_name for model in self.models)):
            folder.mkdir(parents=True, exist_ok=True)
        return tasks_of_models(
            index,
            prompts,
            self.models,
            stores,
            lambda model: tasks / model.file_name / f"{dataset}.npz",
            load=self._load,
            workers=self.workers,
            progress=None if self.progress is None else self._progress_of(name),
        )

    def _progress_of(self, name: str) -> Callable[[str, int, int], None]:
        def report(model: str, done: int, total: int) -> None:
            if self.progress is not None:
                self.progress(f"embedding {name}, {model}", done, total)

        return report

    def _find(self, dataset: str) -> DatasetIndex:
        if dataset not in DATA:
            raise DatasetAbsentError("it has no official layout")
        name, options = DATA[dataset]
        if name == "fairface":
            options = {**options, "margin": self.margin}
        inside = [p for p in sorted(self.root.iterdir()) if p.is_dir() and p.name.lower() == name]
        errors: list[DatasetError] = []
        for folder in [*inside, self.root]:
            try:
                return read_dataset(name, folder, **options)
            except DatasetError as error:
                errors.append(error)
        if inside:  # a dataset with a folder of its name is not absent, even if files are missing
            raise DatasetError(str(errors[0]))
        raise errors[0]

    def _prompts(self, dataset: str) -> PromptSet:
        index = self.index(dataset)
        source = self.prompts.get(dataset) or index.prompts
        if source is None:
            raise PromptError(f"no prompts are shipped for {dataset}; give --prompts {dataset}=FILE")
        prompts = load_prompts(source)
        if not prompts.classes:
            raise PromptError(f"the prompts {prompts.name!r} have no classes, which {dataset} needs")
        check_prompts(from_dataset(index), prompts)
        paired = tuple(name for pair in prompts.pairs for name in pair)
        if index.y is None and paired != prompts.class_names:
            raise PromptError(
                f"the prompts {prompts.name!r} are not opposite pairs in order, and one model is fitted per pair: give "
                "a set whose 'pairs' are its classes in order"
            )
        return prompts


def chosen_prompts(values: Sequence[str], datasets: Collection[str]) -> dict[str, str]:
    """Parse ``DATASET=NAME_OR_FILE``, or ``NAME_OR_FILE`` if one dataset is used, to a prompt set by dataset.

    Examples
    --------
    >>> chosen_prompts(["fairface-ours"], ["fairface"])
    {'fairface': 'fairface-ours'}
    >>> chosen_prompts(["blond=celeba-blond-debias-vl"], ["waterbirds", "blond"])
    {'blond': 'celeba-blond-debias-vl'}
    """
    used = [dataset for dataset in DATA if dataset in datasets]
    chosen: dict[str, str] = {}
    for value in values:
        dataset, equals, source = value.partition("=")
        if not equals:
            if len(used) != 1:
                raise ParameterError(
                    f"--prompts {value} names no dataset, and {', '.join(used) or 'none'} are used: write "
                    "DATASET=NAME_OR_FILE"
                )
            dataset, source = used[0], value
        if dataset not in used or not source:
            raise ParameterError(
                f"--prompts expects DATASET=NAME_OR_FILE with DATASET one of {', '.join(used) or 'none'}, which the "
                f"chosen tables use; got {value!r}"
            )
        if dataset in chosen:
            raise ParameterError(f"--prompts was given twice for {dataset}")
        load_prompts(source)  # raises for a wrong name before any data is read
        chosen[dataset] = source
    return chosen
