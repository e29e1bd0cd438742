"""`fairerclip audit`: how a model treats groups, before mitigation and after; or many models side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairerclip.cli import options

if TYPE_CHECKING:
    from fairerclip.auditing.results import AuditResults
    from fairerclip.experiment import Experiment


def audit(
    tasks: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[TASK]…",
            help="A task for a full audit; or several of one dataset, one per model, or a folder of them, to compare.",
        ),
    ] = None,
    mitigate: options.Mitigate = False,
    after: options.After = None,
    before_only: options.BeforeOnly = False,
    labels: options.Labels = None,
    sensitive: options.SensitiveNames = None,
    classes: options.ClassNames = None,
    split: Annotated[
        str | None, typer.Option(help="Split to audit. Default: test, else val, else train.")
    ] = None,
    k: Annotated[
        int | None, typer.Option(help="Results that a search shows. Default: 1000, or a quarter of the rows.")
    ] = None,
    permutations: Annotated[
        int, typer.Option(callback=options.in_range, help="Permutations for p-values.")
    ] = 199,
    seeds: Annotated[
        int | None,
        typer.Option(
            callback=options.in_range, help="Seeds to fit with, for the spread over seeds. Default: 3."
        ),
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(help="CLIP model that made the embeddings, to try other wordings with.")
    ] = None,
    templates: Annotated[
        Path | None,
        typer.Option(help="Wordings to try with --encoder: a template with {} per line. Default: ours."),
    ] = None,
    preset: options.Preset = None,
    parameters: options.Parameters = None,
    output: Annotated[
        Path | None,
        options.writes("--output", "-o", help="Write the results (.json) for `fairerclip report`."),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="To compare models: waterbirds, celeba or cfd, with --root, --work and --model or --stores."
        ),
    ] = None,
    root: Annotated[Path | None, typer.Option(help="The dataset's folder, in its official layout.")] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="CLIP model to embed it with; may be repeated.")
    ] = None,
    stores: Annotated[
        Path | None, typer.Option(help="Folder of embedding stores of the dataset, with its prompts.")
    ] = None,
    work: Annotated[
        Path | None, options.writes(help="Folder for the tasks made on the way; used again.")
    ] = None,
    prompts: Annotated[
        str | None, typer.Option(metavar="NAME_OR_FILE", help="Prompt set. Default: the dataset's own.")
    ] = None,
    about: Annotated[
        Path | None,
        typer.Option(help="JSON: task name → {label, parameters, data}, for the plot's sizes and colours."),
    ] = None,
    plot: Annotated[
        Path | None, options.writes(help="To compare: draw worst group against average (.png, .svg or .pdf).")
    ] = None,
    seed: options.Seed = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Audit one task from every side, with --mitigate or --after before and after; or compare models zero-shot.

    --labels, --seeds, --preset and --set say how --mitigate fits.
    """
    from fairerclip.data.task_files import task_files
    from fairerclip.errors import ParameterError

    if bool(tasks) == (dataset is not None):
        raise ParameterError(
            "audit expects task files, or --dataset with --root, --work and --model or --stores"
        )
    if tasks and any((root, model, stores, work, prompts)):
        raise ParameterError(
            "--root, --model, --stores, --work and --prompts go with --dataset, not with task files"
        )
    files = task_files(tasks) if tasks else []
    if len(files) == 1 and plot is None and about is None:
        experiment = options.load_experiment(files[0], sensitive, classes)
        results, warned = full_audit(
            experiment,
            source=options.as_text(files[0]),
            mitigate=mitigate,
            after=after,
            before_only=before_only,
            labels=labels,
            seeds=seeds,
            preset=preset,
            parameters=parameters,
            seed=seed,
            wording=(encoder, templates),
            output=output,
            overwrite=overwrite,
            split=split,
            k=k,
            permutations=permutations,
        )
        _print(results, warned, output, json)
        return
    alone: dict[str, Any] = {
        "--mitigate": mitigate,
        "--after": after,
        "--output": output,
        "--encoder": encoder,
    }
    alone |= {"--labels": labels, "--seeds": seeds, "--preset": preset, "--set": parameters}
    given = [name for name, value in alone.items() if value]
    if given:
        raise ParameterError(f"{', '.join(given)} goes with one task; got {len(files) or 'a dataset'}")
    made = files or _made(dataset or "", root, model, stores, work, prompts)
    _compare(made, sensitive, split, about, plot, overwrite=overwrite, json=json)


