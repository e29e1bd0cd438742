"""Functions that turn the results of an audit into tables, which Markdown, the card and the terminal show."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise
from typing import TypeVar

from fairerclip._util.numbers import NOTHING, Kind
from fairerclip.auditing.group_results import (
    Measured,
    PlaneBaseline,
    PlanePoint,
    PlaneSection,
    ScoreHistogram,
    SeedsSection,
    Stage,
    StageReport,
    present_stages,
)
from fairerclip.auditing.results import (
    AuditResults,
    DependenceRow,
    ProbeRow,
    RankedStage,
    RetrievalMean,
    RetrievalQuery,
    SkewFigures,
    Tested,
)
from fairerclip.metrics.names import (
    CHANCE,
    DEPENDENCE,
    DRIFT,
    FIGURES,
    PROBE,
    PROBES,
    REPRESENTATION,
    RETRIEVAL,
    figure_of,
)
from fairerclip.report.phrases import EMBEDDINGS, about_auc, about_bias, fewest_rows, how_chosen, stage_names
from fairerclip.report.query_tables import SHOWN, query_tables
from fairerclip.report.result_table import Cell, Content, ResultTable
from fairerclip.report.stage_rows import Change, auc_rows, figure_rows, group_rows, worst_at

SKEWS = ("max_skew", "ndkl")
"""Figures of rankings that are shown first."""
OVERVIEW = (*SKEWS, "kl", "bias")
"""Figures of rankings that an overview shows."""
T = TypeVar("T")
Tables = list[ResultTable]


def _cell(estimate: Measured | Tested | ProbeRow | DependenceRow | None, kind: Kind) -> Content:
    return None if estimate is None else Cell(estimate.value, kind, estimate.low, estimate.high)


def _change(change: Change | None, kind: Kind = "change") -> Content:
    return None if change is None else Cell(change.difference, kind, change.low, change.high)


def accuracy_tables(results: AuditResults) -> Tables:
    """Return tables of the accuracy of each group and of the figures over all groups, with paired changes."""
    section = results.groups
    reports = present_stages(section)
    if section is None or not reports:
        return []
    heads = [stage_names(results)[stage] for stage in reports]
    groups, figures = group_rows(section), figure_rows(section)
    small = f"Small: fewer than {results.settings.small} rows, so that its interval is wide."
    positive = [report.positive for report in reports.values()][-1]
    return [
        ResultTable(
            "Accuracy by group [interval]",
            ["group", "n", *heads, *_if(section.group_changes, "change, points")],
            [
                [
                    row.name,
                    f"{row.n} (small)" if row.small else row.n,
                    *(_cell(row.stages.get(stage), "percent") for stage in reports),
                    *_if(section.group_changes, _change(row.change)),
                ]
                for row in groups
            ],
            small if any(row.small for row in groups) else None,
        ),
        ResultTable(
            "Figures [interval]; changes are paired" if section.changes else "Figures [interval]",
            ["figure", *heads, *_if(section.changes, "change, points")],
            [
                [
                    row.figure.label,
                    *(_cell(row.stages.get(stage), row.figure.kind) for stage in reports),
                    *_if(section.changes, _change(row.change)),
                ]
                for row in figures
            ],
            None if positive is None else f"Equal opportunity compares recalls of the class {positive}.",
        ),
    ]


def _if(condition: object, content: T) -> list[T]:
    return [content] if condition else []


def error_tables(results: AuditResults) -> Tables:
    """Return tables of differences in recall and counts of predictions at each stage, and of the spread over seeds."""
    reports, names = present_stages(results.groups), stage_names(results)
    tables = [_recalls(report, names[stage]) for stage, report in reports.items() if report.differences]
    tables += [_confusion(report, names[stage]) for stage, report in reports.items()]
    seeds = results.groups.seeds if results.groups else None
    return tables if seeds is None else [*tables, _seeds(seeds)]


def _recalls(report: StageReport, stage: str) -> ResultTable:
    rows = [[d.y, f"{d.s} {NOTHING} {d.reference}", _change(d)] for d in report.differences]
    return ResultTable(f"Differences in recall, {stage}", ["class", "between", "points"], rows, left=2)


def _confusion(report: StageReport, stage: str) -> ResultTable:
    rows: list[list[Content]] = [
        [value, true, *counts]
        for value, by_class in zip(report.sensitive, report.confusion, strict=True)
        for true, counts in zip(report.classes, by_class, strict=True)
    ]
    columns = ["value", "true class", *(f"as {name}" for name in report.classes)]
    return ResultTable(f"Counts of predictions, {stage}", columns, rows, left=2)


def _seeds(seeds: SeedsSection) -> ResultTable:
    rows: list[list[Content]] = []
    for row in seeds.figures:
        figure = figure_of(row.figure, row.label)
        spread, error = Cell(row.sd, "gap"), Cell(row.sampling_se, "gap")
        ends = [Cell(end, figure.kind) for end in (row.smallest, row.largest)]
        rows.append([figure.label, Cell(row.mean, figure.kind), spread, *ends, error])
    columns = ["figure", "mean", "standard deviation", "smallest", "largest", "sampling error"]
    note = f"Fitted with {seeds.n} seeds. The sampling error is that of the test rows; the spread does not include it."
    return ResultTable("Spread over seeds", columns, rows, note)


def score_tables(results: AuditResults) -> Tables:
    """Return a table of the quantiles of each group's scores, before and after."""
    section = results.scores
    rows: list[list[Content]] = [
        [
            group.name,
            stage_names(results)[stage],
            group.n,
            *(Cell(_quantile(histogram, group.counts, q), "number") for q in (0.1, 0.5, 0.9)),
            Cell(_share_above(histogram, group.counts), "percent"),
        ]
        for stage, histogram in present_stages(section).items()
        for group in histogram.groups
    ]
    if section is None or not rows:
        return []
    columns = ["group", "stage", "n", "10 %", "median", "90 %", "above the threshold"]
    note = f"{section.label}; taken from a histogram, so exact to the width of a bin."
    return [ResultTable("Scores by group", columns, rows, note, left=2)]


