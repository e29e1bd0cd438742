"""`fairerclip demo`: runs audit, mitigation and report on simulated data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairerclip.cli import options


def demo(
    output: Annotated[
        Path,
        options.writes("--output", "-o", help="Folder for the results; replaced if an earlier demo made it."),
    ] = Path("fairerclip-demo"),
    seed: Annotated[int, typer.Option(callback=options.in_range, help="Random seed.")] = 0,
    json: options.Json = False,
) -> None:
    """Audit, mitigate, compare and report on simulated Waterbirds-like embeddings."""
    from fairerclip.cli import show
    from fairerclip.study.demo import run_demo

    with show.warnings_as_lines() as warned, show.progress("demo") as advance:
        result = run_demo(output, seed=seed, progress=advance)
    if json:
        show.print_json({**result.as_dict(), "warnings": warned})
        return
    results, plane = result.results, result.plane
    rows = " / ".join(str(n) for n in results.task.rows.values())
    show.head(
        f"{results.task.name}: {rows} rows. Simulated embeddings, not photographs: the figures say nothing about any "
        "real CLIP model."
    )
    show.put(show.report_table("Before and after, test split, per cent [95 % interval]", result.reports))
    indices = sorted({*plane.front, plane.chosen})
    title = f"The trade-off, {plane.split} split, per cent; → chosen; {len(indices)} of {len(plane.points)} points"
    points = [plane.points[g].model_dump() for g in indices]
    show.put(show.path_table(title, points, indices.index(plane.chosen)))
    for finding in results.findings:
        show.say(f"• {finding.level}: {finding.text}")
    show.say(f"Results, the table of the path and the model are in {output}")
    show.say(f"The page is {result.page.resolve().as_uri()}")
