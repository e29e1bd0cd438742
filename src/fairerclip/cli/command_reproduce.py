"""`fairerclip reproduce`: runs the paper's tables and figures again and sets them beside the published numbers."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairerclip.cli import options
from fairerclip.cli.signals import kept_when_stopped

if TYPE_CHECKING:
    from fairerclip.encoders.choice import ModelChoice
    from fairerclip.study.paper.context import ReproduceOptions
    from fairerclip.study.paper.entries import Entry
    from fairerclip.study.paper.entry_result import EntryResult
    from fairerclip.study.paper.official_tasks import OfficialImages
    from fairerclip.study.paper.task_source import TaskSource

RESUME = "run the same command to continue, with --overwrite where it asks for that"

Names = Annotated[
    list[str],
    typer.Argument(metavar="NAME…", help="Names of tables and figures, all, or list to see the names."),
]
Data = Annotated[
    Path | None,
    typer.Option(metavar="ROOT", help="Folder of the datasets in their official layouts; needs --model."),
]
Prompts = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[DATASET=]NAME_OR_FILE",
        help="Prompt set of a dataset (waterbirds, blond, cheekbones, attractive, cfd, fairface), may be "
        "repeated; DATASET= can be left out where one is used. Default: the dataset's own.",
    ),
]
Tasks = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder of finished tasks of real images: waterbirds.npz, blond.npz, fairface.npz …, "
        "NAME-ENCODER.npz or ENCODER/NAME.npz.",
    ),
]
Suite = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Folder of task files for orientation (celeba_blond.npz, fairface.npz …)."
    ),
]
Output = Annotated[
    Path,
    options.writes("--output", "-o", help="Folder to write to; finished runs in it are not run again."),
]
Seeds = Annotated[
    int | None,
    typer.Option(
        callback=options.in_range,
        help="Number of seeds. Default: 3, or 2 on simulated tasks; for methods trained by gradient 3 on --data and "
        "--tasks, else 1.",
    ),
]
MaxSteps = Annotated[
    int | None,
    typer.Option(
        callback=options.in_range,
        help="Largest number of batches of one training by gradient. Default: 20000 on --data and --tasks, "
        "3000 on --suite, else 500.",
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="One seed, few methods and settings.")]


def reproduce(
    names: Names,
    data: Data = None,
    model: options.Models = None,
    weights: options.WeightsOfEach = None,
    preprocessing: options.PreprocessingOfEach = None,
    device: options.Device = "cpu",
    download: options.Download = False,
    workers: options.Workers = 2,
    margin: options.Margin = None,
    prompts: Prompts = None,
    tasks: Tasks = None,
    suite: Suite = None,
    output: Output = Path("reproduction"),
    seeds: Seeds = None,
    jobs: options.Jobs = None,
    max_steps: MaxSteps = None,
    quick: Quick = False,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Run the paper's tables and figures on real images, on finished tasks, or (default) on simulated tasks.

    A part that is missing or fails is reported and does not stop the others. A table or figure without a measured
    figure is not written, and is named at the end. The exit code is then 1, unless it was not asked for by name, its
    datasets are not there, and others have figures. It is also 1 where the process of a part died twice.
    """
    from fairerclip.study.paper.context import ReproduceOptions
    from fairerclip.study.paper.entries import chosen_entries
    from fairerclip.study.paper.task_source import TaskSource

    listing = names == ["list"]
    entries = [] if listing else chosen_entries(names)
    for_images = bool(model or weights or preprocessing or prompts or margin or download)
    _check_folders(data, tasks, suite, for_images=for_images, needs_model=not model and not listing)
    images = None
    if data is not None:
        from fairerclip.encoders.choice import model_choices

        choices = model_choices(
            model or (), weights or (), preprocessing or (), device=device, download=download
        )
        images = _images(data, output, choices, prompts or (), entries, margin=margin, workers=workers)
    kind = "suite" if suite is not None else "simulated" if data is None and tasks is None else "data"
    source = TaskSource(kind, suite or tasks, images)
    if listing:
        _list(source, json)
        return
    settings = ReproduceOptions(seeds=seeds, jobs=jobs, max_steps=max_steps, quick=quick)
    results = _run(entries, source, settings, output, names, overwrite=overwrite, quiet=json)
    _finish(results, source, names, output, json)


def _check_folders(
    data: Path | None, tasks: Path | None, suite: Path | None, *, for_images: bool, needs_model: bool
) -> None:
    """Raise if more than one source of tasks is given, or --data without --model, or options of --data without it."""
    from fairerclip.errors import ParameterError

    if sum(folder is not None for folder in (data, tasks, suite)) > 1:
        raise ParameterError("--data, --tasks and --suite exclude each other: give one of them")
    if data is None and for_images:
        raise ParameterError(
            "--model, --weights, --preprocessing, --prompts, --margin and --download set how the images of --data are "
            "embedded; give --data too"
        )
    if data is not None and needs_model:
        raise ParameterError("--data needs --model, the CLIP model to embed images with (may be repeated)")


