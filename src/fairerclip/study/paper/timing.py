"""Entries that read off what others ran or what needs no run: time, settings, information, models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairerclip._util.numbers import number, significant, with_interval
from fairerclip.experiment import Experiment
from fairerclip.metrics import hsic_bound
from fairerclip.metrics.names import REPRESENTATION
from fairerclip.model.estimator import FairerCLIP
from fairerclip.model.presets import PRESETS, preset_name
from fairerclip.report.document import DocumentTable
from fairerclip.study.paper.accuracy import (
    ALIKE,
    COLUMNS,
    GRADIENT,
    LABELS,
    cells,
    compared_rows,
    mean_figures,
    paper_parameters,
    published_table,
)
from fairerclip.study.paper.context import Context, Outcome, job
from fairerclip.study.paper.fits import QUICK_FEATURES, evaluation, fit_tuned, measure
from fairerclip.study.paper.published import published
from fairerclip.study.paper.task_source import SourceTask

TIMED = ("probe", *GRADIENT, "fairerclip-target")
INFORMATION = ("hsic_y", "kcc_y", "hsic_s", "kcc_s")
"""In the order of the published table."""
SHOWN = (
    *("n_features", "n_components", "tau", "tau_z", "tau_text", "tau_z_text", "gamma", "gamma_text"),
    *("bandwidth", "zero_shot", "decision", "refine"),
    *("scaling", "alignment", "class_weight", "max_iter", "random_state"),
)


def training_time(context: Context) -> Outcome:
    """Seconds of the chosen fit and of all that were tried, in a process with one core."""
    outcome = Outcome(
        notes=[
            f"Training by gradient is stopped at the end of the epoch in which "
            f"{significant(context.max_steps, 6)} batches have been learned from. Each run has one core; what else the "
            "machine does slows it. Published seconds are of other rows and another machine. "
            "FairerCLIP is timed with the paper's preset for the dataset, at its D, with our defaults, and with the "
            "settings of our search."
        ]
    )
    for one in context.tasks("waterbirds", "blond"):
        experiment = Experiment.of(one.task)
        timed = [
            row for row in compared_rows(context, experiment, TIMED) if not row["method"].endswith(ALIKE)
        ]
        rows = [*timed, *_untuned(context, experiment, one.dataset)]
        lines: list[list[Any]] = []
        for row in rows:
            told = next(
                (p.figures["seconds"] for p in published("training-time", one.dataset, row["method"])), None
            )
            if "error" in row:
                lines.append([row["title"], None, f"failed: {row['error']}", *[None] * 3, told])
                continue
            seconds = [number(row[name], 2) for name in ("seconds", "seconds_in_all")]
            sizes = [number(row[name], 0) for name in ("parameters", "peak_mb")]
            lines.append([row["title"], _features(row), *seconds, *sizes, told])
        columns = [
            "method",
            "D",
            "seconds, one fit",
            "seconds, all settings",
            "learned numbers",
            "memory, MB",
            "published, s",
        ]
        trained = len(one.task.train)
        outcome.tables.append(
            DocumentTable(
                f"{one.title}: {trained} training rows", columns, lines, "Memory is beyond what was there."
            )
        )
        outcome.results[f"{one.dataset} {one.encoder}"] = rows
    outcome.tables.append(published_table("training-time", {"seconds": "seconds"}))
    return outcome


def _untuned(context: Context, experiment: Experiment, dataset: str) -> list[dict[str, Any]]:
    """One fit each, with labels, of the paper's preset and of our defaults; nothing is tried besides."""
    small = {"n_features": QUICK_FEATURES} if context.options.quick else {}
    wanted = {
        "fairerclip": ("FairerCLIP as in the paper (fixed)", paper_parameters(context, dataset)),
        "fairerclip-defaults": ("FairerCLIP, our defaults (fixed)", small),
    }
    jobs = [
        job(
            experiment,
            fit_tuned,
            f"{dataset}, {title}, timed",
            parameters=parameters,
            labels="target",
            seed=0,
            taus=None,
            tau_zs=None,
        )
        for title, parameters in wanted.values()
    ]
    rows = []
    for (method, (title, _)), answer in zip(wanted.items(), context.run(jobs), strict=True):
        row: dict[str, Any] = {"method": method, "title": title, "labels": "target"}
        if "error" in answer:
            rows.append({**row, "error": answer["error"]})
            continue
        taken = {name: answer[name] for name in ("seconds", "peak_mb", "n_features")}
        rows.append({**row, **taken, "seconds_in_all": answer["seconds"], "parameters": answer["learned"]})
    return rows


def _features(row: Mapping[str, Any]) -> str | None:
    """D of a row of FairerCLIP, of all seeds; a linear kernel has none."""
    if not row["method"].startswith("fairerclip"):
        return None
    if "n_features" in row:
        return str(row["n_features"])
    ours = FairerCLIP().n_features
    found = [
        "linear kernel" if chosen.get("kernel") == "linear" else str(chosen.get("n_features", ours))
        for chosen in row["chosen"]
    ]
    return "; ".join(dict.fromkeys(found))


