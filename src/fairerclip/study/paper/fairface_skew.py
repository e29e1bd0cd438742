"""MaxSkew@1000 of five opposite pairs of prompts on FairFace, in every convention in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.numbers import number
from fairerclip.experiment import UNKNOWN, Experiment
from fairerclip.metrics import max_skew, min_skew, ranking_drift
from fairerclip.metrics.names import DRIFT, RETRIEVAL
from fairerclip.metrics.retrieval.top_rows import default_cut
from fairerclip.report.result_table import Cell, Content, ResultTable
from fairerclip.study.choose_model import fit_arguments
from fairerclip.study.method import make
from fairerclip.study.methods import chosen_methods
from fairerclip.study.paper.accuracy import published_table
from fairerclip.study.paper.context import Context, Outcome, job, parted
from fairerclip.study.paper.fits import QUICK_FEATURES, preset_model
from fairerclip.study.paper.job_answers import SkewAnswer
from fairerclip.study.paper.published import published
from fairerclip.study.paper.task_source import SourceTask
from fairerclip.study.workers import Failure

ATTRIBUTES = ("sex", "race")
METHODS = ("zero-shot", "orth-proj", "orth-cali", "leace", "fairerclip", "fairerclip-paper")
TITLES = {
    "zero-shot": "Zero-shot",
    "orth-proj": "Orth-Proj",
    "orth-cali": "Orth-Cali, λ = 1000",
    "leace": "LEACE, zero-shot head",
    "fairerclip": "FairerCLIP, our defaults; one model per pair",
    "fairerclip-paper": "FairerCLIP as in the paper (fixed); one model per pair",
}
CONVENTIONS = {
    "population": "population",
    "uniform": "uniform",
    "absolute": "population, |log|",
    "absolute_uniform": "uniform, |log|",
}
REPLICATES = 100
Skews = dict[str, list[SkewAnswer | Failure]]
"""Answers by method."""
NAMES = {"max_skew_sex": "sex", "max_skew_race": "race"}


def pair_skews(experiment: Experiment, method: str, quick: bool) -> SkewAnswer:
    """Measure the skews of both prompts of a pair, and rank correlations with zero-shot inside groups."""
    name = experiment.ranked_split()
    if name is None:
        raise ValueError("no split has sensitive labels to measure skew with")
    rows = experiment.task.split(name)
    groups = experiment.groups(rows)
    known = np.ones(len(rows), dtype=bool) if groups is None else groups != UNKNOWN
    X, s = rows.X[known], np.asarray(groups)[known]
    before, after = experiment.cosines(X), _scores(experiment, method, X, quick)
    k = default_cut(len(X))
    drift = ranking_drift(before, after, s, k, n_replicates=REPLICATES, random_state=0)
    within = [d.spearman_within for d in (drift if isinstance(drift, tuple) else (drift,))]
    return SkewAnswer(
        k=k,
        split=name,
        prompts=tuple(experiment.classes),
        skews={kind: _skews(after, s, k, kind) for kind in CONVENTIONS},
        spearman_within=tuple(None if e is None else float(e.value) for e in within),
    )


def _scores(experiment: Experiment, method: str, X: NDArray[Any], quick: bool) -> NDArray[Any]:
    """Fit a method and return its scores of both prompts (n, 2), in the order of the experiment's classes."""
    model: Any
    if method.startswith("fairerclip"):
        from fairerclip.model.estimator import FairerCLIP

        model = FairerCLIP(random_state=0)
        if method == "fairerclip-paper":
            model = preset_model("fairface", "paper", "ViT-L/14", quick=quick)
        elif quick:
            model.n_features = QUICK_FEATURES
        model = experiment.fit(model, "none")
    else:
        spec = chosen_methods([method])[0]
        model = make(spec, {"lam": 1000.0} if method == "orth-cali" else {}, 0)
        arguments = fit_arguments(spec, experiment)
        model.fit(arguments.pop("X"), arguments.pop("y"), **arguments)
    order = model.classes_.tolist()
    return np.asarray(model.scores(X)[:, [order.index(name) for name in experiment.classes]])


def _skews(scores: NDArray[Any], groups: NDArray[Any], k: int, kind: str) -> tuple[float | None, ...]:
    """Return the skew of each prompt; None if |log| is unbounded because a group is not shown at all."""
    reference = "uniform" if kind.endswith("uniform") else "population"
    top = np.atleast_1d(max_skew(scores, groups, k, reference=reference))
    if not kind.startswith("absolute"):
        return tuple(float(v) for v in top)
    low = np.atleast_1d(min_skew(scores, groups, k, reference=reference))
    largest = np.maximum(top, -low)
    return tuple(float(v) if np.isfinite(v) else None for v in largest)


