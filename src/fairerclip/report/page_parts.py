"""What the page is made of: its sections, headline, and what was paid and gained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from fairerclip._util.numbers import Kind
from fairerclip.auditing.group_results import (
    GroupsSection,
    Measured,
    SeedFigure,
    Stage,
    StageReport,
    present_stages,
)
from fairerclip.auditing.results import AuditResults, RetrievalSection
from fairerclip.metrics.names import FIGURES, RETRIEVAL, Figure, figure_of
from fairerclip.report.tables import SKEWS, Change, figure_rows

MOST_NAMED = 6
"""Groups and prompts that are listed by name under what was paid and what was gained."""
Tone = Literal["better", "worse", "unclear"]
_HEADLINE = ("average", "worst_group", "eod")
_EXPLAINED = {
    "average": "Share of all rows that are classified right.",
    "worst_group": "The same share in the group where it is lowest.",
    "eod": "How far the groups are apart in being recognised; 0 is equal.",
    "max_skew": "How over-represented the most favoured group is among the first hits; 0 is proportional.",
    "ndkl": "How far the order of the hits is from the population; 0 is proportional.",
}


class Moved(NamedTuple):
    """Something that changed, and whether for the better."""

    label: str
    change: Change
    change_kind: Kind
    tone: Tone | None


class HeadlineCard(NamedTuple):
    """A headline figure at each stage, its change, and the name of the group that it is of, by stage."""

    name: str
    figure: Figure
    label: str
    help: str
    stages: dict[Stage, Measured]
    where: dict[Stage, str]
    change: Change | None
    tone: Tone | None


class Counted(NamedTuple):
    """Rows of a class that were taken for one class, and which share of the class they are."""

    n: int
    share: float | None
    shade: int
    right: bool


class CountedClass(NamedTuple):
    """Rows of a class, by what they were taken for."""

    name: str
    n: int
    cells: list[Counted]


class ConfusionPart(NamedTuple):
    """What the rows with one sensitive value were taken for, at each stage."""

    name: str
    classes: Sequence[str]
    stages: dict[Stage, list[CountedClass]]


def _present(results: AuditResults) -> list[tuple[str, str, bool]]:
    compared, reports = results.model is not None, bool(present_stages(results.groups))
    reading = (results.probes, results.dependence, results.representation, results.wording)
    return [
        ("groups", "Before and after, by group" if compared else "Accuracy by group", reports),
        ("explorer", "Trade-off explorer", results.plane is not None),
        ("confusion", "Which mistakes, in which group", reports),
        ("scores", "Scores by group", results.scores is not None),
        ("picture", "The embedding in two dimensions", results.picture is not None),
        ("retrieval", "Who is found first", results.retrieval is not None),
        ("reading", "What can still be read of S" if compared else "What can be read of S", any(reading)),
    ]


def sections(results: AuditResults) -> list[tuple[str, str]]:
    """Id and heading of each section of this page, in order."""
    found = [(key, label) for key, label, there in _present(results) if there]
    ends = [("method", "Method, data and versions"), ("limits", "What this does not show")]
    return [("summary", "Summary"), *found, *ends]


def absent(results: AuditResults) -> list[str]:
    """Headings of the sections that these results do not have."""
    return [label for _, label, there in _present(results) if not there]


def _tone(better: str | None, change: Change | None) -> Tone | None:
    """Whether a change is for the better, beyond its interval."""
    if change is None or change.difference is None or better is None:
        return None
    if change.low is None or change.high is None or change.low <= 0 <= change.high:
        return "unclear"
    return "better" if (change.difference > 0) == (better == "higher") else "worse"


def cards(results: AuditResults) -> list[HeadlineCard]:
    """The headline: average, worst group and EOD, or what retrieval has instead."""
    if results.groups is not None and present_stages(results.groups):
        return _group_cards(results.groups)
    return [] if results.retrieval is None else _retrieval_cards(results.retrieval)


def _group_cards(groups: GroupsSection) -> list[HeadlineCard]:
    reports = present_stages(groups)
    found = []
    for row in figure_rows(groups):
        if row.name in _HEADLINE and row.stages:
            label, tone = row.figure.label, _tone(row.figure.better, row.change)
            worst = {s: reports[s].worst.name for s in row.stages} if row.name == "worst_group" else {}
            explained = _explained(row.name, next(iter(reports.values())))
            found.append(
                HeadlineCard(row.name, row.figure, label, explained, row.stages, worst, row.change, tone)
            )
    return found


def _explained(figure: str, report: StageReport) -> str:
    """What a figure is, with the class that EOD is about where there is one."""
    if figure == "eod" and report.positive is not None:
        return f"How far the groups are apart in “{report.positive}” being recognised; 0 is equal."
    return _EXPLAINED[figure]


def _retrieval_cards(retrieval: RetrievalSection) -> list[HeadlineCard]:
    means, found = present_stages(retrieval.mean), []
    for name in SKEWS:
        figure, change = RETRIEVAL[name], getattr(retrieval.mean.changes, name, None)
        stages = {stage: getattr(mean, name) for stage, mean in means.items() if getattr(mean, name)}
        if stages:
            label, tone = f"{figure.label}, mean over prompts", _tone(figure.better, change)
            found.append(HeadlineCard(name, figure, label, _EXPLAINED[name], stages, {}, change, tone))
    return found


def trade(results: AuditResults, headline: Sequence[HeadlineCard]) -> list[tuple[str, list[Moved], int]]:
    """What was paid and what was gained: (word, items, items left out); empty where nothing was compared.

    More than headline figures: the average as training weighs it, and every group and every prompt that is worse or
    better off beyond doubt, all groups and all prompts taken together.
    """
    items = [
        Moved(card.label, card.change, card.figure.change_kind, card.tone)
        for card in headline
        if card.change and card.tone
    ]
    if not items:
        return []
    groups, retrieval = results.groups or GroupsSection(), results.retrieval
    weighted = FIGURES["train_weighted_average"]
    items += [
        Moved(weighted.label, change, weighted.change_kind, _tone(weighted.better, change))
        for change in groups.changes or ()
        if change.figure == "train_weighted_average"
    ]
    clear = [
        Moved(change.name, change, "change", _tone("higher", change))
        for change in groups.group_changes or ()
        if change.clear
    ]
    skew = RETRIEVAL["max_skew"]
    for query in retrieval.queries if retrieval else ():
        if query.clear and query.changes and query.changes.max_skew:
            moved, label = query.changes.max_skew, f"{skew.label} for “{query.name}”"
            clear.append(Moved(label, moved, skew.change_kind, _tone(skew.better, moved)))
    clear.sort(key=lambda item: -abs(item.change.difference or 0.0))
    found = []
    for word, tone in (("Paid", "worse"), ("Gained", "better")):
        named = [item for item in clear if item.tone == tone]
        told = [item for item in items if item.tone == tone]
        found.append((word, [*told, *named[:MOST_NAMED]], max(0, len(named) - MOST_NAMED)))
    return found


def seed_rows(results: AuditResults) -> list[tuple[SeedFigure, Figure]]:
    """The spread of each figure over seeds, and what the figure is."""
    seeds = results.groups.seeds if results.groups else None
    return [(row, figure_of(row.figure, row.label)) for row in (seeds.figures if seeds else ())]


def count_rows(results: AuditResults) -> list[tuple[str, str, list[int | None]]]:
    """Split and class, and the rows with each sensitive value."""
    task, rows = results.task, []
    for split, cells in task.counts.items():
        found = {(cell.y, cell.s): cell.n for cell in cells}
        rows += [(split, y, [found.get((y, s)) for s in task.groups]) for y in task.classes]
    return rows


def plane_order(results: AuditResults) -> list[int]:
    """Groups of the plane in the order in which the table of groups has them."""
    groups = results.plane.groups if results.plane else ()
    report = next(iter(present_stages(results.groups).values()), None)
    places = {(group.y, group.s): i for i, group in enumerate(report.groups if report else ())}
    return sorted(range(len(groups)), key=lambda g: (places.get((groups[g].y, groups[g].s), len(places)), g))


def confusion(results: AuditResults) -> list[ConfusionPart]:
    """Per sensitive value, the table before and the table after."""
    parts: dict[str, ConfusionPart] = {}
    for stage, report in present_stages(results.groups).items():
        for name, counts in zip(report.sensitive, report.confusion, strict=True):
            part = parts.setdefault(name, ConfusionPart(name, report.classes, {}))
            part.stages[stage] = _counted_classes(counts, report.classes)
    return list(parts.values())


def _counted_classes(counts: Sequence[Sequence[int]], classes: Sequence[str]) -> list[CountedClass]:
    rows = []
    for i, row in enumerate(counts):
        shares = [n / sum(row) if sum(row) else None for n in row]
        cells = [
            Counted(n, share, round(10 * (share or 0)), i == j)
            for j, (n, share) in enumerate(zip(row, shares, strict=True))
        ]
        rows.append(CountedClass(classes[i], sum(row), cells))
    return rows