def implementation(context: Context) -> Outcome:
    """Settings side by side: what was published, and what a fit takes unless told."""
    del context  # nothing depends on the data
    columns = ["setting", "our default"]
    sources: list[dict[str, Any]] = [FairerCLIP().get_params()]
    for dataset, origin, backbone in PRESETS:
        columns.append(preset_name(dataset, origin, backbone))
        sources.append(FairerCLIP(**PRESETS[dataset, origin, backbone]).get_params())
    rows = [[name, *(_setting(params[name]) for params in sources)] for name in SHOWN]
    table = DocumentTable(
        "Parameters of FairerCLIP",
        columns,
        rows,
        "A preset of the paper has one τ for both sides: tau_text and tau_z_text None are as strong as on the image "
        "side. γ is not given there, and 1e-4 stands in, nor is a seed. Shares in class_weight are those kept of the "
        "negative and of the positive class. n_components None "
        "is the number of classes minus one, the paper's r; zero_shot None is 0.5 with labels and 0.75 without. Our "
        "defaults are for a fit; `fit` on a task with labelled validation rows chooses most of them there.",
    )
    names = {"n_features": "RFF", "r": "r", "tau": "τ", "tau_z": "τ_z", "training_rows": "training rows"}
    results = {
        column: {k: _setting(p[k]) for k in SHOWN} for column, p in zip(columns[1:], sources, strict=True)
    }
    return Outcome(tables=[table, published_table("implementation", names)], results=results)


def _setting(value: Any) -> str:
    return significant(value, 6) if isinstance(value, float) else str(value)


def information(context: Context) -> Outcome:
    """HSIC and KCC with Y and with S, of each encoder's embeddings and of what FairerCLIP makes of them."""
    most = hsic_bound([0, 1])
    largest = max(p.figures[name] for p in published("information") for name in ("hsic_y", "hsic_s"))
    outcome = Outcome(
        notes=[
            f"HSIC here is tr(KHLH)/n² with a delta kernel on labels: of two groups it is {number(most, 2)} at most, "
            f"whatever the embeddings, and less where the groups are unequal. The paper prints up to "
            f"{number(largest, 4)}: its HSIC has another scale, and its figures compare with each other alone."
        ]
    )
    limit, permutations = (100, 9) if context.options.quick else (500, 99)
    lines: list[list[Any]] = []
    wanted = context.tasks("waterbirds", "blond", "cheekbones")
    jobs = [
        job(
            Experiment.of(one.task),
            measure,
            f"{one.dataset}, information",
            permutations=permutations,
            max_rows=limit,
            parameters=paper_parameters(context, one.dataset),
        )
        for one in wanted
    ]
    for one, answer in zip(wanted, context.run(jobs), strict=True):
        if "error" in answer:
            lines.append([one.title, f"failed: {answer['error']}", *[None] * 4])
            continue
        for stage in answer["stages"]:
            estimates = [(stage[name] or {}, REPRESENTATION[name].kind) for name in INFORMATION]
            found = [with_interval(*map(e.get, ("value", "low", "high")), kind=kind) for e, kind in estimates]
            lines.append([one.title, stage["space"], *found])
        limits = [answer["bounds"].get(name) for name in INFORMATION]
        shown = [None if limit is None else number(limit, 4) for limit in limits]
        lines.append([one.title, "no representation can exceed", *shown])
        outcome.results[f"{one.dataset} {one.encoder}"] = answer
        outcome.notes += _beyond(one, answer["bounds"])
    names = {name: REPRESENTATION[name].label for name in INFORMATION}
    columns = ["task", "representation", *names.values()]
    note = (
        f"[ ] 95 % intervals, over {limit} test rows at most. Both measures are biased upward on few rows and depend "
        "on kernels that the paper does not state: compare figures of one table. FairerCLIP has labels and the paper's "
        "preset for the dataset."
    )
    outcome.tables.append(DocumentTable("Dependence of representations on Y and S", columns, lines, note, 2))
    outcome.tables.append(published_table("information", names))
    return outcome


def _beyond(one: SourceTask, bounds: Mapping[str, float]) -> list[str]:
    """Published HSIC on this dataset that is larger than ours can be on these rows."""
    told = []
    for name, bound in bounds.items():
        above = [p for p in published("information", one.dataset) if p.figures[name] > bound]
        figures = ", ".join(f"{number(p.figures[name], 4)} ({p.title})" for p in above)
        if figures:
            told.append(
                f"{one.title}: {REPRESENTATION[name].label} cannot exceed {number(bound, 4)} on these rows, whatever "
                f"the embeddings are, and the paper prints {figures}."
            )
    return told


def models(context: Context) -> Outcome:
    """Zero-shot by group of every encoder that the source has."""
    outcome = Outcome()
    datasets = ("cfd", "waterbirds", "blond", "cheekbones", "attractive", "pacs")
    there = [d for d in datasets if context.source.why_not(d) is None]
    lines: list[list[Any]] = []
    encoders = set()
    for one in context.tasks(*there):
        experiment = Experiment.of(one.task)
        encoders.add(one.encoder)
        try:
            rows = one.task.split(evaluation(experiment))
            report = experiment.report(rows, experiment.zero_shot(rows)).as_dict()
        except ValueError as error:
            context.failures.append(f"{one.title}: {error}")
            lines.append([one.task.name, one.encoder, f"failed: {error}", *[None] * len(COLUMNS)])
            continue
        lines.append([one.task.name, one.encoder, *cells(mean_figures([report])), report["worst"]["name"]])
        outcome.results[f"{one.dataset} {one.encoder}"] = report
    if context.source.kind != "data":
        outcome.notes.append(
            "There is one encoder here; the published figure compares more than 100. Give --data and --model several "
            "times to compare models."
        )
    note = f"Zero-shot, labels {LABELS['none']}; per cent, [ ] 95 % intervals over rows."
    outcome.tables.append(
        DocumentTable(
            f"{len(encoders)} encoder(s)", ["task", "encoder", *COLUMNS, "worst group is"], lines, note, 2
        )
    )
    return outcome
