"""`fairerclip reproduce`: the paper's tables and figures, run again beside what was published."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairerclip.cli import options
from fairerclip.cli.signals import kept_when_stopped

if TYPE_CHECKING:
    from fairerclip.study.paper.context import ReproduceOptions
    from fairerclip.study.paper.entry_result import EntryResult
    from fairerclip.study.paper.official_tasks import OfficialImages
    from fairerclip.study.paper.task_source import TaskSource


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
    model: options.Models = None,
    weights: options.WeightsOfEach = None,
    preprocessing: options.PreprocessingOfEach = None,
    device: options.Device = "cpu",
    download: options.Download = False,
    workers: options.Workers = 2,
    margin: options.Margin = None,
    prompts: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[DATASET=]NAME_OR_FILE",
            help="Prompt set of a dataset (waterbirds, blond, cheekbones, attractive, cfd, fairface), may be "
            "repeated; DATASET= can be left out where one is used. Default: the dataset's own.",
        ),
    ] = None,
    tasks: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of finished tasks of real images: waterbirds.npz, blond.npz, fairface.npz …, "
            "NAME-ENCODER.npz or ENCODER/NAME.npz.",
        ),
    ] = None,
    suite: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of task files for orientation (celeba_blond.npz, fairface.npz …)."
        ),
    ] = None,
    output: Annotated[
        Path, options.writes("--output", "-o", help="Folder to write into; its runs are used again.")
    ] = Path("reproduction"),
    seeds: Annotated[
        int | None,
        typer.Option(
            callback=options.in_range,
            help="Seeds. Default: 3; 2 on simulated tasks; by gradient 3 on --data and --tasks, else 1.",
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(callback=options.in_range, help="Processes at a time. Default: one per core."),
    ] = None,
    max_steps: Annotated[
        int | None,
        typer.Option(
            callback=options.in_range,
            help="Cap on the training of one setting by gradient, in batches. Default: 20000 on --data and --tasks, "
            "3000 on --suite, else 500.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One seed, few methods and settings.")] = False,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Run the paper's tables and figures on real images, on finished tasks, or (default) on simulated tasks.

    A part that is missing or fails is reported and does not stop the others. A table or figure without a measured
    figure is not written, and is named at the end. The exit code is then 1, unless it was not asked for by name, its
    datasets are not there, and others have figures. It is 1, too, where the process of a part died twice.
    """
    from fairerclip.cli import show
    from fairerclip.errors import ParameterError
    from fairerclip.study.paper.context import ReproduceOptions
    from fairerclip.study.paper.entries import chosen_entries
    from fairerclip.study.paper.reproduce import reproduce as run
    from fairerclip.study.paper.task_source import TaskSource

    if sum(folder is not None for folder in (data, tasks, suite)) > 1:
        raise ParameterError("--data, --tasks and --suite exclude each other")
    if data is None and (model or weights or preprocessing or prompts or margin or download):
        raise ParameterError(
            "--model, --weights, --preprocessing, --prompts, --margin and --download are of the images of --data; give "
            "that, too"
        )
    listing = names == ["list"]
    entries = [] if listing else chosen_entries(names)
    if data is not None and not model and not listing:
        raise ParameterError("--data needs --model, the CLIP model to embed images with (may be repeated)")
    images = None
    if data is not None:
        from fairerclip.encoders.choice import model_choices
        from fairerclip.study.paper.official_tasks import OfficialImages, chosen_prompts

        images = OfficialImages(
            data,
            output / "runs" / "data",
            model_choices(model or (), weights or (), preprocessing or (), device=device, download=download),
            chosen_prompts(prompts or (), {dataset for entry in entries for dataset in entry.needs}),
            margin,
            workers,
        )
    kind = "suite" if suite is not None else "simulated" if data is None and tasks is None else "data"
    source = TaskSource(kind, suite or tasks, images)
    if listing:
        _list(source, json)
        return
    told = ReproduceOptions(seeds=seeds, jobs=jobs, max_steps=max_steps, quick=quick)
    if not json:
        show.say(source.sentence)
    how = "the same command goes on, with --overwrite where it asks for that"
    with (
        kept_when_stopped(output / "runs", how),
        show.warnings_as_lines(),
        show.progress(", ".join(names)) as advance,
    ):
        if images is not None:
            images.progress = lambda what, done, total: advance(done, total, what)
        results = run(
            entries,
            source,
            output,
            told,
            command=_command(names, source, told),
            overwrite=overwrite,
            progress=lambda name: lambda done, total: advance(done, total, name),
        )
    if not json:
        for result in results:
            if result.failed:
                show.say(f"{result.name}: not written, nothing was measured: {result.first_reason}")
                continue
            missing = f"; {len(result.failures)} parts missing or failed" if result.failures else ""
            show.say(f"{result.name}: {output / result.name}.md{missing}")
        if not all(result.failed for result in results):
            show.say(f"overview: {output / 'index.html'}")
    found = {"source": source.sentence, "results": [result.as_dict() for result in results]}
    _check(results, names, found)
    if json:
        show.print_json(found)


