"""Details of a model for its file and its card, from the task that it was fitted on and its figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from fairerclip.data.coded_labels import count_pairs
from fairerclip.data.provenance import Provenance
from fairerclip.data.task_fields import UNNAMED
from fairerclip.experiment import Experiment, PromptSkew
from fairerclip.metrics import GroupReport
from fairerclip.metrics.names import FIGURES
from fairerclip.model.details import MAX_ENTRIES, GroupCount, ModelDetails, ModelMetric

if TYPE_CHECKING:
    from fairerclip.study.fit_mitigator import AttributeRankings

CONFIDENCE = 0.95
"""Confidence of the intervals of rankings."""
ROOM = 200_000
"""Most bytes of one list of texts or groups in a manifest; a longer one is left out."""


def details_of(
    experiment: Experiment,
    labels: str,
    split: str | None,
    reports: Mapping[str, GroupReport],
    skews: Sequence[PromptSkew] = (),
    rankings: Sequence[AttributeRankings] = (),
) -> ModelDetails:
    """Return what a fit on a task knows of its model.

    Parameters
    ----------
    experiment : Experiment
        The task.
    labels : str
        Labels that were used, one of `fairerclip.model.details.USED_LABELS`.
    split : str or None
        Rows of the figures.
    reports : mapping from str to GroupReport
        Reports of zero-shot, and of the model.
    skews, rankings : sequences
        Figures of rankings by the prompts of the task.
    """
    task = experiment.task
    prompts = dict(zip(task.class_names, task.target_prompts, strict=True))
    used = {name: task.sensitive[name] for name in experiment.sensitive}
    return ModelDetails(
        task=task.name,
        simulated=task.simulated,
        labels=labels,
        prompts=_texts({c: [prompts[c]] for c in experiment.classes} if task.text_target is not None else {}),
        sensitive=_texts({_name(name): list(values.names) for name, values in used.items()}),
        sensitive_prompts=_texts(
            {_name(name): list(values.prompts) for name, values in used.items() if values.text is not None}
        ),
        groups=_groups(experiment),
        provenance=_provenance(experiment),
        metrics=(
            *(m for name, report in reports.items() for m in _metrics(name, report, str(split))),
            *_skew_metrics(skews, str(split)),
            *(m for row in rankings for m in _ranking_metrics(row, str(split))),
        ),
    )


def _name(attribute: str) -> str:
    return "sensitive" if attribute == UNNAMED else attribute


def _groups(experiment: Experiment) -> tuple[GroupCount, ...]:
    if "train" not in experiment.task.splits:
        return ()
    split = experiment.task.train
    y, groups = experiment.target(split), experiment.groups(split)
    if y is None or groups is None:
        return ()
    counts = tuple(GroupCount(a, b, n) for (a, b), n in count_pairs(y, groups).items())
    return counts if len(counts) <= MAX_ENTRIES and _fits([asdict(group) for group in counts]) else ()


def _texts(given: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return texts by name; none where a manifest has no room for them."""
    short = max([len(given), *map(len, given.values())]) <= MAX_ENTRIES
    return dict(given) if short and _fits(given) else {}


def _fits(value: Any) -> bool:
    return len(json.dumps(value)) <= ROOM


def _provenance(experiment: Experiment) -> Provenance | None:
    """Return how the embeddings of a store were made, if it says so; a task file does not."""
    for split in experiment.task.splits.values():
        made = getattr(split.X, "provenance", None)
        if isinstance(made, Provenance):
            return made
    return None


def _metrics(name: str, report: GroupReport, split: str) -> list[ModelMetric]:
    stage, out = "before" if name == "zero-shot" else "after", []
    for figure in FIGURES:
        value: Any = getattr(report, figure)
        if value is not None:
            low, high = report.intervals.get(figure, (None, None))
            out.append(
                ModelMetric(
                    figure, stage, split, float(value), None, _plain(low), _plain(high), report.confidence
                )
            )
    return out


def _plain(value: Any) -> float | None:
    return None if value is None else float(value)


def _skew_metrics(skews: Sequence[PromptSkew], split: str) -> list[ModelMetric]:
    if not skews:
        return []
    name = f"max_skew@{skews[0].k}"
    return [
        ModelMetric(name, stage, split, float(np.mean([getattr(skew, stage) for skew in skews])))
        for stage in ("before", "after")
    ]


def _ranking_metrics(row: AttributeRankings, split: str) -> list[ModelMetric]:
    out = []
    for stage in ("before", "after"):
        value, low, high = (float(number) for number in getattr(row, stage))
        out.append(
            ModelMetric(f"max_skew@{row.k}", stage, split, value, _name(row.attribute), low, high, CONFIDENCE)
        )
    return out
