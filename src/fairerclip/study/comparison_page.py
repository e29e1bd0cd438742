"""A comparison as a document of tables, and as a plot of average against worst group."""

from __future__ import annotations

from pathlib import Path

from fairerclip._util.extras import require
from fairerclip._util.files import atomic_file
from fairerclip._util.numbers import bare, change, significant
from fairerclip.metrics.names import FIGURES
from fairerclip.report.document import Document
from fairerclip.report.result_table import Cell, Content, ResultTable
from fairerclip.study.comparison import Comparison, ComparisonRow, SeedMean, Verdict
from fairerclip.study.methods import CHECKPOINTS

HEADINGS = {
    "none": "Without labels in training",
    "target": "With target labels in training",
    "all": "With target and true sensitive labels in training",
    "validation": "Learned from the labels of the validation rows",
}
"""Heading by the labels that a method learns from. All choose by the labels of the validation rows."""
STOPPED = "stopped: max_steps"
"""Note of a training by gradient that was stopped before its last epoch."""
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


def document(comparison: Comparison) -> Document:
    """Make a document with one table for each kind of labels that methods learn from."""
    task, settings = comparison.task, comparison.settings
    source = (
        "simulated embeddings: the figures say nothing about any real model" if task.simulated else task.file
    )
    notes = [
        *(verdict_sentence(verdict) for verdict in comparison.verdicts),
        f"Every method chose among at most {settings.candidates} candidate models on the same validation rows, by "
        "the same rule: the expected worst group, with offsets of the class scores if they help on held-out halves. "
        "A method with one candidate has nothing to vary. “As published” is the choice of its authors: the "
        "candidate with the best worst group on the validation rows, or the published setting of a method without "
        "labels, and no offsets.",
        f"Seeds of methods with randomness: {settings.seeds}. Figures are on the test rows: mean ± standard deviation "
        "over seeds [95 % interval over rows; that of the worst group accounts for its being the lowest].",
        f"A training by gradient ends with the epoch in which it reaches {significant(settings.max_steps, 6)} batches, "
        f"and gives {CHECKPOINTS} candidates, one after each tenth of its epochs. Times are on one core, while other "
        "runs use the other cores.",
    ]
    notes += [
        f"{row.title}: {note}"
        for row in comparison.rows
        for note in row.notes
        if not note.startswith("stopped: ")
    ]
    notes += [f"Left out: {key}, because {reason}." for key, reason in comparison.left_out.items()]
    tables = [
        ResultTable(title, COLUMNS, [_cells(row) for row in comparison.rows if row.labels == labels])
        for labels, title in HEADINGS.items()
        if any(row.labels == labels for row in comparison.rows)
    ]
    return Document(f"{task.name}: methods compared", source, notes, tables)


def verdict_sentence(verdict: Verdict) -> str:
    """Return a sentence that compares FairerCLIP with the best other method that uses no more labels."""
    worst, average = (change(c.difference, c.low, c.high) for c in (verdict.worst_group, verdict.average))
    low, high = verdict.worst_group.low, verdict.worst_group.high
    word = "better" if low > 0 else "worse" if high < 0 else "no clear difference"
    return (
        f"{verdict.title}, against the best of {verdict.others} other methods that use no more labels, "
        f"{verdict.against_title}: {word}; worst group {worst}, average {average} points."
    )


def _cells(row: ComparisonRow) -> list[Content]:
    if row.figures is None:
        return [row.title, "", "", f"failed: {row.errors[0]}", *[""] * (len(COLUMNS) - 4)]
    title = row.title + (" (stopped by the cap)" if STOPPED in row.notes else "")
    title += f" ({len(row.errors)} of {len(row.runs)} runs failed)" if row.errors else ""
    published = row.as_published and (row.as_published.average, row.as_published.worst_group)
    return [
        title,
        row.candidates,
        "; ".join(row.strategies) or None,
        *(_figure(getattr(row.figures, name)) for name in SHOWN),
        " / ".join(bare(figure.mean if figure else None) for figure in published) if published else None,
        Cell(row.seconds, "seconds"),
        Cell(row.seconds_in_all, "tenths"),
        Cell(row.parameters, "whole"),
        Cell(row.peak_mb, "whole"),
    ]


def _figure(figure: SeedMean | None) -> Cell | None:
    if figure is None:
        return None
    sd = figure.sd if figure.seeds > 1 else None
    return Cell(figure.mean, "bare", figure.low, figure.high, sd=sd)


def draw_front(comparison: Comparison, path: Path, *, overwrite: bool = False) -> None:
    """Draw the average against the worst group, one mark per method, with intervals (extra ``plots``)."""
    figures = require("matplotlib.figure", "plots", "drawing")
    figure = figures.Figure(figsize=(7.5, 5.5), layout="constrained")
    axes = figure.add_subplot()
    marks = {"none": "o", "target": "s", "all": "D", "validation": "^"}
    for row in comparison.rows:
        if row.figures is None or row.figures.average is None or row.figures.worst_group is None:
            continue
        worst = row.figures.worst_group
        x, y = 100 * row.figures.average.mean, 100 * worst.mean
        bars = [[y - 100 * min(worst.low, worst.mean)], [100 * max(worst.high, worst.mean) - y]]
        ours = row.method.startswith("fairerclip")
        axes.errorbar(
            [x], [y], yerr=bars, fmt=marks[row.labels], color="C0" if ours else "C7", alpha=0.9, capsize=2
        )
        axes.annotate(
            row.title, (x, y), xytext=(4, 3), textcoords="offset points", fontsize=6.5, parse_math=False
        )
    axes.set(
        xlabel=FIGURES["average"].axis,
        ylabel=f"{FIGURES['worst_group'].axis} [95 %]",
        title="○ no labels   □ labels   ◇ labels and true S   △ validation labels",
    )
    with atomic_file(path, overwrite=overwrite) as handle:
        figure.savefig(handle, format=path.suffix[1:], dpi=150)
