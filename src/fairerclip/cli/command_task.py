"""`fairerclip task`: a dataset, or your own embeddings and labels, into a task file."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fairerclip.cli import options

app = typer.Typer(help="Make a task file from a dataset or from your own embeddings.", rich_markup_mode=None)

Output = Annotated[
    Path, options.writes("--output", "-o", help="Task to write: .npz, .safetensors, or a folder.")
]


def _dataset_command(chosen: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Register a command named as the function: the options of every dataset, and before --prompts its own.

    The function turns its own options into those of the dataset's reader.
    """
    own = inspect.signature(chosen, eval_str=True).parameters

    @functools.wraps(chosen)
    def command(**given: Any) -> None:
        of_reader = chosen(**{name: given.pop(name) for name in own})
        _make_task(chosen.__name__, of_reader, **given)

    shared = list(inspect.signature(_make_task, eval_str=True).parameters.values())[2:]
    at = [parameter.name for parameter in shared].index("prompts")
    parameters = [*shared[:at], *own.values(), *shared[at:]]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app.command()(command)
    return chosen


def _make_task(
    name: str,
    of_reader: dict[str, Any],
    root: Annotated[
        Path, typer.Argument(metavar="ROOT", help="The dataset's folder, in its official layout.")
    ],
    output: Output,
    model: options.Model = None,
    weights: options.Weights = None,
    preprocessing: options.Preprocessing = None,
    device: options.Device = "cpu",
    download: options.Download = False,
    store: Annotated[
        Path | None,
        options.writes(
            help="Embedding store to use, or to make and resume. Default: beside the task, ending in .store."
        ),
    ] = None,
    prompts: Annotated[
        str | None, typer.Option(metavar="NAME_OR_FILE", help="Prompt set. Default: the dataset's own.")
    ] = None,
    workers: options.Workers = 2,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Read a dataset, embed its images unless a store holds them, and write its task."""
    from fairerclip.cli import show
    from fairerclip.data.build import check_prompts, from_dataset
    from fairerclip.data.datasets import read_dataset
    from fairerclip.data.prompts import load_prompts
    from fairerclip.encoders.embed import embed_dataset
    from fairerclip.errors import ParameterError

    choice = options.chosen_model(model, weights, preprocessing, device, download)
    _check_output(output, overwrite)
    index = read_dataset(name, root, **of_reader)
    source = prompts or index.prompts
    if source is None:
        raise ParameterError(f"no prompts are shipped for {index.name}; give --prompts with your own file")
    prompt_set = load_prompts(source)
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
    _finish(labelled, folder, prompt_set, encoder, None, output, overwrite, json, list(index.notes))


@_dataset_command
def waterbirds() -> dict[str, Any]:
    """Waterbirds: bird by background, with metadata.csv and its splits."""
    return {}


@_dataset_command
def celeba(
    target: Annotated[
        str, typer.Option(help="blond, cheekbones, attractive, or any attribute of CelebA.")
    ] = "blond",
    sensitive: Annotated[str, typer.Option(help="Sensitive attributes, comma-separated.")] = "Male",
) -> dict[str, Any]:
    """CelebA in the MMLAB or the Kaggle layout, with its official splits."""
    return {"target": target, "sensitive": options.split_names(sensitive)}


@_dataset_command
def fairface(margin: options.Margin = None) -> dict[str, Any]:
    """FairFace: sex, race and age; no target, so prompts are queries."""
    return {"margin": margin}


@_dataset_command
def cfd(
    seed: Annotated[
        int, typer.Option(callback=options.in_range, help="Seed of the split, which is ours.")
    ] = 0,
) -> dict[str, Any]:
    """Chicago Face Database: neutral faces, attractiveness above its mean by sex."""
    return {"seed": seed}


@app.command()
def embeddings(
    store: Annotated[
        Path,
        typer.Argument(
            metavar="STORE", help="Embeddings with ids: store, clip-retrieval folder, parquet, .npz …"
        ),
    ],
    labels: Annotated[Path, typer.Option(help="Labels: .csv, .tsv or .parquet with a header.")],
    id_column: Annotated[str, typer.Option("--id", help="Column of ids.")],
    sensitive: Annotated[str, typer.Option(help="Columns of sensitive attributes, comma-separated.")],
    prompts: Annotated[
        str, typer.Option(metavar="NAME_OR_FILE", help="Prompt set: names must be those of the labels.")
    ],
    output: Output,
    target: Annotated[str | None, typer.Option(help="Column of the target; none for a gallery.")] = None,
    split_column: Annotated[
        str | None, typer.Option("--split", help="Column of splits. Default: at random, by --shares.")
    ] = None,
    shares: Annotated[
        str, typer.Option(help="Shares of train, val and test, where there is no column.")
    ] = "0.5,0.1,0.4",
    model: options.Model = None,
    weights: options.Weights = None,
    preprocessing: options.Preprocessing = None,
    device: options.Device = "cpu",
    download: options.Download = False,
    text: Annotated[
        Path | None, typer.Option(help="Prompt embeddings (.npy …), one row per distinct prompt of the set.")
    ] = None,
    seed: Annotated[int, typer.Option(callback=options.in_range, help="Seed of a random split.")] = 0,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Your own embeddings and labels, joined by id and never by position."""
    from fairerclip.data.build import from_table
    from fairerclip.data.label_table import read_labels
    from fairerclip.data.prompts import load_prompts
    from fairerclip.data.stores import open_store
    from fairerclip.errors import ParameterError

    _check_output(output, overwrite)
    attributes = options.split_names(sensitive) or []
    if not attributes:
        raise ParameterError("--sensitive expects at least one column")
    if {target, split_column} & set(attributes) or (target is not None and target == split_column):
        raise ParameterError("--target, --sensitive and --split must name different columns")
    if model is not None and text is not None:
        raise ParameterError(
            "--model encodes the prompts and --text gives their embeddings: give one of them"
        )
    choice = options.chosen_model(model, weights, preprocessing, device, download)
    prompt_set = load_prompts(prompts)
    wanted = [
        *([] if target is None else [target]),
        *attributes,
        *([] if split_column is None else [split_column]),
    ]
    table = read_labels(labels, id_column=id_column, columns=wanted, allow_constant=[split_column or ""])
    labelled = from_table(
        table,
        name=labels.stem,
        target=target,
        sensitive=attributes,
        split_column=split_column,
        shares=_shares(shares),
        seed=seed,
    )
    encoder = None if choice is None else choice.load()
    given = None if text is None else open_store(text, modality="text")
    _finish(labelled, store, prompt_set, encoder, given, output, overwrite, json, [])


def _shares(text: str) -> tuple[float, float, float]:
    from fairerclip.errors import ParameterError

    try:
        train, val, test = (float(v) for v in text.split(","))
    except ValueError:
        raise ParameterError(f"--shares expects three numbers, e.g. 0.5,0.1,0.4; got {text!r}") from None
    return train, val, test


def _check_output(output: Path, overwrite: bool) -> None:
    from fairerclip._util.files import check_free
    from fairerclip.errors import ParameterError

    if output.suffix not in (".npz", ".safetensors", ""):
        raise ParameterError(f"a task ends in .npz or .safetensors, or is a folder; got {output.name!r}")
    check_free(output, overwrite)


def _finish(
    labelled: Any,
    folder: Path,
    prompt_set: Any,
    encoder: Any,
    text: Any,
    output: Path,
    overwrite: bool,
    json: bool,
    notes: list[str],
) -> None:
    from fairerclip.cli import show
    from fairerclip.data import save_task
    from fairerclip.data.build import build_task, encoded_prompts, text_encoder
    from fairerclip.data.preflight import preflight
    from fairerclip.data.stores import open_store
    from fairerclip.errors import StoreError

    embedded = open_store(folder)
    encoded = encoded_prompts(prompt_set, text_encoder(prompt_set, embedded, encoder, text))
    look = preflight(embedded, _text_store(encoded.text_target, encoder, text, embedded))
    if not look.usable:
        bad = (look.first_non_finite or look.first_zero)[0]
        name = "" if embedded.ids is None else f" ({embedded.ids[bad]})"
        raise StoreError(
            f"{folder}: {look.non_finite_rows} rows hold NaN or infinity and {look.zero_rows} are zero, first row "
            f"{bad}{name}; embed those images again or leave them out"
        )
    task, unmatched = build_task(labelled, embedded, encoded)
    save_task(task, output, overwrite=overwrite)
    said = [*look.lines(), *notes, *unmatched]
    groups = _groups(task)
    if json:
        show.print_json(
            {
                "task": str(output),
                "name": task.name,
                "groups": groups,
                "preflight": look.as_dict(),
                "notes": said,
            }
        )
        return
    for line in said:
        show.say(line)
    for split, counts in groups.items():
        show.say(f"{split}: " + ", ".join(f"{name} {n}" for name, n in counts.items()))
    show.say(f"written to {output}")


def _text_store(vectors: Any, encoder: Any, text: Any, embedded: Any) -> Any:
    """Prompt embeddings with what is known of where they come from."""
    from fairerclip.data.stores import EmbeddingStore

    if vectors is None:
        return None
    source = encoder if encoder is not None else embedded if text is None else text
    return EmbeddingStore.from_array(vectors, provenance=source.provenance)


def _groups(task: Any) -> dict[str, dict[str, int]]:
    """Rows of each split by class and sensitive value."""
    import numpy as np

    out: dict[str, dict[str, int]] = {}
    for name, split in task.splits.items():
        parts = [] if split.y is None else [np.array([*task.class_names, "?"])[split.y]]
        parts += [np.array([*task.sensitive[s].names, "?"])[codes] for s, codes in split.s.items()]
        values, counts = np.unique([" × ".join(row) for row in zip(*parts, strict=True)], return_counts=True)
        out[name] = dict(zip(values.tolist(), counts.tolist(), strict=True))
    return out
