"""`fairerclip path`: the whole trade-off from one factorisation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairerclip.cli import options


def path(
    task: options.TaskFile,
    labels: options.Labels = None,
    sensitive: options.SensitiveNames = None,
    classes: options.ClassNames = None,
    taus: Annotated[
        str | None,
        typer.Option(help="Values of τ: START:STOP:COUNT or comma-separated. Default: 20 in [0, .95]."),
    ] = None,
    tau_zs: Annotated[
        str | None, typer.Option("--tau-zs", help="Values of τ_z, likewise. Default: the model's own.")
    ] = None,
    criterion: Annotated[str, typer.Option(help="marginal, conditional, or both.")] = "both",
    split: Annotated[str, typer.Option(help="Split to evaluate on.")] = "val",
    by: Annotated[
        str, typer.Option(help="Mark the best by worst_group, shrunken_worst_group, average, gap or eod.")
    ] = "shrunken_worst_group",
    refine: Annotated[
        bool, typer.Option("--refine", help="Refine pseudo-labels anew at every point (slower).")
    ] = False,
    preset: options.Preset = None,
    parameters: options.Parameters = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write the table as CSV to this file.")
    ] = None,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Solve the (τ, τ_z) plane from one factorisation and show the accuracy-fairness trade-off."""
    from fairerclip.cli import show
    from fairerclip.errors import OutputExistsError
    from fairerclip.tables import front, parse_grid, write_table

    if output is not None and output.exists() and not overwrite:
        raise OutputExistsError(f"{output} exists; choose another name or pass --overwrite")
    tau_values, tau_z_values = parse_grid(taus, "--taus"), parse_grid(tau_zs, "--tau-zs")
    experiment = options.load_experiment(task, sensitive, classes)
    experiment.task.split(split)  # an unknown split is said before the work
    model = options.build_model(experiment, preset, parameters, seed)
    criteria = ["marginal", "conditional"] if criterion == "both" else [criterion]
    with show.warnings_as_lines() as warned:
        experiment.fit(model, options.default_labels(labels, experiment))
        with show.progress("path") as advance:
            plane = model.path(tau_values, tau_z_values, criterion=criteria, refine=refine, progress=advance)
    table = experiment.evaluate_path(plane, split)
    best = plane.best_index(by)
    on_front = front(table)
    if output is not None:
        write_table(table, output, overwrite=overwrite)
    if json:
        show.print_json(
            {
                "task": experiment.task.name,
                "simulated": experiment.task.simulated,
                "split": split,
                "chosen_by": by,
                "best": best,
                "front": on_front,
                "points": table,
                "warnings": warned,
            }
        )
        return
    several = tau_z_values is not None and len(tau_z_values) > 1
    shown = sorted({*on_front, best}) if several else list(range(len(table)))
    title = f"{experiment.task.name}, {split} split, per cent; → best by {by}"
    if several:
        title += f"; the {len(shown)} points of {len(table)} on the accuracy-fairness front"
    show.out.print(show.path_table(title, [table[g] for g in shown], shown.index(best)))
    if several and experiment.one_curve():
        show.out.print(
            "Two classes with one prompt each: the plane is one curve, in λ_eff = (τ/(1−τ)) / (1 + τ_z/(1−τ_z)).",
            markup=False,
        )
