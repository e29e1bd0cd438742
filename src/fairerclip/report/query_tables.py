"""Functions that turn the results on free queries into tables, for Markdown, the card and the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from fairerclip._util.numbers import Kind
from fairerclip.auditing.group_results import Measured, MeasuredChange
from fairerclip.auditing.query_results import FreeQuery, QueriesMean, QueriesSection
from fairerclip.auditing.results import AuditResults
from fairerclip.metrics.names import DRIFT, RETRIEVAL
from fairerclip.report.phrases import stage_names
from fairerclip.report.result_table import Cell, Content, ResultTable

SHOWN = 10
"""Number of queries that a terminal lists besides those whose skew rises."""
PRECISION = "Average precision inside groups"
LOW = "Rank correlation inside groups, 5th percentile"


def ordered_queries(section: QueriesSection) -> list[FreeQuery]:
    """Return the queries by what changed most: the largest fall of MaxSkew first; before mitigation by MaxSkew."""
    if any(query.change is not None for query in section.queries):
        return sorted(section.queries, key=lambda q: (q.about is not None, _difference(q)))
    return sorted(section.queries, key=lambda q: (q.about is not None, -(q.before.max_skew.value or 0.0)))


def rises(section: QueriesSection) -> list[FreeQuery]:
    """Return the queries whose MaxSkew rises, largest rise first."""
    risen = [query for query in section.queries if _difference(query) > 0]
    return sorted(risen, key=lambda query: -_difference(query))


def _difference(query: FreeQuery) -> float:
    return 0.0 if query.change is None or query.change.difference is None else query.change.difference


def remark(query: FreeQuery) -> str:
    """Return what to mind about a query: a rise of its skew, or that it is about S and is not mitigated."""
    if query.about is not None:
        return f"about {query.about}" + ("" if query.after is None else ": not mitigated")
    if _difference(query) > 0:
        return "more skew" if query.clear else "more skew, not clear"
    return ""


def query_tables(results: AuditResults, most: int | None = None) -> list[ResultTable]:
    """Return a table of means over free queries and a table of the queries.

    With ``most``, only as many queries are listed, and before them every query whose MaxSkew clearly rises.
    """
    section = results.queries
    if section is None:
        return []
    means = [_means(results, section, section.mean)] if section.mean else []
    chosen = ordered_queries(section)
    note = "The largest fall of MaxSkew comes first." if _compared(section) else None
    if most is not None and len(chosen) > most:
        chosen, note = _first(section, chosen, most)
    return [*means, _queries(results, section, chosen, note)]


def _first(section: QueriesSection, ordered: Sequence[FreeQuery], most: int) -> tuple[list[FreeQuery], str]:
    """Return the queries whose MaxSkew clearly rises and the first of the others, and a sentence on the rest."""
    risen = rises(section)
    harmed = [query for query in risen if query.clear]
    chosen = [*harmed, *[query for query in ordered if query not in harmed][:most]]
    listed = f"{len(chosen)} of {len(section.queries)} queries"
    if not _compared(section):
        return chosen, f"{listed}, the most skewed ones."
    before = f"{len(harmed)} whose MaxSkew clearly rises, then " if harmed else ""
    return chosen, f"{listed}: {before}the largest falls. In all, MaxSkew rises for {len(risen)} queries."


def _compared(section: QueriesSection) -> bool:
    return any(query.after is not None for query in section.queries)


def _means(results: AuditResults, section: QueriesSection, mean: QueriesMean) -> ResultTable:
    skew, compared = RETRIEVAL["max_skew"], _compared(section)
    rows: list[list[Content]] = [
        [
            f"{skew.label}@{section.k}",
            _estimate(mean.before),
            *([_estimate(mean.after), _signed(mean.change)] if compared else []),
        ]
    ]
    if compared:
        inside = DRIFT["spearman_within"]
        rows += [
            [inside.label, None, _estimate(mean.correlation), None],
            [LOW, None, Cell(mean.low_correlation, "number"), None],
            [DRIFT["overlap"].label, None, _estimate(mean.kept, "percent"), None],
        ]
    precision = section.precision
    if precision is not None:
        values: list[Content] = [Cell(precision.before, "number")]
        values += [Cell(precision.after, "number"), _signed(precision)] if compared else []
        rows.append([f"{PRECISION}, class prompts", *values])
    names = stage_names(results)
    columns = ["figure", names["before"], *([names["after"], "change"] if compared else [])]
    title = f"Free queries: means over {mean.queries} [interval over queries]"
    return ResultTable(title, columns, rows)


def _queries(
    results: AuditResults, section: QueriesSection, queries: Sequence[FreeQuery], note: str | None
) -> ResultTable:
    names, compared = stage_names(results), _compared(section)
    rows: list[list[Content]] = []
    for query in queries:
        mind = remark(query)
        name = f"{query.prompt} ({mind})" if mind else query.prompt
        row: list[Content] = [name, _estimate(query.before.max_skew)]
        if compared:
            after = None if query.after is None else _estimate(query.after.max_skew)
            row += [
                after,
                _signed(query.change),
                Cell(query.correlation, "number"),
                Cell(query.kept, "percent"),
            ]
        rows.append(row)
    figures = ["change", DRIFT["spearman_within"].short, DRIFT["overlap"].short]
    columns = ["query", names["before"], *([names["after"], *figures] if compared else [])]
    title = (
        f"Free queries: {RETRIEVAL['max_skew'].label} of the top {section.k} of {section.n} rows [interval]"
    )
    return ResultTable(f"{title}. {note}" if note else title, columns, rows)


def _estimate(estimate: Measured | None, kind: Kind = "number") -> Content:
    return None if estimate is None else Cell(estimate.value, kind, estimate.low, estimate.high)


def _signed(change: MeasuredChange | None) -> Content:
    return None if change is None else Cell(change.difference, "signed", change.low, change.high)
