"""Functions that compute the parts of the page: sections, headline figures, costs and gains, confusion counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from fairerclip._util.numbers import Kind, percent
from fairerclip.auditing.finding_results import Finding
from fairerclip.auditing.group_results import (
    GroupsSection,
    Measured,
    SeedFigure,
    Stage,
    present_stages,
)
from fairerclip.auditing.query_results import FreeQuery, QueriesSection
from fairerclip.auditing.results import AuditResults, RetrievalSection
from fairerclip.metrics.names import RETRIEVAL, Figure, figure_of
from fairerclip.report.query_tables import ordered_queries, remark, rises
from fairerclip.report.stage_rows import Change, figure_rows
from fairerclip.report.tables import SKEWS

MOST_NAMED = 6
"""Groups and prompts that are listed by name under gains; under costs all of them are."""
MOST_QUERIES = 15
"""Free queries that the page shows before the reader unfolds the rest; those whose skew rises are always shown."""
QUERIES = "queries"
"""Id of the section on free queries."""
Tone = Literal["better", "worse", "unclear"]
_HEADLINE = ("average", "worst_group", "eod")
MOST_CARDS = 3
_PLAIN = {
    "average": "Right answers overall",
    "worst_group": "Right answers in the worst group",
    "eod": "Largest difference within a class",
    "max_skew": "Shown too often, mean of prompts",
    "ndkl": "Distance from a proportional order",
    "query_skew": "Shown too often, mean of free queries",
}
"""Names of the headline figures for readers who do not know the technical ones."""
GISTS = {
    "groups": "Every group with its interval, and all figures.",
    "explorer": "Every strength of mitigation, group by group.",
    "confusion": "Which classes are taken for which others, by value of S.",
    "scores": "How far from the decision the rows of each group are, and how well scores separate the classes.",
    "picture": "Where rows of each class and value lie.",
    "retrieval": "Who is shown among the first results of each prompt.",
    "queries": "Who is shown for any other text.",
    "reading": "How well S can be read from embeddings and answers.",
    "method": "What was fitted, on which rows, with which versions.",
    "limits": "Read this before you decide.",
    "glossary": "The technical words of this page, in plain ones.",
}
"""What each folded section holds, in a line."""


class Moved(NamedTuple):
    """A figure or group that changed, and whether it became better."""

    label: str
    change: Change
    change_kind: Kind
    tone: Tone | None


class HeadlineCard(NamedTuple):
    """A headline figure at each stage, its change, and, for the worst group, the name of the group at each stage.

    ``plain`` is its name in common words, and ``term`` its entry in the glossary. MaxSkew is shown as a share.
    """

    name: str
    figure: Figure
    label: str
    plain: str
    term: str
    stages: dict[Stage, Measured]
    where: dict[Stage, str]
    change: Change | None
    tone: Tone | None

    @property
    def kind(self) -> Kind:
        """Number format of the values."""
        return "percent" if self.figure.short == RETRIEVAL["max_skew"].short else self.figure.column_kind


class Counted(NamedTuple):
    """Number of rows of a class with one predicted class, and their share of the class."""

    n: int
    share: float | None
    shade: int
    right: bool


class CountedClass(NamedTuple):
    """Rows of a true class by predicted class."""

    name: str
    n: int
    cells: list[Counted]


class ConfusionPart(NamedTuple):
    """Confusion counts of the rows with one sensitive value, at each stage."""

    name: str
    classes: Sequence[str]
    stages: dict[Stage, list[CountedClass]]


def _present(results: AuditResults) -> list[tuple[str, str, bool]]:
    """Return id and heading of each optional section, and whether these results have it."""
    compared, reports = results.model is not None, bool(present_stages(results.groups))
    reading = (results.probes, results.dependence, results.representation, results.wording)
    return [
        ("groups", "Before and after, by group" if compared else "Accuracy by group", reports),
        ("explorer", "Trade-off explorer", results.plane is not None),
        ("confusion", "Mistakes by group", reports),
        ("scores", "Scores by group", results.scores is not None),
        ("picture", "The embedding in two dimensions", results.picture is not None),
        ("retrieval", "Groups among the first hits", results.retrieval is not None),
        (QUERIES, "Free queries", results.queries is not None),
        ("reading", "What embeddings and predictions reveal about S", any(reading)),
    ]


def sections(results: AuditResults) -> list[tuple[str, str]]:
    """Return id and heading of each section of this page, in order."""
    optional = [(key, label) for key, label, is_present in _present(results) if is_present]
    ends = [
        ("method", "Method, data and versions"),
        ("limits", "What this does not show"),
        ("glossary", "What the words mean"),
    ]
    return [("summary", "Summary"), *optional, *ends]


def absent(results: AuditResults) -> list[str]:
    """Return the headings of the sections that these results do not have; only galleries have free queries."""
    return [label for key, label, is_present in _present(results) if not is_present and key != QUERIES]


def _tone(better: str | None, change: Change | None) -> Tone | None:
    """Return whether a change is better or worse, or unclear because its interval holds 0."""
    if change is None or change.difference is None or better is None:
        return None
    if change.low is None or change.high is None or change.low <= 0 <= change.high:
        return "unclear"
    return "better" if (change.difference > 0) == (better == "higher") else "worse"


def findings(results: AuditResults) -> dict[str, list[Finding]]:
    """Return the problems, which are never folded, and the other findings."""
    problems = [finding for finding in results.findings if finding.level == "problem"]
    return {"problems": problems, "others": [f for f in results.findings if f.level != "problem"]}


def curve(results: AuditResults) -> list[list[int]] | None:
    """Return the points of each criterion by rising strength, one per strength; None if the plane is no curve."""
    plane = results.plane
    if plane is None or not plane.one_curve:
        return None
    points = plane.points
    if any(point.lambda_eff is None for point in points):
        return None
    strengths: list[dict[int, int]] = [{} for _ in plane.criteria]  # strengths in units of 1e-9
    # The chosen point first, so that the slider can be moved back to it.
    for g in [plane.chosen, *range(len(points))]:
        of_criterion = strengths[plane.criteria.index(points[g].criterion)]
        of_criterion.setdefault(round(1e9 * (points[g].lambda_eff or 0.0)), g)
    return [[by_strength[strength] for strength in sorted(by_strength)] for by_strength in strengths]


def loses(results: AuditResults) -> str | None:
    """Return a sentence if the worst group at the chosen point is less accurate than zero-shot on the same rows."""
    plane = results.plane
    if plane is None or plane.baseline is None:
        return None
    point, baseline = plane.points[plane.chosen], plane.baseline
    if point.worst_group is None or point.worst_group >= baseline.worst_group:
        return None
    return (
        f"On these rows zero-shot has the better worst group: {percent(baseline.worst_group)}, here "
        f"{percent(point.worst_group)}."
    )


def cards(results: AuditResults) -> list[HeadlineCard]:
    """Return three headline figures: average, worst group and EOD, or without groups the skews of rankings."""
    queries = [] if results.queries is None else _query_cards(results.queries)
    if results.groups is not None and present_stages(results.groups):
        return [*_group_cards(results.groups), *queries][:MOST_CARDS]
    prompts = [] if results.retrieval is None else _retrieval_cards(results.retrieval)
    answered = (
        results.queries is not None and results.queries.mean is not None and results.queries.mean.change
    )
    return [*queries, *prompts] if answered else [*prompts, *queries]


def _group_cards(groups: GroupsSection) -> list[HeadlineCard]:
    reports = present_stages(groups)
    cards = []
    for row in figure_rows(groups):
        if row.name in _HEADLINE and row.stages:
            label, tone = row.figure.label, _tone(row.figure.better, row.change)
            worst = {s: reports[s].worst.name for s in row.stages} if row.name == "worst_group" else {}
            term, positive = row.figure.short, next(iter(reports.values())).positive
            plain = _PLAIN[row.name]
            if row.name == "eod" and positive is not None:
                plain = f"Difference in recognising “{positive}”"
            cards.append(
                HeadlineCard(row.name, row.figure, label, plain, term, row.stages, worst, row.change, tone)
            )
    return cards


def _retrieval_cards(retrieval: RetrievalSection) -> list[HeadlineCard]:
    means, cards = present_stages(retrieval.mean), []
    for name in SKEWS:
        figure, change = RETRIEVAL[name], getattr(retrieval.mean.changes, name, None)
        stages = {stage: getattr(mean, name) for stage, mean in means.items() if getattr(mean, name)}
        if stages:
            label, tone = f"{figure.label}, mean over prompts", _tone(figure.better, change)
            plain, term = _PLAIN[name], figure.short
            shown = _excess(stages) if name == "max_skew" else stages
            cards.append(HeadlineCard(name, figure, label, plain, term, shown, {}, change, tone))
    return cards


def _query_cards(section: QueriesSection) -> list[HeadlineCard]:
    mean, figure = section.mean, RETRIEVAL["max_skew"]
    if mean is None:
        return []
    label, tone = f"{figure.label}, mean over free queries", _tone(figure.better, mean.change)
    plain, stages = _PLAIN["query_skew"], _excess(present_stages(mean))
    return [HeadlineCard("query_skew", figure, label, plain, figure.short, stages, {}, mean.change, tone)]


def _excess(stages: dict[Stage, Measured]) -> dict[Stage, Measured]:
    """Return by how much the most over-represented group is shown too often: MaxSkew is the logarithm of the ratio."""

    def excess(skew: float | None) -> float | None:
        return None if skew is None else math.expm1(skew)

    return {
        stage: Measured(value=excess(skew.value), low=excess(skew.low), high=excess(skew.high))
        for stage, skew in stages.items()
    }


class ListedQuery(NamedTuple):
    """A free query of the page's table, and what to mind about it."""

    query: FreeQuery
    remark: str