def auc_tables(results: AuditResults) -> Tables:
    """Return a table of the AUC of class scores in each group, of the worst one and of the gap."""
    stages, names = present_stages(results.auc), stage_names(results)
    rows: list[list[Content]] = [
        [row.name, row.n, *(_cell(row.stages.get(stage), row.kind) for stage in stages)]
        for row in auc_rows(results.auc)
    ]
    if not rows:
        return []
    columns = ["value", "n", *(names[stage] for stage in stages)]
    return [ResultTable("AUC by sensitive value [interval]", columns, rows, about_auc(results))]


def _quantile(histogram: ScoreHistogram, counts: Sequence[int], q: float) -> float | None:
    """Return the centre of the bin that holds the quantile."""
    for ends, reached in zip(pairwise(histogram.edges), accumulate(counts), strict=True):
        if reached and reached >= q * sum(counts):
            return sum(ends) / 2
    return None


def _share_above(histogram: ScoreHistogram, counts: Sequence[int]) -> float | None:
    """Return the share of rows in bins above the threshold; None without a threshold."""
    threshold, total = histogram.threshold, sum(counts)
    if threshold is None or not total:
        return None
    bins = zip(counts, pairwise(histogram.edges), strict=True)
    return sum(n for n, ends in bins if sum(ends) / 2 > threshold) / total


def trade_off_tables(results: AuditResults) -> Tables:
    """Return a table of the chosen point, zero-shot and the front of the (τ, τ_z) plane."""
    plane = results.plane
    if plane is None:
        return []
    points = plane.points
    average, worst, gap, eod = (FIGURES[name].column for name in ("average", "worst_group", "gap", "eod"))
    columns = ["", "τ", "τ_z", "criterion", average, worst, "in", gap, eod]
    rows = [["zero-shot", "", "", "", *_at_point(plane, plane.baseline)]] if plane.baseline else []
    for g in sorted({*plane.front, plane.chosen}, key=lambda g: (points[g].average or 0.0, g)):
        at: list[Content] = [
            Cell(points[g].tau, "setting"),
            Cell(points[g].tau_z, "setting"),
            points[g].criterion,
        ]
        rows.append(["→" if g == plane.chosen else "", *at, *_at_point(plane, points[g])])
    how, fewest = how_chosen(results), fewest_rows(results)
    note = (
        f"{len(points)} points on the {plane.split} split, "
        f"{sum(point.failure is not None for point in points)} without a solution. "
        + (
            f"The point with → was chosen {how}."
            if how
            else "The point with → was not chosen on validation rows: these are the parameters as given."
        )
        + " The other points are the front: no point is better in both average and worst group."
    )
    if fewest is not None:
        note += f" The smallest group has {fewest} rows: a point chosen on so few rows is uncertain."
    return [ResultTable("Trade-off between average and worst group", columns, rows, note)]


