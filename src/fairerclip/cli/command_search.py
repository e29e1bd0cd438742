"""`fairerclip search`: answers queries by the original and by the mitigated rows, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairerclip.cli import options

if TYPE_CHECKING:
    from fairerclip.export.search_index import SearchIndex, SearchResult

Index = Annotated[Path, typer.Argument(metavar="INDEX", help="Folder that index wrote.")]
Texts = Annotated[
    list[str] | None,
    typer.Argument(metavar="QUERY...", help="Texts to search for; they need --encoder."),
]
Encoder = Annotated[
    str | None, typer.Option(help=f"CLIP model that embedded the images, for texts: {options.MODELS}.")
]
QueryEmbedding = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Embeddings of queries instead of texts: .npy, .npz, .safetensors, a store or a task. With QUERY, only "
        "those of these names.",
    ),
]
Mitigator = Annotated[
    Path | None,
    typer.Option(
        "--model",
        help="Folder of the mitigator of the index: queries that are about a sensitive attribute are then known, and "
        "are not mitigated.",
    ),
]
K = Annotated[int, typer.Option("--k", help="Number of results.")]
Probe = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Share of the cells of an index of kind ivf or pq to search, up to 1: more finds more of the true "
        "results, and takes longer. Default: 0.25.",
    ),
]
Images = Annotated[Path | None, typer.Option(metavar="ROOT", help="Folder of the images, for --sheet.")]
Sheet = Annotated[
    Path | None,
    options.writes("--sheet", help="PNG of the images of the results, original above mitigated."),
]


def search(
    index: Index,
    queries: Texts = None,
    encoder: Encoder = None,
    weights: options.Weights = None,
    preprocessing: options.Preprocessing = None,
    device: options.Device = "cpu",
    download: options.Download = False,
    query_embedding: QueryEmbedding = None,
    model: Mitigator = None,
    k: K = 10,
    probe: Probe = None,
    images: Images = None,
    sheet: Sheet = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Search an index: the results of each query by the original and by the mitigated embeddings, side by side."""
    from fairerclip.cli import show
    from fairerclip.errors import ParameterError
    from fairerclip.export.contact_sheet import check_sheet, write_sheet
    from fairerclip.export.search_index import open_index

    if (images is None) != (sheet is None):
        raise ParameterError("--images ROOT and --sheet FILE.png go together")
    if sheet is not None:
        check_sheet(sheet, overwrite)
    opened = open_index(index, probe=probe)
    with show.warnings_as_lines() as warned:
        if query_embedding is not None:
            Q, names = _read(query_embedding, queries)
        else:
            Q, names = _encoded(opened, queries, encoder, weights, preprocessing, device, download)
        results = opened.search(Q, k, names=names, model=model)
        if sheet is not None and images is not None:
            write_sheet(results, images, sheet, overwrite=overwrite)
    if json:
        document: dict[str, Any] = {
            "index": str(index),
            "rows": len(opened),
            "k": k,
            "queries": [_as_dict(result) for result in results],
        }
        sheets = {} if sheet is None else {"sheet": str(sheet)}
        show.print_json({**document, **sheets, "warnings": warned})
        return
    for result in results:
        _print(result, len(opened), checked=model is not None)
    if sheet is not None:
        show.say(f"sheet of images written to {sheet}")


def _read(file: Path, names: list[str] | None) -> tuple[Any, list[str]]:
    """Return embeddings of queries from a file, all or those of some names."""
    from fairerclip.applying.free_queries import chosen_queries
    from fairerclip.data.query_files import read_queries

    return chosen_queries(*read_queries(file), names)


def _encoded(
    opened: SearchIndex,
    queries: list[str] | None,
    encoder: str | None,
    weights: str | None,
    preprocessing: str | None,
    device: str,
    download: bool,
) -> tuple[Any, list[str]]:
    """Return embeddings of texts by the model that embedded the images."""
    from fairerclip.data.provenance import check_same_model
    from fairerclip.encoders.choice import ModelChoice
    from fairerclip.errors import ParameterError

    texts = [*dict.fromkeys(queries or [])]
    if not texts:
        raise ParameterError("give texts to search for with --encoder, or --query-embedding FILE")
    if encoder is None:
        raise ParameterError(
            "texts need --encoder, the CLIP model that embedded the images; or give --query-embedding FILE"
        )
    loaded = ModelChoice(encoder, weights, preprocessing, device, download).load()
    check_same_model(opened.provenance, loaded.provenance)
    return loaded.encode_text(texts), texts


def _as_dict(result: SearchResult) -> dict[str, Any]:
    return {
        "query": result.query,
        "about": result.about,
        "shared": result.shared,
        "original": [hit._asdict() for hit in result.original],
        "mitigated": [hit._asdict() for hit in result.mitigated],
    }


def _print(result: SearchResult, rows: int, *, checked: bool) -> None:
    """Print the results of a query in two columns."""
    from itertools import zip_longest

    from fairerclip._util.numbers import number
    from fairerclip.cli import show

    said = f"{result.query}: the first {len(result.original)} of {rows} rows; {result.shared} are in both"
    if result.about is not None:
        said += f"; about {result.about}, so not mitigated: the original ranking is used"
    elif not checked:
        said += "; give --model to know if it is about a sensitive attribute"
    show.say(said)
    body = [
        [
            str((left or right).rank),
            *(
                cell
                for hit in (left, right)
                for cell in ((hit.id, number(hit.score, 4)) if hit else ("", ""))
            ),
        ]
        for left, right in zip_longest(result.original, result.mitigated)
    ]
    columns = ["rank", "original", "score", "mitigated", "score"]
    show.put(show.plain_table(None, columns, body, left=(1, 3)))
