"""`fairerclip demo`: the whole story on simulated data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairerclip.cli import options


def demo(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Folder for the results; replaced if an earlier demo made it."),
    ] = Path("fairerclip-demo"),
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    json: options.Json = False,
) -> None:
    """Audit, mitigate and compare on the embedded default: simulated Waterbirds-like embeddings."""
    from fairerclip.cli import show
    from fairerclip.demo import run_demo

    with show.warnings_as_lines() as warned, show.progress("demo") as advance:
        result = run_demo(output, seed=seed, progress=advance)
    if json:
        show.print_json({**result.as_dict(), "warnings": warned})
        return
    show.out.print(
        f"{result.task_name}: {result.rows['train']} / {result.rows['val']} / {result.rows['test']} rows. Simulated "
        "embeddings, not photographs: the figures say nothing about any real CLIP model.",
        markup=False,
        style="bold",
    )
    show.out.print(
        show.report_table("Before and after, test split, per cent [95 % interval]", result.reports)
    )
    show.out.print(show.path_table("The trade-off, validation split, per cent", result.table, result.best))
    for line in result.findings:
        show.say(f"• {line}")
    show.say(f"Results, the table of the path and the model are in {output}")
