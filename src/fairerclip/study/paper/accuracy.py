"""Rows of accuracy tables: methods, published presets, and published figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fairerclip.auditing.group_results import StageReport
from fairerclip.experiment import Experiment
from fairerclip.metrics.names import FIGURES
from fairerclip.model.presets import preset
from fairerclip.report.result_table import Cell, Content, ResultTable
from fairerclip.study.comparison import ComparisonRow, MethodRun, PublishedChoice
from fairerclip.study.comparison_page import STOPPED
from fairerclip.study.paper.context import Context, Outcome, job
from fairerclip.study.paper.fits import QUICK_FEATURES, fit_preset
from fairerclip.study.paper.job_answers import FitAnswer, MeanFigures, MethodRow
from fairerclip.study.paper.published import Published, published
from fairerclip.study.paper.task_source import SourceTask
from fairerclip.study.workers import Failure

GRADIENT = ("probe-sgd", "adapter", "dfr-subsample", "dfr-upsample", "contrastive-adapter")
WITHOUT = ("zero-shot", "orth-proj", "orth-cali", "leace", "fairerclip-none")
WITH = ("probe", *GRADIENT, "fairerclip-target")
ALIKE = "-alike"
"""Suffix of the key of a row that is chosen by FairerCLIP's rule; no published figure belongs to such a row."""
LABELS = {"none": "none", "target": "Y", "all": "Y and S"}
COLUMNS = (
    FIGURES["average"].short,
    FIGURES["train_weighted_average"].short,
    f"{FIGURES['worst_group'].short} [95 %]",
    FIGURES["gap"].short,
    f"{FIGURES['eod'].short} [95 %]",
)
AS_RELEASED = f"{FIGURES['eod'].short} on the negative class, as the released code counts it"
NAMES = {name: FIGURES[name].short for name in ("average", "worst_group", "gap", "eod")}
PRESETS = {
    "waterbirds": ("waterbirds", (("paper", ""), ("released", "ViT-L/14"), ("released", "RN50"))),
    "blond": ("celeba", (("paper", ""), ("released", "ViT-L/14"), ("released", "RN50"))),
    "cheekbones": ("cheekbones", (("paper", ""), ("released", "ViT-L/14"))),
    "cfd": ("cfd", (("paper", ""), ("released", "ViT-L/14"))),
}
"""Name and presets (origin, backbone) by dataset; presets of the paper are for every backbone."""
MANY_FITS = 3000
"""Limit of the number of features in tables of many fits: CelebA's 8000 take ten times as long."""


def mean_figures(reports: Sequence[StageReport]) -> MeanFigures:
    """Return means and standard deviations over seeds of the figures in tables."""
    figures: dict[str, list[float | None]] = {
        "average": [report.average for report in reports],
        "train_weighted": [report.train_weighted_average for report in reports],
        "worst_group": [report.worst.accuracy for report in reports],
        "gap": [report.gap for report in reports],
        "eod": [report.eod for report in reports],
        "eod_negative": [_negative_eod(report) for report in reports],
    }
    means: dict[str, float | None] = {}
    for name, values in figures.items():
        known = [value for value in values if value is not None]
        means[name] = float(np.mean(known)) if len(known) == len(values) else None
        means[f"{name}_sd"] = float(np.std(known, ddof=1)) if len(known) > 1 else None
    ends = {}
    for name in ("worst_group", "eod"):
        pairs = [report.intervals[name] for report in reports if name in report.intervals]
        ends[name] = np.mean(pairs, axis=0).tolist() if pairs else None
    return MeanFigures(seeds=len(reports), **means, worst_ends=ends["worst_group"], eod_ends=ends["eod"])


def _negative_eod(report: StageReport) -> float | None:
    """Return the largest difference in recall of the negative class; None unless there are two classes."""
    others = [name for name in report.classes if name != report.positive]
    if report.positive is None or len(others) != 1:
        return None
    differences = [d.difference for d in report.differences if d.y == others[0]]
    return max((abs(difference) for difference in differences if difference is not None), default=None)


def cells(figures: MeanFigures) -> list[Content]:
    """Return the cells of `COLUMNS`: shares in per cent, with spread over seeds and interval if they are known."""
    (worst_low, worst_high), (low, high) = (
        ends or (None, None) for ends in (figures.worst_ends, figures.eod_ends)
    )
    return [
        Cell(figures.average, "bare", sd=figures.average_sd),
        Cell(figures.train_weighted, "bare", sd=figures.train_weighted_sd),
        Cell(figures.worst_group, "bare", worst_low, worst_high, figures.worst_group_sd),
        Cell(figures.gap, "bare", sd=figures.gap_sd),
        Cell(figures.eod, "bare", low, high, figures.eod_sd),
    ]


def paper_parameters(context: Context, dataset: str, most: int | None = None) -> dict[str, Any]:
    """Return the paper's parameters for a dataset, with at most ``most`` features."""
    parameters = preset(PRESETS[dataset][0], "paper", None)
    limits = [n for n in (most, QUICK_FEATURES if context.options.quick else None) if n is not None]
    return {**parameters, "n_features": min([parameters["n_features"], *limits])}


