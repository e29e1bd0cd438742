"""Figures of the paper, and its table over the size of the training set: CFD, data size, heat maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairerclip._util.numbers import number, setting, significant
from fairerclip.experiment import Experiment
from fairerclip.metrics.names import FIGURES
from fairerclip.report.document import Curves, DocumentTable, Heatmap
from fairerclip.study.paper.accuracy import (
    COLUMNS,
    MANY_FITS,
    NAMES,
    accuracy_table,
    cell,
    cells,
    compared_rows,
    mean_figures,
    paper_parameters,
    preset_jobs,
    published_table,
)
from fairerclip.study.paper.context import Context, Outcome, job
from fairerclip.study.paper.fits import fit_share, plane
from fairerclip.study.paper.published import published
from fairerclip.study.paper.task_source import SourceTask

SHARES = (0.05, 0.25, 0.5, 0.75, 1.0)
BEYOND = (1.0, 1.5, 2.0, 3.0, 5.0)
"""Strengths above the published ones: weights as the paper prints them have no upper end."""
TAUS = [*(round(0.05 * i, 2) for i in range(20)), *BEYOND]
STEPS = [round(0.1 * i, 1) for i in range(10)]
CFD_METHODS = (
    "zero-shot",
    "orth-cali",
    "probe",
    "adapter",
    "contrastive-adapter",
    "fairerclip-none",
    "fairerclip-target",
)


def cfd(context: Context) -> Outcome:
    """Worst group against average on few training rows, and the front of FairerCLIP."""
    outcome = Outcome()
    for one in context.tasks("cfd"):
        experiment = Experiment.of(one.task)
        paper = paper_parameters(context, "cfd")
        rows = compared_rows(context, experiment, CFD_METHODS)
        rows += preset_jobs(context, experiment, "cfd", ("target",))
        outcome.tables.append(accuracy_table("cfd", one, rows, ("ViT-L/14",)))
        jobs = [
            job(
                experiment,
                plane,
                f"front, {criterion}",
                parameters={**paper, "criterion": criterion},
                labels="target",
                seed=0,
                taus=TAUS,
                tau_zs=None,
            )
            for criterion in ("marginal", "conditional")
        ]
        fronts = dict(zip(("marginal", "conditional"), context.run(jobs), strict=True))
        good = {name: front["points"] for name, front in fronts.items() if "error" not in front}
        outcome.tables.append(_front_table(one, good, paper))
        outcome.curves.append(_front_chart(one, rows, good))
        outcome.results[one.encoder] = {"rows": rows, "fronts": good}
    outcome.tables.append(published_table("cfd"))
    return outcome


def _front_table(one: SourceTask, fronts: dict[str, Any], paper: Mapping[str, Any]) -> DocumentTable:
    rows = [
        [name, setting(p["tau"]), *(cell(p[k]) for k in NAMES)]
        for name, points in fronts.items()
        for p in points
    ]
    note = (
        "Test rows, labels, one seed; the paper's preset for CFD with its "
        f"τ_z {setting(paper['tau_z'])}, τ the same on both sides: what can be had, not a choice of a point."
    )
    columns = ["criterion", "τ", *NAMES.values()]
    return DocumentTable(f"{one.title}: the front of FairerCLIP over τ", columns, rows, note)


def _front_chart(one: SourceTask, rows: list[dict[str, Any]], fronts: dict[str, Any]) -> Curves:
    series: dict[str, list[tuple[float, float]]] = {
        f"front, {name}": [
            (100 * p["worst_group"], 100 * p["average"]) for p in points if p["worst_group"] is not None
        ]
        for name, points in fronts.items()
    }
    for row in rows:
        if "figures" in row:
            figures = row["figures"]
            title = f"{row['title']}{'' if row['labels'] == 'target' else ', no labels'}"
            series[title] = [(100 * figures["worst_group"], 100 * figures["average"])]
    return Curves(
        f"{one.title}: worst group against average",
        FIGURES["worst_group"].axis,
        FIGURES["average"].axis,
        series,
    )


def data_size(context: Context) -> Outcome:
    """5 to 100 % of the training rows, drawn inside each cell, with labels."""
    outcome = Outcome()
    shares = (0.25, 1.0) if context.options.quick else SHARES
    for one in context.tasks("blond", "waterbirds"):
        experiment = Experiment.of(one.task)
        wanted = [(share, seed) for share in shares for seed in range(context.seeds)]
        jobs = [
            job(
                experiment,
                fit_share,
                f"{one.dataset}, {significant(100 * share, 6)} %",
                share=share,
                parameters=paper_parameters(context, one.dataset, MANY_FITS),
                seed=seed,
                taus=TAUS,
            )
            for share, seed in wanted
        ]
        answers = context.run(jobs)
        rows: list[list[Any]] = []
        kept: dict[str, Any] = {}
        for share in shares:
            mine = [a for (s, _), a in zip(wanted, answers, strict=True) if s == share]
            rows.append(_share_row(one, share, mine))
            kept[significant(share, 6)] = [a.get("report", a) for a in mine]
        columns = ["training rows", "n", *COLUMNS, "seeds", "published (backbone not stated)"]
        outcome.tables.append(DocumentTable(one.title, columns, rows, SHARE_NOTE))
        outcome.results[f"{one.dataset} {one.encoder}"] = kept
        outcome.curves.append(_share_chart(one, kept))
    outcome.tables.append(published_table("data-size"))
    return outcome


SHARE_NOTE = (
    "Per cent, labels Y. ± is over seeds, which also draw the rows; [ ] is over test rows. A share is kept of each "
    "class × sensitive value, at least one row; τ, the same on both sides, is chosen on the whole validation split. "
    f"The rest is the paper's preset for the dataset, but D is {MANY_FITS} at most."
)


def _share_row(one: SourceTask, share: float, answers: list[dict[str, Any]]) -> list[Any]:
    good = [a for a in answers if "error" not in a]
    name = f"{significant(100 * share, 6)} %"
    beside = next(
        (p.text(NAMES) for p in published("data-size", one.dataset, f"{significant(100 * share, 6)}")), None
    )
    if not good:
        return [name, f"failed: {answers[0]['error']}", *[None] * (len(COLUMNS) + 1), beside]
    figures = mean_figures([a["report"] for a in good])
    return [name, str(good[0]["rows"]), *cells(figures), str(len(good)), beside]


def _share_chart(one: SourceTask, kept: dict[str, Any]) -> Curves:
    series: dict[str, list[tuple[float, float]]] = {NAMES[k]: [] for k in ("average", "worst_group")}
    for share, reports in kept.items():
        good = [r for r in reports if "error" not in r]
        if good:
            figures = mean_figures(good)
            for figure in ("average", "worst_group"):
                series[NAMES[figure]].append((100 * float(share), 100 * figures[figure]))
    return Curves(
        f"{one.title}: accuracy by share of the training rows", "training rows, %", "accuracy, %", series
    )


def heatmaps(context: Context) -> Outcome:
    """Average and worst group over (τ, τ_z), from one factorisation."""
    outcome = Outcome(notes=[ONE_CURVE])
    steps = STEPS[::3] if context.options.quick else STEPS
    taus = [*steps, *BEYOND]
    for one in context.tasks("blond", "waterbirds"):
        experiment = Experiment.of(one.task)
        call = job(
            experiment,
            plane,
            f"{one.dataset}, plane",
            parameters=paper_parameters(context, one.dataset),
            labels="target",
            seed=0,
            taus=taus,
            tau_zs=steps,
        )
        answer = context.run([call])[0]
        if "error" in answer:
            outcome.tables.append(
                DocumentTable(one.title, ["part", "what happened"], [["plane", answer["error"]]])
            )
            continue
        for figure in ("average", "worst_group"):
            found = {
                (p["tau"], p["tau_z"]): None if p[figure] is None else 100 * p[figure]
                for p in answer["points"]
            }
            values = [[found[tau, tau_z] for tau in taus] for tau_z in steps]
            name = f"{one.title}: {FIGURES[figure].label}, {answer['split']} rows, per cent"
            outcome.heatmaps.append(Heatmap(name, "τ", taus, "τ_z", steps, values))
            rows = [
                [setting(z), *(None if v is None else number(v, 1) for v in line)]
                for z, line in zip(steps, values, strict=True)
            ]
            outcome.tables.append(DocumentTable(name, ["τ_z \\ τ", *map(setting, taus)], rows))
        outcome.results[f"{one.dataset} {one.encoder}"] = answer["points"]
        if answer["rescale"] is not None:
            outcome.notes.append(f"{one.title}: τ_eff = τ / (1 + {number(answer['rescale'], 2)} τ_z).")
    return outcome


ONE_CURVE = (
    "With labels, two classes and one prompt each the plane is one curve: points of equal τ_eff, below, are equal, "
    "because the alignment term is a multiple of Dep(Z_I, Y). One seed, the paper's preset for the dataset with τ and "
    "τ_z the same on both sides; the published figure shows shades without numbers."
)
