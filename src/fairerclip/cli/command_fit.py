"""`fairerclip fit`: trains a model on a task file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairerclip.cli import options

if TYPE_CHECKING:
    from fairerclip.experiment import Experiment
    from fairerclip.model.estimator import FairerCLIP


Output = Annotated[Path, options.writes("--output", "-o", help="Folder to write the model to.")]
Tune = Annotated[
    bool | None,
    typer.Option(
        "--tune/--no-tune",
        help="Search weights, ridge, τ, criterion, zero-shot share and class offsets on the validation split. "
        "Default: where one of --objective, --accuracy-floor, --max-seconds and --cv is given; or where no strength, "
        "criterion, offset, preset or parameter is given and that split has the labels that tuning needs.",
    ),
]
Objective = Annotated[
    str | None,
    typer.Option(
        help="What --tune optimises: worst_group (the default), worst_class, eod, equalized_odds, average, or "
        "max_skew for rankings by prompt (the default where no row has a target label).",
    ),
]
AccuracyFloor = Annotated[
    float | None,
    typer.Option(
        help="Smallest share of right predictions on the validation split, 0 to 1, that a model may have. If none "
        "reaches it, the most accurate one is taken, with a warning."
    ),
]
Folds = Annotated[
    int | None,
    typer.Option(
        "--cv",
        min=2,
        metavar="FOLDS",
        help="Tune by cross-validation on the training split, with this number of folds, instead of the validation "
        "split. Needs target labels.",
    ),
]
MaxSeconds = Annotated[
    float | None, typer.Option(help="Time limit of --tune: no fit is started that would end later.")
]


def fit(
    task: options.TaskFile,
    output: Output,
    labels: options.Labels = None,
    sensitive: options.SensitiveNames = None,
    classes: options.ClassNames = None,
    tau: options.Tau = None,
    tau_z: options.TauZ = None,
    criterion: options.Criterion = None,
    preset: options.Preset = None,
    parameters: options.Parameters = None,
    offsets: options.Offsets = None,
    tune: Tune = None,
    objective: Objective = None,
    accuracy_floor: AccuracyFloor = None,
    max_seconds: MaxSeconds = None,
    cv: Folds = None,
    seed: options.Seed = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Train FairerCLIP on a task and compare it with zero-shot."""
    from fairerclip.cli import show
    from fairerclip.model.model_file import ARCHIVE, check_class_names

    ARCHIVE.check(output, overwrite=overwrite)  # before the work, not after it
    experiment = options.load_experiment(task, sensitive, classes)
    check_class_names(experiment.classes)
    search = {
        "--objective": objective,
        "--accuracy-floor": accuracy_floor,
        "--max-seconds": max_seconds,
        "--cv": cv,
    }
    class_offsets = None if offsets is None else options.parse_offsets(offsets)
    by_hand = any(given is not None for given in (tau, tau_z, criterion, preset, parameters, offsets))
    tune = _whether_to_tune(tune, search, by_hand, experiment, with_offsets=offsets is not None)
    goal = objective or experiment.default_objective()
    chosen = options.default_labels(labels, experiment)
    with show.warnings_as_lines() as warned:
        model = options.build_model(preset, parameters, seed, tau=tau, tau_z=tau_z, criterion=criterion)
        if tune:
            with show.progress(f"searching by {goal}") as progress:
                model = experiment.tune(
                    *(model, chosen, goal),
                    accuracy_floor=accuracy_floor,
                    max_seconds=max_seconds,
                    cv=cv,
                    progress=progress,
                )
        else:
            model = _fitted(experiment, model, chosen, class_offsets)
        result = _result(experiment, model, chosen, output)
    model.save(output, overwrite=overwrite)  # last, so that a failure leaves no model behind
    if json:
        show.print_json({**_plain(result), "warnings": warned})
    else:
        _print(result, model)


