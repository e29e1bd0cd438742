"""`fairerclip compare`: FairerCLIP and every baseline side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairerclip.cli import options

WIDE = 120


def compare(
    task: options.TaskFile,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Folder for results and runs; a comparison found there is taken up again."
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(help="Methods, comma-separated; `list` shows them. Default: all that the task allows."),
    ] = None,
    sensitive: options.SensitiveNames = None,
    classes: options.ClassNames = None,
    seeds: Annotated[int, typer.Option(help="Seeds, for methods that a seed changes.")] = 3,
    jobs: Annotated[int | None, typer.Option(help="Runs at a time. Default: one per core.")] = None,
    max_seconds: Annotated[
        float, typer.Option("--max-seconds", help="Cap on one training by gradient.")
    ] = 60.0,
    plot: Annotated[
        Path | None, typer.Option(help="Draw worst group against average (.png, .svg or .pdf).")
    ] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Tune and test every method on the same rows, with seeds and intervals."""
    from fairerclip.audit.models import check_plot
    from fairerclip.cli import show
    from fairerclip.compare.methods import METHODS
    from fairerclip.compare.render import COLUMNS, document, draw_front
    from fairerclip.compare.study import CompareOptions, write_comparison
    from fairerclip.compare.study import compare as run
    from fairerclip.metrics.names import FIGURES

    if methods == "list":
        for method in METHODS:
            show.say(f"{method.key}: {method.title}; labels in training: {method.labels}")
        return
    if plot is not None:
        check_plot(plot, overwrite)
    experiment = options.load_experiment(task, sensitive, classes)
    keys = options.split_names(methods)
    what = CompareOptions(
        methods=None if keys is None else tuple(keys),
        seeds=seeds,
        jobs=jobs,
        max_seconds=max_seconds,
        source=str(task),
    )
    with show.progress("compare") as advance:
        results = run(experiment, what, work=None if output is None else output / "runs", progress=advance)
    if output is not None:
        write_comparison(results, document(results), output)
    if plot is not None:
        draw_front(results, plot, overwrite=overwrite)
    if json:
        show.print_json(results)
        return
    shown = document(results)
    # Memory, parameters and the gap are in the files; a terminal has room for what is looked at first.
    first = ("method", *(FIGURES[name].short for name in ("average", "worst_group", "eod")), "fit, s")
    kept = range(len(COLUMNS)) if show.out.width >= WIDE else [COLUMNS.index(name) for name in first]
    for table in shown.tables:
        rows = [[str(row[k]).replace(" [", "\n[") for k in kept] for row in table.rows]
        show.out.print(show.plain_table(table.title, [table.columns[k] for k in kept], rows))
    for note in shown.notes:
        show.say(f"• {note}")
    if output is not None:
        show.say(f"results written to {output}")