def _at_point(plane: PlaneSection, point: PlanePoint | PlaneBaseline) -> list[Content]:
    name, worst = worst_at(plane, point)
    average, gap, eod = (
        Cell(value, FIGURES[figure].column_kind)
        for figure, value in (("average", point.average), ("gap", point.gap), ("eod", point.eod))
    )
    return [average, _cell(worst, "percent"), name, gap, eod]


def ranking_tables(results: AuditResults, figures: Collection[str] = tuple(RETRIEVAL)) -> Tables:
    """Return tables of figures of the first results of each prompt, and of the change in their order."""
    section = results.retrieval
    if section is None:
        return []
    parts: list[tuple[str, RetrievalQuery | RetrievalMean]] = [(q.name, q) for q in section.queries]
    parts += [("mean over prompts", section.mean)] if parts else []
    present = [stage for stage in EMBEDDINGS if any(stage in _ranked(part) for _, part in parts)]
    compared = any(part.changes for _, part in parts)
    rows: list[list[Content]] = []
    for name, part in parts:
        for figure in figures:
            kind, stages = RETRIEVAL[figure].kind, _ranked(part)
            estimates = [getattr(stages.get(stage), figure, None) for stage in present]
            change = getattr(part.changes, figure, None)
            if any(estimates):
                row = [name, RETRIEVAL[figure].label, *(_cell(estimate, kind) for estimate in estimates)]
                rows.append([*row, *_if(compared, _change(change, RETRIEVAL[figure].change_kind))])
    columns = [
        "prompt",
        "figure",
        *(stage_names(results)[stage] for stage in present),
        *_if(compared, "change"),
    ]
    title = f"Top {section.k} of {section.n} rows, reference {section.reference}, ties {section.ties}"
    note = (
        f"Rows of the {section.split} split. A MinSkew of {NOTHING} means that a group is not among them. Changes of "
        "precision and recall are in points."
    )
    sign = about_bias(section) if "bias" in figures else None
    note = note if sign is None else f"{note} {sign}"
    moved = [
        [query.name, *(_cell(getattr(query.drift, name), figure.kind) for name, figure in DRIFT.items())]
        for query in section.queries
        if query.drift
    ]
    drift = ResultTable(
        "How the order changed [interval]", ["prompt", *(figure.label for figure in DRIFT.values())], moved
    )
    return [ResultTable(title, columns, rows, note, left=2)] * bool(rows) + [drift] * bool(moved)


def _ranked(part: RetrievalQuery | RetrievalMean) -> dict[Stage, RankedStage | SkewFigures]:
    stages: dict[Stage, RankedStage | SkewFigures | None] = {"before": part.before, "after": part.after}
    return {stage: ranked for stage, ranked in stages.items() if ranked is not None}


def composition_tables(results: AuditResults) -> Tables:
    """Return a table of the number of rows of each group among the first results of each prompt."""
    section = results.retrieval
    if section is None:
        return []
    present = [stage for stage in EMBEDDINGS if any(stage in present_stages(q) for q in section.queries)]
    rows: list[list[Content]] = []
    for query in section.queries:
        stages = present_stages(query)
        for g, (group, share) in enumerate(zip(section.groups, section.shares, strict=True)):
            counts = [Cell(stages[s].counts[g], "count") if s in stages else None for s in present]
            rows.append([query.name, group, Cell(share, "percent"), *counts])
    heads = [f"first {section.k}, {stage_names(results)[stage]}" for stage in present]
    title = f"Groups among the first {section.k} rows"
    table = ResultTable(title, ["prompt", "group", "of all rows", *heads], rows, left=2)
    return [table] if present and rows else []


