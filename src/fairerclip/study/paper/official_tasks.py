"""Tasks from images in the datasets' official layouts: read, embedded, and written as task files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from fairerclip.auditing.many_models import ModelTask, tasks_of_models
from fairerclip.data.build import check_prompts, from_dataset
from fairerclip.data.datasets import DatasetIndex, read_dataset
from fairerclip.data.datasets.fairface import MARGINS
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
"""Dataset of an entry → reader and its options."""


@dataclass
class OfficialImages:
    """The datasets below a folder, and how their images become embeddings.

    Parameters
    ----------
    root : the folder of the datasets, each in a folder of its name or directly in it.
    work : folder for embeddings and tasks; what is there is used again.
    models : encoders; none where nothing is to be embedded.
    prompts : dataset → prompt set; the dataset's own unless given.
    margin : of FairFace's images.
    workers : threads that decode images.
    progress : called with what is embedded, the images gone through, and their number.
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
        # The last model stays loaded: the datasets of a run are mostly embedded by the same one.
        self._load: Callable[[ModelChoice], Encoder] = lru_cache(maxsize=1)(lambda model: model.load())

    def problem(self, dataset: str) -> FairerClipError | None:
        """Why a dataset cannot be read; `DatasetAbsentError` where there is nothing of it."""
        try:
            self.index(dataset)
        except FairerClipError as error:
            return error
        return None

    def index(self, dataset: str) -> DatasetIndex:
        """The lists of a dataset, read once."""
        if dataset not in self._found:
            try:
                self._found[dataset] = self._find(dataset)
            except FairerClipError as error:
                self._found[dataset] = error
        found = self._found[dataset]
        if isinstance(found, FairerClipError):
            raise found
        return found

    def check(self, datasets: Collection[str]) -> None:
        """Refuse options that would fail after hours of embedding: prompts and models, of datasets that are there."""
        if self.margin is not None and "fairface" not in datasets:
            raise ParameterError("--margin chooses images of FairFace, which nothing that was named uses")
        there = [dataset for dataset in datasets if self.problem(dataset) is None]
        for dataset in there:
            self._prompts(dataset)
        for model in reversed(self.models if there else ()):  # the first one is kept
            self._load(model)

    def tasks(self, dataset: str) -> list[ModelTask]:
        """The task of a dataset, once per model."""
        index, prompts = self.index(dataset), self._prompts(dataset)
        name, _ = DATA[dataset]
        # Targets of one dataset share its stores, so that images are embedded once; images of two margins have the
        # same ids and must not.
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
            progress=None if self.progress is None else self._told(name),
        )

    def _told(self, name: str) -> Callable[[str, int, int], None]:
        def tell(model: str, done: int, total: int) -> None:
            if self.progress is not None:
                self.progress(f"embedding {name}, {model}", done, total)

        return tell

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
        if inside:  # a folder of its name is not an absent dataset, whatever it lacks
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
                f"the prompts {prompts.name!r} are not opposite pairs, one after the other, and one model is fitted "
                "for each pair: give a set whose 'pairs' are its classes in order"
            )
        return prompts


def chosen_prompts(values: Sequence[str], datasets: Collection[str]) -> dict[str, str]:
    """Dataset → prompt set, from ``DATASET=NAME_OR_FILE``, or ``NAME_OR_FILE`` where one dataset is used.

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
                    f"--prompts {value} is of one dataset, and {', '.join(used) or 'none'} are used: write "
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
        load_prompts(source)  # a bad name is said before anything is read
        chosen[dataset] = source
    return chosen
