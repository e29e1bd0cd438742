"""Rows of accuracy tables: ours, the published presets, and the published figures beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fairerclip._util.numbers import with_spread
from fairerclip.experiment import Experiment
from fairerclip.metrics.names import FIGURES
from fairerclip.model.presets import preset
from fairerclip.report.document import DocumentTable
from fairerclip.study.comparison_page import STOPPED
from fairerclip.study.paper.context import Context, Outcome, job
from fairerclip.study.paper.fits import QUICK_FEATURES, fit_preset
from fairerclip.study.paper.published import Published, published
from fairerclip.study.paper.task_source import SourceTask

GRADIENT = ("probe-sgd", "adapter", "dfr-subsample", "dfr-upsample", "contrastive-adapter")
WITHOUT = ("zero-shot", "orth-proj", "orth-cali", "leace", "fairerclip-none")
WITH = ("probe", *GRADIENT, "fairerclip-target")
ALIKE = "-alike"
"""Ends the key of a row that is chosen as FairerCLIP is; no published figure is of it."""
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
"""Dataset → name and combinations of its presets; the paper's are for every backbone."""
MANY_FITS = 3000
"""Most features in tables of many fits: CelebA's 8000 take ten times as long."""


def group_figures(report: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of one report that tables show, with the negative class's difference in recall."""
    ends = report["intervals"]
    others = [c for c in report["classes"] if c != report["positive"]]
    negative = [
        abs(d["difference"])
        for d in report["differences"]
        if report["positive"] is not None and len(others) == 1 and d["y"] == others[0]
    ]
    return {
        "average": report["average"],
        "train_weighted": report["train_weighted_average"],
        "worst_group": report["worst"]["accuracy"],
        "worst_name": report["worst"]["name"],
        "gap": report["gap"],
        "eod": report["eod"],
        "eod_negative": max(negative, default=None),
        "worst_ends": ends.get("worst_group"),
        "eod_ends": ends.get("eod"),
    }


def mean_figures(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over seeds, with the spread; intervals are means of the seeds' own, and are about the rows."""
    all_figures = [group_figures(report) for report in reports]
    out: dict[str, Any] = {"seeds": len(reports)}
    for name in ("average", "train_weighted", "worst_group", "gap", "eod", "eod_negative"):
        values = [f[name] for f in all_figures if f[name] is not None]
        out[name] = float(np.mean(values)) if len(values) == len(all_figures) else None
        out[f"{name}_sd"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
    for name in ("worst_ends", "eod_ends"):
        ends = [f[name] for f in all_figures if f[name] is not None]
        out[name] = np.mean(ends, axis=0).tolist() if ends else None
    return out


def cell(value: float | None, sd: float | None = None, ends: Sequence[float] | None = None) -> str | None:
    """A share in per cent, with the spread over seeds and the interval where they are known."""
    return None if value is None else with_spread(value, sd, ends)


def cells(figures: Mapping[str, Any]) -> list[str | None]:
    """Cells of `COLUMNS`."""
    sd = {
        name: figures.get(f"{name}_sd") for name in ("average", "train_weighted", "worst_group", "gap", "eod")
    }
    return [
        cell(figures["average"], sd["average"]),
        cell(figures["train_weighted"], sd["train_weighted"]),
        cell(figures["worst_group"], sd["worst_group"], figures["worst_ends"]),
        cell(figures["gap"], sd["gap"]),
        cell(figures["eod"], sd["eod"], figures["eod_ends"]),
    ]


def paper_parameters(context: Context, dataset: str, most: int | None = None) -> dict[str, Any]:
    """The paper's parameters for a dataset, with ``most`` features or fewer."""
    parameters = preset(PRESETS[dataset][0], "paper", None)
    limits = [n for n in (most, QUICK_FEATURES if context.options.quick else None) if n is not None]
    return {**parameters, "n_features": min([parameters["n_features"], *limits])}


def preset_jobs(
    context: Context, experiment: Experiment, dataset: str, labels: Sequence[str]
) -> list[dict[str, Any]]:
    """Rows of the published parameters, fixed and untuned."""
    name, kinds = PRESETS[dataset]
    quick = context.options.quick
    wanted = [(origin, backbone, told) for origin, backbone in kinds for told in labels]
    jobs = [
        job(
            experiment,
            fit_preset,
            f"preset {name}/{origin}/{backbone}",
            dataset=name,
            origin=origin,
            backbone=backbone or "ViT-L/14",
            labels=told,
            quick=quick,
        )
        for origin, backbone, told in wanted
    ]
    rows = []
    for (origin, backbone, told), answer in zip(wanted, context.run(jobs), strict=True):
        title = f"FairerCLIP as in the {'paper' if origin == 'paper' else 'released code'}"
        title += f", {backbone}'s settings" if backbone else ""
        rows.append({"title": f"{title} (fixed)", "labels": told, **_answered(answer)})
    return rows


def _answered(answer: Mapping[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        return {"error": answer["error"]}
    return {
        "figures": mean_figures([answer["report"]]),
        "seconds": answer["seconds"],
        "notes": answer["notes"],
    }


def compared_rows(context: Context, experiment: Experiment, methods: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of methods as their authors choose, and again as all are chosen alike, with offsets.

    The first is what published figures are of; the second is what a row of FairerCLIP is to be compared with.
    """
    rows = []
    for key, row in context.compare(experiment, methods).items():
        good = [run for run in row["runs"] if "error" not in run]
        entry: dict[str, Any] = {"method": key, "title": row["title"], "labels": row["labels"]}
        if not good:
            rows.append({**entry, "error": "; ".join(row["errors"])})
            continue
        if any(note == STOPPED for run in good for note in run.get("notes", ())):
            entry["title"] += " (stopped by the cap)"
        entry |= {name: row[name] for name in ("seconds", "seconds_in_all", "parameters", "peak_mb")}
        published = [run["as_published"] for run in good if run["as_published"] is not None]
        if published:
            rows.append({**entry, **_of(published)})
            entry |= {"method": f"{key}{ALIKE}", "title": f"{entry['title']}, chosen by our rule"}
        rows.append({**entry, **_of(good)})
    return rows


def _of(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "figures": mean_figures([run["report"] for run in runs]),
        "chosen": [run["chosen"] for run in runs],
    }


def accuracy_table(
    table: str,
    one: SourceTask,
    rows: Sequence[Mapping[str, Any]],
    backbones: Sequence[str],
    *,
    released: bool = False,
) -> DocumentTable:
    """Our figures on one task, with those published for the same method and labels at the side."""
    columns = ["method", "labels", *COLUMNS, *([AS_RELEASED] if released else []), "seeds"]
    columns += [f"published, CLIP {backbone}" for backbone in backbones]
    lines = []
    for row in rows:
        beside = [_beside(table, one.dataset, row, backbone) for backbone in backbones]
        if "error" in row:
            blank = [None] * (len(COLUMNS) - 1 + released + 1)
            lines.append([row["title"], LABELS[row["labels"]], f"failed: {row['error']}", *blank, *beside])
            continue
        figures = row["figures"]
        extra = [cell(figures["eod_negative"], figures["eod_negative_sd"])] if released else []
        lines.append(
            [row["title"], LABELS[row["labels"]], *cells(figures), *extra, str(figures["seeds"]), *beside]
        )
    note = (
        "Per cent. ± is over seeds, [ ] over rows. The average is that of test rows; train-weighted is that of groups "
        "by their training sizes. Settings are chosen on validation rows, except in rows marked fixed: by the raw "
        "worst group as published, or, in rows of FairerCLIP and rows chosen by our rule, by the expected worst group "
        "with offsets of the class scores, of as many candidates each. Prompts: "
        f"{' / '.join(one.task.target_prompts)}"
    )
    return DocumentTable(f"{one.title}{f' ({one.note})' if one.note else ''}", columns, lines, note, 2)


def _beside(table: str, dataset: str, row: Mapping[str, Any], backbone: str) -> str | None:
    method = str(row.get("method", "fairerclip"))
    key = "fairerclip" if method.startswith("fairerclip") else method
    found = [
        p
        for p in published(table, dataset, key)
        if p.backbone == backbone and p.labels == row["labels"] and p.source == "paper"
    ]
    if not found:
        return None
    kind = found[0].average_kind
    return found[0].text(NAMES) + (
        f" ({NAMES['average']} {kind.split()[0]})" if kind.split()[0] in ("plain", "train-weighted") else ""
    )


def published_table(table: str, names: Mapping[str, str] = NAMES) -> DocumentTable:
    """Everything published for a table, with where it stands."""
    rows: list[list[Any]] = [
        [p.title, p.dataset, p.backbone, LABELS.get(p.labels or ""), p.text(names), _kind(p), _where(p)]
        for p in published(table)
    ]
    columns = ["method", "dataset", "backbone", "labels", "figures", "kind of average", "source"]
    return DocumentTable("Published figures", columns, rows, left=len(columns))


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
    """Our methods, the presets and the published figures on each task of some datasets."""
    outcome = Outcome()
    for one in context.tasks(*datasets):
        experiment = Experiment.of(one.task)
        rows = compared_rows(context, experiment, methods)
        rows += preset_jobs(context, experiment, one.dataset, labels)
        outcome.tables.append(accuracy_table(table, one, rows, backbones, released=released))
        outcome.results[f"{one.dataset} {one.encoder}"] = rows
    outcome.tables.append(published_table(table))
    return outcome