def probe_tables(results: AuditResults) -> Tables:
    """Return a table of how well classifiers predict the sensitive attribute from the embeddings."""
    rows: list[list[Content]] = [
        [
            *(p.attribute, PROBES[p.probe], EMBEDDINGS[p.stage]),
            *(_cell(p, PROBE.kind), Cell(p.chance, CHANCE.kind), p.n),
        ]
        for p in results.probes or ()
    ]
    columns = ["attribute", "probe", "embeddings", PROBE.label, CHANCE.label, "n"]
    title = "How well the sensitive attribute can be predicted, out of fold [interval]"
    note = "A classifier predicts the attribute from the embeddings of rows that it was not fitted on."
    return [ResultTable(title, columns, rows, note, left=3)] if rows else []


def dependence_tables(results: AuditResults) -> Tables:
    """Return a table of the dependence of predictions and embeddings on the sensitive attribute."""
    rows: list[list[Content]] = [
        [
            f"{stage_names(results)[d.stage]} predictions" if d.of == "predictions" else EMBEDDINGS[d.stage],
            *(d.attribute, d.given, DEPENDENCE[d.measure].label),
            *(_cell(d, DEPENDENCE[d.measure].kind), Cell(d.p_value, "significant"), d.n),
        ]
        for d in results.dependence or ()
    ]
    columns = ["of", "on", "class", "measure", "value [interval]", "p", "n"]
    permutations = results.settings.permutations
    note = None if permutations is None else f"p-values come from {permutations} permutations."
    return [ResultTable("Dependence on the sensitive attribute", columns, rows, note, left=4)] if rows else []


def representation_tables(results: AuditResults) -> Tables:
    """Return a table of HSIC and KCC of each space with the target and the sensitive attribute."""
    rows: list[list[Content]] = []
    for row in results.representation or ():
        for name, figure in REPRESENTATION.items():
            tested: Tested | None = getattr(row, name)
            if tested is not None:
                p_value = Cell(tested.p_value, "significant")
                space = [EMBEDDINGS[row.stage], row.space]
                rows.append([*space, figure.label, _cell(tested, figure.kind), p_value])
    columns = ["embeddings", "space", "measure", "value [interval]", "p"]
    return [ResultTable("Representation quality", columns, rows, left=3)] if rows else []


def wording_tables(results: AuditResults) -> Tables:
    """Return a table of zero-shot figures for other wordings of the prompts."""
    section = results.wording
    if section is None or not section.templates:
        return []
    average, worst, eod = (FIGURES[name] for name in ("average", "worst_group", "eod"))
    rows: list[list[Content]] = [
        [
            f"{template.template}{' (used)' if i == section.used else ''}",
            *(_cell(template.average, average.kind), _cell(template.worst_group, worst.kind)),
            *(template.worst_name, _cell(template.eod, eod.column_kind)),
        ]
        for i, template in enumerate(section.templates)
    ]
    columns = ["template", average.column, worst.column, "in", eod.column]
    note = f"Zero-shot with the prompts worded by each template, on the {section.split} split."
    return [ResultTable("Zero-shot over wordings of the prompts [interval]", columns, rows, note)]


def first_table(results: AuditResults) -> Tables:
    """Return the table that belongs to the answer: groups, or else free queries or rankings; none without labels."""
    answered = (
        results.queries is not None and results.queries.mean is not None and results.queries.mean.change
    )
    queries, rankings = query_tables(results, SHOWN), ranking_tables(results, ("max_skew",))
    first = [*queries, *rankings] if answered else [*rankings, *queries]
    return [*accuracy_tables(results), *first][:1]


def overview(results: AuditResults) -> Tables:
    """Return the tables that are printed on a terminal."""
    return [
        *accuracy_tables(results),
        *auc_tables(results),
        *ranking_tables(results, OVERVIEW),
        *query_tables(results, SHOWN),
        *probe_tables(results),
        *dependence_tables(results),
        *representation_tables(results),
        *wording_tables(results),
    ]
