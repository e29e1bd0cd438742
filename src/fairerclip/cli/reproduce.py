"""`fairerclip reproduce`: the paper's tables and figures, run again beside what was published."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairerclip.cli import options
from fairerclip.cli.signals import kept_when_stopped

if TYPE_CHECKING:
    from fairerclip.reproduce.source import Source


def reproduce(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME…", help="Tables and figures by name, all, or list to see what there is."
        ),
    ],
    data: Annotated[
        Path | None,
        typer.Option(metavar="ROOT", help="Folder of the datasets in their official layouts; needs --model."),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="CLIP model to embed --data with; may be repeated.")
    ] = None,
    suite: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of task files (celeba_blond.npz, fairface.npz …)."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder to write into; its runs are used again.")
    ] = Path("reproduction"),
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds. Default: 3; 2 on simulated tasks; 1 by gradient.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes at a time. Default: one per core.")
    ] = None,
    max_steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Cap on the training of one setting by gradient, in batches. Default: 20000 on --data, 3000 on "
            "--suite, else 500.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One seed, few methods and settings.")] = False,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Run the paper's tables and figures on real images, on task files, or (default) on simulated tasks.

    A part that is missing or fails is reported and does not stop the others. The exit code is 1 where no table or
    figure has a result, or where one that was named has none.
    """
    from fairerclip.cli import show
    from fairerclip.errors import ParameterError
    from fairerclip.reproduce.context import ReproduceOptions
    from fairerclip.reproduce.entries import chosen_entries
    from fairerclip.reproduce.run import reproduce as run
    from fairerclip.reproduce.source import Source

    if data is not None and suite is not None:
        raise ParameterError("--data and --suite exclude each other")
    if model and data is None:
        raise ParameterError("--model embeds the images of --data; give that, too")
    kind = "data" if data is not None else "suite" if suite is not None else "simulated"
    if names == ["list"] and kind == "data" and not model:
        model = ["a model"]  # what can run does not depend on it
    with show.progress("embedding") as advance:
        source = Source(kind, data or suite, tuple(model or ()), output / "runs" / "data", advance)
        if names == ["list"]:
            _list(source, json)
            return
        entries = chosen_entries(names)
    told = ReproduceOptions(seeds=seeds, jobs=jobs, max_steps=max_steps, quick=quick)
    command = _command(names, data, model, suite, told)
    if not json:
        show.say(source.sentence)
    how = "the same command goes on, with --overwrite where it asks for that"
    with kept_when_stopped(output / "runs", how), show.progress(", ".join(names)) as advance:
        results = run(
            entries, source, output, told, command=command, overwrite=overwrite, progress=lambda name: advance
        )
    if not json:
        for result in results:
            missing = f"; {len(result['failures'])} parts missing or failed" if result["failures"] else ""
            show.say(f"{result['name']}: {output / result['name']}.md{missing}")
        show.say(f"overview: {output / 'index.html'}")
    found = {"source": source.sentence, "results": results}
    _check(found, names)
    if json:
        show.print_json(found)


def _check(found: dict[str, Any], names: Sequence[str]) -> None:
    """Tell of parts that failed; raise where no entry has a result, or one that was asked for by name."""
    from fairerclip.cli import show
    from fairerclip.errors import WorkFailedError

    results = found["results"]
    failed = [result for result in results if result["failed"]]
    parts = [f"{result['name']}: {text}" for result in results for text in result["failures"]]
    if len(failed) == len(results) or any(result["name"] in names for result in failed):
        why = "; ".join(f"{result['name']}: {' '.join(result['failures'][:1])}" for result in failed[:3])
        raise WorkFailedError(f"{len(failed)} of {len(results)} tables and figures failed ({why})", found)
    if parts:
        show.warn(f"{len(parts)} parts missing or failed (first: {parts[0]})")


def _command(
    names: list[str], data: Path | None, model: list[str] | None, suite: Path | None, told: Any
) -> str:
    """What to type to run it again; folders by their last name alone."""
    parts = ["fairerclip", "reproduce", *names]
    parts += [] if data is None else ["--data", data.name]
    parts += [part for one in model or () for part in ("--model", one)]
    parts += [] if suite is None else ["--suite", suite.name]
    for name in ("seeds", "jobs", "max_steps"):
        value = getattr(told, name)
        parts += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join([*parts, *(["--quick"] if told.quick else [])])


def _list(source: Source, json: bool) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from fairerclip.cli import show
    from fairerclip.report.text import clean
    from fairerclip.reproduce.entries import ENTRIES

    rows: list[dict[str, Any]] = [
        {
            "name": entry.name,
            "where": entry.where,
            "title": entry.title,
            "needs": list(entry.needs),
            "why_not": entry.why_not(source),
        }
        for entry in ENTRIES
    ]
    if json:
        show.print_json({"source": source.sentence, "entries": rows})
        return
    show.say(source.sentence)
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("name", "in the paper", "what", "needs one of", "runs here"):
        table.add_column(column, overflow="fold")
    for row in rows:
        reason = row["why_not"]
        shown = "yes" if reason is None else f"no: {' '.join(str(reason).split())[:120]}"
        needs = ", ".join(row["needs"]) or "nothing"
        table.add_row(*(Text(clean(t)) for t in (row["name"], row["where"], row["title"], needs, shown)))
    show.out.print(table)
    show.say("The paper's other figures (fig:causal-graph, its overview and fig:illustration) are drawings.")
