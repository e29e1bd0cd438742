"""The answer of an audit on rankings by class prompts or by free queries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from fairerclip._util.numbers import worded
from fairerclip.auditing.advice import (
    GIVE_LABELS,
    MITIGATE,
    Evaluated,
    keep,
    listed_in_words,
    rows_to_collect,
    use,
)
from fairerclip.auditing.finding_results import Recommendation
from fairerclip.auditing.group_results import Measured, MeasuredChange
from fairerclip.auditing.model_facts import subject
from fairerclip.auditing.query_results import FreeQuery, QueriesMean, QueriesSection
from fairerclip.auditing.results import RetrievalQuery, RetrievalSection
from fairerclip.auditing.topical import SKEW_LIMIT, above, below, favoured, most_skewed

FEWEST_QUERIES = 6
"""Fewest free queries to judge by: five move the same way by chance alone in 1 of 16 cases."""
MOST_TIMES = 100
"""Where more than this many times the rows were needed, their number is not given."""
KEEP_RANKING = "Keep the ranking as it is"
NO_RANKING = "Audit again with a model that answers these queries: only the rankings before it were measured."
NO_SKEW = "Too few rows are known to say who is shown too often."


class Rankings(NamedTuple):
    """What the answer needs to know of the rankings by prompts or by free queries.

    ``skew`` is the mean MaxSkew before and the lower end of its interval, ``change`` that of the mean, and ``moved``
    are the rankings that changed clearly, if each was tested. ``example`` is on the ranking that is most skewed before.
    Intervals of the means are over rows for prompts, and over queries for free queries.
    """

    noun: str
    total: int
    k: int
    rows: int
    skew: tuple[float | None, float | None]
    change: MeasuredChange | None
    moved: list[tuple[str, MeasuredChange]] | None = None
    example: str | None = None


def class_prompts(section: RetrievalSection, skew: Measured) -> Rankings:
    """Return the rankings by class prompts, with their mean MaxSkew before."""
    changes = section.mean.changes
    tested = [query for query in section.queries if query.clear is not None]
    clear = [(query.name, query.changes.max_skew) for query in tested if query.clear and query.changes]
    return Rankings(
        "prompt",
        len(section.queries),
        section.k,
        section.n,
        (skew.value, skew.low),
        None if changes is None else changes.max_skew,
        [(name, change) for name, change in clear if change] if tested else None,
        _example(section, most_skewed(section.queries)),
    )


def free_queries(section: QueriesSection, mean: QueriesMean) -> Rankings:
    """Return the rankings by the free queries that are not about S."""
    asked = [query for query in section.queries if query.about is None]
    return Rankings(
        "query",
        mean.queries,
        section.k,
        section.n,
        (mean.before.value, mean.before.low),
        mean.change,
        [(query.prompt, query.change) for query in asked if query.clear and query.change],
        _example(section, most_skewed(asked)),
    )


def _example(
    section: RetrievalSection | QueriesSection, query: RetrievalQuery | FreeQuery | None
) -> str | None:
    """Return the shares of the most favoured group of one ranking: before, after, and of all rows."""
    if query is None or query.before is None or not section.k or not section.groups:
        return None
    name = query.prompt if isinstance(query, FreeQuery) else query.name
    top, share = favoured(query.before.counts, section.k, section.shares)
    group, expected = section.groups[top], worded(section.shares[top])
    if query.after is None:
        return f"for “{name}”, {group} has {worded(share)} of the results and {expected} of all rows"
    shown = worded(query.after.counts[top] / section.k)
    return f"for “{name}”, {group} has {shown} of the results instead of {worded(share)} ({expected} of all rows)"


def _excess(skew: float | None) -> str:
    """Return by how much a group is shown more often than its share: MaxSkew is the logarithm of the ratio."""
    return worded(None if skew is None else math.expm1(skew))


def _counted(number: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def rankings_answer(evaluated: Evaluated, rankings: Rankings) -> Recommendation:
    """Return one sentence and one recommendation from rankings."""
    noun, delta, moved = rankings.noun, rankings.change, rankings.moved
    place = f"(first {rankings.k} results, mean of {_counted(rankings.total, noun)})"
    end = "." if rankings.example is None else f"; {rankings.example}."
    if delta is None or delta.difference is None or evaluated.kept:
        return _one_ranking(evaluated, rankings, f"{place}{end}")
    ranked = sorted(moved or (), key=lambda item: -abs(item[1].difference or 0.0))
    better = tuple(name for name, delta in ranked if below(delta.difference, 0))
    worse = tuple(name for name, delta in ranked if above(delta.difference, 0))
    quoted = [f"“{name}”" for name in worse]
    less = listed_in_words(quoted) if quoted else "none"
    counts = f"; {_counted(len(better), noun)} clearly more even, {less} less even"
    sentence = (
        f"With {subject(evaluated.model)} the most over-represented group appears {_excess(delta.after)} too often "
        f"instead of {_excess(delta.before)} {place}{'' if moved is None else counts}{end}"
    )
    advice = _ranking_advice(evaluated, rankings, delta, quoted)
    return advice.model_copy(update={"sentence": sentence, "better": better, "worse": worse})


def _one_ranking(evaluated: Evaluated, rankings: Rankings, place: str) -> Recommendation:
    """Return the answer where only the rankings before are known, or no others exist."""
    value, low = rankings.skew
    sentence = (
        NO_SKEW
        if value is None
        else f"The most over-represented group appears {_excess(value)} too often {place}"
    )
    if evaluated.kept:
        return keep(f"{KEEP_RANKING}. {evaluated.why_kept}").model_copy(update={"sentence": sentence})
    if value is None:
        return Recommendation(action="label", sentence=sentence, advice=GIVE_LABELS)
    if evaluated.model is not None:
        return Recommendation(action="compare", sentence=sentence, advice=NO_RANKING)
    if above(low, SKEW_LIMIT):
        return Recommendation(action="mitigate", sentence=sentence, advice=MITIGATE)
    chance = "no group is clearly shown too often"
    return keep(f"{KEEP_RANKING}: {chance}").model_copy(update={"sentence": sentence})


def _ranking_advice(
    evaluated: Evaluated, rankings: Rankings, delta: MeasuredChange, worse: Sequence[str]
) -> Recommendation:
    who, by_rows = subject(evaluated.model), rankings.noun == "prompt"
    if not by_rows and rankings.total < FEWEST_QUERIES:
        more = FEWEST_QUERIES - rankings.total
        few = f"{rankings.total} {'is' if rankings.total == 1 else 'are'} too few to judge by"
        text = f"{KEEP_RANKING} for now, and ask at least {_counted(more, 'more query')}: {few}."
        return Recommendation(action="collect", sentence="", advice=text)
    if below(delta.high, 0):
        return use(evaluated, worse, "less even results")
    if above(delta.low, 0):
        return keep(f"{KEEP_RANKING}: {who} makes it clearly less even")
    n = rankings.rows if by_rows else rankings.total
    more = rows_to_collect(n, delta.low, delta.high)
    if not more:
        return keep(f"{KEEP_RANKING}: {who} does not clearly change it")
    # The interval of a prompt narrows with the number of results, which therefore has to grow with the rows.
    k = round(rankings.k * (n + more) / n)
    what = f"ask about {more} more queries"
    if by_rows:
        what = f"collect about {more} more rows (now {n}) and compare the first {k} results"
    text = f"{KEEP_RANKING} for now, and {what}: the change may be chance."
    if more > MOST_TIMES * n:
        text = f"{KEEP_RANKING}: {_counted(n, 'row' if by_rows else 'query')} are far too few to measure a change."
    return Recommendation(action="collect", sentence="", advice=text, rows=more if by_rows else None)
