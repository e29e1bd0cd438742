"""A comparison as a page with the answer first, and as a plot of average against worst group."""

from __future__ import annotations

from pathlib import Path

from fairerclip._util.extras import require
from fairerclip._util.files import atomic_file
from fairerclip._util.numbers import bare, change, interval, points, significant, worded
from fairerclip.metrics.names import FIGURES
from fairerclip.report.answer_page import (
    BEST,
    NEAR,
    AnswerPage,
    BigFigure,
    Folded,
    RankedRow,
    RankedSection,
    RankedTable,
)
from fairerclip.report.front_chart import FrontChart, Interval, Mark, Tone
from fairerclip.report.glossary import GLOSSARY
from fairerclip.report.result_table import Cell, Content, ResultTable
from fairerclip.study.comparison import Comparison, ComparisonRow, PairedChange, SeedMean, Verdict
from fairerclip.study.comparison_answer import (
    OUTCOMES,
    WITH,
    answer_of,
    finished,
    is_harm,
    outcome,
    overall,
    paired_by,
    rows_words,
    splits_words,
)
from fairerclip.study.method_settings import CHECKPOINTS
from fairerclip.study.methods import LEARNS_FROM, METHODS, OWN
from fairerclip.study.paired_methods import ZERO_SHOT

HEADINGS = {
    "none": "Without labels in training",
    "target": "With target labels in training",
    "all": "With target and true sensitive labels in training",
    "validation": "Learned from the labels of the validation rows",
    "prediction": "Given S of the rows that they predict: shown beside the others, never the best",
}
"""Heading by the labels that a method needs. All choose by the labels of the validation rows."""
STOPPED = "stopped: max_steps"
"""Note of a training by gradient that was stopped before its last epoch."""
COLUMNS = ("#", "Method", FIGURES["worst_group"].short, FIGURES["average"].short, "Against the best")
AS_PUBLISHED = f"As published: {FIGURES['worst_group'].short.lower()} / {FIGURES['average'].short.lower()}"
MORE = ("Method", FIGURES["gap"].short, FIGURES["eod"].short, AS_PUBLISHED, "Choice")
COSTS = ("Method", "fit, s", "tuning, s", "memory, MB", "parameters", "candidates")
TERMS = {
    "Candidate": "One setting of a method that it may choose from; all methods have the same number at most.",
    "Offset": "A number added to the score of a class, chosen on the validation rows for every method alike.",
    "As published": "The setting that the authors of a method would have chosen, without offsets.",
    "Seed": "Start of the random numbers. ± is the standard deviation over seeds.",
    "Resampled split": "The rows of the task, exchanged between its splits inside each class and group.",
}
"""Terms of comparisons only."""
PLAIN = {
    "ZeroShot": "compares images with descriptions of the classes.",
    "OrthProj": "removes from the descriptions what describes the sensitive attribute.",
    "OrthCali": "the same, adjusted so that descriptions of the same class stay alike.",
    "PRISM": "one linear map of images and descriptions, made from descriptions; mini: removes those of the attribute.",
    "RoboShot": "removes from the images what harmful pairs of descriptions differ in, and adds what helpful ones do.",
    "Rotation": "turns images and descriptions away from the sensitive attribute, as far as a formula says.",
    "PerceptionCLIP": "guesses the context of an image first, and then its class in that context.",
    "TIE": "moves images against the description of the sensitive value that is read from them.",
    "tie-true": "the same with the true sensitive value of every image, which must be known.",
    "LEACE": "removes from the embeddings what a linear model could learn of the sensitive attribute.",
    "CLIPClip": "drops the dimensions of the embeddings that depend most on the sensitive attribute.",
    "SFID": "overwrites the dimensions by which a forest predicts the sensitive attribute with a constant.",
    "SPD": "removes the directions by which linear models predict the sensitive attribute, one after the other.",
    "BendVLM": "changes each description until it is equally similar to images of every group.",
    "NeutralRepresentation": "changes the embeddings so that they are equally similar to descriptions of every group.",
    "DeAR": "changes the embeddings until a classifier of the sensitive attribute is uncertain.",
    "PromptDebiasing": "learns a change of the descriptions against a classifier of the sensitive attribute.",
    "FairerCLIP": "learns a representation of images and descriptions that depends less on the sensitive attribute.",
    "LinearProbe": "a linear classifier trained on labelled rows; balanced: rare classes or groups have more weight.",
    "JTT": "a linear classifier in which rows that a first one gets wrong have more weight.",
    "AFR": "a linear classifier, adjusted on held-out rows of which the less likely ones have more weight.",
    "PPA": "a linear classifier of groups that are guessed from what the descriptions do not say, joined to classes.",
    "WiSE": "a mixture of the zero-shot classifier and a linear one.",
    "Adapter": "a small network trained on top of the embeddings.",
    "DFR": "a linear classifier trained on rows with equally many of each group.",
    "ContrastiveAdapter": "a small network trained to bring rows of the same class together across groups.",
}
"""What methods do, by their key, or else by the class that implements them."""


