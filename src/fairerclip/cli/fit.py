"""`fairerclip fit`: train on a task file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairerclip.cli import options

if TYPE_CHECKING:
    from fairerclip.model import FairerCLIP
    from fairerclip.workflow import Experiment


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
    seed: options.Seed = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Train FairerCLIP on a task and compare it with zero-shot."""
    from fairerclip.cli import show
    from fairerclip.persist.model_file import check_model_path
    from fairerclip.workflow import tune_on_validation

    check_model_path(output, overwrite=overwrite)  # said before the work, not after it
    experiment = options.load_experiment(task, sensitive, classes)
    if tune:
        experiment.labels(experiment.task.val)
    chosen = options.default_labels(labels, experiment)
    model = options.build_model(
        experiment, preset, parameters, seed, tau=tau, tau_z=tau_z, criterion=criterion
    )
    with show.warnings_as_lines() as warned:
        experiment.fit(model, chosen)
        if tune:
            model = tune_on_validation(experiment, model)
    model.save(output, overwrite=overwrite)
    result = _result(experiment, model, chosen, output)
    if json:
        show.print_json({**_plain(result), "warnings": warned})
    else:
        _print(result)


def _result(experiment: Experiment, model: FairerCLIP, labels: str, output: Path) -> dict[str, Any]:
    split = experiment.evaluation_split()
    ranked = experiment.ranked_split() if split is None else None
    return {
        "task": experiment.task.name,
        "simulated": experiment.task.simulated,
        "labels": labels,
        "model": str(output),
        "tau": model.tau,
        "tau_z": model.tau_z,
        "criterion": model.criterion,
        "n_iter": model.n_iter_,
        "split": split or ranked,
        "reports": dict(experiment.before_after(model, split)) if split else {},
        "skews": experiment.skews(model, ranked) if ranked else [],
        "diagnostics": model.diagnostics_,
    }


def _plain(result: dict[str, Any]) -> dict[str, Any]:
    return {**result, "reports": {name: report.as_dict() for name, report in result["reports"].items()}}


def _print(result: dict[str, Any]) -> None:
    from fairerclip.cli import show

    seen = " (the rows it was fitted on)" if result["split"] == "train" else ""
    title = f"{result['task']}, {result['split']} split{seen}"
    if result["reports"]:
        rows = list(result["reports"].items())
        show.out.print(show.report_table(f"{title}, per cent; labels used: {result['labels']}", rows))
    elif result["skews"]:
        show.out.print(show.skew_table(title, result["skews"]))
    else:
        show.say("No split has sensitive labels: nothing to evaluate on.")
    show.say(
        f"τ={result['tau']:g}, τ_z={result['tau_z']:g}, {result['criterion']}; rounds: {result['n_iter']}; "
        f"written to {result['model']}"
    )
