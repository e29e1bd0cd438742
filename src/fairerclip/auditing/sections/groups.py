"""Accuracy by group, before and after, and how much of a figure is the luck of a seed."""

from __future__ import annotations

from typing import Any

from fairerclip.auditing.group_results import GroupsSection, SeedsSection
from fairerclip.auditing.results import Labels
from fairerclip.data import Split
from fairerclip.experiment import Experiment
from fairerclip.metrics import seed_spread
from fairerclip.model.estimator import FairerCLIP


def groups_section(
    experiment: Experiment,
    split: Split,
    model: FairerCLIP | None,
    *,
    labels: Labels | None,
    seeds: int,
    confidence: float,
) -> GroupsSection:
    """Accuracy by group of zero-shot and of a model, as far as there are both.

    A model that was fitted here with ``labels`` is fitted anew with other seeds where ``seeds`` asks for more.
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
    if model is not None and labels is not None and seeds > 1:
        stages["seeds"] = _seeds(experiment, split, model, labels, seeds)
    return GroupsSection.model_validate(stages)


def _seeds(
    experiment: Experiment, split: Split, first: FairerCLIP, labels: Labels, seeds: int
) -> SeedsSection:
    """The chosen point fitted anew with other seeds, evaluated on the same rows."""
    reports = [experiment.report(split, first.predict(split.X))]
    for seed in range(1, seeds):
        again = FairerCLIP(**{**first.get_params(), "random_state": (first.random_state or 0) + seed})
        experiment.fit(again, labels)
        reports.append(experiment.report(split, again.predict(split.X)))
    figures = [spread.as_dict() for spread in seed_spread(reports)]
    return SeedsSection.model_validate({"n": len(reports), "figures": figures})
