"""The recommendation of an audit: the few findings to read first, harms before gains."""

from __future__ import annotations

from dataclasses import dataclass

from fairerclip.auditing.findings import find
from fairerclip.auditing.results import AuditResults, Finding
from fairerclip.auditing.topical import Topic

HARMS: tuple[Topic, ...] = ("harm", "prompt harm", "query harm", "change", "retrieval change", "query change")
"""Topics whose findings are harms if their level is "problem"."""
MOST_HARMS = 2
"""How many harms a recommendation repeats."""
NO_STATE = "There are no labelled rows to judge by."
NO_MODEL = (
    "No mitigated model was audited: `--mitigate` fits one, `--after MODEL` or `model=` takes a fitted one."
)
NOTHING_BEFORE = "There is no zero-shot ranking or classifier to compare the model with."
NO_LIMIT = "The figures are of one data set and one way of splitting it."


@dataclass(frozen=True)
class Recommendation:
    """The findings that a decision rests on, each with its level; None where there is no such finding.

    Attributes
    ----------
    state : Finding or None
        How zero-shot treats groups; without zero-shot, how the model does.
    harms : tuple of Finding
        Groups and prompts that are worse off after mitigation, beyond ``change``.
    change : Finding or None
        Effect of mitigation on the worst group or on rankings: "good" if it clearly helped, "problem" if it clearly
        harmed, "caution" or "note" if neither is clear or zero-shot was kept.
    mind : Finding or None
        The most serious limit of the other findings.
    unchanged : str
        Sentence for results without a ``change``.
    queries : Finding or None
        Effect of mitigation on free queries; without mitigation, their state.
    """

    state: Finding | None
    harms: tuple[Finding, ...]
    change: Finding | None
    mind: Finding | None
    unchanged: str
    queries: Finding | None = None

    @property
    def sentences(self) -> tuple[str, ...]:
        """The verdict: state, harms, change, and the most serious limit, a sentence or two each."""
        return (
            self.state.text if self.state else NO_STATE,
            *(harm.text for harm in self.harms),
            self.change.text if self.change else self.unchanged,
            *([self.queries.text] if self.queries else []),
            self.mind.text if self.mind else NO_LIMIT,
        )


def recommend(results: AuditResults) -> Recommendation:
    """Select the findings to read first from the sections of results; ``verdict`` and ``findings`` are not read."""
    findings = find(results)

    def first(*topics: Topic) -> Finding | None:
        return next((f.finding for topic in topics for f in findings if f.topic == topic), None)

    state, change = first("state", "retrieval"), first("change", "retrieval change")
    queries = first("query change", "queries")
    problems = [f for f in findings if f.level == "problem" and f.finding not in (change, queries)]
    harms = tuple(f.finding for f in problems if f.topic in HARMS)[:MOST_HARMS]
    after = [f.finding for f in problems if f.topic == "opportunity after"]
    seen = [f.finding for f in findings if f.topic == "rows seen before"]
    cautions = [f.finding for f in findings if f.level == "caution" and f.finding is not change]
    return Recommendation(
        state,
        harms,
        change,
        next(iter([*seen, *after, *cautions]), None),
        NO_MODEL if results.model is None else NOTHING_BEFORE,
        queries,
    )
