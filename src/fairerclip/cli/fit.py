"""`fairerclip fit`: train on a task file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairerclip.cli import options


def fit(
    task: options.TaskFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write the model to.")],
    labels: options.Labels = None,
    sensitive: options.SensitiveNames = None,
    classes: options.ClassNames = None,
    tau: options.Tau = None,
    tau_z: options.TauZ = None,
    criterion: options.Criterion = None,
    preset: options.Preset = None,
    parameters: options.Parameters = None,
    tune: Annotated[
        bool,
        typer.Option("--tune", help="Choose τ and the criterion on the validation split by its worst group."),
    ] = False,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Train FairerCLIP on a task and compare it with zero-shot."""
    from fairerclip.cli import show
    from fairerclip.errors import OutputExistsError
    from fairerclip.workflow import tune_on_validation

    if output.exists() and not overwrite:  # said before the work, not after it
        raise OutputExistsError(f"{output} exists; choose another name or pass --overwrite")
    experiment = options.load_experiment(task, sensitive, classes)
    chosen = options.default_labels(labels, experiment)
    model = options.build_model(
        experiment, preset, parameters, seed, tau=tau, tau_z=tau_z, criterion=criterion
    )
    with show.warnings_as_lines() as warned:
        experiment.fit(model, chosen)
        if tune:
            model = tune_on_validation(experiment, model)
    model.save(output, overwrite=overwrite)
    split = experiment.evaluation_split()
    reports = [] if split is None else experiment.before_after(model, split)
    skews = experiment.skews(model, ranked) if not reports and (ranked := experiment.ranked_split()) else []
    if json:
        show.print_json(
            {
                "task": experiment.task.name,
                "simulated": experiment.task.simulated,
                "labels": chosen,
                "model": str(output),
                "tau": model.tau,
                "tau_z": model.tau_z,
                "criterion": model.criterion,
                "n_iter": model.n_iter_,
                "split": split,
                "reports": {name: report.as_dict() for name, report in reports},
                "skews": skews,
                "diagnostics": model.diagnostics_,
                "warnings": warned,
            }
        )
        return
    if reports:
        seen = " (the rows it was fitted on)" if split == "train" else ""
        title = f"{experiment.task.name}, {split} split{seen}, per cent; labels used: {chosen}"
        show.out.print(show.report_table(title, reports))
    elif skews:
        show.out.print(show.skew_table(f"{experiment.task.name}, {ranked} split", skews))
    else:
        show.out.print("No split has sensitive labels: nothing to evaluate on.", markup=False)
    show.out.print(
        f"τ={model.tau:g}, τ_z={model.tau_z:g}, {model.criterion}; rounds: {model.n_iter_}; written to {output}",
        markup=False,
    )
