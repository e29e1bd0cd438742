"""`fairerclip fit`: trains a model on a task file, or on a store and a table of labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairerclip.cli import fit_options, options
from fairerclip.cli.cluster_options import Cluster, experiment_on
from fairerclip.cli.fit_options import EMBEDDING, OWN, FitOptions, SearchOptions
from fairerclip.cli.store_options import NO_STORE, StoreOptions, with_store_options

if TYPE_CHECKING:
    from fairerclip.cli.fit_output import Printing, Trained
    from fairerclip.experiment import Experiment
    from fairerclip.model.details import ModelDetails
    from fairerclip.model.estimator import FairerCLIP

TaskOrStore = Annotated[
    Path,
    typer.Argument(
        metavar="TASK",
        help="Task file (.npz or .safetensors), or simulated:NAME for a simulated one (waterbirds, celeba, "
        "cheekbones, multiclass, gallery); with --labels-from a store of embeddings of any size.",
    ),
]
Output = Annotated[Path, options.writes("--output", "-o", help="Folder to write the model to.")]
KINDS = {OWN: "FairerCLIP", EMBEDDING: "EmbeddingMitigator"}
"""Kinds of the models of two methods; the others are baselines."""


@dataclass(frozen=True)
class Saving:
    """Where and how the model is written."""

    path: Path
    overwrite: bool
    precision: str

    def save(self, model: Any, details: ModelDetails) -> None:
        """Write a model with what is known of it."""
        model.save(self.path, overwrite=self.overwrite, precision=self.precision, details=details)


@with_store_options
def fit(
    task: TaskOrStore,
    output: Output,
    method: fit_options.MethodName = None,
    labels: options.Labels = None,
    sensitive: options.SensitiveNames = None,
    classes: options.ClassNames = None,
    tau: options.Tau = None,
    tau_z: options.TauZ = None,
    criterion: options.Criterion = None,
    preset: options.Preset = None,
    parameters: options.Parameters = None,
    offsets: options.Offsets = None,
    tune: fit_options.Tune = None,
    objective: fit_options.Objective = None,
    accuracy_floor: fit_options.AccuracyFloor = None,
    max_seconds: fit_options.MaxSeconds = None,
    cv: fit_options.Folds = None,
    max_steps: fit_options.MaxSteps = None,
    encoder: fit_options.Encoder = None,
    strength: fit_options.Strength = None,
    floor: fit_options.Floor = None,
    collection: fit_options.Collection = None,
    memory_budget: fit_options.MemoryBudget = None,
    cluster: Cluster = None,
    precision: fit_options.Precision = None,
    seed: options.Seed = None,
    overwrite: options.Overwrite = False,
    verbose: options.Verbose = False,
    json: options.Json = False,
    store: StoreOptions = NO_STORE,
) -> None:
    """Train FairerCLIP, or another method of the package, on a task or a store; compare it with zero-shot.

    Where no row has a target label, prompts rank and do not classify: EmbeddingMitigator is then the default method.
    """
    from fairerclip._util.checks import check_choice
    from fairerclip.cli.fit_output import Printing
    from fairerclip.model.archive import PRECISIONS, check_output
    from fairerclip.model.model_file import check_class_names
    from fairerclip.study.methods import FITTABLE, fit_key

    key = None if method is None else fit_key(method)
    given = FitOptions(
        *(labels, seed, max_steps, tau, tau_z, criterion, preset, parameters, offsets),
        SearchOptions(tune, objective, accuracy_floor, max_seconds, cv),
        *(strength, floor, collection, memory_budget, cluster, encoder),
    )
    check_choice("precision", precision or "full", PRECISIONS)
    saving = Saving(output, overwrite, precision or "full")

    def check(key: str) -> None:
        given.check(key)
        check_output(output, KINDS.get(key) or FITTABLE[key].home, overwrite=overwrite)
        store.check_method(key)

    store.check(task)
    if key is not None:
        check(key)  # before the rows are read
    experiment, read = store.read(task, sensitive, classes)
    if key is None:
        key = EMBEDDING if experiment.is_gallery() else OWN
        check(key)
    check_class_names(experiment.classes)
    printing = Printing(output, read, verbose, json)
    fit_by = _fit_embedding if key == EMBEDDING else _fit_classifier
    fit_by(key, experiment, given, saving, printing)


def _fit_classifier(
    key: str, experiment: Experiment, given: FitOptions, saving: Saving, printing: Printing
) -> None:
    """Train a classifier, save it and print its figures."""
    from fairerclip.auditing.model_details import details_of
    from fairerclip.cli import show
    from fairerclip.cli.fit_output import classifier_result

    with show.warnings_as_lines() as warned, experiment_on(given.cluster, experiment) as placed:
        trained = train(key, placed, given)
        result = classifier_result(placed, trained)
        details = details_of(placed, trained.labels, result["split"], result["reports"], result["skews"])
    saving.save(trained.model, details)  # last, so that a failure leaves no model behind
    printing.classifier(result, trained, warned)


def _fit_embedding(
    key: str, experiment: Experiment, given: FitOptions, saving: Saving, printing: Printing
) -> None:
    """Fit an `EmbeddingMitigator`, save it and print its figures."""
    from fairerclip.auditing.model_details import details_of
    from fairerclip.cli import show
    from fairerclip.data.stores import open_store
    from fairerclip.study.fit_mitigator import fit_mitigator, mitigator_result

    named = {"strength": given.strength, "memory_budget": given.memory_budget}
    start = options.build_mitigator(given.parameters, **named)
    on_cluster = experiment_on(given.cluster, experiment)
    with show.warnings_as_lines() as warned, show.progress("strengths") as progress, on_cluster as placed:
        trained = fit_mitigator(
            placed,
            start,
            labels=given.labels,
            objective=given.search.objective,
            floor=given.floor,
            collection=None if given.collection is None else open_store(given.collection),
            progress=progress,
        )
        result = mitigator_result(placed, trained)
        details = details_of(placed, trained.labels, result.split, result.reports, rankings=result.rankings)
    saving.save(trained.mitigator, details)  # last, so that a failure leaves no model behind
    printing.mitigator(result, warned)


def train(key: str, experiment: Experiment, given: FitOptions) -> Trained:
    """Train a classifier."""
    return _train_own(experiment, given) if key == OWN else _train_other(key, experiment, given)


def _train_own(experiment: Experiment, given: FitOptions) -> Trained:
    """Train FairerCLIP: by its search, or with the parameters that are given."""
    from fairerclip.cli import show
    from fairerclip.cli.fit_output import Trained

    search = given.search
    class_offsets = None if given.offsets is None else options.parse_offsets(given.offsets)
    tune = _whether_to_tune(given, experiment)
    goal = search.objective or "worst_group"
    labels = options.default_labels(given.labels, experiment)
    model = options.build_model(
        *(given.preset, given.parameters, given.seed),
        tau=given.tau,
        tau_z=given.tau_z,
        criterion=given.criterion,
        memory_budget=given.memory_budget,
    )
    if tune:
        with show.progress(f"searching by {goal}") as progress:
            limits = {name: getattr(search, name) for name in ("accuracy_floor", "max_seconds", "cv")}
            model = experiment.tune(*(model, labels, goal), **limits, progress=progress)
    else:
        model = _fitted(experiment, model, labels, class_offsets)
    values = {"tau": model.tau_, "tau_z": model.tau_z, "criterion": model.criterion_, "n_iter": model.n_iter_}
    return Trained(model, labels, values, _own_sentences(model))


def _train_other(key: str, experiment: Experiment, given: FitOptions) -> Trained:
    """Train another method, with the setting that a comparison would choose."""
    from fairerclip.cli.fit_output import Trained
    from fairerclip.report.fit_tables import settings_text
    from fairerclip.study.fit_method import fit_method

    encoder = None
    if given.encoder is not None:
        from fairerclip.encoders.loading import load

        encoder = load(given.encoder)
    trained = fit_method(
        key,
        experiment,
        labels=given.labels,
        seed=given.seed or 0,
        max_steps=given.max_steps,
        encoder=encoder,
    )
    values = {"key": key, "parameters": dict(trained.parameters), "offsets": trained.model.offsets_.tolist()}
    sentences = [trained.how_chosen, *(f"Left out: {failure}" for failure in trained.failures)]
    settings = settings_text(trained.parameters)
    last = f"{trained.method.title}: {settings}" if settings else trained.method.title
    return Trained(trained.model, trained.method.labels, values, [*sentences, last])


def _whether_to_tune(given: FitOptions, experiment: Experiment) -> bool:
    """Return whether the model is tuned; raise if options of the search contradict --no-tune or --offsets."""
    from fairerclip.errors import ParameterError

    tune, with_offsets, by_hand = given.search.tune, given.offsets is not None, given.by_hand()
    asked = [name for name, value in given.search.asked().items() if value is not None]
    if tune is False and asked:
        raise ParameterError(
            f"--no-tune turns off the search that {', '.join(asked)} is about: leave one of them out"
        )
    if with_offsets and (tune or asked):
        raise ParameterError("--offsets sets what a search would learn: leave out --offsets, or the search")
    if tune is None:
        return bool(asked) or (not by_hand and experiment.can_tune())
    return tune


def _fitted(
    experiment: Experiment,
    model: FairerCLIP,
    labels: str,
    offsets: list[float] | None,
) -> FairerCLIP:
    """Fit a model without a search."""
    from fairerclip.cli import show

    with show.progress("fitting", rate=True) as progress:
        model = experiment.fit(model, labels, progress=progress)
    return model if offsets is None else model.at(offsets=offsets)


def _own_sentences(model: FairerCLIP) -> list[str]:
    """Return how FairerCLIP was chosen, and last its strengths."""
    from fairerclip._util.numbers import setting
    from fairerclip.auditing.model_facts import automatic_sentences, model_facts, strategy_name, why_kept

    tuning = model.diagnostics_.get("tuning") or {}
    chosen = [f"Chosen: {strategy_name(tuning['strategy'])}."] if "strategy" in tuning else []
    kept = why_kept(model_facts(model))
    return [
        *chosen,
        *automatic_sentences(model.diagnostics_.get("automatic")),
        *([] if kept is None else [kept]),
        f"τ={setting(model.tau_)}, τ_z={setting(model.tau_z)}, {model.criterion_}; rounds: {model.n_iter_}",
    ]
