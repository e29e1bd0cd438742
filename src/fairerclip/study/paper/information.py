"""HSIC and KCC of representations with Y and S, and the upper bounds of HSIC."""

from __future__ import annotations

from collections.abc import Mapping

from fairerclip._util.numbers import number
from fairerclip.experiment import Experiment
from fairerclip.metrics import hsic_bound
from fairerclip.metrics.names import REPRESENTATION
from fairerclip.report.result_table import Cell, Content, ResultTable
from fairerclip.study.paper.accuracy import paper_parameters, published_table
from fairerclip.study.paper.context import Context, Outcome, job
from fairerclip.study.paper.fits import measure
from fairerclip.study.paper.job_answers import InformationAnswer
from fairerclip.study.paper.published import published
from fairerclip.study.paper.task_source import SourceTask
from fairerclip.study.workers import Failure

MEASURES = ("hsic_y", "kcc_y", "hsic_s", "kcc_s")
"""In the order of the published table."""


def information(context: Context) -> Outcome:
    """Measure HSIC and KCC with Y and with S of each encoder's embeddings, before and after FairerCLIP."""
    most = hsic_bound([0, 1])
    largest = max(p.figures[name] for p in published("information") for name in ("hsic_y", "hsic_s"))
    outcome = Outcome(
        notes=[
            f"HSIC here is tr(KHLH)/n² with a delta kernel on labels: for two groups it is at most {number(most, 2)} "
            f"for any embeddings, and less if the groups are unequal. The paper prints up to {number(largest, 4)}: its "
            "HSIC has another scale, so its figures can only be compared with each other."
        ]
    )
    limit, permutations = (100, 9) if context.options.quick else (500, 99)
    lines: list[list[Content]] = []
    wanted = context.tasks("waterbirds", "blond", "cheekbones")
    jobs = [
        job(
            Experiment.of(source_task.task),
            measure,
            InformationAnswer,
            f"{source_task.dataset}, information",
            permutations=permutations,
            max_rows=limit,
            parameters=paper_parameters(context, source_task.dataset),
        )
        for source_task in wanted
    ]
    for source_task, answer in zip(wanted, context.run(jobs), strict=True):
        if isinstance(answer, Failure):
            lines.append([source_task.title, f"failed: {answer.error}", *[None] * 4])
            continue
        for stage in answer.stages:
            measured = [getattr(stage, name) for name in MEASURES]
            figures = [m and Cell(m.value, "fine", m.low, m.high) for m in measured]
            lines.append([source_task.title, stage.space, *figures])
        bounds = [Cell(answer.bounds.get(name), "fine") for name in MEASURES]
        lines.append([source_task.title, "no representation can exceed", *bounds])
        outcome.results[f"{source_task.dataset} {source_task.encoder}"] = answer
        outcome.notes += _beyond(source_task, answer.bounds)
    names = {name: REPRESENTATION[name].label for name in MEASURES}
    columns = ["task", "representation", *names.values()]
    note = (
        f"[ ] 95 % intervals, over {limit} test rows at most. Both measures are biased upward on few rows and depend "
        "on kernels that the paper does not state: compare figures of one table. FairerCLIP has labels and the paper's "
        "preset for the dataset."
    )
    outcome.tables.append(ResultTable("Dependence of representations on Y and S", columns, lines, note, 2))
    outcome.tables.append(published_table("information", names))
    return outcome


def _beyond(source_task: SourceTask, bounds: Mapping[str, float]) -> list[str]:
    """Return sentences on published HSIC of this dataset above the upper bound on these rows."""
    sentences = []
    for name, bound in bounds.items():
        above = [p for p in published("information", source_task.dataset) if p.figures[name] > bound]
        figures = ", ".join(f"{number(p.figures[name], 4)} ({p.title})" for p in above)
        if figures:
            sentences.append(
                f"{source_task.title}: {REPRESENTATION[name].label} cannot exceed {number(bound, 4)} on these rows for "
                f"any embeddings, and the paper prints {figures}."
            )
    return sentences
