"""What an audit comes to: the few findings to read first, harms before gains."""

from __future__ import annotations

from dataclasses import dataclass

from fairerclip.auditing.findings import Topic, find
from fairerclip.auditing.results import AuditResults, Finding

HARMS: tuple[Topic, ...] = ("price", "prompt price", "change", "retrieval change")
"""Topics of findings that are harms where they are problems."""
MOST_HARMS = 2
"""How many of them are repeated."""
NO_STATE = "There are no labelled rows to judge by."
NO_MODEL = "No mitigated model was looked at; `--mitigate` fits one, `--after MODEL` shows a fitted one."
NOTHING_BEFORE = "There is no zero-shot ranking or classifier to compare the model with."
NOTHING_TO_MIND = "This is one data set, and one way of splitting it."


@dataclass(frozen=True)
class Recommendation:
    """The findings that a decision rests on, each with its level; None where there is none of a kind.

    Attributes
    ----------
    state : how zero-shot, or a model without it, treats groups.
    harms : who is worse off after mitigation, beyond ``change``.
    change : what mitigation did to the worst group, or to rankings: "good" where it clearly helped, "problem" where
        it clearly harmed, "caution" or "note" where nothing is clear or zero-shot was kept.
    mind : what limits the others most.
    unchanged : what is said where there is no ``change``.
    """

    state: Finding | None
    harms: tuple[Finding, ...]
    change: Finding | None
    mind: Finding | None
    unchanged: str

    @property
    def sentences(self) -> tuple[str, ...]:
        """The verdict of results: how it is, who pays, what is gained, and what to mind."""
        return (
            self.state.text if self.state else NO_STATE,
            *(harm.text for harm in self.harms),
            self.change.text if self.change else self.unchanged,
            self.mind.text if self.mind else NOTHING_TO_MIND,
        )


def recommend(results: AuditResults) -> Recommendation:
    """Return what the sections of results come to; their ``verdict`` and ``findings`` are not read."""
    found = find(results)

    def first(*topics: Topic) -> Finding | None:
        return next((f.finding for topic in topics for f in found if f.topic == topic), None)

    state, change = first("state", "retrieval"), first("change", "retrieval change")
    problems = [f for f in found if f.level == "problem" and f.finding is not change]
    harms = tuple(f.finding for f in problems if f.topic in HARMS)[:MOST_HARMS]
    after = [f.finding for f in problems if f.topic == "opportunity after"]
    seen = [f.finding for f in found if f.topic == "rows seen before"]
    cautions = [f.finding for f in found if f.level == "caution" and f.finding is not change]
    return Recommendation(
        state,
        harms,
        change,
        next(iter([*seen, *after, *cautions]), None),
        NO_MODEL if results.model is None else NOTHING_BEFORE,
    )
