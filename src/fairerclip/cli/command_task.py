"""`fairerclip task`: makes a task file from a dataset, or from your own embeddings and labels."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairerclip.cli import dataset_options, options
from fairerclip.cli.dataset_options import SplitSeed

if TYPE_CHECKING:
    from fairerclip.data.labelled_rows import Labelled
    from fairerclip.data.preflight import Preflight
    from fairerclip.data.prompts.prompt_set import PromptSet
    from fairerclip.data.stores import EmbeddingStore
    from fairerclip.encoders.encoder import Encoder

app = typer.Typer(help="Make a task file from a dataset or from your own embeddings.", rich_markup_mode=None)

Output = Annotated[Path, options.writes("--output", "-o", help="Task to write: .npz or .safetensors.")]
Root = Annotated[Path, typer.Argument(metavar="ROOT", help="The dataset's folder, in its official layout.")]
NewStore = Annotated[
    Path | None,
    options.writes(
        "--store",
        help="Embedding store to use, make or continue. Default: beside the task, ending in .store.",
    ),
]
Store = Annotated[
    Path,
    typer.Argument(metavar="STORE", help="Embeddings: store, clip-retrieval folder, parquet, .npz, .npy …"),
]
LabelTable = Annotated[Path, typer.Option("--labels", help="Labels: .csv, .tsv or .parquet with a header.")]
IdColumn = Annotated[str | None, typer.Option("--id", help="Column of ids; not needed with --by-position.")]
IdFile = Annotated[
    Path | None,
    typer.Option(
        "--ids",
        help="Ids of the rows of STORE, in their order: .txt (one per line), .json (a list), or .csv, .tsv, .parquet "
        "with the column of --id.",
    ),
]
ByPosition = Annotated[
    bool,
    typer.Option(
        "--by-position",
        help="Row k of STORE is row k of the labels. Only the numbers of rows are compared.",
    ),
]
Match = Annotated[
    str,
    typer.Option(
        help="Part of ids that must be equal: exact, basename (without folders) or stem (also without the ending)."
    ),
]
SensitiveColumns = Annotated[
    str, typer.Option("--sensitive", help="Columns of sensitive attributes, comma-separated.")
]
LabelPrompts = Annotated[
    str,
    typer.Option(
        "--prompts", metavar="NAME_OR_FILE", help="Prompt set; its names must be those of the labels."
    ),
]
TargetColumn = Annotated[
    str | None, typer.Option("--target", help="Column of the target; none for a gallery.")
]
EmbeddingShares = Annotated[
    str, typer.Option("--shares", help="Shares of train, val and test of a random split.")
]
SplitColumn = Annotated[
    str | None, typer.Option("--split", help="Column of splits. Default: a random split by --shares.")
]
PromptEmbeddings = Annotated[
    Path | None,
    typer.Option("--text", help="Prompt embeddings (.npy …), one row per distinct prompt of the set."),
]


@dataclass(frozen=True)
class TaskParts:
    """What a task is made of: labels, embeddings, prompts, and how the prompts are embedded."""

    labelled: Labelled
    store: EmbeddingStore
    prompts: PromptSet
    encoder: Encoder | None = None
    text: EmbeddingStore | None = None
    """Prompt embeddings, where they are given."""
    notes: Sequence[str] = ()
    match: str = "exact"
    by_position: bool = False


def _dataset_command(reader_options: dataset_options.ReaderOptions) -> None:
    """Register a command with the name of the function: the options of every dataset plus those of the function.

    The function turns its own options, which come before --prompts, into arguments of the dataset's reader.
    """
    own = inspect.signature(reader_options, eval_str=True).parameters

    @functools.wraps(reader_options)
    def command(**given: Any) -> None:
        for_reader = reader_options(**{name: given.pop(name) for name in own})
        _make_task(reader_options.__name__, for_reader, **given)

    shared = list(inspect.signature(_make_task, eval_str=True).parameters.values())[2:]
    at = [parameter.name for parameter in shared].index("prompts")
    parameters = [*shared[:at], *own.values(), *shared[at:]]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app.command()(command)


def _make_task(
    name: str,
    for_reader: dict[str, Any],
    root: Root,
    output: Output,
    model: options.Model = None,
    weights: options.Weights = None,
    preprocessing: options.Preprocessing = None,
    device: options.Device = "cpu",
    download: options.Download = False,
    store: NewStore = None,
    prompts: options.Prompts = None,
    workers: options.Workers = 2,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Read a dataset, embed its images unless a store holds them, and write its task."""
    from fairerclip.cli import show
    from fairerclip.data.build import check_prompts
    from fairerclip.data.datasets import read_dataset
    from fairerclip.data.labelled_rows import from_dataset
    from fairerclip.data.prompts import load_prompts
    from fairerclip.data.stores import open_store
    from fairerclip.encoders.embed import embed_dataset
    from fairerclip.errors import ParameterError

    choice = options.chosen_model(model, weights, preprocessing, device, download)
    _check_output(output, overwrite)
    index = read_dataset(name, root, **for_reader)
    prompt_source = options.prompts_for(index, prompts)
    prompt_set = load_prompts(prompt_source)
    labelled = from_dataset(index)
    check_prompts(labelled, prompt_set)
    folder = store or output.with_name(output.name + ".store")
    encoder = None
    if choice is not None:
        encoder = choice.load()
        with show.progress("embedding") as advance:
            embed_dataset(
                index, encoder, folder, workers=workers, progress=lambda n, of: advance(n, of or len(index))
            )
    elif not folder.exists():
        raise ParameterError(
            f"nothing is embedded yet: give --model, or --store with a folder that embed wrote ({folder})"
        )
    parts = TaskParts(labelled, open_store(folder), prompt_set, encoder, notes=index.notes)
    _write(parts, output, overwrite=overwrite, json=json)


