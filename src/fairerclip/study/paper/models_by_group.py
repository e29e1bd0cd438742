"""Zero-shot of CLIP models by group."""

from __future__ import annotations

from fairerclip.auditing.group_results import StageReport
from fairerclip.experiment import Experiment
from fairerclip.report.result_table import Content, ResultTable
from fairerclip.study.paper.accuracy import COLUMNS, LABELS, cells, mean_figures
from fairerclip.study.paper.context import Context, Outcome
from fairerclip.study.paper.fits import evaluation


def models(context: Context) -> Outcome:
    """Zero-shot by group of every encoder that the source has."""
    outcome = Outcome()
    datasets = ("cfd", "waterbirds", "blond", "cheekbones", "attractive", "pacs")
    there = [d for d in datasets if context.source.why_not(d) is None]
    lines: list[list[Content]] = []
    encoders = set()
    for one in context.tasks(*there):
        experiment = Experiment.of(one.task)
        encoders.add(one.encoder)
        try:
            rows = one.task.split(evaluation(experiment))
            found = experiment.report(rows, experiment.zero_shot(rows)).as_dict()
        except ValueError as error:
            context.failures.append(f"{one.title}: {error}")
            lines.append([one.task.name, one.encoder, f"failed: {error}", *[None] * len(COLUMNS)])
            continue
        report = StageReport.model_validate(found)
        lines.append([one.task.name, one.encoder, *cells(mean_figures([report])), report.worst.name])
        outcome.results[f"{one.dataset} {one.encoder}"] = report
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
