"""Ablation of the terms of the objective, with and without labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairerclip._util.numbers import setting
from fairerclip.experiment import Experiment
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
from fairerclip.study.paper.fits import fit_tuned
from fairerclip.study.paper.job_answers import FitAnswer, VariantResult
from fairerclip.study.paper.published import published
from fairerclip.study.paper.task_source import SourceTask

TAUS = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.5, 2.0, 3.0, 5.0]
"""The published values are below 1, but weights as the paper prints them have no upper limit."""
TAU_ZS = [0.0, 0.3, 0.5, 0.7]
NOTHING: dict[str, Any] = {"tau": 0.0, "tau_z": 0.0}
NO_ALIGNMENT: dict[str, Any] = {"tau_z": 0.0}

Variant = tuple[str, str, dict[str, Any], Sequence[float] | None, Sequence[float] | None]
TERMS: tuple[Variant, ...] = (
    ("full", "FairerCLIP of the paper, τ and τ_z chosen", {}, TAUS, TAU_ZS),
    ("dep-y-only", "Dep(Z, Y) only: τ = τ_z = 0", NOTHING, None, None),
    ("no-dep-s", "without Dep(Z, S): τ = 0, τ_z chosen", {"tau": 0.0}, [0.0], TAU_ZS),
    ("no-alignment", "without Dep(Z_I, Z_T): τ_z = 0, τ chosen", NO_ALIGNMENT, TAUS, [0.0]),
)
OURS: tuple[Variant, ...] = (
    ("conditional", "Dep(Z, S | Y) in place of Dep(Z, S)", {"criterion": "conditional"}, TAUS, TAU_ZS),
    ("unbalanced", "classes not balanced", {"subsample": None}, TAUS, TAU_ZS),
)
UPDATE: Variant = ("no-update", "without updating Ŷ", {"refine": False}, TAUS, TAU_ZS)


def with_labels(context: Context) -> Outcome:
    """Run the ablation on blond hair and high cheekbones with target labels."""
    return _ablation(context, "ablation-labels", ("blond", "cheekbones"), "target", (*TERMS, *OURS))


def without_labels(context: Context) -> Outcome:
    """Run the ablation on blond hair without labels."""
    return _ablation(context, "ablation-no-labels", ("blond",), "none", (*TERMS, UPDATE, *OURS))


def _ablation(
    context: Context, table: str, datasets: Sequence[str], labels: str, variants: Sequence[Variant]
) -> Outcome:
    outcome = Outcome(notes=[COLLINEAR])
    chosen = variants[:4] if context.options.quick and labels == "target" else variants
    chosen = variants[:5] if context.options.quick and labels == "none" else chosen
    for source_task in context.tasks(*datasets):
        rows, results = _rows(context, source_task, table, labels, chosen)
        columns = ["variant", *COLUMNS, "τ, τ_z chosen", "seeds", "published, CLIP ViT-L/14"]
        title = f"{source_task.title}, {'labels' if labels == 'target' else 'no labels'}"
        outcome.tables.append(ResultTable(title, columns, rows, NOTE))
        outcome.results[f"{source_task.dataset} {source_task.encoder}"] = results
    outcome.tables.append(published_table(table))
    return outcome


COLLINEAR = (
    "With two classes and one prompt each, the alignment term is collinear with Dep(Z_I, Y) once labels are fixed: τ_z "
    "only rescales τ, so that leaving it out changes little if τ is chosen again."
)
NOTE = (
    "In per cent; ± is over seeds, [ ] over rows. Parameters are those of the paper's preset for the dataset, not our "
    f"defaults, with D at most {MANY_FITS}. Classes are balanced by sub-sampling as in the paper's fits of CelebA, "
    "unless a row says otherwise. τ and τ_z, the same on both sides, are chosen on validation rows by the shrunken "
    "worst group; pseudo-labels are updated for each of them."
)


def _rows(
    context: Context, source_task: SourceTask, table: str, labels: str, variants: Sequence[Variant]
) -> tuple[list[list[Content]], dict[str, VariantResult]]:
    experiment = Experiment.of(source_task.task)
    paper = paper_parameters(context, source_task.dataset, MANY_FITS)
    wanted = [(variant, seed) for variant in variants for seed in range(context.seeds)]
    jobs = [
        job(
            experiment,
            fit_tuned,
            FitAnswer,
            f"{source_task.dataset}, {title}",
            parameters={**paper, **changed},
            labels=labels,
            seed=seed,
            taus=taus,
            tau_zs=tau_zs,
        )
        for (_, title, changed, taus, tau_zs), seed in wanted
    ]
    answers = context.run(jobs)
    rows: list[list[Content]] = []
    results: dict[str, VariantResult] = {}
    for variant in variants:
        key, title = variant[:2]
        finished, errors = parted([a for (v, _), a in zip(wanted, answers, strict=True) if v is variant])
        published_text = next((p.text(NAMES) for p in published(table, source_task.dataset, key)), None)
        if not finished:
            rows.append([title, f"failed: {errors[0]}", *[None] * (len(COLUMNS) + 1), published_text])
            results[key] = VariantResult(error=errors[0])
            continue
        figures = mean_figures([answer.report for answer in finished])
        points = tuple(answer.chosen for answer in finished)
        strengths = "; ".join(dict.fromkeys(f"{setting(p.tau)}, {setting(p.tau_z)}" for p in points))
        rows.append([title, *cells(figures), strengths, str(len(finished)), published_text])
        results[key] = VariantResult(figures=figures, chosen=points)
    return rows, results
