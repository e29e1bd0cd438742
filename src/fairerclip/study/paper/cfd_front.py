"""CFD, with few training rows: worst group against average, and the front of FairerCLIP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairerclip._util.numbers import setting
from fairerclip.experiment import Experiment
from fairerclip.metrics.names import FIGURES
from fairerclip.report.document_charts import Curves
from fairerclip.report.result_table import Cell, Content, ResultTable
from fairerclip.study.paper.accuracy import (
    NAMES,
    accuracy_table,
    compared_rows,
    paper_parameters,
    preset_rows,
    published_table,
)
from fairerclip.study.paper.context import Context, Outcome, job
from fairerclip.study.paper.fits import TAUS, plane
from fairerclip.study.paper.job_answers import FrontResult, MethodRow, PlaneAnswer, PlaneFigures
from fairerclip.study.paper.task_source import SourceTask
from fairerclip.study.workers import Failure

METHODS = (
    "zero-shot",
    "orth-cali",
    "probe",
    "adapter",
    "contrastive-adapter",
    "fairerclip-none",
    "fairerclip-target",
)
CRITERIA = ("marginal", "conditional")
Fronts = Mapping[str, Sequence[PlaneFigures]]


def cfd(context: Context) -> Outcome:
    """Compare methods by worst group and average on few training rows, and compute the front of FairerCLIP."""
    outcome = Outcome()
    for source_task in context.tasks("cfd"):
        experiment = Experiment.of(source_task.task)
        paper = paper_parameters(context, "cfd")
        rows = compared_rows(context, experiment, METHODS)
        rows += preset_rows(context, experiment, "cfd", ("target",))
        outcome.tables.append(accuracy_table("cfd", source_task, rows, ("ViT-L/14",)))
        jobs = [
            job(
                experiment,
                plane,
                PlaneAnswer,
                f"front, {criterion}",
                parameters={**paper, "criterion": criterion},
                labels="target",
                seed=0,
                taus=TAUS,
                tau_zs=None,
            )
            for criterion in CRITERIA
        ]
        answers = dict(zip(CRITERIA, context.run(jobs), strict=True))
        fronts = {name: front.points for name, front in answers.items() if not isinstance(front, Failure)}
        outcome.tables.append(_front_table(source_task, fronts, paper))
        outcome.curves.append(_front_chart(source_task, rows, fronts))
        outcome.results[source_task.encoder] = FrontResult(rows=tuple(rows), fronts=fronts)
    outcome.tables.append(published_table("cfd"))
    return outcome


def _front_table(source_task: SourceTask, fronts: Fronts, paper: Mapping[str, Any]) -> ResultTable:
    rows: list[list[Content]] = [
        [name, setting(p.tau), *(Cell(getattr(p, figure), "bare") for figure in NAMES)]
        for name, points in fronts.items()
        for p in points
    ]
    note = (
        "Test rows, labels, one seed; the paper's preset for CFD with its "
        f"τ_z {setting(paper['tau_z'])}, τ the same on both sides. The table shows what can be "
        "reached; no point was chosen."
    )
    columns = ["criterion", "τ", *NAMES.values()]
    return ResultTable(f"{source_task.title}: the front of FairerCLIP over τ", columns, rows, note)


def _front_chart(source_task: SourceTask, rows: Sequence[MethodRow], fronts: Fronts) -> Curves:
    series: dict[str, list[tuple[float, float]]] = {
        f"front, {name}": [
            (100 * p.worst_group, 100 * p.average)
            for p in points
            if p.worst_group is not None and p.average is not None
        ]
        for name, points in fronts.items()
    }
    for row in rows:
        figures = row.figures
        if figures is not None and figures.worst_group is not None and figures.average is not None:
            title = f"{row.title}{'' if row.labels == 'target' else ', no labels'}"
            series[title] = [(100 * figures.worst_group, 100 * figures.average)]
    return Curves(
        f"{source_task.title}: worst group against average",
        FIGURES["worst_group"].axis,
        FIGURES["average"].axis,
        series,
    )
