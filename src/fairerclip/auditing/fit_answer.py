"""The answer of a fit: the sentence and the recommendation of an audit, from what a fit measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairerclip.applying.apply import AnyModel
from fairerclip.auditing.advice import Evaluated, listed_in_words
from fairerclip.auditing.finding_results import Recommendation
from fairerclip.auditing.group_results import GroupsSection, MeasuredChange
from fairerclip.auditing.model_facts import MITIGATOR, ModelFacts, model_facts
from fairerclip.auditing.ranking_answer import Rankings, rankings_answer
from fairerclip.auditing.recommendation import answer
from fairerclip.auditing.sections.retrieval import retrieval_section
from fairerclip.experiment import Experiment
from fairerclip.metrics import GroupReport
from fairerclip.metrics.groups.paired import PairedReport

CONFIDENCE = 0.95


def named_reports(measured: PairedReport | GroupReport, name: str) -> dict[str, GroupReport]:
    """Return the reports of a comparison with zero-shot by name; without prompts there is that of the model only."""
    if isinstance(measured, GroupReport):
        return {name: measured}
    return {"zero-shot": measured.before, name: measured.after}


def classifier_answer(
    experiment: Experiment, model: AnyModel, measured: PairedReport | GroupReport | None, split: str
) -> Recommendation:
    """Return the answer for a classifier from its groups, or for rankings if ``measured`` is None."""
    tuned = (getattr(model, "diagnostics_", None) or {}).get("tuning")
    evaluated = Evaluated(model_facts(model), False, split, "val" if tuned else None)
    if measured is None:
        prompts = retrieval_section(experiment, split, model, None, seed=0, confidence=CONFIDENCE)
        return answer(evaluated, prompts=prompts)
    stages = measured.as_dict() if isinstance(measured, PairedReport) else {"after": measured.as_dict()}
    return answer(evaluated, groups=GroupsSection.model_validate(stages))


def mitigator_answer(rankings: Sequence[Any], split: str, *, chosen: bool) -> Recommendation:
    """Return the answer for a mitigator from its rankings (`AttributeRankings`), of the most skewed attribute.

    The labels of validation rows may be a part of its fit, and if ``chosen`` its strength was chosen on them; figures
    on these rows are no evidence. Attributes whose rankings become clearly less even are named.
    """
    facts = ModelFacts(MITIGATOR, None, None)
    evaluated = Evaluated(facts, False, split, "val", ("train",) if chosen else ("train", "val"))
    first = max(rankings, key=lambda row: row.before[0])
    difference, low, high = first.change
    change = MeasuredChange(
        before=first.before[0], after=first.after[0], difference=difference, low=low, high=high
    )
    skew = first.before[0], first.before[1]
    found = rankings_answer(evaluated, Rankings("query", first.queries, first.k, first.n, skew, change))
    if len(rankings) == 1:
        return found
    harmed = [row.attribute for row in rankings if row is not first and row.change[1] > 0]
    harm = f" Results are clearly less even for {listed_in_words(harmed)}." if harmed else ""
    return found.model_copy(update={"sentence": f"For {first.attribute}: {found.sentence}{harm}"})
