"""`fairerclip apply`: applies a saved model to new embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairerclip.cli import options
from fairerclip.cli.cluster_options import Cluster, client_of

if TYPE_CHECKING:
    from fairerclip.applying.apply import AnyModel, TopRow
    from fairerclip.embedding.mitigator import EmbeddingMitigator

SHOWN = 20
"""Largest number of rows of each ranking that are printed; files and JSON have all that were asked for."""
SHOWN_PROMPTS = 20
"""Largest number of prompts or queries whose rankings are printed."""

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder that fit wrote.")]
Embeddings = Annotated[
    Path,
    typer.Argument(
        parser=options.store_path,
        metavar="EMB",
        help="Image embeddings: any store (.npy, .npz, .safetensors, parquet, a folder that embed or clip-retrieval "
        "wrote), or a task file.",
    ),
]
Output = Annotated[
    Path,
    options.writes(
        "--output",
        "-o",
        help="Where to write: .npz (with embeddings), or .csv or .parquet (a row per image; with --top K, a row per "
        "prompt and rank). Of a mitigator: the mitigated embeddings as .npy, .npz (with ids), or a folder as "
        "embed writes it, which is continued where it ends.",
    ),
]
Split = Annotated[str, typer.Option(help="Which split of a task file to use.")]
Top = Annotated[
    int | None,
    typer.Option(
        metavar="K",
        help="Rank the images by each prompt, and write the K best of each with ids and scores; an .npz has the ranks "
        "of all images. "
        f"At most {SHOWN} of each are shown.",
    ),
]
Prompt = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="Rank by this prompt (class) alone; may be repeated. Default: by each."
    ),
]
Unit = Annotated[
    bool | None,
    typer.Option(
        "--unit/--no-unit",
        help="Of a mitigator: scale mitigated embeddings to unit length, for indexes of cosines. Default: as fitted.",
    ),
]
QueryFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Of a mitigator, with --top K: embeddings of free queries (.npz, .safetensors, .npy, a store or a task); "
        "-o is then .csv or .parquet. A query that is about a sensitive attribute is not mitigated.",
    ),
]


def apply(
    model: Model,
    embeddings: Embeddings,
    output: Output,
    split: Split = "test",
    top: Top = None,
    prompt: Prompt = None,
    unit: Unit = None,
    queries: QueryFile = None,
    cluster: Cluster = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Apply any saved model: write predictions or rankings, scores and mitigated embeddings for new images.

    No model is given sensitive values: TIE reads them from the images (TIE*). In Python it takes true ones.
    """
    from fairerclip.cli import show
    from fairerclip.embedding.mitigator import EmbeddingMitigator
    from fairerclip.errors import ParameterError
    from fairerclip.model.archive import load

    fitted = load(model)
    if cluster is not None and queries is not None:
        raise ParameterError(
            "--cluster is not for --queries, which read the rows in this process: leave one out"
        )
    if not isinstance(fitted, EmbeddingMitigator):
        if unit is not None or queries is not None:
            raise ParameterError(f"--unit and --queries are for a mitigator; {model} holds a classifier")
        summary = _classified(fitted, model, embeddings, output, split, top, prompt, overwrite, cluster)
    elif queries is not None:
        summary = _searched(fitted, embeddings, output, split, top, prompt, unit, queries, overwrite)
    elif top is not None or prompt:
        raise ParameterError(
            f"{model} holds a mitigator, which has no prompts of its own; give the embeddings of queries with --queries"
        )
    else:
        summary = _mitigated(fitted, embeddings, output, split, unit, overwrite, cluster)
    if json:
        show.print_json(summary)
    else:
        _print(summary)


def _mitigated(
    fitted: EmbeddingMitigator,
    embeddings: Path,
    output: Path,
    split: str,
    unit: bool | None,
    overwrite: bool,
    cluster: str | None,
) -> dict[str, Any]:
    """Write the mitigated copy of a collection, here or on a cluster."""
    from dataclasses import asdict

    from fairerclip.applying.mitigated_files import mitigate_store
    from fairerclip.cli import show

    with (
        show.warnings_as_lines() as warned,
        show.progress("mitigating", rate=True) as advance,
        client_of(cluster) as client,
    ):
        report = mitigate_store(
            *(fitted, embeddings, output),
            unit=unit,
            split=split,
            overwrite=overwrite,
            progress=advance,
            client=client,
        )
    return {**asdict(report), "rate": report.rate, "warnings": warned}