def preset_rows(
    context: Context, experiment: Experiment, dataset: str, labels: Sequence[str]
) -> list[MethodRow]:
    """Fit the published parameters without tuning, and return their rows."""
    name, presets = PRESETS[dataset]
    wanted = [(origin, backbone, kind) for origin, backbone in presets for kind in labels]
    jobs = [
        job(
            experiment,
            fit_preset,
            FitAnswer,
            f"preset {name}/{origin}/{backbone}",
            dataset=name,
            origin=origin,
            backbone=backbone or "ViT-L/14",
            labels=kind,
            quick=context.options.quick,
        )
        for origin, backbone, kind in wanted
    ]
    rows = []
    for (origin, backbone, kind), answer in zip(wanted, context.run(jobs), strict=True):
        title = f"FairerCLIP as in the {'paper' if origin == 'paper' else 'released code'}"
        title += f", {backbone}'s settings (fixed)" if backbone else " (fixed)"
        if isinstance(answer, Failure):
            rows.append(MethodRow(title=title, labels=kind, error=answer.error))
            continue
        figures = mean_figures([answer.report])
        rows.append(
            MethodRow(title=title, labels=kind, seconds=answer.seconds, figures=figures, notes=answer.notes)
        )
    return rows


def compared_rows(context: Context, experiment: Experiment, methods: Sequence[str]) -> list[MethodRow]:
    """Return rows of methods, chosen by their authors' rule and again by the rule of FairerCLIP, with offsets.

    Published figures are to be compared with the first, rows of FairerCLIP with the second.
    """
    rows = []
    for key, row in context.compare(experiment, methods).items():
        runs = row.good_runs
        if not runs:
            error = "; ".join(row.errors)
            rows.append(MethodRow(method=key, title=row.title, labels=row.labels, error=error))
            continue
        title = row.title + (" (stopped by the cap)" if STOPPED in row.notes else "")
        published = [run.as_published for run in runs if run.as_published is not None]
        if published:
            rows.append(_method_row(row, key, title, published))
            key, title = f"{key}{ALIKE}", f"{title}, chosen by our rule"
        rows.append(_method_row(row, key, title, runs))
    return rows


def _method_row(
    row: ComparisonRow, key: str, title: str, chosen: Sequence[MethodRun | PublishedChoice]
) -> MethodRow:
    return MethodRow(
        method=key,
        title=title,
        labels=row.labels,
        **{name: getattr(row, name) for name in ("seconds", "seconds_in_all", "parameters", "peak_mb")},
        figures=mean_figures([choice.report for choice in chosen]),
        chosen=tuple(choice.chosen for choice in chosen),
    )


def accuracy_table(
    table: str,
    source_task: SourceTask,
    rows: Sequence[MethodRow],
    backbones: Sequence[str],
    *,
    released: bool = False,
) -> ResultTable:
    """Make the table of measured figures on one task, with published figures of the same method and labels."""
    columns = ["method", "labels", *COLUMNS, *([AS_RELEASED] if released else []), "seeds"]
    columns += [f"published, CLIP {backbone}" for backbone in backbones]
    lines: list[list[Content]] = []
    for row in rows:
        head, figures = (row.title, LABELS[row.labels]), row.figures
        published_cells = [_published_text(table, source_task.dataset, row, b) for b in backbones]
        if figures is None:
            blank = [None] * (len(COLUMNS) + released)
            lines.append([*head, f"failed: {row.error}", *blank, *published_cells])
            continue
        extra = [Cell(figures.eod_negative, "bare", sd=figures.eod_negative_sd)] if released else []
        lines.append([*head, *cells(figures), *extra, str(figures.seeds), *published_cells])
    note = (
        "In per cent; ± is over seeds, [ ] over rows. The average is over test rows; the train-weighted average "
        "weights groups by their training sizes. Settings are chosen on validation rows, except in rows marked fixed: "
        "by the raw worst group as published; in rows of FairerCLIP and rows chosen by our rule, by the expected "
        "worst group with offsets of the class scores and the same limit of candidates. Prompts: "
        f"{' / '.join(source_task.task.target_prompts)}"
    )
    return ResultTable(
        f"{source_task.title}{f' ({source_task.note})' if source_task.note else ''}", columns, lines, note, 2
    )


def _published_text(table: str, dataset: str, row: MethodRow, backbone: str) -> str | None:
    method = row.method or "fairerclip"
    key = "fairerclip" if method.startswith("fairerclip") else method
    found = [
        p
        for p in published(table, dataset, key)
        if p.backbone == backbone and p.labels == row.labels and p.source == "paper"
    ]
    if not found:
        return None
    kind = found[0].average_kind
    return found[0].text(NAMES) + (
        f" ({NAMES['average']} {kind.split()[0]})" if kind.split()[0] in ("plain", "train-weighted") else ""
    )


def published_table(table: str, names: Mapping[str, str] = NAMES) -> ResultTable:
    """Make the table of all published figures of a table, with their sources."""
    rows: list[list[Content]] = [
        [p.title, p.dataset, p.backbone, LABELS.get(p.labels or ""), p.text(names), _kind(p), _where(p)]
        for p in published(table)
    ]
    columns = ["method", "dataset", "backbone", "labels", "figures", "kind of average", "source"]
    return ResultTable("Published figures", columns, rows, left=len(columns))


def _kind(row: Published) -> str | None:
    return None if row.average_kind == "none" else row.average_kind


def _where(row: Published) -> str:
    return "; ".join(part for part in (row.source, row.where, row.protocol) if part)


def accuracy_entry(
    context: Context,
    table: str,
    datasets: Sequence[str],
    methods: Sequence[str],
    backbones: Sequence[str],
    *,
    labels: Sequence[str],
    released: bool = False,
) -> Outcome:
    """Run methods and presets on each task of some datasets, and make their tables."""
    outcome = Outcome()
    for source_task in context.tasks(*datasets):
        experiment = Experiment.of(source_task.task)
        rows = compared_rows(context, experiment, methods)
        rows += preset_rows(context, experiment, source_task.dataset, labels)
        outcome.tables.append(accuracy_table(table, source_task, rows, backbones, released=released))
        outcome.results[f"{source_task.dataset} {source_task.encoder}"] = rows
    outcome.tables.append(published_table(table))
    return outcome
