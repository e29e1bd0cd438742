"""A finding with its topic, and the parts that sentences of all findings share."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Literal, NamedTuple, TypeVar

from fairerclip._util.numbers import change
from fairerclip.auditing.finding_results import Finding, Level
from fairerclip.auditing.group_results import MeasuredChange
from fairerclip.auditing.query_results import FreeQuery
from fairerclip.auditing.results import RetrievalQuery

Ranked = TypeVar("Ranked", RetrievalQuery, FreeQuery)

SKEW_LIMIT = 0.05
"""A MaxSkew is called a problem if its whole interval lies above this (5 % more than the group's share)."""
MAX_LISTED = 3
"""How many groups or prompts a sentence lists."""
Topic = Literal[
    "state",
    "opportunity",
    "harm",
    "gain",
    "change",
    "opportunity after",
    "retrieval",
    "prompt harm",
    "prompt gain",
    "retrieval change",
    "queries",
    "query harm",
    "query gain",
    "query change",
    "rows seen before",
    "other",
]
"""What a finding is about; a recommendation selects findings by it."""


class Topical(NamedTuple):
    """A finding and what it is about."""

    topic: Topic
    finding: Finding

    @property
    def level(self) -> Level:
        """How serious it is."""
        return self.finding.level


def topical(level: Level, topic: Topic, text: str) -> Topical:
    """Return a finding with its topic."""
    return Topical(topic, Finding(level=level, text=text))


def signed_change(delta: MeasuredChange) -> str:
    """Format a change of MaxSkew with its interval."""
    return change(delta.difference, delta.low, delta.high, "signed")


def above(value: float | None, limit: float) -> bool:
    """Return whether a value is known and above a limit."""
    return value is not None and value > limit


def below(value: float | None, limit: float) -> bool:
    """Return whether a value is known and below a limit."""
    return value is not None and value < limit


def listed(items: Sequence[str]) -> str:
    """Return the first items, and the number of the others."""
    more = f" and {len(items) - MAX_LISTED} more" if len(items) > MAX_LISTED else ""
    return ", ".join(items[:MAX_LISTED]) + more


def fallen_and_risen(changes: Sequence[tuple[float, str]]) -> tuple[list[str], list[str]]:
    """Return the texts of negative changes and those of positive changes, largest change first."""
    ranked = sorted(changes, key=lambda change: -abs(change[0]))
    return [text for value, text in ranked if value < 0], [text for value, text in ranked if value > 0]


def most_skewed(queries: Sequence[Ranked]) -> Ranked | None:
    """Return the query with the largest MaxSkew before mitigation; None if no query was ranked before."""

    def skew(query: Ranked) -> float:
        measured = None if query.before is None else query.before.max_skew
        return -inf if measured is None or measured.value is None else measured.value

    return max((query for query in queries if query.before is not None), key=skew, default=None)


def favoured(counts: Sequence[float], k: int, shares: Sequence[float]) -> tuple[int, float]:
    """Return the group that is most over-represented among k results, and its share of them."""
    parts = [n / k if k else 0.0 for n in counts]
    ratios = [part / share if share else 0.0 for part, share in zip(parts, shares, strict=True)]
    top = max(range(len(ratios)), key=ratios.__getitem__)
    return top, parts[top]
