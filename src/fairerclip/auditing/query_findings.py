"""Findings on free queries, and on the rows that a mitigator was fitted on."""

from __future__ import annotations

from collections.abc import Iterator

from fairerclip._util.numbers import number, with_interval, worded
from fairerclip.auditing.finding_results import Level
from fairerclip.auditing.model_facts import subject
from fairerclip.auditing.query_results import FreeQuery, QueriesSection, QueryTop
from fairerclip.auditing.results import AuditResults
from fairerclip.auditing.topical import (
    SKEW_LIMIT,
    Topical,
    above,
    below,
    fallen_and_risen,
    favoured,
    listed,
    signed_change,
    topical,
)


def query_findings(results: AuditResults) -> Iterator[Topical]:
    """Yield findings on the free queries: before, the change, harms, gains, what is left, and queries about S."""
    section = results.queries
    if section is None:
        return
    yield from _before(section)
    if results.model is not None:
        yield from _after(section, subject(results.model))
    yield from _about(section)


def drift_findings(results: AuditResults) -> Iterator[Topical]:
    """Yield a caution for each difference between the rows of a mitigator's fit and the audited rows."""
    mitigator = None if results.model is None else results.model.mitigator
    for message in () if mitigator is None else mitigator.drift:
        yield topical("caution", "other", f"{message[:1].upper()}{message[1:]}.")


def _is_answered(section: QueriesSection) -> bool:
    return any(query.after is not None for query in section.queries)


def _before(section: QueriesSection) -> Iterator[Topical]:
    mean, mitigable = section.mean, _mitigable(section)
    if mean is None or not mitigable:
        return
    skew = mean.before
    worst = max(mitigable, key=lambda query: query.before.max_skew.value or 0.0)
    yield topical(
        "problem" if above(skew.low, SKEW_LIMIT) else "note",
        "queries",
        f"In the top {section.k} results of {mean.queries} free queries, the most over-represented group has MaxSkew "
        f"{with_interval(skew.value, skew.low, skew.high, 'number')} on average over the queries before mitigation. It "
        f"is largest for {_composition(section, worst, worst.before)}.",
    )


def _mitigable(section: QueriesSection) -> list[FreeQuery]:
    """Return the queries that are not about S."""
    return [query for query in section.queries if query.about is None]


def _composition(section: QueriesSection, query: FreeQuery, top: QueryTop) -> str:
    group, share = favoured(top.counts, section.k, section.shares)
    return (
        f"“{query.prompt}”, where {section.groups[group]} makes up {worded(share)} of the results and "
        f"{worded(section.shares[group])} of all rows"
    )


def _after(section: QueriesSection, who: str) -> Iterator[Topical]:
    mean = section.mean
    if not _is_answered(section):
        yield topical(
            "note",
            "other",
            f"{who[:1].upper()}{who[1:]} answers the prompts that it was fitted for, not free queries: these are "
            "measured before mitigation. An EmbeddingMitigator (`fairerclip fit --method embedding`) answers them.",
        )
        return
    yield from _by_query(section, who)
    if mean is None or mean.change is None:
        return
    delta, inside = mean.change, mean.correlation
    level: Level = "good" if below(delta.high, 0) else "problem" if above(delta.low, 0) else "note"
    verb = {"good": "falls", "problem": "rises"}.get(level, "does not clearly change: it goes")
    order = ""
    if inside is not None:
        order = (
            f"; inside groups the rank correlation with the original order is "
            f"{with_interval(inside.value, inside.low, inside.high, 'number')} on average, and its 5th percentile "
            f"{number(mean.low_correlation)}"
        )
    yield topical(
        level,
        "query change",
        f"With {who}, MaxSkew of the top {section.k} {verb} from {number(delta.before)} to {number(delta.after)} on "
        f"average over {mean.queries} free queries (change {signed_change(delta)}){order}.",
    )
    yield from _left(section)


def _by_query(section: QueriesSection, who: str) -> Iterator[Topical]:
    """List queries whose top results are clearly more skewed than before, and those clearly less skewed."""
    moved = [(query, query.change) for query in section.queries if query.clear and query.change]
    clear = [(delta.difference or 0.0, f"“{query.prompt}” {signed_change(delta)}") for query, delta in moved]
    less, more = fallen_and_risen(clear)
    total, figure = len(section.queries), f"MaxSkew of the top {section.k}"
    if more:
        text = f"{figure} clearly rises with {who} for {len(more)} of {total} free queries: {listed(more)}."
        yield topical("problem", "query harm", text)
    if less:
        text = f"{figure} clearly falls with {who} for {len(less)} of {total} free queries: {listed(less)}."
        yield topical("good", "query gain", text)


def _left(section: QueriesSection) -> Iterator[Topical]:
    """Name the query that is most skewed after mitigation."""
    known = [(query, query.after) for query in _mitigable(section) if query.after is not None]
    if not known:
        return
    query, top = max(known, key=lambda pair: pair[1].max_skew.value or 0.0)
    skew = top.max_skew
    yield topical(
        "caution" if above(skew.low, SKEW_LIMIT) else "note",
        "other",
        f"After mitigation the most skewed free query has MaxSkew "
        f"{with_interval(skew.value, skew.low, skew.high, 'number')}: {_composition(section, query, top)}.",
    )


def _about(section: QueriesSection) -> Iterator[Topical]:
    about = [query for query in section.queries if query.about is not None]
    if about:
        names = [f"“{query.prompt}” ({query.about})" for query in about]
        asks, it, stays = ("asks", "it", "it is") if len(about) == 1 else ("ask", "them", "they are")
        yield topical(
            "note",
            "other",
            f"{len(about)} of {len(section.queries)} free queries {asks} for a sensitive attribute: {listed(names)}. "
            f"A mitigator leaves {it} as {stays}, and means leave {it} out.",
        )
    if section.total > len(section.queries):
        yield topical(
            "note",
            "other",
            f"{len(section.queries)} of the {section.total} free queries were measured, evenly spaced.",
        )