def page(comparison: Comparison) -> AnswerPage:
    """Make the page of a comparison."""
    task, words = comparison.task, answer_of(comparison)
    about = f"{task.file} · {rows_words(comparison)} · {len(comparison.rows)} methods"
    simulated = "Simulated embeddings: the figures say nothing about any real model"
    return AnswerPage(
        title=f"{task.name}: methods compared",
        source=f"{simulated} · {about}" if task.simulated else about,
        simulated=task.simulated,
        answer=words.sentence,
        recommendation=words.recommendation,
        advice=words.advice,
        figures=_figures(comparison),
        picture=_picture(comparison),
        alerts=words.alerts,
        table=ranked_table(comparison),
        folded=_folded(comparison),
        terms={**GLOSSARY, **TERMS},
    )


def ranked_table(comparison: Comparison) -> RankedTable:
    """Make the table of all methods, by the labels that they learn from, best first."""
    numbers = _numbers(comparison)
    rows = sorted(comparison.rows, key=lambda row: numbers.get(row.method, len(numbers) + 1))
    sections = [
        RankedSection(
            heading, LEARNS_FROM[labels], [_ranked(comparison, row, numbers.get(row.method)) for row in found]
        )
        for labels, heading in HEADINGS.items()
        if (found := [row for row in rows if row.labels == labels])
    ]
    paired = (
        f"Against the best: difference of worst groups in points, paired by {paired_by(comparison)}; grey with ≈ is "
        "not told apart from 0."
        if comparison.best_for_labels
        else "No method predicts rows without their S, so there is no best one to compare with."
    )
    over = f"over {rows_words(comparison)}"
    intervals = (
        f"intervals {over}" if comparison.settings.splits is None else f"intervals for new rows, {over}"
    )
    note = (
        f"Per cent right; brackets: 95 % {intervals}. {paired} The best was chosen by these figures, which are "
        "therefore optimistic for it."
    )
    return RankedTable(COLUMNS, sections, note)


def _numbers(comparison: Comparison) -> dict[str, int]:
    """Return the place of every method with figures, best first."""
    return {entry.method: place for place, entry in enumerate(finished(comparison), 1)}


def _ranked(comparison: Comparison, row: ComparisonRow, number: int | None) -> RankedRow:
    title = row.title + (" (stopped by the cap)" if STOPPED in row.notes else "")
    if row.figures is None or number is None:
        return RankedRow([None, title, "failed", None, None], None)
    top = overall(comparison)
    found = top.differences.get(row.method) if top else None
    behind = found and found.worst_group
    tone = tone_of(comparison, row.method)
    levels = [WITH[level.labels] for level in comparison.best_for_labels[:-1] if level.best == row.method]
    badge = "best" if tone == "best" else f"best {levels[-1]}" if levels else ""
    sign = BEST if tone == "best" else NEAR if top and row.method in top.not_told_apart else ""
    cells: list[Content] = [
        number,
        title,
        _figure(row.figures.worst_group),
        _figure(row.figures.average),
        Cell(behind.difference, "change", behind.low, behind.high) if behind else None,
    ]
    return RankedRow(cells, tone, sign, badge)


def tone_of(comparison: Comparison, method: str) -> Tone:
    """Return how a method is drawn: the best, not told apart from it, worse than zero-shot, or clearly worse."""
    top = overall(comparison)
    if top is not None:
        if method == top.best:
            return "best"
        if is_harm(comparison, method):
            return "harm"
        return "near" if method in top.not_told_apart else "other"
    return "best" if finished(comparison)[0].method == method else "other"


def _figures(comparison: Comparison) -> list[BigFigure]:
    """Return worst group and average of the best method, and FairerCLIP or the best method against others."""
    found = finished(comparison)
    if not found:
        return []
    best = found[0]
    base = next((entry for entry in found[1:] if entry.method == ZERO_SHOT), None)
    shown = []
    for name in ("worst_group", "average"):
        figure: SeedMean = getattr(best, name)
        other = f"; zero-shot {worded(getattr(base, name).mean)}" if base else ""
        below = f"{interval(figure.low, figure.high)}, {best.title}{other}"
        shown.append(BigFigure(FIGURES[name].short, worded(figure.mean), below))
    if comparison.verdicts:
        order = list(OUTCOMES)
        lowest = min(comparison.verdicts, key=lambda v: (order.index(outcome(v)), v.worst_group.difference))
        name = "average" if outcome(lowest) == "lower" else "worst_group"
        labels = WITH.get(lowest.method.removeprefix(f"{OWN}-"), lowest.title)
        about = f"{labels}, against {lowest.against_title}: {OUTCOMES[outcome(lowest)]}"
        label = f"{lowest.title.split(',')[0]}, {FIGURES[name].short.lower()}, points"
        shown.append(_difference(label, getattr(lowest, name), about))
    elif best.method in comparison.against_zero_shot:
        gain = comparison.against_zero_shot[best.method].worst_group
        shown.append(_difference("Gain over zero-shot, worst group, points", gain, best.title))
    return shown


def _difference(label: str, found: PairedChange, about: str) -> BigFigure:
    ends = interval(found.low, found.high, "points")
    return BigFigure(label, points(found.difference), f"{ends}, {about}")


def _picture(comparison: Comparison) -> FrontChart | None:
    """Make the plot of average against worst group; None if no method has figures."""
    found, top = finished(comparison), overall(comparison)
    if not found:
        return None
    first = [found[0].method, *([top.use] if top else []), ZERO_SHOT]
    wanted = [*first, *(e.method for e in found if e.is_own), *(e.method for e in found)]
    order = {method: place for place, method in enumerate(dict.fromkeys(wanted))}
    marks = [
        Mark(
            number,
            entry.title,
            _interval(entry.average),
            _interval(entry.worst_group),
            tone_of(comparison, entry.method),
            entry.is_own,
            order[entry.method],
        )
        for number, entry in enumerate(found, 1)
    ]
    title = (
        f"{FIGURES['worst_group'].label} against {FIGURES['average'].label.lower()} of {len(found)} methods; the "
        f"figures are in the table. Best: {found[0].title}."
    )
    return FrontChart(title, FIGURES["average"].axis, FIGURES["worst_group"].axis, marks)


def _interval(figure: SeedMean) -> Interval:
    # The mean over seeds of the ends may exclude the mean by a rounding error.
    return Interval(figure.mean, min(figure.low, figure.mean), max(figure.high, figure.mean))


def _folded(comparison: Comparison) -> list[Folded]:
    """Return the parts that open on a tap, most important first."""
    rows = comparison.rows
    done = [row for row in rows if row.figures is not None]
    errors = [f"{row.title}: {error}" for row in rows for error in row.errors]
    notes = [f"{row.title}: {n}" for row in rows for n in row.notes if not n.startswith("stopped: ")]
    left_out = [f"{key}: {reason}." for key, reason in comparison.left_out.items()]
    homes = {method.key: method.key if method.key in PLAIN else method.home for method in METHODS}
    plain = [f"{row.title}: {PLAIN[homes[row.method]]}" for row in rows if row.method in homes]
    made = {name: value for name, value in comparison.made.model_dump(by_alias=True).items() if value}
    return [
        Folded(
            "FairerCLIP against the best other method that uses no more labels",
            [verdict_sentence(verdict) for verdict in comparison.verdicts],
        ),
        Folded("All errors", errors),
        Folded(
            "More figures",
            (),
            [ResultTable("More figures", MORE, [_more(row) for row in done])] if done else [],
        ),
        Folded(
            "Time, memory and size",
            ["Times are on one core, while other runs use the other cores."],
            [ResultTable("Time, memory and size", COSTS, [_costs(row) for row in done])] if done else [],
        ),
        Folded("What the methods do", plain),
        Folded("How methods were compared", _rules(comparison)),
        Folded("Notes of methods", notes),
        Folded("Methods left out", left_out),
        Folded(
            "How it was made",
            [
                f"Task {comparison.task.digest}; classes {', '.join(comparison.task.classes)}; sensitive "
                f"{', '.join(comparison.task.sensitive)}.",
                f"{_draws(comparison)}; " + ", ".join(f"{k} {v}" for k, v in made.items()) + ".",
            ],
        ),
    ]


def _draws(comparison: Comparison) -> str:
    """Return the number of seeds, or of resampled splits."""
    settings = comparison.settings
    if settings.splits is not None:
        return splits_words(comparison.rows)
    return f"{settings.seeds} seed{'' if settings.seeds == 1 else 's'}"


def _rules(comparison: Comparison) -> list[str]:
    """Return how every method was tuned, and how to read the figures."""
    settings = comparison.settings
    return [
        f"Every method chose among at most {settings.candidates} candidate models (FairerCLIP without labels among "
        "one more, its start values) on the same validation rows, by the same rule: the expected worst group, with "
        "offsets of the class scores if they help on held-out halves. "
        "Zero-shot has offsets, too. A method with one candidate has nothing to vary.",
        "“As published” is the choice of its authors: the candidate with the best worst group on the validation rows, "
        "or the published setting of a method without labels (the defaults of FairerCLIP), and no offsets.",
        _repetitions(comparison),
        f"A training by gradient ends with the epoch in which it reaches {significant(settings.max_steps, 6)} batches, "
        f"and gives {CHECKPOINTS} candidates, one after each tenth of its epochs.",
        "Two methods are not told apart if the 95 % interval of the difference of their worst groups, paired by "
        f"{paired_by(comparison)}, holds 0. To use: the simplest of the best and those not told apart from it whose "
        "average is not clearly lower by more than a point. Simpler: fewer labels, then no training by gradient, then "
        "earlier in the list of `fairerclip compare --methods list`.",
    ]


def _repetitions(comparison: Comparison) -> str:
    """Return how often methods ran, and what the intervals are of."""
    settings = comparison.settings
    if settings.splits is None:
        return (
            f"Seeds of methods with randomness: {settings.seeds}. Figures are means ± standard deviation over seeds "
            "[95 % interval over rows; that of the worst group accounts for its being the lowest]."
        )
    return (
        f"Resampled splits: {settings.splits}; for methods that are trained by gradient the first "
        f"{min(settings.splits, settings.gradient_splits or settings.splits)}, and their means are corrected by how "
        "the others do on these. Figures are means ± standard deviation over splits [95 % interval, with Nadeau and "
        "Bengio's correction for splits that share rows]."
    )


def verdict_sentence(verdict: Verdict) -> str:
    """Return a sentence that compares FairerCLIP with the best other method that uses no more labels."""
    worst, average = (change(c.difference, c.low, c.high) for c in (verdict.worst_group, verdict.average))
    low, high = verdict.worst_group.low, verdict.worst_group.high
    word = "better" if low > 0 else "worse" if high < 0 else "no clear difference"
    return (
        f"{verdict.title}, against the best of {verdict.others} other methods that use no more labels, "
        f"{verdict.against_title}: {word}; worst group {worst}, average {average} points."
    )


def _more(row: ComparisonRow) -> list[Content]:
    published = row.as_published and (row.as_published.worst_group, row.as_published.average)
    figures = row.figures
    return [
        row.title,
        _figure(figures.gap if figures else None),
        _figure(figures.eod if figures else None),
        " / ".join(bare(figure.mean if figure else None) for figure in published) if published else None,
        "; ".join(row.strategies) or None,
    ]


def _costs(row: ComparisonRow) -> list[Content]:
    return [
        row.title,
        Cell(row.seconds, "seconds"),
        Cell(row.seconds_in_all, "tenths"),
        Cell(row.peak_mb, "whole"),
        Cell(row.parameters, "whole"),
        row.candidates,
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
    marks = {"none": "o", "target": "s", "all": "D", "validation": "^", "prediction": "x"}
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
        title="○ no labels   □ labels   ◇ labels and true S   △ validation labels   × given S of test rows",
    )
    with atomic_file(path, overwrite=overwrite) as handle:
        figure.savefig(handle, format=path.suffix[1:], dpi=150)
