"""A comparison as a document, and as a picture of the front."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairerclip._util.extras import require
from fairerclip._util.files import atomic_file
from fairerclip._util.numbers import NOTHING, bare, change, number, significant, with_spread
from fairerclip.metrics.names import FIGURES
from fairerclip.report.document import Document, DocumentTable
from fairerclip.study.methods import CHECKPOINTS

Results = Mapping[str, Any]
TOLD = {
    "none": "Without labels in training",
    "target": "With target labels in training",
    "all": "With target and true sensitive labels in training",
    "validation": "Learned from the labels of the validation rows",
}
"""Labels that a method learns from → heading. All choose by the labels of the validation rows."""
STOPPED = "stopped: max_steps"
"""What a training by gradient notes that was stopped before its last epoch."""
SHOWN = ("average", "worst_group", "gap", "eod")
AS_PUBLISHED = f"as published: {FIGURES['average'].short.lower()} / {FIGURES['worst_group'].short.lower()}"
COLUMNS = (
    "method",
    "candidates",
    "choice",
    *(FIGURES[name].short for name in SHOWN),
    AS_PUBLISHED,
    "fit, s",
    "tuning, s",
    "parameters",
    "memory, MB",
)


def document(results: Results) -> Document:
    """Tables by what the methods see of the labels, best worst group first as they stand."""
    task, settings = results["task"], results["settings"]
    kind = (
        "simulated embeddings: the figures say nothing about any real model"
        if task["simulated"]
        else task["file"]
    )
    notes = [
        *(verdict_sentence(verdict) for verdict in results["verdicts"]),
        f"Every method chose among at most {settings['candidates']} candidate models on the same validation rows, by "
        "the same rule: the expected worst group, with offsets of the class scores, where held-out halves trust them. "
        "A method with one candidate has nothing to vary. As published is what its authors would have taken: the "
        "candidate with the best worst group on the validation rows, or the published setting of a method without "
        "labels, and no offsets.",
        f"Seeds, where one matters: {settings['seeds']}. Figures are of the test rows: mean ± standard deviation "
        "over seeds [95 % interval, about the rows; of the worst group it accounts for being the lowest].",
        f"One training by gradient ends after the epoch in which it has learned from "
        f"{significant(settings['max_steps'], 6)} batches, and gives {CHECKPOINTS} candidates, the states after each "
        "tenth of its epochs. Times are of one core, with other runs beside it.",
    ]
    notes += [
        f"{row['title']}: {note}"
        for row in results["rows"]
        for note in row["notes"]
        if not note.startswith("stopped: ")
    ]
    notes += [f"Left out: {key}, because {reason}." for key, reason in results["left_out"].items()]
    tables = [
        DocumentTable(
            title=title,
            columns=list(COLUMNS),
            rows=[_cells(row) for row in results["rows"] if row["labels"] == labels],
            note=None,
        )
        for labels, title in TOLD.items()
        if any(row["labels"] == labels for row in results["rows"])
    ]
    return Document(title=f"{task['name']}: methods compared", source=kind, notes=notes, tables=tables)


def verdict_sentence(verdict: Results) -> str:
    """FairerCLIP against the best of the other methods that see no more labels, in words."""
    worst, average = (change(**verdict[name]) for name in ("worst_group", "average"))
    found = verdict["worst_group"]
    word = "better" if found["low"] > 0 else "worse" if found["high"] < 0 else "not told apart"
    return (
        f"{verdict['title']}, against the best of {verdict['others']} other methods that see no more labels, "
        f"{verdict['against_title']}: {word}; worst group {worst}, average {average} points."
    )


def _cells(row: Results) -> list[str]:
    figures = row["figures"]
    if figures is None:
        return [row["title"], "", "", f"failed: {row['errors'][0]}", *[""] * (len(COLUMNS) - 4)]
    shown = [_figure(figures[name]) for name in SHOWN]
    times = [number(row[name], digits) for name, digits in (("seconds", 2), ("seconds_in_all", 1))]
    title = row["title"] + (" (stopped by the cap)" if STOPPED in row["notes"] else "")
    title += f" ({len(row['errors'])} of {len(row['runs'])} runs failed)" if row["errors"] else ""
    published = row["as_published"]
    beside = NOTHING
    if published is not None:
        beside = " / ".join(bare(published[name]["mean"]) for name in ("average", "worst_group"))
    return [
        title,
        str(row["candidates"]),
        "; ".join(row["strategies"]) or NOTHING,
        *shown,
        beside,
        *times,
        number(row["parameters"], 0),
        number(row["peak_mb"], 0),
    ]


def _figure(figure: Results | None) -> str:
    if figure is None:
        return NOTHING
    sd = figure["sd"] if figure["seeds"] > 1 else None
    return with_spread(figure["mean"], sd, (figure["low"], figure["high"]))


def draw_front(results: Results, path: Path, *, overwrite: bool = False) -> None:
    """Average against worst group, one mark per method, with intervals (extra ``plots``)."""
    figures = require("matplotlib.figure", "plots", "drawing")
    figure = figures.Figure(figsize=(7.5, 5.5), layout="constrained")
    axes = figure.add_subplot()
    marks = {"none": "o", "target": "s", "all": "D", "validation": "^"}
    for row in results["rows"]:
        found = row["figures"]
        if found is None:
            continue
        average, worst = found["average"], found["worst_group"]
        x, y = 100 * average["mean"], 100 * worst["mean"]
        bars = [[y - 100 * min(worst["low"], worst["mean"])], [100 * max(worst["high"], worst["mean"]) - y]]
        ours = row["method"].startswith("fairerclip")
        axes.errorbar(
            [x], [y], yerr=bars, fmt=marks[row["labels"]], color="C0" if ours else "C7", alpha=0.9, capsize=2
        )
        axes.annotate(
            row["title"], (x, y), xytext=(4, 3), textcoords="offset points", fontsize=6.5, parse_math=False
        )
    axes.set(
        xlabel=FIGURES["average"].axis,
        ylabel=f"{FIGURES['worst_group'].axis} [95 %]",
        title="○ no labels   □ labels   ◇ labels and true S   △ validation labels",
    )
    with atomic_file(path, overwrite=overwrite) as handle:
        figure.savefig(handle, format=path.suffix[1:], dpi=150)