def _whether_to_tune(
    tune: bool | None,
    search: Mapping[str, object],
    by_hand: bool,
    experiment: Experiment,
    *,
    with_offsets: bool,
) -> bool:
    """Return whether the model is tuned; raise if options of the search contradict --no-tune or --offsets."""
    from fairerclip.errors import ParameterError

    asked = [name for name, value in search.items() if value is not None]
    if tune is False and asked:
        raise ParameterError(
            f"--no-tune turns off the search that {', '.join(asked)} is about: leave one of them out"
        )
    if with_offsets and (tune or asked):
        raise ParameterError("--offsets sets what a search would learn: leave out --offsets, or the search")
    if tune is None:
        return bool(asked) or (not by_hand and experiment.why_untuned() is None)
    return tune


def _fitted(
    experiment: Experiment, model: FairerCLIP, labels: str, offsets: list[float] | None
) -> FairerCLIP:
    """Fit a model without a search; warn where the rankings of a gallery are not tuned."""
    from fairerclip.experiment import warn_untuned_ranking

    model = experiment.fit(model, labels)
    if offsets is not None:
        model = model.at(offsets=offsets)
    if experiment.is_gallery():
        warn_untuned_ranking(experiment.why_untuned() or "give --objective max_skew to tune them")
    return model


def _result(experiment: Experiment, model: FairerCLIP, labels: str, output: Path) -> dict[str, Any]:
    """Evaluate the model, and return the result that is printed."""
    from fairerclip.auditing.model_facts import model_facts

    split = experiment.evaluation_split()
    if (model.diagnostics_.get("tuning") or {}).get("objective") == "max_skew":
        split = None  # the model ranks: its class boundaries mean nothing
    ranked = experiment.ranked_split() if split is None else None
    return {
        "task": experiment.task.name,
        "simulated": experiment.task.simulated,
        "labels": labels,
        "model": str(output),
        "tau": model.tau_,
        "tau_z": model.tau_z,
        "criterion": model.criterion_,
        "n_iter": model.n_iter_,
        "split": split or ranked,
        "reports": dict(experiment.before_after(model, split)) if split else {},
        "skews": experiment.skews(model, ranked) if ranked else [],
        "method": model_facts(model).method,
        "tuning": model.diagnostics_.get("tuning"),
        "diagnostics": model.diagnostics_,
    }


def _plain(result: dict[str, Any]) -> dict[str, Any]:
    """Return the result as plain data for JSON."""
    return {
        **result,
        "reports": {name: report.as_dict() for name, report in result["reports"].items()},
        "skews": [asdict(skew) for skew in result["skews"]],
    }


def _print(result: dict[str, Any], model: FairerCLIP) -> None:
    """Print the result as tables and sentences."""
    from fairerclip._util.numbers import setting
    from fairerclip.auditing.model_facts import (
        after_name,
        automatic_sentences,
        model_facts,
        strategy_name,
        why_kept,
    )
    from fairerclip.cli import show
    from fairerclip.report.fit_tables import skew_table, tuning_table

    facts = model_facts(model)
    training = " (the rows it was fitted on)" if result["split"] == "train" else ""
    title = f"{result['task']}, {result['split']} split{training}"
    if result["reports"]:
        rows = [
            (after_name(facts) if name == "FairerCLIP" else name, r) for name, r in result["reports"].items()
        ]
        show.put(show.report_table(f"{title}, per cent; labels used: {result['labels']}", rows))
    elif result["skews"]:
        show.put(show.rendered(skew_table(title, result["skews"], after_name(facts))))
    else:
        show.say("No split has sensitive labels: nothing to evaluate on.")
    if result["tuning"]:
        show.put(show.rendered(tuning_table(result["tuning"])))
        if "strategy" in result["tuning"]:  # rankings have none
            show.say(f"Chosen: {strategy_name(result['tuning']['strategy'])}.")
    for sentence in automatic_sentences(model.diagnostics_.get("automatic")):
        show.say(sentence)
    kept = why_kept(facts, whole=True)
    if kept is not None:
        show.say(kept)
    show.say(
        f"τ={setting(result['tau'])}, τ_z={setting(result['tau_z'])}, {result['criterion']}; "
        f"rounds: {result['n_iter']}; written to {result['model']}"
    )
