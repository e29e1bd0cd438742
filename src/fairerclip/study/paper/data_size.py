"""Accuracy with 5 to 100 % of the training rows, drawn inside each cell, with labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairerclip._util.numbers import significant
from fairerclip.auditing.group_results import StageReport
from fairerclip.experiment import Experiment
from fairerclip.report.document_charts import Curves
from fairerclip.report.result_table import Content, ResultTable
from fairerclip.study.paper.accuracy import (
    COLUMNS,
    MANY_FITS,
    NAMES,
    cells,
    mean_figures,
    paper_parameters,
    published_table,
)
from fairerclip.study.paper.context import Context, Outcome, job, parted
from fairerclip.study.paper.fits import TAUS, fit_share
from fairerclip.study.paper.job_answers import FitAnswer
from fairerclip.study.paper.published import published
from fairerclip.study.paper.task_source import SourceTask
from fairerclip.study.workers import Failure

SHARES = (0.05, 0.25, 0.5, 0.75, 1.0)
Reports = Sequence[StageReport | Failure]


def data_size(context: Context) -> Outcome:
    """Fit on 5 to 100 % of the training rows, drawn inside each cell, with labels."""
    outcome = Outcome()
    shares = (0.25, 1.0) if context.options.quick else SHARES
    for source_task in context.tasks("blond", "waterbirds"):
        experiment = Experiment.of(source_task.task)
        wanted = [(share, seed) for share in shares for seed in range(context.seeds)]
        jobs = [
            job(
                experiment,
                fit_share,
                FitAnswer,
                f"{source_task.dataset}, {significant(100 * share, 6)} %",
                share=share,
                parameters=paper_parameters(context, source_task.dataset, MANY_FITS),
                seed=seed,
                taus=TAUS,
            )
            for share, seed in wanted
        ]
        answers = context.run(jobs)
        rows: list[list[Content]] = []
        kept: dict[str, Reports] = {}
        for share in shares:
            of_share = [a for (s, _), a in zip(wanted, answers, strict=True) if s == share]
            rows.append(_share_row(source_task, share, of_share))
            kept[significant(share, 6)] = [a if isinstance(a, Failure) else a.report for a in of_share]
        columns = ["training rows", "n", *COLUMNS, "seeds", "published (backbone not stated)"]
        outcome.tables.append(ResultTable(source_task.title, columns, rows, SHARE_NOTE))
        outcome.results[f"{source_task.dataset} {source_task.encoder}"] = kept
        outcome.curves.append(_share_chart(source_task, kept))
    outcome.tables.append(published_table("data-size"))
    return outcome


SHARE_NOTE = (
    "In per cent, with labels Y; ± is over seeds, which also draw the rows; [ ] is over test rows. A share is kept of "
    "each class × sensitive value, at least one row; τ, the same on both sides, is chosen on the whole validation "
    f"split. The rest is the paper's preset for the dataset, but D is {MANY_FITS} at most."
)


def _share_row(
    source_task: SourceTask, share: float, answers: Sequence[FitAnswer | Failure]
) -> list[Content]:
    finished, errors = parted(answers)
    percent = significant(100 * share, 6)
    name = f"{percent} %"
    published_text = next((p.text(NAMES) for p in published("data-size", source_task.dataset, percent)), None)
    if not finished:
        return [name, f"failed: {errors[0]}", *[None] * (len(COLUMNS) + 1), published_text]
    figures = mean_figures([answer.report for answer in finished])
    return [name, str(finished[0].rows), *cells(figures), str(len(finished)), published_text]


def _share_chart(source_task: SourceTask, kept: Mapping[str, Reports]) -> Curves:
    series: dict[str, list[tuple[float, float]]] = {"average": [], "worst_group": []}
    for share, reports in kept.items():
        finished = [report for report in reports if not isinstance(report, Failure)]
        for name, points in series.items() if finished else ():
            points.append((100 * float(share), 100 * getattr(mean_figures(finished), name)))
    return Curves(
        f"{source_task.title}: accuracy by share of the training rows",
        "training rows, %",
        "accuracy, %",
        {NAMES[name]: points for name, points in series.items()},
    )
