"""Time of the chosen fit and of all fits of each method, in a process with one core."""

from __future__ import annotations

from fairerclip._util.numbers import significant
from fairerclip.experiment import Experiment
from fairerclip.model.estimator import FairerCLIP
from fairerclip.report.result_table import Cell, Content, ResultTable
from fairerclip.study.paper.accuracy import ALIKE, GRADIENT, compared_rows, paper_parameters, published_table
from fairerclip.study.paper.context import Context, Outcome, job
from fairerclip.study.paper.fits import QUICK_FEATURES, fit_tuned
from fairerclip.study.paper.job_answers import FitAnswer, MethodRow
from fairerclip.study.paper.published import published
from fairerclip.study.workers import Failure

TIMED = ("probe", *GRADIENT, "fairerclip-target")
COLUMNS = (
    "method",
    "D",
    "seconds, one fit",
    "seconds, all settings",
    "learned numbers",
    "memory, MB",
    "published, s",
)


def training_time(context: Context) -> Outcome:
    """Measure the time of the chosen fit and of all fits of each method, in a process with one core."""
    outcome = Outcome(
        notes=[
            "Training by gradient is stopped at the end of the epoch in which it reaches "
            f"{significant(context.max_steps, 6)} batches. Each run has one core, and other work of the machine slows "
            "it down. Published seconds are for other rows and another machine. "
            "FairerCLIP is timed with the paper's preset for the dataset, at its D, with our defaults, and with the "
            "settings of our search."
        ]
    )
    for source_task in context.tasks("waterbirds", "blond"):
        experiment = Experiment.of(source_task.task)
        timed = compared_rows(context, experiment, TIMED)
        rows = [row for row in timed if not (row.method or "").endswith(ALIKE)]
        rows += _untuned(context, experiment, source_task.dataset)
        lines: list[list[Content]] = []
        for row in rows:
            published_rows = published("training-time", source_task.dataset, row.method)
            published_seconds = next((p.figures["seconds"] for p in published_rows), None)
            if row.error is not None:
                lines.append([row.title, None, f"failed: {row.error}", *[None] * 3, published_seconds])
                continue
            seconds = [Cell(value, "seconds") for value in (row.seconds, row.seconds_in_all)]
            sizes = [Cell(value, "whole") for value in (row.parameters, row.peak_mb)]
            lines.append([row.title, _features(row), *seconds, *sizes, published_seconds])
        title = f"{source_task.title}: {len(source_task.task.train)} training rows"
        outcome.tables.append(ResultTable(title, COLUMNS, lines, "Memory is the increase during the fit."))
        outcome.results[f"{source_task.dataset} {source_task.encoder}"] = rows
    outcome.tables.append(published_table("training-time", {"seconds": "seconds"}))
    return outcome


def _untuned(context: Context, experiment: Experiment, dataset: str) -> list[MethodRow]:
    """Fit the paper's preset and the defaults with labels, once each and without tuning, and return their rows."""
    small = {"n_features": QUICK_FEATURES} if context.options.quick else {}
    wanted = {
        "fairerclip": ("FairerCLIP as in the paper (fixed)", paper_parameters(context, dataset)),
        "fairerclip-defaults": ("FairerCLIP, our defaults (fixed)", small),
    }
    jobs = [
        job(
            experiment,
            fit_tuned,
            FitAnswer,
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
        if isinstance(answer, Failure):
            rows.append(MethodRow(method=method, title=title, labels="target", error=answer.error))
            continue
        rows.append(
            MethodRow(
                method=method,
                title=title,
                labels="target",
                seconds=answer.seconds,
                seconds_in_all=answer.seconds,
                parameters=answer.learned,
                peak_mb=answer.peak_mb,
                n_features=answer.n_features,
            )
        )
    return rows


def _features(row: MethodRow) -> str | None:
    """Return the number of features D of a row of FairerCLIP, over all seeds; None for other methods."""
    if not (row.method or "").startswith("fairerclip"):
        return None
    if row.n_features is not None:
        return str(row.n_features)
    default = FairerCLIP().n_features
    features = [
        "linear kernel" if chosen.get("kernel") == "linear" else str(chosen.get("n_features", default))
        for chosen in row.chosen
    ]
    return "; ".join(dict.fromkeys(features))
