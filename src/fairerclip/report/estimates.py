"""Estimates out of the results of an audit, and as text: the same for the page, the terminal, Markdown and drawings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairerclip._util.numbers import NOTHING, change, significant, with_interval
from fairerclip.auditing.model_facts import after_name
from fairerclip.auditing.results import ModelSection

STAGES = {"before": "zero-shot", "after": "FairerCLIP"}
"""What predicts at each stage, as a rule; `stage_names` knows what the model of some results is."""
EMBEDDINGS = {"before": "image embeddings", "after": "mitigated embeddings"}
"""Whose embeddings they are at each stage."""


def stage_names(results: Mapping[str, Any]) -> dict[str, str]:
    """Headings of before and after: what the model really is, which may be a zero-shot classifier that was kept."""
    return {**STAGES, "after": after_name(typed_model(results["model"]))}


def typed_model(model: Mapping[str, Any] | None) -> ModelSection | None:
    """The model's section of untyped results."""
    return None if model is None else ModelSection.model_validate(model)


def stages(part: Mapping[str, Any] | None) -> list[str]:
    """Which of before and after there are."""
    return [stage for stage in STAGES if part is not None and part[stage] is not None]


def estimate_of(report: Mapping[str, Any], figure: str) -> dict[str, Any]:
    """A group figure of a report with its interval."""
    value = report["worst"]["accuracy"] if figure == "worst_group" else report[figure]
    low, high = report["intervals"].get(figure, (None, None))
    return {"value": value, "low": low, "high": high}


def estimate(found: Mapping[str, Any] | None, kind: str = "percent", key: str = "value") -> str:
    """A figure with its unit and, as far as there is one, its interval.

    Examples
    --------
    >>> estimate({"value": 0.25, "low": 0.125, "high": 0.5}, "number"), estimate(None)
    ('0.250 [0.125, 0.500]', '–')
    """
    return NOTHING if found is None else with_interval(found[key], found["low"], found["high"], kind)


def difference(found: Mapping[str, Any] | None, kind: str = "points") -> str:
    """A change with its sign and its interval; one of shares is in points."""
    return NOTHING if found is None else change(found["difference"], found["low"], found["high"], kind)


def with_p_value(found: Mapping[str, Any] | None, kind: str) -> str:
    """A figure with its interval and, where there is one, its p-value."""
    if found is None:
        return NOTHING
    p_value = found.get("p_value")
    return estimate(found, kind) + ("" if p_value is None else f", p = {significant(p_value)}")
