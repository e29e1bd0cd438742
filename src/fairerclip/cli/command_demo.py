"""`fairerclip demo`: runs audit, mitigation and report on simulated data, or on a task of the user."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairerclip.cli import options

if TYPE_CHECKING:
    from fairerclip.study.demo import DemoResult


def demo(
    output: Annotated[
        Path,
        options.writes("--output", "-o", help="Folder for the results; replaced if an earlier demo made it."),
    ] = Path("fairerclip-demo"),
    task: Annotated[
        Path | None,
        typer.Option(
            metavar="TASK",
            help="Your task file (.npz or .safetensors), or simulated:NAME. Default: simulated:waterbirds.",
        ),
    ] = None,
    sensitive: options.SensitiveNames = None,
    classes: options.ClassNames = None,
    seed: Annotated[int, typer.Option(callback=options.in_range, help="Random seed.")] = 0,
    json: options.Json = False,
) -> None:
    """Audit, mitigate, compare and report on simulated Waterbirds-like embeddings, or on your task file."""
    from fairerclip.cli import show
    from fairerclip.study.demo import run_demo

    with show.warnings_as_lines() as warned, show.progress("demo") as advance:
        result = run_demo(
            output,
            source=None if task is None else options.as_text(task),
            sensitive=options.split_names(sensitive),
            classes=options.split_names(classes),
            seed=seed,
            progress=advance,
        )
    if json:
        show.print_json({**result.as_dict(), "warnings": warned})
        return
    _print_head(result)
    show.answer(result.results.verdict)
    _print_tables(result)
    parts = "Results, the table of the path and the model" if result.plane else "Results and the model"
    show.say(f"{parts} are in {output}")
    show.say(f"The page, with {len(result.results.findings)} findings, is {result.page.resolve().as_uri()}")


def _print_head(result: DemoResult) -> None:
    """Print the name and the rows of the task, and whether it is simulated."""
    from fairerclip.cli import show

    task = result.results.task
    rows = ", ".join(f"{n} {split}" for split, n in task.rows.items())
    simulated = (
        " Simulated embeddings, not photographs: the figures say nothing about any real CLIP model."
        if task.simulated
        else ""
    )
    show.head(f"{task.name}: rows {rows}.{simulated}")


def _print_tables(result: DemoResult) -> None:
    """Print the figures before and after, by group or, if no row has both labels, by prompt; and the trade-off."""
    from fairerclip.cli import show
    from fairerclip.report.tables import ranking_tables

    results, plane = result.results, result.plane
    split, chosen_on = results.settings.split, results.settings.chosen_on
    seen = {chosen_on: ", which the model was chosen on", "train": ", which the models were fitted on"}
    where = f"{split} split{seen.get(split, '')}"
    if result.reports:
        title = f"Before and after, {where}, per cent [95 % interval]"
        show.put(show.report_table(title, result.reports))
    else:
        for table in ranking_tables(results, ("max_skew",))[:1]:
            show.put(show.rendered(table))
    if plane is not None:
        indices = sorted({*plane.front, plane.chosen})
        title = f"The trade-off, {plane.split} split, per cent; → chosen; {len(indices)} of {len(plane.points)} points"
        points = [plane.points[g].model_dump() for g in indices]
        show.put(show.path_table(title, points, indices.index(plane.chosen)))
