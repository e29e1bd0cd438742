"""What an audit says in words, as frozen objects: its findings, and its answer."""

from __future__ import annotations

from typing import Literal

from fairerclip.auditing.validation import Count, Many, Part, Text

Level = Literal["problem", "good", "caution", "note"]
Action = Literal["use", "keep", "collect", "measure", "mitigate", "compare", "neither", "label"]
"""What to do: use the mitigated model, keep zero-shot, collect rows of a group, measure on other rows, fit a mitigated
model, compare the model with zero-shot, use neither of the two, or give labels."""


class Finding(Part):
    """A sentence about the results, and how serious it is."""

    level: Level
    text: Text


class Recommendation(Part):
    """The answer of an audit: ``sentence`` says what it shows, and ``advice`` what to do.

    ``better`` and ``worse`` are the names of the groups, prompts or queries that changed clearly, largest change first.
    ``rows`` is about the number of rows of ``group`` to collect, if more are needed.
    """

    action: Action
    sentence: Text
    advice: Text
    better: Many[Text] = ()
    worse: Many[Text] = ()
    group: Text | None = None
    rows: Count | None = None
