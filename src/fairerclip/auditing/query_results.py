"""Results of an audit about free queries, as frozen objects: the rankings of a gallery by text that is not a class."""

from __future__ import annotations

from typing import Any

from fairerclip.auditing.group_results import Measured, MeasuredChange, present_stages
from fairerclip.auditing.validation import (
    Boolean,
    ConsistentPart,
    Count,
    Many,
    Number,
    Part,
    Problems,
    Share,
    Text,
    same_length,
)


class QueryTop(Part):
    """Expected number of rows of each group in the top results of a query, and their MaxSkew."""

    counts: Many[Number]
    max_skew: Measured


class FreeQuery(Part):
    """The ranking by one free query, before and after mitigation.

    ``clear`` if MaxSkew changed significantly, corrected for the number of queries. ``correlation`` is the rank
    correlation with the original scores inside groups, mean over groups, and ``kept`` the share of the top results that
    stays. ``share`` is the largest share of the query in the span of the prompts of a sensitive attribute; ``about`` is
    that attribute if the query asks for it, so that it is not mitigated.
    """

    prompt: Text
    before: QueryTop
    after: QueryTop | None = None
    change: MeasuredChange | None = None
    clear: Boolean | None = None
    correlation: Number | None = None
    kept: Share | None = None
    share: Share | None = None
    about: Text | None = None


class QueriesMean(Part):
    """Means over the queries that are not about S, with intervals over queries.

    ``low_correlation`` is the 5th percentile of the rank correlations over queries and groups.
    """

    queries: Count
    before: Measured
    after: Measured | None = None
    change: MeasuredChange | None = None
    correlation: Measured | None = None
    low_correlation: Number | None = None
    kept: Measured | None = None


class QueriesSection(ConsistentPart):
    """The top ``k`` of ``n`` rows for each free query; ``total`` queries of the task, of which some may be left out.

    ``mean`` is None if every query is about S. ``precision`` is the average precision of the class prompts inside
    groups, mean over classes and groups, where target labels are known.
    """

    split: Text
    k: Count
    n: Count
    groups: Many[Text]
    shares: Many[Share]
    total: Count
    queries: Many[FreeQuery]
    mean: QueriesMean | None = None
    precision: MeasuredChange | None = None

    def problems(self) -> Problems:
        """Yield a problem for each list that has not one number per group."""
        yield from unequal_counts(self)


def unequal_counts(section: Any) -> Problems:
    """Yield a problem for each list of a section on rankings that has not one number per group."""
    yield from same_length("shares", section.shares, len(section.groups), "numbers")
    for i, query in enumerate(section.queries):
        for stage, ranked in present_stages(query).items():
            name = f"queries[{i}].{stage}.counts"
            yield from same_length(name, ranked.counts, len(section.groups), "numbers")
