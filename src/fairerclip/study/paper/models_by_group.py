"""Zero-shot accuracy of CLIP models by group."""

from __future__ import annotations

from fairerclip.auditing.group_results import StageReport
from fairerclip.experiment import Experiment
from fairerclip.report.result_table import Content, ResultTable
from fairerclip.study.paper.accuracy import COLUMNS, LABELS, cells, mean_figures
from fairerclip.study.paper.context import Context, Outcome
from fairerclip.study.paper.fits import evaluation


def models(context: Context) -> Outcome:
    """Measure zero-shot accuracy by group of every encoder of the source."""
    outcome = Outcome()
    datasets = ("cfd", "waterbirds", "blond", "cheekbones", "attractive", "pacs")
    available = [d for d in datasets if context.source.why_not(d) is None]
    lines: list[list[Content]] = []
    encoders = set()
    for source_task in context.tasks(*available):
        experiment = Experiment.of(source_task.task)
        encoders.add(source_task.encoder)
        try:
            rows = source_task.task.split(evaluation(experiment))
            figures = experiment.report(rows, experiment.zero_shot(rows)).as_dict()
        except ValueError as error:
            context.failures.append(f"{source_task.title}: {error}")
            lines.append(
                [source_task.task.name, source_task.encoder, f"failed: {error}", *[None] * len(COLUMNS)]
            )
            continue
        report = StageReport.model_validate(figures)
        lines.append(
            [source_task.task.name, source_task.encoder, *cells(mean_figures([report])), report.worst.name]
        )
        outcome.results[f"{source_task.dataset} {source_task.encoder}"] = report
    if context.source.kind != "data":
        outcome.notes.append(
            "There is one encoder here; the published figure compares more than 100. Give --data and --model several "
            "times to compare models."
        )
    note = f"Zero-shot, labels {LABELS['none']}; per cent, [ ] 95 % intervals over rows."
    outcome.tables.append(
        ResultTable(
            f"{len(encoders)} encoder(s)", ["task", "encoder", *COLUMNS, "worst group is"], lines, note, 2
        )
    )
    return outcome
