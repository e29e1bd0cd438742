"""`fairerclip index`: writes search indexes of a collection, original and mitigated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairerclip.cli import options

Embeddings = Annotated[
    Path,
    typer.Argument(
        parser=options.store_path,
        metavar="STORE",
        help="Image embeddings before mitigation: any store (.npy, .npz, .safetensors, parquet, a folder that embed or "
        "clip-retrieval wrote), or a task file.",
    ),
]
Mitigator = Annotated[Path, typer.Option("--model", help="Folder of a fitted EmbeddingMitigator.")]
Output = Annotated[Path, options.writes("--output", "-o", help="Folder of the indexes.")]
Kind = Annotated[
    str | None,
    typer.Option(
        metavar="flat|ivf|pq",
        help="flat compares every row; ivf a part of them; pq also compresses rows. ivf and pq need faiss. Default: "
        "flat up to 200,000 rows, ivf up to 5,000,000, then pq.",
    ),
]
Unit = Annotated[
    bool | None,
    typer.Option("--unit/--no-unit", help="Scale mitigated rows to unit length. Default: as fitted."),
]
Split = Annotated[str, typer.Option(help="Which split of a task file to use.")]


def index(
    embeddings: Embeddings,
    model: Mitigator,
    output: Output,
    kind: Kind = None,
    unit: Unit = None,
    split: Split = "test",
    seed: options.Seed = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Index a collection twice, by its original and its mitigated embeddings, for fairerclip search and for faiss."""
    import time
    from dataclasses import asdict

    from fairerclip._util.numbers import number
    from fairerclip.cli import show
    from fairerclip.export.build_search_index import build_index

    began = time.perf_counter()
    with show.warnings_as_lines() as warned, show.progress("indexing", rate=True) as advance:
        made = build_index(
            model,
            embeddings,
            output,
            kind=kind,
            unit=unit,
            split=split,
            seed=0 if seed is None else seed,
            overwrite=overwrite,
            progress=advance,
        )
    seconds = time.perf_counter() - began
    if json:
        show.print_json({"output": str(output), **asdict(made), "seconds": seconds, "warnings": warned})
        return
    show.say(
        f"{made.rows} rows of width {made.width} indexed twice (kind {made.kind}) in {number(seconds, 1)} s; written "
        f"to {output}"
    )