def full_audit(
    experiment: Experiment,
    *,
    source: str,
    mitigate: bool = False,
    after: Path | None = None,
    before_only: bool = False,
    labels: str | None = None,
    seeds: int | None = None,
    preset: str | None = None,
    parameters: list[str] | None = None,
    seed: int | None = None,
    wording: tuple[str | None, Path | None] = (None, None),
    output: Path | None = None,
    overwrite: bool = False,
    **audit: Any,
) -> tuple[AuditResults, list[str]]:
    """Audit one task as the options say; the results, and what was warned of on the way."""
    from fairerclip._util.files import check_free
    from fairerclip.auditing.results import write_results
    from fairerclip.auditing.run import AuditOptions, audit_task
    from fairerclip.cli import show
    from fairerclip.model.estimator import FairerCLIP

    if output is not None:
        check_free(output, overwrite)
    fitting = {"labels": labels, "seeds": seeds, "preset": preset, "set": parameters}
    _check_stages(
        mitigate, after, before_only, [name for name, value in fitting.items() if value is not None]
    )
    model = None
    if after is not None:
        model = FairerCLIP.load(after)
    elif mitigate:
        audit["labels"] = options.default_labels(labels, experiment)
        model = options.build_model(preset, parameters, seed)
    what = AuditOptions(
        seed=seed or 0,
        source=source,
        wordings=_wordings(experiment, *wording),
        tune=preset is None and not parameters,  # what is given by hand is audited as it is
        **(audit if seeds is None else {**audit, "seeds": seeds}),
    )
    with show.warnings_as_lines() as warned, show.progress("audit") as advance:
        results, _ = audit_task(experiment, what, model=model, fitted=after is not None, progress=advance)
    if output is not None:
        write_results(results, output, overwrite=overwrite)
    return results, warned


def _check_stages(mitigate: bool, after: Path | None, before_only: bool, fitting: list[str]) -> None:
    """Refuse options that contradict each other, and those of a fit where nothing is fitted."""
    from fairerclip.cli import show
    from fairerclip.errors import ParameterError

    stages = {"--mitigate": mitigate, "--after": after is not None, "--before-only": before_only}
    asked = [name for name, given in stages.items() if given]
    if len(asked) > 1:
        raise ParameterError(f"{' and '.join(asked)} exclude each other: leave out all but one")
    if fitting and not mitigate:
        named = ", ".join(f"--{name}" for name in fitting)
        why = (
            "--after gives a fitted one"
            if after is not None
            else "no model is fitted without --mitigate: add it"
        )
        raise ParameterError(f"{named}: options for fitting a model, but {why}")
    if before_only:
        show.warn("--before-only is deprecated and changes nothing: a model is fitted only with --mitigate")


def _wordings(experiment: Experiment, encoder: str | None, file: Path | None) -> Any:
    """Embeddings and names of wordings, where an encoder is given to make them."""
    from fairerclip.errors import ParameterError

    if encoder is None:
        if file is not None:
            raise ParameterError("--templates needs --encoder, the CLIP model that made the embeddings")
        return None
    from fairerclip.auditing.rewording import variants_from_encoder
    from fairerclip.data.prompts import DEFAULT_TEMPLATES, read_templates
    from fairerclip.encoders.loading import load

    templates = DEFAULT_TEMPLATES if file is None else read_templates(file)
    return variants_from_encoder(experiment, load(encoder), templates)


def _print(results: AuditResults, warned: list[str], output: Path | None, json: bool) -> None:
    from fairerclip.cli import show
    from fairerclip.report.tables import overview

    if json:
        show.print_json({**results.model_dump(by_alias=True), "warnings": warned})
        return
    show.head(f"{results.task.name}, {results.settings.split} split")
    for finding in results.findings:
        show.say(f"• {finding.level}: {finding.text}")
    for table in overview(results):
        show.put(show.rendered(table))
    if output is not None:
        show.say(f"results written to {output}; `fairerclip report {output}` makes a page of them")


def _compare(
    files: list[Path],
    sensitive: str | None,
    split: str | None,
    about: Path | None,
    plot: Path | None,
    *,
    overwrite: bool,
    json: bool,
) -> None:
    from fairerclip.auditing.many_models import audit_tasks, check_plot, draw, read_models
    from fairerclip.cli import show

    if plot is not None:
        check_plot(plot, overwrite)
    known = {} if about is None else read_models(about)
    with show.progress("audit") as advance:
        rows = audit_tasks(files, options.split_names(sensitive), split, known, progress=advance)
    if plot is not None:
        draw(rows, plot, overwrite=overwrite)
    if json:
        show.print_json({"models": [row.as_dict() for row in rows]})
        return
    title = f"Zero-shot by group, {rows[0].split} split, per cent; best worst group first"
    show.put(show.report_table(title, [(row.label, row.report) for row in rows]))
    if plot is not None:
        show.say(f"plot written to {plot}")


def _made(
    dataset: str,
    root: Path | None,
    models: list[str] | None,
    stores: Path | None,
    work: Path | None,
    prompts: str | None,
) -> list[Path]:
    """Tasks of a dataset through several models, or from several stores."""
    from fairerclip.auditing.many_models import tasks_of_models, tasks_of_stores
    from fairerclip.cli import show
    from fairerclip.data.datasets import read_dataset
    from fairerclip.data.prompts import load_prompts
    from fairerclip.encoders.choice import model_choices
    from fairerclip.errors import ParameterError

    if root is None or work is None or bool(models) == (stores is not None):
        raise ParameterError("--dataset expects --root, --work, and either --model (repeated) or --stores")
    index = read_dataset(dataset, root)
    source = prompts or index.prompts
    if source is None:
        raise ParameterError(f"no prompts are shipped for {index.name}; give --prompts")
    for note in index.notes:
        show.note(note)
    if stores is not None:
        return tasks_of_stores(index, load_prompts(source), stores, work)
    choices = model_choices(models or [])
    with show.progress("embedding") as advance:
        made = tasks_of_models(
            index,
            load_prompts(source),
            choices,
            work,
            lambda model: work / f"{model.file_name}.npz",
            progress=lambda label, done, total: advance(done, total, label),
        )
    return [one.file for one in made]