def _check(results: Sequence[EntryResult], names: Sequence[str], found: Mapping[str, Any]) -> None:
    """Tell of failed parts; raise, with ``found``, where an entry that could be measured was not or a process died."""
    from fairerclip.cli import show
    from fairerclip.errors import WorkFailedError
    from fairerclip.study.workers import is_lost

    failed = [result for result in results if result.failed]
    lost = [result for result in failed if result.name in names or not result.absent]
    if failed and not any(result.tasks for result in results if not result.failed):
        lost = failed  # what needs no data has figures at most
    if lost:
        why = "; ".join(f"{result.name}: {result.first_reason}" for result in lost)
        raise WorkFailedError(f"{len(lost)} of {len(results)} tables and figures failed ({why})", found)
    parts = [f"{result.name}: {text}" for result in results for text in result.failures]
    if dead := [part for part in parts if is_lost(part)]:
        raise WorkFailedError(f"{len(dead)} parts were lost (first: {dead[0]})", found)
    if parts:
        show.warn(f"{len(parts)} parts missing or failed (first: {parts[0]})")


def _command(names: list[str], source: TaskSource, told: ReproduceOptions) -> str:
    """What to type to run it again; files and folders by their last name alone."""
    parts = ["fairerclip", "reproduce", *names]
    images = source.images
    if images is not None:
        parts += ["--data", images.root.name, *_model_parts(images)]
        parts += [] if images.margin is None else ["--margin", images.margin]
        for dataset, prompts in images.prompts.items():
            parts += ["--prompts", f"{dataset}={Path(prompts).name}"]
    elif source.root is not None:
        parts += ["--suite" if source.kind == "suite" else "--tasks", source.root.name]
    for name in ("seeds", "jobs", "max_steps"):
        value = getattr(told, name)
        parts += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join([*parts, *(["--quick"] if told.quick else [])])


def _model_parts(images: OfficialImages) -> list[str]:
    from dataclasses import replace

    from fairerclip.encoders.choice import NOTHING

    parts: list[str] = []
    for name in ("weights", "preprocessing"):
        given = [getattr(model, name) for model in images.models]
        if any(value is not None for value in given):
            parts += [
                part
                for value in given
                for part in (f"--{name}", NOTHING if value is None else Path(value).name)
            ]
    named = [part for model in images.models for part in ("--model", replace(model, weights=None).label)]
    return [*named, *parts]


def _list(source: TaskSource, json: bool) -> None:
    from fairerclip.cli import show
    from fairerclip.study.paper.entries import ENTRIES

    rows: list[dict[str, Any]] = [
        {
            "name": entry.name,
            "where": entry.where,
            "title": entry.title,
            "needs": list(entry.needs),
            "why_not": entry.why_not(source),
            "missing": {d: reason for d in entry.needs if (reason := source.why_not(d)) is not None},
        }
        for entry in ENTRIES
    ]
    if json:
        show.print_json({"source": source.sentence, "entries": rows})
        return
    show.say(source.sentence)
    columns = ["name", "in the paper", "what", "needs one of", "runs here"]
    body = []
    for row in rows:
        reason = row["why_not"]
        lacking = f" (without {', '.join(row['missing'])})" if row["missing"] else ""
        shown = f"yes{lacking}" if reason is None else f"no: {reason}"
        body.append([row["name"], row["where"], row["title"], ", ".join(row["needs"]) or "nothing", shown])
    show.put(show.plain_table(None, columns, body, left=range(len(columns))))
    show.say(
        "Sources: --data ROOT --model M (images in their official layouts), --tasks DIR (finished tasks of real "
        "images), --suite DIR (task files for orientation); without any the simulation."
    )
    show.say("The paper's other figures (fig:causal-graph, its overview and fig:illustration) are drawings.")
