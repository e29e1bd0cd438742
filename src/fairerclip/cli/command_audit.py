"""`fairerclip audit`: measures how a model treats groups, before and after mitigation; or compares many models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairerclip.cli import options
from fairerclip.cli.store_options import NO_STORE, Read, StoreOptions, with_store_options

if TYPE_CHECKING:
    from fairerclip.applying.apply import AnyModel
    from fairerclip.auditing.results import AuditResults
    from fairerclip.embedding.mitigator import EmbeddingMitigator
    from fairerclip.experiment import Experiment

Tasks = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[TASK]…",
        help="A task for a full audit, or with --labels-from a store of embeddings; or several tasks of one dataset, "
        "one per model, or a folder of them, to compare.",
    ),
]
Permutations = Annotated[int, typer.Option(callback=options.in_range, help="Permutations for p-values.")]
Seeds = Annotated[
    int | None,
    typer.Option(
        callback=options.in_range,
        help="Number of seeds to fit with, for the spread over seeds. Default: 3.",
    ),
]
Encoder = Annotated[
    str | None, typer.Option(help="CLIP model that made the embeddings, to try other wordings with.")
]
Templates = Annotated[
    Path | None,
    typer.Option(help="Wordings to try with --encoder: a template with {} per line. Default: built-in ones."),
]
Output = Annotated[
    Path | None,
    options.writes("--output", "-o", help="Write the results (.json) for `fairerclip report`."),
]
Dataset = Annotated[
    str | None,
    typer.Option(
        help="To compare models: waterbirds, celeba or cfd, with --root, --work and --model or --stores."
    ),
]
Root = Annotated[Path | None, typer.Option(help="The dataset's folder, in its official layout.")]
Split = Annotated[
    str | None,
    typer.Option(
        help="Split to audit. Default: test, else val, else train. With --labels-from: column of splits. Default: all "
        "rows are training rows."
    ),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        help="CLIP model to embed the dataset with; may be repeated. With --labels-from: the one that encodes the "
        "prompts."
    ),
]
Prompts = Annotated[
    str | None,
    typer.Option(
        metavar="NAME_OR_FILE",
        help="Prompt set of the dataset, by default its own; or of --labels-from, with the names of the labels.",
    ),
]
Stores = Annotated[
    Path | None, typer.Option(help="Folder of embedding stores of the dataset, with its prompts.")
]
Work = Annotated[
    Path | None, options.writes(help="Folder for the tasks that are made; finished ones are used again.")
]
About = Annotated[
    Path | None,
    typer.Option(help="JSON: task name → {label, parameters, data}, for the plot's sizes and colours."),
]
Plot = Annotated[
    Path | None,
    options.writes(help="To compare models: draw worst group against average (.png, .svg or .pdf)."),
]


@dataclass(frozen=True)
class FitChoices:
    """Options of an audit that are about fitting a model."""

    labels: str | None = None
    seeds: int | None = None
    preset: str | None = None
    parameters: list[str] | None = None

    def given(self) -> list[str]:
        """Return the names of the options that were given."""
        values = {"--labels": self.labels, "--seeds": self.seeds, "--preset": self.preset}
        return [name for name, value in {**values, "--set": self.parameters}.items() if value is not None]


@with_store_options
def audit(
    tasks: Tasks = None,
    mitigate: options.Mitigate = False,
    after: options.After = None,
    labels: options.Labels = None,
    sensitive: options.SensitiveNames = None,
    classes: options.ClassNames = None,
    split: Split = None,
    k: options.ResultsShown = None,
    pair: options.Pair = None,
    permutations: Permutations = 199,
    seeds: Seeds = None,
    encoder: Encoder = None,
    templates: Templates = None,
    preset: options.Preset = None,
    parameters: options.Parameters = None,
    output: Output = None,
    dataset: Dataset = None,
    root: Root = None,
    model: Models = None,
    stores: Stores = None,
    work: Work = None,
    prompts: Prompts = None,
    about: About = None,
    plot: Plot = None,
    seed: options.Seed = None,
    overwrite: options.Overwrite = False,
    verbose: options.Verbose = False,
    json: options.Json = False,
    store: StoreOptions = NO_STORE,
) -> None:
    """Audit one task in full, with --mitigate or --after before and after; or compare models zero-shot.

    --mitigate fits FairerCLIP, or EmbeddingMitigator where no row has a target label: prompts then rank and do not
    classify. --labels, --seeds, --preset and --set set how. Results have KL, Bias@k (--pair) and AUC, too.
    """
    fitting = FitChoices(labels=labels, seeds=seeds, preset=preset, parameters=parameters)
    labelled = store.labels_from is not None
    if labelled:
        others = {"--dataset": dataset, "--root": root, "--stores": stores, "--work": work}
        others |= {"--about": about, "--plot": plot}
        _check_one_store(tasks, model, [name for name, value in others.items() if value is not None])
        store = replace(store, split=split, prompts=prompts, model=model[0] if model else None)
        split = None
    store.check(tasks[0] if tasks and len(tasks) == 1 else None)
    dataset_options = any((root, model, stores, work, prompts))
    files = (tasks or []) if labelled else _given_files(tasks, dataset, dataset_options=dataset_options)
    if len(files) == 1 and plot is None and about is None:
        _check_output(output, overwrite)
        experiment, read = store.read(files[0], sensitive, classes)
        results, warned = full_audit(
            experiment,
            fitting,
            source=options.as_text(files[0]),
            mitigate=mitigate,
            after=after,
            wording=(encoder, templates),
            seed=seed,
            split=split,
            k=k,
            pair=pair,
            permutations=permutations,
        )
        read = replace(read, warnings=[*read.warnings, *warned])
        _show(results, read, output, overwrite=overwrite, verbose=verbose, json=json)
        return
    of_one_task = {"--mitigate": mitigate, "--after": after, "--output": output, "--encoder": encoder}
    of_one_task |= {"--pair": pair}
    _check_many([*(name for name, value in of_one_task.items() if value), *fitting.given()], len(files))
    made = files or _make_tasks(dataset, root=root, models=model, stores=stores, work=work, prompts=prompts)
    _compare(made, sensitive, split, about, plot, overwrite=overwrite, json=json)


def _check_one_store(tasks: list[Path] | None, models: list[str] | None, others: Sequence[str]) -> None:
    """Raise unless one store is given, at most one model for its prompts, and no option of a comparison."""
    from fairerclip.errors import ParameterError

    if others or len(tasks or ()) != 1 or len(models or ()) > 1:
        came = f"{len(tasks or ())} stores and {len(models or ())} models{''.join(f', {name}' for name in others)}"
        raise ParameterError(f"--labels-from audits one store, with one --model at most; got {came}")


def _given_files(tasks: list[Path] | None, dataset: str | None, *, dataset_options: bool) -> list[Path]:
    """Return the task files that were given; none with --dataset. Raise unless exactly one of the two is given."""
    from fairerclip.data.task_files import task_files
    from fairerclip.errors import ParameterError

    if bool(tasks) == (dataset is not None):
        raise ParameterError(
            "audit expects task files, or --dataset with --root, --work and --model or --stores"
        )
    if tasks and dataset_options:
        raise ParameterError(
            "--root, --model, --stores, --work and --prompts go with --dataset, not with task files"
        )
    return task_files(tasks) if tasks else []


def _check_many(names: list[str], n_tasks: int) -> None:
    """Raise if options of the audit of one task are given where several models are compared."""
    from fairerclip.errors import ParameterError

    if names:
        source = f"{n_tasks} tasks to compare" if n_tasks else "a dataset"
        raise ParameterError(f"{', '.join(names)} goes with one task; got {source}: leave it out")


def full_audit(
    experiment: Experiment,
    fitting: FitChoices,
    *,
    source: str,
    mitigate: bool = False,
    after: Path | None = None,
    wording: tuple[str | None, Path | None] = (None, None),
    seed: int | None = None,
    pair: str | None = None,
    **audit: Any,
) -> tuple[AuditResults, list[str]]:
    """Audit one task as the options say, and return the results and the warnings.

    Parameters
    ----------
    experiment : Experiment
        The task, with its sensitive attributes and classes.
    fitting : FitChoices
        How a model is fitted; only with ``mitigate``.
    source : str
        Name of the task file, for the results.
    mitigate, after : bool, path or None
        The model that is shown as after: a new one, a saved one, or none; at most one of them.
    wording : pair of str or None and path or None
        Encoder and file of templates for other wordings of the prompts.
    seed : int or None
        Random seed.
    pair : str or None
        The two groups of Bias@k, as ``--pair`` has them.
    **audit
        Other fields of `AuditOptions`.
    """
    from fairerclip.auditing.audit_options import AuditOptions
    from fairerclip.auditing.run import audit_task
    from fairerclip.cli import show
    from fairerclip.errors import ParameterError
    from fairerclip.model.archive import load

    _check_stages(mitigate, after, fitting.given())
    gallery = experiment.is_gallery()
    if mitigate and gallery and fitting.preset is not None:
        raise ParameterError(
            f"--preset is of FairerCLIP, but no row of {experiment.task.name} has a target label, so --mitigate fits "
            "an EmbeddingMitigator: leave it out"
        )
    if mitigate:
        audit["labels"] = fitting.labels if gallery else options.default_labels(fitting.labels, experiment)
    if fitting.seeds is not None:
        audit["seeds"] = fitting.seeds
    settings = AuditOptions(
        seed=seed or 0,
        source=source,
        pair=None if pair is None else options.parse_pair(pair),
        wordings=_wordings(experiment, *wording),
        tune=fitting.preset is None and not fitting.parameters,  # parameters given by the user are not tuned
        **audit,
    )
    with show.warnings_as_lines() as warned, show.progress("audit") as advance:
        model: AnyModel | EmbeddingMitigator | None = None
        if after is not None:
            model = load(after)
        elif mitigate and gallery:
            model = options.build_mitigator(fitting.parameters)
        elif mitigate:
            model = options.build_model(fitting.preset, fitting.parameters, seed)
        results, _ = audit_task(experiment, settings, model=model, fitted=after is not None, progress=advance)
    return results, warned


def _check_stages(mitigate: bool, after: Path | None, fitting: list[str]) -> None:
    """Raise if options contradict each other, or if options of a fit are given where nothing is fitted."""
    from fairerclip.errors import ParameterError

    if mitigate and after is not None:
        raise ParameterError("--mitigate and --after exclude each other: leave out one")
    if fitting and not mitigate:
        why = "no model is fitted without --mitigate: add it"
        if after is not None:
            why = "--after gives a fitted one: leave them out"
        raise ParameterError(f"{', '.join(fitting)}: options for fitting a model, but {why}")


def _wordings(experiment: Experiment, encoder: str | None, file: Path | None) -> Any:
    """Return embeddings and names of other wordings of the prompts; None without an encoder."""
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


def _check_output(output: Path | None, overwrite: bool) -> None:
    """Raise, before any work, if the output exists, or if `fairerclip report` would not read it as results."""
    from fairerclip._util.files import check_free
    from fairerclip.errors import ParameterError

    if output is None:
        return
    check_free(output, overwrite)
    if output.suffix != ".json":
        raise ParameterError(
            f"--output expects a file that ends in .json, got {output}: give {output.name}.json"
        )


def _show(
    results: AuditResults,
    read: Read,
    output: Path | None,
    *,
    overwrite: bool,
    verbose: bool,
    json: bool,
) -> None:
    """Write the results to the output, if there is one, and print the answer and one table, or everything."""
    from fairerclip.auditing.results import write_results
    from fairerclip.cli import show
    from fairerclip.report.tables import first_table, overview

    if output is not None:
        write_results(results, output, overwrite=overwrite)
    if json:
        notes = {} if read.notes is None else {"notes": read.notes}
        show.print_json({**results.model_dump(by_alias=True), **notes, "warnings": read.warnings})
        return
    for note in read.notes or ():
        show.say(note)
    show.head(f"{results.task.name}, {results.settings.split} split")
    show.answer(results.verdict)
    if verbose:
        for finding in results.findings:
            show.say(f"• {finding.level}: {finding.text}")
    for table in overview(results) if verbose else first_table(results):
        show.put(show.rendered(table))
    rest = "" if verbose else f"--verbose prints {len(results.findings)} findings and all tables"
    if output is not None:
        made = f"results written to {output}; `fairerclip report {output}` makes a page of them"
        show.say("; ".join(part for part in (made, rest) if part))
    elif not verbose:
        show.say(f"More: {rest}; -o FILE.json keeps them")


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
    """Compare the zero-shot group accuracies of several tasks, one per model."""
    from fairerclip.auditing.many_models import audit_tasks, check_plot, draw, read_models
    from fairerclip.cli import show

    if plot is not None:
        check_plot(plot, overwrite)
    models = {} if about is None else read_models(about)
    with show.progress("audit") as advance:
        rows = audit_tasks(files, options.split_names(sensitive), split, models, progress=advance)
    if plot is not None:
        draw(rows, plot, overwrite=overwrite)
    if json:
        show.print_json({"models": [row.as_dict() for row in rows]})
        return
    title = f"Zero-shot by group, {rows[0].split} split, per cent; best worst group first"
    show.put(show.report_table(title, [(row.label, row.report) for row in rows]))
    if plot is not None:
        show.say(f"plot written to {plot}")


def _make_tasks(
    dataset: str | None,
    *,
    root: Path | None,
    models: list[str] | None,
    stores: Path | None,
    work: Path | None,
    prompts: str | None,
) -> list[Path]:
    """Write one task of a dataset per model or per embedding store, and return the files."""
    from fairerclip.auditing.many_models import tasks_of_models, tasks_of_stores
    from fairerclip.cli import show
    from fairerclip.data.datasets import read_dataset
    from fairerclip.data.prompts import load_prompts
    from fairerclip.encoders.choice import model_choices
    from fairerclip.errors import ParameterError

    if dataset is None or root is None or work is None or bool(models) == (stores is not None):
        raise ParameterError("--dataset expects --root, --work, and either --model (repeated) or --stores")
    index = read_dataset(dataset, root)
    prompt_source = options.prompts_for(index, prompts)
    for note in index.notes:
        show.note(note)
    if stores is not None:
        return tasks_of_stores(index, load_prompts(prompt_source), stores, work)
    choices = model_choices(models or [])
    with show.progress("embedding") as advance:
        tasks = tasks_of_models(
            index,
            load_prompts(prompt_source),
            choices,
            work,
            lambda model: work / f"{model.file_name}.npz",
            progress=lambda label, done, total: advance(done, total, label),
        )
    return [task.file for task in tasks]