for _reader_options in dataset_options.COMMANDS:
    _dataset_command(_reader_options)


@app.command()
def embeddings(
    store: Store,
    labels: LabelTable,
    sensitive: SensitiveColumns,
    prompts: LabelPrompts,
    output: Output,
    id_column: IdColumn = None,
    ids: IdFile = None,
    match: Match = "exact",
    by_position: ByPosition = False,
    target: TargetColumn = None,
    split_column: SplitColumn = None,
    shares: EmbeddingShares = dataset_options.SHARES,
    model: options.Model = None,
    weights: options.Weights = None,
    preprocessing: options.Preprocessing = None,
    device: options.Device = "cpu",
    download: options.Download = False,
    text: PromptEmbeddings = None,
    seed: SplitSeed = 0,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Your own embeddings and labels, joined by id, or with --by-position in the order of the rows."""
    from fairerclip.data.label_table import read_labels
    from fairerclip.data.labelled_rows import from_table
    from fairerclip.data.prompts import load_prompts
    from fairerclip.data.stores import open_store
    from fairerclip.data.stratified_split import check_shares
    from fairerclip.errors import ParameterError

    _check_output(output, overwrite)
    attributes = _attributes(sensitive, target, split_column)
    drawn = dataset_options.split_shares(shares)
    if split_column is None:
        check_shares(drawn, seed)
    if model is not None and text is not None:
        raise ParameterError(
            "--model encodes the prompts and --text gives their embeddings: give one of them"
        )
    choice = options.chosen_model(model, weights, preprocessing, device, download)
    prompt_set = load_prompts(prompts)
    rows = open_rows(store, ids, id_column, match, by_position)
    columns = [name for name in (target, *attributes, split_column) if name is not None]
    table = read_labels(labels, id_column=id_column, columns=columns, allow_constant=[split_column or ""])
    labelled = from_table(
        table,
        name=labels.stem,
        target=target,
        sensitive=attributes,
        split_column=split_column,
        shares=drawn,
        seed=seed,
    )
    encoder = None if choice is None else choice.load()
    text_store = None if text is None else open_store(text, modality="text")
    parts = TaskParts(labelled, rows, prompt_set, encoder, text_store, (), match, by_position)
    _write(parts, output, overwrite=overwrite, json=json)


def open_rows(
    path: Path, ids: Path | None, id_column: str | None, match: str, by_position: bool
) -> EmbeddingStore:
    """Open the embeddings; raise before any work if nothing says which label belongs to which row."""
    from fairerclip.data.build import check_ids
    from fairerclip.data.join import MATCHES
    from fairerclip.data.stores import open_store
    from fairerclip.errors import ParameterError

    if match not in MATCHES:
        raise ParameterError(f"--match must be one of {', '.join(MATCHES)}; got {match!r:.60}")
    if by_position and (ids is not None or match != "exact"):
        raise ParameterError("--by-position joins without ids: leave out --ids and --match, or --by-position")
    if not by_position and id_column is None:
        raise ParameterError(
            "--id is needed: it names the column of ids in the labels; or give --by-position if the labels are in the "
            "order of the rows"
        )
    rows = open_store(path) if ids is None else open_store(path, ids=ids, id_column=id_column)
    if not by_position:
        check_ids(rows)
    return rows


def _attributes(sensitive: str, target: str | None, split_column: str | None) -> list[str]:
    """Return the columns of sensitive attributes; raise if there are none or if they have another role too."""
    from fairerclip.errors import ParameterError

    attributes = options.split_names(sensitive) or []
    if not attributes:
        raise ParameterError("--sensitive expects at least one column")
    if {target, split_column} & set(attributes) or (target is not None and target == split_column):
        raise ParameterError("--target, --sensitive and --split must name different columns")
    return attributes


def _check_output(output: Path, overwrite: bool) -> None:
    """Raise if a task cannot be written to the output."""
    from fairerclip._util.files import check_free
    from fairerclip.errors import ParameterError

    if output.suffix not in (".npz", ".safetensors"):
        raise ParameterError(f"a task ends in .npz or .safetensors; got {output.name!r}")
    check_free(output, overwrite)


def _write(parts: TaskParts, output: Path, *, overwrite: bool, json: bool) -> None:
    """Check the embeddings, write the task, and print what it holds."""
    from fairerclip.cli import show
    from fairerclip.data import save_task
    from fairerclip.data.build import build_task, encoded_prompts, text_encoder
    from fairerclip.data.preflight import preflight
    from fairerclip.data.task_counts import cell_name, count_cells

    embedded = parts.store
    encoded = encoded_prompts(parts.prompts, text_encoder(parts.prompts, embedded, parts.encoder, parts.text))
    checks = preflight(embedded, _text_store(encoded.text_target, parts, embedded))
    _check_rows(checks, embedded)
    with show.warnings_as_lines() as warned:
        task, unmatched = build_task(
            parts.labelled, embedded, encoded, match=parts.match, by_position=parts.by_position
        )
    save_task(task, output, overwrite=overwrite)
    notes = [*checks.lines(), *parts.notes, *unmatched]
    groups = {
        split: {cell_name(cell): n for cell, n in counts.items()}
        for split, counts in count_cells(task).items()
    }
    if json:
        about = {"task": str(output), "name": task.name, "groups": groups}
        show.print_json({**about, "preflight": checks.as_dict(), "notes": notes, "warnings": warned})
        return
    for line in notes:
        show.say(line)
    for split, counts in groups.items():
        show.say(f"{split}: " + ", ".join(f"{name} {n}" for name, n in counts.items()))
    show.say(f"written to {output}")


def _check_rows(checks: Preflight, embedded: EmbeddingStore) -> None:
    """Raise if rows of the embeddings are zero or not finite."""
    from fairerclip.errors import StoreError

    if not checks.usable:
        row = (checks.first_non_finite or checks.first_zero)[0]
        name = "" if embedded.ids is None else f" ({embedded.ids[row]})"
        raise StoreError(
            f"{embedded.path}: {checks.non_finite_rows} rows hold NaN or infinity and {checks.zero_rows} are zero, "
            f"first row {row}{name}; embed those images again or leave them out"
        )


def _text_store(vectors: Any, parts: TaskParts, embedded: EmbeddingStore) -> EmbeddingStore | None:
    """Return the prompt embeddings with the provenance of the model that made them."""
    from fairerclip.data.stores import EmbeddingStore

    if vectors is None:
        return None
    source = next(part for part in (parts.encoder, parts.text, embedded) if part is not None)
    return EmbeddingStore.from_array(vectors, provenance=source.provenance)