def _searched(
    fitted: EmbeddingMitigator,
    embeddings: Path,
    output: Path,
    split: str,
    top: int | None,
    prompt: list[str] | None,
    unit: bool | None,
    queries: Path,
    overwrite: bool,
) -> dict[str, Any]:
    """Write the best rows of each free query."""
    from fairerclip.applying.answer_files import check_top_path, write_top
    from fairerclip.applying.free_queries import chosen_queries, search_queries
    from fairerclip.applying.mitigated_rows import as_store
    from fairerclip.cli import show
    from fairerclip.data.query_files import read_queries
    from fairerclip.errors import ParameterError

    if top is None:
        raise ParameterError("--queries needs --top K, the number of rows to find for each query")
    check_top_path(output, overwrite)
    Q, names = chosen_queries(*read_queries(queries), prompt)
    store = as_store(embeddings, split)
    with show.warnings_as_lines() as warned, show.progress("searching", rate=True) as advance:
        found = search_queries(fitted, store, Q, top, names=names, unit=unit, progress=advance)
        write_top(found.rows, output, overwrite=overwrite, about=found.about)
    return {
        "rows": len(store),
        "output": str(output),
        "top": _by_prompt(found.rows),
        "about": found.about,
        "warnings": warned,
    }


def _classified(
    fitted: AnyModel,
    model: Path,
    embeddings: Path,
    output: Path,
    split: str,
    top: int | None,
    prompt: list[str] | None,
    overwrite: bool,
    cluster: str | None,
) -> dict[str, Any]:
    """Write the answers of a classifier, which are computed here or on a cluster."""
    from fairerclip.applying.answer_files import check_predictions_path
    from fairerclip.applying.mitigated_rows import as_store, check_widths
    from fairerclip.applying.streamed_answers import apply_to_file
    from fairerclip.cli import show
    from fairerclip.errors import ParameterError

    check_predictions_path(output, overwrite)
    if prompt and top is None:
        raise ParameterError(
            f"--prompt names what to rank by, but {model} predicts classes; give --top K to rank"
        )
    store = as_store(embeddings, split)
    check_widths(fitted, store, str(model))
    if top is not None and not 1 <= top <= len(store):
        raise ParameterError(f"--top must be between 1 and {len(store)}, the number of rows; got {top}")
    with (
        show.warnings_as_lines() as warned,
        show.progress("applying", rate=True) as advance,
        client_of(cluster) as client,
    ):
        report = apply_to_file(
            *(fitted, store, output),
            top=top,
            prompts=prompt or None,
            overwrite=overwrite,
            progress=advance,
            client=client,
        )
    summary: dict[str, Any] = {"rows": report.rows, "output": report.output}
    if report.predicted is None:
        summary["top"] = _by_prompt(report.best)
    else:
        summary["predicted"] = report.predicted
    return {**summary, "warnings": warned}


def _by_prompt(best: Sequence[TopRow]) -> dict[str, list[dict[str, Any]]]:
    """Return the best rows of each prompt for JSON; rows without an id have none."""
    top: dict[str, list[dict[str, Any]]] = {}
    for row in best:
        values = {
            name: value for name, value in row._asdict().items() if name != "prompt" and value is not None
        }
        top.setdefault(row.prompt, []).append(values)
    return top


def _print(summary: Mapping[str, Any]) -> None:
    """Print how many rows each class was predicted for, or the first rows of each ranking."""
    from fairerclip._util.numbers import number
    from fairerclip.cli import show

    n_rows, output = summary["rows"], summary["output"]
    if "written" in summary:
        rate = f"{summary['written']} rows mitigated ({number(summary['rate'], 0)} per second)"
        earlier = f"; {n_rows - summary['written']} done earlier" if summary["written"] < n_rows else ""
        show.say(f"{rate}{earlier}; {'unit rows' if summary['unit'] else 'rows'} written to {output}")
        return
    if "predicted" in summary:
        counts = ", ".join(f"{name}: {n}" for name, n in summary["predicted"].items())
        show.say(f"{n_rows} rows; predicted {counts}; written to {output}")
        return
    for name, best in [*summary["top"].items()][:SHOWN_PROMPTS]:
        rows = best[:SHOWN]
        id_column = "id" if rows and "id" in rows[0] else "row"
        body = [[str(row["rank"]), str(row[id_column]), number(row["score"], 4)] for row in rows]
        # Printed as a line, because a narrow table would fold its title.
        about = summary.get("about", {}).get(name)
        left = "" if about is None else f"; about {about}, so not mitigated"
        show.say(f"{name}: the first {len(rows)} of {n_rows} rows{left}")
        show.put(show.plain_table(None, ["rank", id_column, "score"], body))
    more = len(summary["top"]) - SHOWN_PROMPTS
    shown = f" (the first {SHOWN_PROMPTS} shown)" if more > 0 else ""
    show.say(f"{n_rows} rows ranked by {len(summary['top'])} prompts{shown}; written to {output}")