def free_queries(results: AuditResults) -> dict[str, list[ListedQuery]]:
    """Return the free queries in the order of the page: rises, the first of the others, and the rest."""
    section = results.queries
    if section is None:
        return {}
    rising = rises(section)
    others = [query for query in ordered_queries(section) if query not in rising]
    parts = {"rises": rising, "first": others[:MOST_QUERIES], "rest": others[MOST_QUERIES:]}
    return {name: [ListedQuery(query, remark(query)) for query in part] for name, part in parts.items()}


def trade(results: AuditResults, headline: Sequence[HeadlineCard]) -> list[tuple[str, list[Moved], int]]:
    """Return costs and gains of the mitigation as (word, items, items left out); empty where nothing was compared.

    Items are the headline figures, and each group and each prompt whose change is clear after correction for the number
    of groups or prompts.
    """
    items = [
        Moved(card.label, card.change, card.figure.change_kind, card.tone)
        for card in headline
        if card.change and card.tone
    ]
    if not items:
        return []
    groups, retrieval = results.groups or GroupsSection(), results.retrieval
    clear = [
        Moved(change.name, change, "change", _tone("higher", change))
        for change in groups.group_changes or ()
        if change.clear
    ]
    skew = RETRIEVAL["max_skew"]
    for query in retrieval.queries if retrieval else ():
        if query.clear and query.changes and query.changes.max_skew:
            moved, label = query.changes.max_skew, f"{skew.label} of the results for “{query.name}”"
            clear.append(Moved(label, moved, skew.change_kind, _tone(skew.better, moved)))
    clear.sort(key=lambda item: -abs(item.change.difference or 0.0))
    parts = []
    for word, tone in (("Worse", "worse"), ("Better", "better")):
        figures = [item for item in items if item.tone == tone]
        named = [item for item in clear if item.tone == tone]
        shown = named if tone == "worse" else named[:MOST_NAMED]  # harms are never left out
        parts.append((word, [*figures, *shown], len(named) - len(shown)))
    return parts