def _images(
    root: Path,
    output: Path,
    models: Sequence[ModelChoice],
    prompts: Sequence[str],
    entries: Sequence[Entry],
    *,
    margin: str | None,
    workers: int,
) -> OfficialImages:
    """Describe the images of --data and how they become tasks, which are kept in the output folder."""
    from fairerclip.study.paper.official_tasks import OfficialImages, chosen_prompts

    datasets = {dataset for entry in entries for dataset in entry.needs}
    return OfficialImages(
        root, output / "runs" / "data", models, chosen_prompts(prompts, datasets), margin, workers
    )


def _run(
    entries: Sequence[Entry],
    source: TaskSource,
    settings: ReproduceOptions,
    output: Path,
    names: list[str],
    *,
    overwrite: bool,
    quiet: bool,
) -> list[EntryResult]:
    """Run the entries with a progress bar, and return their results."""
    from fairerclip.cli import show
    from fairerclip.study.paper.reproduce import reproduce as run

    if not quiet:
        show.say(source.sentence)
    with (
        kept_when_stopped(output / "runs", RESUME),
        show.warnings_as_lines(),
        show.progress(", ".join(names)) as advance,
    ):
        if source.images is not None:
            source.images.progress = lambda label, done, total: advance(done, total, label)
        return run(
            entries,
            source,
            output,
            settings,
            command=_command(names, source, settings),
            overwrite=overwrite,
            progress=lambda name: lambda done, total: advance(done, total, name),
        )


def _finish(
    results: Sequence[EntryResult], source: TaskSource, names: Sequence[str], output: Path, json: bool
) -> None:
    """Print which files were written, or the results as JSON; raise if a result that was asked for is missing."""
    from fairerclip.cli import show

    if not json:
        for result in results:
            if result.failed:
                show.say(f"{result.name}: not written, nothing was measured: {result.first_reason}")
                continue
            missing = f"; {len(result.failures)} parts missing or failed" if result.failures else ""
            show.say(f"{result.name}: {output / result.name}.md{missing}")
        if not all(result.failed for result in results):
            show.say(f"overview: {output / 'index.html'}")
    document = {"source": source.sentence, "results": [result.as_dict() for result in results]}
    _check(results, names, document)
    if json:
        show.print_json(document)


def _check(results: Sequence[EntryResult], names: Sequence[str], document: Mapping[str, Any]) -> None:
    """Warn of failed parts; raise if an entry that could be measured was not, or if a process died."""
    from fairerclip.cli import show
    from fairerclip.errors import WorkFailedError
    from fairerclip.study.workers import is_lost

    failed = [result for result in results if result.failed]
    missed = [result for result in failed if result.name in names or not result.absent]
    if failed and not any(result.tasks for result in results if not result.failed):
        missed = failed  # only entries that need no data have figures
    if missed:
        why = "; ".join(f"{result.name}: {result.first_reason}" for result in missed)
        raise WorkFailedError(f"{len(missed)} of {len(results)} tables and figures failed ({why})", document)
    parts = [f"{result.name}: {text}" for result in results for text in result.failures]
    if dead := [part for part in parts if is_lost(part)]:
        raise WorkFailedError(f"{len(dead)} parts were lost (first: {dead[0]})", document)
    if parts:
        show.warn(f"{len(parts)} parts missing or failed (first: {parts[0]})")


def _command(names: list[str], source: TaskSource, settings: ReproduceOptions) -> str:
    """Return the command that runs this again, with files and folders by their last name alone."""
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
        value = getattr(settings, name)
        parts += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join([*parts, *(["--quick"] if settings.quick else [])])


def _model_parts(images: OfficialImages) -> list[str]:
    """Return the words of a command that name the models, their weights and their preprocessing."""
    from dataclasses import replace

    from fairerclip.encoders.choice import NOTHING

    parts = [part for model in images.models for part in ("--model", replace(model, weights=None).label)]
    for name in ("weights", "preprocessing"):
        values = [getattr(model, name) for model in images.models]
        if any(value is not None for value in values):
            parts += [
                part
                for value in values
                for part in (f"--{name}", NOTHING if value is None else Path(value).name)
            ]
    return parts


def _list(source: TaskSource, json: bool) -> None:
    """Print every table and figure, which datasets it needs, and whether it can run on this source."""
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
    columns = ["name", "in the paper", "content", "needs one of", "runs here"]
    body = []
    for row in rows:
        reason = row["why_not"]
        missing = f" (without {', '.join(row['missing'])})" if row["missing"] else ""
        runs = f"yes{missing}" if reason is None else f"no: {reason}"
        body.append([row["name"], row["where"], row["title"], ", ".join(row["needs"]) or "nothing", runs])
    show.put(show.plain_table(None, columns, body, left=range(len(columns))))
    show.say(
        "Sources: --data ROOT --model M (images in their official layouts), --tasks DIR (finished tasks of real "
        "images), --suite DIR (task files for orientation); without any of them, simulated tasks."
    )
    show.say("The paper's other figures (fig:causal-graph, its overview and fig:illustration) are drawings.")
