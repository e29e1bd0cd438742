"""The verdict on what an audit found: a few sentences, harms before gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairerclip.auditing.findings import Finding, find

CHANGES = ("price", "prompt price", "change", "retrieval change")
"""Topics of findings that are harms where they are problems."""
MOST_HARMS = 2
"""How many of them the verdict repeats."""
NO_MODEL = "No mitigated model was looked at; `--mitigate` fits one, `--after MODEL` shows a fitted one."
NOTHING_BEFORE = "There is no zero-shot ranking or classifier to compare the model with."


def judge(results: Mapping[str, Any], notes: Sequence[str] = ()) -> dict[str, Any]:
    """The verdict and all findings, the most serious first; ``notes`` are added as they are."""
    found = [*find(results), *(Finding("note", "note", note) for note in notes)]
    return {
        "verdict": _verdict(found, NO_MODEL if results["model"] is None else NOTHING_BEFORE),
        "findings": [{"level": finding.level, "text": finding.text} for finding in found],
    }


def _verdict(found: list[Finding], unchanged: str) -> list[str]:
    """How it is, who is worse off after mitigation, what it did to the headline figure, and what to mind.

    ``unchanged`` is said where there is no change to tell of.
    """

    def first(*topics: str) -> Finding | None:
        return next((finding for topic in topics for finding in found if finding.topic == topic), None)

    state, change = first("state", "retrieval"), first("change", "retrieval change")
    harms = [f for f in found if f.level == "problem" and f.topic in CHANGES and f is not change][:MOST_HARMS]
    told = [finding for finding in (state, change, *harms) if finding]
    rest = [f for f in found if f not in told]
    after = [f for f in rest if f.level == "problem" and f.topic == "opportunity after"]
    seen = [f for f in rest if f.topic == "seen"]
    mind = [*seen, *after, *(f for f in rest if f.level == "caution")]
    return [
        state.text if state else "There are no labelled rows to judge by.",
        *(harm.text for harm in harms),
        change.text if change else unchanged,
        mind[0].text if mind else "This is one data set, and one way of splitting it.",
    ]