def run(context: Context) -> Outcome:
    """Measure every method on every attribute and pair, and make tables of means over the prompts."""
    outcome = Outcome(notes=[RANKED])
    for source_task in context.tasks("fairface"):
        summary = _measured(context, source_task)
        outcome.notes.append(
            f"{source_task.title}: fits use all {len(source_task.task.train)} rows of the training split, since "
            "nothing is tuned."
        )
        outcome.results[source_task.encoder] = summary
        for attribute in ATTRIBUTES:
            if attribute in summary:
                outcome.tables.append(_table(source_task, attribute, summary[attribute]))
        if context.source.kind == "data" and source_task.backbone is not None:
            outcome.notes += _identified(source_task, summary)
    outcome.tables.append(published_table("fairface", NAMES))
    return outcome


RANKED = (
    "Rows are ranked by inner product: in one dimension a cosine is ±1, and thousands of rows would be tied. Every "
    "reference in use is shown, since the published figures do not state theirs. FairerCLIP has one seed, 0, and is "
    "not tuned: no row has a target label, and the published models used no sensitive labels either."
)


def _measured(context: Context, source_task: SourceTask) -> dict[str, Skews]:
    names = source_task.task.class_names
    pairs = list(zip(names[::2], names[1::2], strict=True))
    methods = [
        m for m in METHODS if not context.options.quick or m in ("zero-shot", "orth-proj", "fairerclip")
    ]
    pairs = pairs[:2] if context.options.quick else pairs
    wanted = [
        (attribute, method, pair)
        for attribute in ATTRIBUTES
        if attribute in source_task.task.sensitive
        for method in methods
        for pair in pairs
    ]
    jobs = [
        job(
            Experiment.of(source_task.task, [attribute], pair),
            pair_skews,
            SkewAnswer,
            f"{TITLES[method]}, {attribute}, {' / '.join(pair)}",
            method=method,
            quick=context.options.quick,
        )
        for attribute, method, pair in wanted
    ]
    skews: dict[str, Skews] = {}
    for (attribute, method, _), answer in zip(wanted, context.run(jobs), strict=True):
        skews.setdefault(attribute, {}).setdefault(method, []).append(answer)
    return skews


def _mean(answers: Sequence[SkewAnswer], kind: str) -> float | None:
    """Return the mean over the prompts of all pairs; None if one is unbounded."""
    values = [v for answer in answers for v in answer.skews[kind]]
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if len(known) == len(values) else None


def _table(source_task: SourceTask, attribute: str, methods: Skews) -> ResultTable:
    backbones = ("ViT-B/32", "ViT-L/14")
    columns = ["method", *CONVENTIONS.values(), DRIFT["spearman_within"].label]
    columns += [f"published, CLIP {b}" for b in backbones]
    rows: list[list[Content]] = []
    k, prompts = None, list[str]()
    for method, answers in methods.items():
        finished, errors = parted(answers)
        published_cells = [
            Cell(_published_skew(method, attribute, backbone), "number") for backbone in backbones
        ]
        if not finished:
            rows.append([TITLES[method], f"failed: {errors[0]}", *[None] * 4, *published_cells])
            continue
        k, prompts = finished[0].k, [p for answer in finished for p in answer.prompts]
        means = [_mean(finished, kind) for kind in CONVENTIONS]
        within = [v for answer in finished for v in answer.spearman_within if v is not None]
        skews = ["unbounded" if m is None else Cell(m, "number") for m in means]
        failed = f" ({len(errors)} of {len(answers)} pairs failed)" if errors else ""
        correlation = Cell(float(np.mean(within)) if within else None, "number")
        rows.append([TITLES[method] + failed, *skews, correlation, *published_cells])
    note = (
        f"Mean over {len(prompts)} prompts: {', '.join(prompts)}. |log| also counts groups that are shown too rarely; "
        "it is unbounded if a group is not shown at all. The rank correlation is a mean over prompts: 1 is the same "
        "order. " + " / ".join(source_task.task.target_prompts[:2]) + " …"
    )
    return ResultTable(
        f"{source_task.title}: {RETRIEVAL['max_skew'].label}@{k} by {attribute}", columns, rows, note
    )


def _published_skew(method: str, attribute: str, backbone: str) -> float | None:
    key = "fairerclip" if method.startswith("fairerclip") else method
    found = [p for p in published("fairface", "fairface", key) if p.backbone == backbone]
    return found[0].figures[f"max_skew_{attribute}"] if found else None


def _identified(source_task: SourceTask, summary: Mapping[str, Skews]) -> list[str]:
    """Return sentences on which convention is nearest to the published zero-shot figures."""
    sentences = []
    for attribute, methods in summary.items():
        target = _published_skew("zero-shot", attribute, source_task.backbone or "")
        answers, _ = parted(methods.get("zero-shot", ()))
        means = {kind: _mean(answers, kind) for kind in CONVENTIONS} if answers else {}
        bounded = {kind: mean for kind, mean in means.items() if mean is not None}
        if target is None or not bounded:
            continue
        nearest = min(bounded, key=lambda kind: abs(bounded[kind] - target))
        sentences.append(
            f"{source_task.encoder}, {attribute}: of the conventions, {CONVENTIONS[nearest]} comes nearest to the "
            f"published zero-shot figure ({number(bounded[nearest])} against {number(target)})."
        )
    return sentences
