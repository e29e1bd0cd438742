"""`fairerclip path`: computes the accuracy-fairness trade-off over (τ, τ_z) from one factorisation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fairerclip.cli import options

Taus = Annotated[
    str | None,
    typer.Option(help="Values of τ: START:STOP:COUNT or comma-separated. Default: 20 in [0, .95]."),
]
TauZs = Annotated[
    str | None,
    typer.Option("--tau-zs", help="Values of τ_z, in the same form. Default: the one of the model."),
]
Criteria = Annotated[str, typer.Option("--criterion", help="marginal, conditional, or both.")]
Split = Annotated[str, typer.Option(help="Split to evaluate on.")]
By = Annotated[
    str,
    typer.Option(
        help="Mark the best point by worst_group, shrunken_worst_group, average, gap or eod.",
    ),
]
Refine = Annotated[
    bool | None,
    typer.Option(
        "--refine/--no-refine",
        help="Refine pseudo-labels again at every point (slower). Default: as the parameters say.",
    ),
]
Output = Annotated[
    Path | None, options.writes("--output", "-o", help="Also write the table as CSV to this file.")
]


def path(
    task: options.TaskFile,
    labels: options.Labels = None,
    sensitive: options.SensitiveNames = None,
    classes: options.ClassNames = None,
    taus: Taus = None,
    tau_zs: TauZs = None,
    criterion: Criteria = "both",
    split: Split = "val",
    by: By = "shrunken_worst_group",
    refine: Refine = None,
    preset: options.Preset = None,
    parameters: options.Parameters = None,
    output: Output = None,
    seed: options.Seed = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Solve the (τ, τ_z) plane from one factorisation and show the accuracy-fairness trade-off."""
    from fairerclip._util.files import check_free
    from fairerclip.cli import show
    from fairerclip.data.io.csv_table import write_table
    from fairerclip.model.path import check_by, check_plane, effective_strength, front

    if output is not None:
        check_free(output, overwrite)
    check_by(by)
    tau_values, tau_z_values = options.parse_grid(taus, "--taus"), options.parse_grid(tau_zs, "--tau-zs")
    criteria = ["marginal", "conditional"] if criterion == "both" else [criterion]
    experiment = options.load_experiment(task, sensitive, classes)
    experiment.labels(experiment.task.split(split))  # raises before the work, not after it
    with show.warnings_as_lines() as warned:
        model = options.build_model(preset, parameters, seed, criterion=criteria[0])
        # Offsets that are learned for one point do not suit the others.
        model.set_params(class_offsets=None)
        check_plane(tau_values or [], tau_z_values or [], model.scaling)
        experiment.fit(model, options.default_labels(labels, experiment))
        with show.progress("path") as advance:
            plane = model.path(tau_values, tau_z_values, criterion=criteria, refine=refine, progress=advance)
    table = experiment.evaluate_path(plane, split)
    for row in table:
        row["lambda_eff"] = effective_strength(
            len(experiment.classes), model.scaling, row["tau"], row["tau_z"]
        )
    if output is not None:
        write_table(table, output, overwrite=overwrite)
    result = {
        "task": experiment.task.name,
        "simulated": experiment.task.simulated,
        "split": split,
        "chosen_by": by,
        "best": plane.best_index(by),
        "front": front(table),
        "points": table,
    }
    if json:
        show.print_json({**result, "warnings": warned})
    else:
        _print(result)


def _print(result: dict[str, Any]) -> None:
    """Print the points of the plane: all of them, or those on the front where τ_z varies."""
    from fairerclip.cli import show

    table, best = result["points"], result["best"]
    several = len({row["tau_z"] for row in table}) > 1
    indices = sorted({*result["front"], best}) if several else list(range(len(table)))
    title = f"{result['task']}, {result['split']} split, per cent; → best by {result['chosen_by']}"
    if several:
        title += f"; on the accuracy-fairness front: {len(indices)} of {len(table)} points"
    show.put(show.path_table(title, [table[g] for g in indices], indices.index(best)))
    if several and table[0]["lambda_eff"] is not None:
        show.say(
            "Two classes with one prompt each: the plane is one curve, in λ_eff = (τ/(1−τ)) / (1 + τ_z/(1−τ_z))."
        )
