"""Words about results that every form shares, and results made fit to be shown."""

from __future__ import annotations

from fairerclip._util.numbers import significant
from fairerclip.auditing import model_facts
from fairerclip.auditing.group_results import Stage
from fairerclip.auditing.results import AuditResults, check_results
from fairerclip.report.clean_text import cleaned, with_short_names

ZERO_SHOT = "zero-shot"
EMBEDDINGS: dict[Stage, str] = {"before": "image embeddings", "after": "mitigated embeddings"}
"""Whose embeddings they are at each stage."""
SIMULATED = "The embeddings are simulated: these figures say nothing about any real model."
HOW_CHOSEN = {
    "expected worst group": "groups are judged by a posterior over their accuracies and not by raw shares, and "
    "held-out halves of the rows decide how far the search is trusted. It went over more than this plane (weights, "
    "kernel, ridge, zero-shot share, class offsets), so that another point of the plane may look better here",
    "shrunken_worst_group": "a few rows of the average are added to each group before groups are compared, so that one "
    "row does not decide",
}
"""How a point was chosen, by the name that the results give it; names that nobody knows are left as they are."""


def presentable(results: AuditResults) -> AuditResults:
    """Return results to be shown: text clean, long names shortened; commands as they came, to be judged.

    O(size of the results).
    """
    document = with_short_names(cleaned(results.model_dump(by_alias=True)))
    for name, section in (("plane", results.plane), ("model", results.model)):
        if section is not None:
            document[name]["command"] = section.command  # clean, it would hide what was hidden in it
    return check_results(document)


def stage_names(results: AuditResults) -> dict[Stage, str]:
    """Return headings of before and after: what the model really is, which may be a zero-shot classifier."""
    return {"before": ZERO_SHOT, "after": model_facts.after_name(results.model)}


def about_model(results: AuditResults) -> list[str]:
    """Return sentences on how the model came about; none without a model."""
    return [] if results.model is None else model_facts.about_model(results.model)


def is_learned(results: AuditResults) -> bool:
    """Return whether the model is more than a zero-shot classifier."""
    return results.model is not None and results.model.method in (None, "FairerCLIP")


def is_given(results: AuditResults) -> bool:
    """Return whether the model was given, so that only its file tells how it was fitted."""
    model = results.model
    return model is not None and (model.source == "given" or model.labels is None)


def versions(results: AuditResults) -> dict[str, str]:
    """Return versions of what made the results, by name."""
    return results.made.model_dump(by_alias=True, exclude={"date", "seconds"})


def confidence(results: AuditResults) -> str:
    """Return how sure the intervals are."""
    return f"{significant(100 * results.settings.confidence, 6)} %"


def how_chosen(results: AuditResults) -> str | None:
    """Return by what the point of the plane was chosen, and what that means; None where it was given."""
    plane = results.plane
    if plane is None or plane.chosen_by == "given":
        return None
    name = plane.chosen_by
    meaning = f": {HOW_CHOSEN[name]}" if name in HOW_CHOSEN else ""
    return f"by the {name.replace('_', ' ')} on the {plane.split} rows{meaning}"


def fewest_rows(results: AuditResults) -> int | None:
    """Return the rows of the smallest group that points of the plane are judged by, where these are few."""
    sizes = [group.n for group in results.plane.groups] if results.plane else []
    return min((n for n in sizes if n < results.settings.small), default=None)
