"""Accuracy by group before and after mitigation, and the spread of its figures over seeds."""

from __future__ import annotations

from typing import Any

from fairerclip.applying.apply import AnyModel
from fairerclip.auditing.group_results import GroupsSection, SeedsSection
from fairerclip.auditing.model_results import Labels
from fairerclip.data import Split
from fairerclip.experiment import Experiment
from fairerclip.metrics import seed_spread
from fairerclip.model.estimator import FairerCLIP


def groups_section(
    experiment: Experiment,
    split: Split,
    model: AnyModel | None,
    *,
    labels: Labels | None,
    seeds: int,
    confidence: float,
) -> GroupsSection:
    """Measure accuracy by group of zero-shot (if there are prompts) and of a model (if there is one).

    If ``labels`` is not None, the model was fitted here with these labels, and is fitted again with other seeds until
    there are ``seeds`` fits.
    """
    before = None if experiment.text is None else experiment.zero_shot(split)
    after = None if model is None else model.predict(split.X)
    stages: dict[str, Any] = {}
    if before is not None and after is not None:
        stages = experiment.paired_report(split, before, after, confidence).as_dict()
    elif before is not None:
        stages["before"] = experiment.report(split, before, confidence).as_dict()
    elif after is not None:
        stages["after"] = experiment.report(split, after, confidence).as_dict()
    if isinstance(model, FairerCLIP) and labels is not None and seeds > 1:
        stages["seeds"] = _seeds(experiment, split, model, labels, seeds)
    return GroupsSection.model_validate(stages)


def _seeds(
    experiment: Experiment, split: Split, first: FairerCLIP, labels: Labels, seeds: int
) -> SeedsSection:
    """Fit the chosen model again with other seeds and measure the spread of its figures on the same rows."""
    reports = [experiment.report(split, first.predict(split.X))]
    for seed in range(1, seeds):
        other = FairerCLIP(**{**first.get_params(), "random_state": (first.random_state or 0) + seed})
        other = experiment.fit(other, labels).at(offsets=first.offsets_)  # a fit alone has no learned offsets
        reports.append(experiment.report(split, other.predict(split.X)))
    figures = [spread.as_dict() for spread in seed_spread(reports)]
    return SeedsSection.model_validate({"n": len(reports), "figures": figures})
