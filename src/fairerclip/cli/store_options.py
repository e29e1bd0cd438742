"""Options of `fairerclip fit` and `audit` for a store of embeddings with a table of labels, in the place of a task."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from fairerclip.cli import options
from fairerclip.cli.fit_options import EMBEDDING, OWN

if TYPE_CHECKING:
    from fairerclip.experiment import Experiment

LabelsFrom = Annotated[
    Path | None,
    typer.Option(
        "--labels-from",
        metavar="TABLE",
        help="TASK is a store of embeddings, and this its table of labels: .csv, .tsv or .parquet with a header. "
        "The embeddings stay on disk. Needs --id and --sensitive; a target needs --target.",
    ),
]
IdColumn = Annotated[
    str | None, typer.Option("--id", help="With --labels-from: column of ids; not needed with --by-position.")
]
IdFile = Annotated[
    Path | None,
    typer.Option(
        "--ids",
        help="With --labels-from: ids of the rows of the store, in their order, for a store without ids: .txt, .json, "
        "or .csv, .tsv, .parquet with the column of --id.",
    ),
]
Match = Annotated[
    str,
    typer.Option(
        help="With --labels-from: part of ids that must be equal: exact, basename (without folders) or stem (also "
        "without the ending)."
    ),
]
ByPosition = Annotated[
    bool,
    typer.Option("--by-position", help="With --labels-from: row k of the store is row k of the table."),
]
TargetColumn = Annotated[
    str | None, typer.Option("--target", help="With --labels-from: column of the target; none for a gallery.")
]
SplitColumn = Annotated[
    str | None,
    typer.Option(
        "--split",
        help="With --labels-from: column of splits. Rows of val choose the model, rows of test evaluate it. Default: "
        "all rows are training rows.",
    ),
]
LabelPrompts = Annotated[
    str | None,
    typer.Option(
        "--prompts",
        metavar="NAME_OR_FILE",
        help="With --labels-from: prompt set; its names must be those of the labels.",
    ),
]
PromptEmbeddings = Annotated[
    Path | None,
    typer.Option(
        "--text",
        help="With --labels-from: prompt embeddings (.npy …), one row per distinct prompt of the set. Default: those "
        "of the store, or of --model.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(help=f"With --labels-from: CLIP model that encodes the prompts: {options.MODELS}."),
]


@dataclass(frozen=True)
class Read:
    """Sentences and warnings on the rows that were read."""

    notes: Sequence[str] | None = None
    """Sentences on the rows of a store; None for a task."""
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class StoreOptions:
    """Options on a store and its table of labels, as they were given."""

    labels_from: LabelsFrom = None
    id_column: IdColumn = None
    ids: IdFile = None
    match: Match = "exact"
    by_position: ByPosition = False
    target: TargetColumn = None
    split: SplitColumn = None
    prompts: LabelPrompts = None
    text: PromptEmbeddings = None
    model: Model = None
    weights: options.Weights = None
    preprocessing: options.Preprocessing = None
    device: options.Device = "cpu"
    download: options.Download = False

    def check_method(self, key: str) -> None:
        """Raise for a table and a method that needs all rows in memory."""
        from fairerclip.errors import ParameterError

        if self.labels_from is not None and key not in (OWN, EMBEDDING):
            raise ParameterError(
                f"--labels-from fits {OWN} and {EMBEDDING}, which read rows in blocks; {key} needs all of them "
                "in memory: make a task with `fairerclip task embeddings`"
            )

    def check(self, task: Path | None) -> None:
        """Raise, before any work, for options without a table, two sources of prompts, or a store without a table."""
        from fairerclip.errors import ParameterError

        if self.labels_from is not None:
            if self.model is not None and self.text is not None:
                raise ParameterError(
                    "--model encodes the prompts and --text gives their embeddings: give one of them"
                )
            return
        given = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        if given:
            flag = {"id_column": "id"}.get(given[0], given[0]).replace("_", "-")
            raise ParameterError(
                f"--{flag} is for a store of embeddings: add --labels-from TABLE, or leave it out"
            )
        if task is not None:
            _refuse_store(task)

    def read(self, task: Path, sensitive: str | None, classes: str | None) -> tuple[Experiment, Read]:
        """Return the experiment on a task, or on a store and its table, and what there is to say of the rows."""
        from fairerclip.cli import show

        if self.labels_from is None:
            return options.load_experiment(task, sensitive, classes), Read()
        with show.warnings_as_lines() as warned:
            experiment, notes = self._experiment(task, self.labels_from, sensitive, classes)
        return experiment, Read(notes, warned)

    def _experiment(
        self, store: Path, labels: Path, sensitive: str | None, classes: str | None
    ) -> tuple[Experiment, list[str]]:
        """Match the table with the store; return the experiment, with its rows on disk, and sentences on it."""
        from fairerclip.cli import show
        from fairerclip.cli.command_task import open_rows
        from fairerclip.data.build import build_task, check_prompts, encoded_prompts, text_encoder
        from fairerclip.data.label_table import read_labels
        from fairerclip.data.labelled_rows import from_table
        from fairerclip.data.prompts import load_prompts
        from fairerclip.data.stores import open_store
        from fairerclip.errors import ParameterError
        from fairerclip.experiment import Experiment

        attributes = options.split_names(sensitive) or []
        if not attributes:
            raise ParameterError("--labels-from needs --sensitive, with at least one column of the table")
        columns = [name for name in (self.target, *attributes, self.split) if name is not None]
        if len(set(columns)) < len(columns):
            raise ParameterError("--target, --sensitive and --split must name different columns")
        choice = options.chosen_model(
            self.model, self.weights, self.preprocessing, self.device, self.download
        )
        prompt_set = None if self.prompts is None else load_prompts(self.prompts)
        rows = open_rows(store, self.ids, self.id_column, self.match, self.by_position)
        with show.progress("reading labels", rate=True) as advance:
            table = read_labels(
                labels,
                id_column=None if self.by_position else self.id_column,
                columns=columns,
                allow_constant=[self.split or ""],
                progress=advance,
            )
        labelled = from_table(
            table,
            name=labels.stem,
            target=self.target,
            sensitive=attributes,
            split_column=self.split,
            shares=None,
        )
        encoded = None
        if prompt_set is not None:
            check_prompts(labelled, prompt_set)
            text = None if self.text is None else open_store(self.text, modality="text")
            encoder = None if choice is None else choice.load()
            encoded = encoded_prompts(prompt_set, text_encoder(prompt_set, rows, encoder, text))
        task, notes = build_task(
            labelled, rows, encoded, match=self.match, by_position=self.by_position, in_memory=False
        )
        return Experiment.of(task, attributes, options.split_names(classes)), notes


NO_STORE = StoreOptions()


def _refuse_store(path: Path) -> None:
    """Raise if a path is a store of embeddings and no task."""
    from fairerclip.data.stores import open_store
    from fairerclip.data.task_files import is_task
    from fairerclip.errors import FairerClipError, ParameterError

    try:
        if not path.exists() or is_task(path):
            return
        open_store(path)
    except (FairerClipError, OSError, ValueError):
        return  # reading it as a task raises an error that says what is wrong
    raise ParameterError(
        f"{path} is a store of embeddings, not a task: add --labels-from TABLE with --id, --target, --sensitive and "
        "--prompts, or make a task with `fairerclip task embeddings`"
    )


def with_store_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the fields of `StoreOptions` as options, except those whose names are options of its own.

    It gets them as its argument ``store``.
    """
    own = inspect.signature(command, eval_str=True).parameters
    hints = get_type_hints(StoreOptions, include_extras=True)
    added = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(StoreOptions)
        if field.name not in own
    ]

    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        store = StoreOptions(**{parameter.name: given.pop(parameter.name) for parameter in added})
        command(**given, store=store)

    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in own.items()
        if name != "store"
    ]
    parameters += added
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapped
