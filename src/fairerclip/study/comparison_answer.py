"""The answer of a comparison in words: the best method, how FairerCLIP does, what to use, what failed or does harm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fairerclip._util.clean_text import shorten
from fairerclip._util.numbers import change, points, worded
from fairerclip.metrics.names import FIGURES
from fairerclip.report.answer_page import Alert
from fairerclip.study.comparison import (
    BestForLabels,
    Comparison,
    ComparisonRow,
    MethodDifferences,
    PairedChange,
    SeedMean,
    Verdict,
)
from fairerclip.study.method import Labels
from fairerclip.study.methods import OWN
from fairerclip.study.paired_methods import MARGIN, RANK, ZERO_SHOT, is_below
from fairerclip.study.ranking_comparison import RankingRow

WITH = {
    "none": "without labels",
    "target": "with target labels",
    "all": "with all labels",
    "validation": "with the labels of validation rows",
    "prediction": "with S of the rows to predict",
}
"""Words for the labels that a method has."""
OUTCOMES = {
    "worse": "worse",
    "lower": "worse on average",
    "tied": "not told apart",
    "better": "better",
}
"""Words for how FairerCLIP compares with another method, losses first; "lower": its worst group is not told apart."""
SPLITS = {"train": "training", "val": "validation"}
"""Words for the splits whose names are short."""
LONGEST_ERROR = 160
"""Characters of an error in a list of failures."""


@dataclass(frozen=True)
class ComparisonAnswer:
    """The answer in words.

    Attributes
    ----------
    sentence, recommendation : str
        Which method is best and how FairerCLIP does; what to use.
    advice : tuple of str
        What to use with fewer labels, where that is another method.
    alerts : tuple of Alert
        What failed, does harm, or limits what can be said.
    """

    sentence: str
    recommendation: str
    advice: tuple[str, ...]
    alerts: tuple[Alert, ...]


def answer_of(comparison: Comparison) -> ComparisonAnswer:
    """Return the answer of a comparison."""
    return ComparisonAnswer(
        sentence=_sentence(comparison),
        recommendation=_recommendation(comparison),
        advice=tuple(_advice(comparison)),
        alerts=(*_failures(comparison), *_harms(comparison), *_cautions(comparison)),
    )


@dataclass(frozen=True)
class Finished:
    """A method with figures: its key, its name, the labels that it needs, and its worst group and average."""

    method: str
    title: str
    labels: Labels
    worst_group: SeedMean
    average: SeedMean

    @property
    def is_own(self) -> bool:
        """Whether it is FairerCLIP."""
        return self.method.startswith(f"{OWN}-")

    @property
    def is_rival(self) -> bool:
        """Whether it predicts rows without their S, so that it can be the best."""
        return self.labels != "prediction"


def finished(comparison: Comparison) -> list[Finished]:
    """Return the methods with an average and a worst group, best first; last those that are no rivals."""
    found = [
        Finished(row.method, row.title, row.labels, f.worst_group, f.average)
        for row in comparison.rows
        if (f := row.figures) and f.worst_group and f.average
    ]
    return sorted(found, key=lambda entry: (not entry.is_rival, -entry.worst_group.mean, -entry.average.mean))


def rivals(comparison: Comparison) -> list[Finished]:
    """Return the methods of `finished` that predict rows without their S, best first."""
    return [entry for entry in finished(comparison) if entry.is_rival]


def overall(comparison: Comparison) -> BestForLabels | None:
    """Return the best of all methods; None if all of them predict rows with their S."""
    return comparison.best_for_labels[-1] if comparison.best_for_labels else None


def outcome(verdict: Verdict) -> str:
    """Return the key of `OUTCOMES` for FairerCLIP against the best other method."""
    if verdict.worst_group.low > 0:
        return "better"
    if verdict.worst_group.high < 0:
        return "worse"
    return "lower" if verdict.average.high < 0 else "tied"


def named(title: str) -> str:
    """Return the name of a method for a sentence, in quotation marks if it has a comma."""
    return f"“{title}”" if "," in title else title


def tested_on(comparison: Comparison) -> str | None:
    """Return the split on which methods were compared; None if all failed."""
    return next((run.split for row in comparison.rows for run in row.good_runs), None)


def rows_words(comparison: Comparison) -> str:
    """Return the number and the split of the rows on which methods were compared."""
    runs = [run for row in comparison.rows for run in row.good_runs]
    if not runs:
        return "no rows"
    rows = _counted(runs[0].report.n, f"{SPLITS.get(runs[0].split, runs[0].split)} row")
    if comparison.settings.splits is None:
        return rows
    return f"{splits_words(comparison.rows)} with {rows} each"


def splits_words(rows: Sequence[ComparisonRow] | Sequence[RankingRow]) -> str:
    """Return how many resampled splits the methods ran on, and if those trained by gradient have fewer, how many."""
    counts = [(len(row.runs), row.gradient) for row in rows]
    most = max(count for count, _ in counts)
    fewer = max((count for count, gradient in counts if gradient), default=most)
    words = _counted(most, "resampled split")
    return words if fewer == most else f"{words} ({fewer} for methods trained by gradient)"


def paired_by(comparison: Comparison) -> str:
    """Return what differences are paired by: rows, or resampled splits."""
    return "rows" if comparison.settings.splits is None else "splits"


def _sentence(comparison: Comparison) -> str:
    found = rivals(comparison) or finished(comparison)
    if not found:
        return f"No method has a result: {_counted(len(comparison.rows), 'method')} failed."
    best, own = _best(comparison, found), _own(comparison.verdicts)
    if own is None:
        return f"{best}."
    if any(outcome(verdict) in ("worse", "lower") for verdict in comparison.verdicts):
        return f"{own}; {best}."
    return f"{best}; {own[0].lower()}{own[1:]}."


def _best(comparison: Comparison, found: Sequence[Finished]) -> str:
    """Return the clause on the best method and its worst group."""
    first, value = named(found[0].title), worded(found[0].worst_group.mean)
    where = f"on {rows_words(comparison)}"
    if len(found) == 1:
        return f"Only {first} has figures {where}: its worst group is {value} right"
    equal = [entry for entry in found if entry.worst_group.mean == found[0].worst_group.mean]
    base = next((entry for entry in found if entry.method == ZERO_SHOT and entry not in equal), None)
    against = f" (zero-shot {worded(base.worst_group.mean)})" if base else ""
    among = f"of {len(found)} methods {where}, {value}{against}"
    if len(equal) > 1:
        others = named(equal[1].title) if len(equal) == 2 else f"{len(equal) - 1} others"
        return f"{first} and {others} share the best worst group {among}"
    return f"{first} has the best worst group {among}"


def _own(verdicts: Sequence[Verdict]) -> str | None:
    """Return the clause on FairerCLIP against the best other methods, losses first; None without a verdict."""
    parts = []
    for key, words in OUTCOMES.items():
        found = [verdict for verdict in verdicts if outcome(verdict) == key]
        if found:
            parts.append(f"{words} {_joined([_variant(verdict, key) for verdict in found])}")
    if not parts:
        return None
    return f"Against the best other method that uses no more labels, FairerCLIP is {_joined(parts)}"


def _variant(verdict: Verdict, key: str) -> str:
    figure = verdict.average if key == "lower" else verdict.worst_group
    labels = WITH.get(verdict.method.removeprefix(f"{OWN}-"), verdict.title)
    return labels if key == "tied" else f"{labels} ({points(figure.difference)} points)"


def _recommendation(comparison: Comparison) -> str:
    found, top = rivals(comparison) or finished(comparison), overall(comparison)
    if not found:
        return "Read the errors below and run the same command again."
    if tested_on(comparison) == "train":
        return "Do not choose by these figures: they are on the training rows. Add test rows to the task."
    if len(found) == 1:
        return f"Compare at least two methods: there is nothing to hold {named(found[0].title)} against."
    if top is None:
        return "Compare a method that predicts rows without their S: there is none to recommend."
    title = {entry.method: named(entry.title) for entry in found}
    use, near = title[top.use], top.not_told_apart
    if top.use == ZERO_SHOT:
        return "Keep zero-shot: no method has a clearly better worst group."
    if not near:
        given = len(found) < len(finished(comparison))
        others = "every other method that is given no S of these rows" if given else "every other method"
        return f"Use {use}: the worst group of {others} is clearly worse."
    if top.use != top.best:
        alike = f"of the {1 + len(near)} methods that cannot be told apart"
        if any(top.differences[key].average.high < -MARGIN for key in near):
            return f"{alike.capitalize()}, use the simplest whose average is not clearly lower: {use}."
        return f"Use the simplest {alike}: {use}."
    others = f"{len(near)} others" if len(near) > 1 else title[near[0]]
    return f"Use {use}: it cannot be told apart from {others}, but is simpler or better on average."


def _advice(comparison: Comparison) -> Iterator[str]:
    """Yield what to use with fewer labels than the recommended method needs."""
    top = overall(comparison)
    if top is None or tested_on(comparison) == "train":
        return
    title = {row.method: named(row.title) for row in comparison.rows}
    needed = next(RANK[row.labels] for row in comparison.rows if row.method == top.use)
    for found in comparison.best_for_labels[:-1]:
        if RANK[found.labels] < needed:
            words = "keep zero-shot" if found.use == ZERO_SHOT else f"use {title[found.use]}"
            yield f"{WITH[found.labels].capitalize()} in training: {words}."


def _failures(comparison: Comparison) -> list[Alert]:
    alerts = []
    for row in comparison.rows:
        if row.errors:
            which = (
                "failed" if row.figures is None else f"lacks {len(row.errors)} of its {len(row.runs)} runs"
            )
            alerts.append(Alert("failed", f"{row.title} {which}: {shorten(row.errors[0], LONGEST_ERROR)}"))
    return alerts


def _harms(comparison: Comparison) -> list[Alert]:
    """Return one sentence with the methods that are clearly worse than zero-shot, FairerCLIP first."""
    rows = [row for row in comparison.rows if is_harm(comparison, row.method)]
    rows.sort(key=lambda row: not row.method.startswith(OWN))
    if not rows:
        return []
    listed = "; ".join(f"{row.title} ({_loss(comparison.against_zero_shot[row.method])})" for row in rows)
    return [Alert("harm", f"Clearly worse than zero-shot: {listed}.")]


def is_harm(comparison: Comparison, key: str) -> bool:
    """Whether a method is clearly worse than zero-shot."""
    return key in comparison.against_zero_shot and is_below(comparison.against_zero_shot[key])


def _loss(found: MethodDifferences) -> str:
    name = "worst_group" if found.worst_group.high < 0 else "average"
    figure: PairedChange = getattr(found, name)
    return f"{FIGURES[name].short.lower()} {change(figure.difference, figure.low, figure.high)} points"


def _cautions(comparison: Comparison) -> Iterator[Alert]:
    """Yield a sentence if the rows were seen before, and one if a group has few rows."""
    if tested_on(comparison) == "train":
        text = "The task has no test rows: methods that learn from labels saw the answers that they are tested on."
        yield Alert("caution", text)
    if tested_on(comparison) == "val":
        text = "The task has no test rows: these are the rows on which settings were chosen, so figures are optimistic."
        yield Alert("caution", text)
    reports = [run.report for row in comparison.rows for run in row.good_runs]
    small = [group for group in reports[0].groups if group.small] if reports else []
    if small:
        least = min(small, key=lambda group: group.n)
        text = f"The smallest group, {shorten(least.name, 60)}, has {_counted(least.n, 'row')}: only large differences "
        yield Alert("caution", f"{text}can be told apart.")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _joined(parts: Sequence[str]) -> str:
    """Return parts as a list in words."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