def seed_rows(results: AuditResults) -> list[tuple[SeedFigure, Figure]]:
    """Return the spread over seeds of each figure, with the figure's description."""
    seeds = results.groups.seeds if results.groups else None
    return [(row, figure_of(row.figure, row.label)) for row in (seeds.figures if seeds else ())]


def count_rows(results: AuditResults) -> list[tuple[str, str, list[int | None]]]:
    """Return, for each split and class, the number of rows with each sensitive value."""
    task, rows = results.task, []
    for split, cells in task.counts.items():
        counts = {(cell.y, cell.s): cell.n for cell in cells}
        rows += [(split, y, [counts.get((y, s)) for s in task.groups]) for y in task.classes]
    return rows


def plane_order(results: AuditResults) -> list[int]:
    """Return the indices of the groups of the plane in the order of the table of groups."""
    groups = results.plane.groups if results.plane else ()
    report = next(iter(present_stages(results.groups).values()), None)
    places = {(group.y, group.s): i for i, group in enumerate(report.groups if report else ())}
    return sorted(range(len(groups)), key=lambda g: (places.get((groups[g].y, groups[g].s), len(places)), g))


def confusion(results: AuditResults) -> list[ConfusionPart]:
    """Return the confusion counts of each sensitive value, before and after."""
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
