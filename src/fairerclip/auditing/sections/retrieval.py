"""Composition and skew of the top results of each prompt, before and after mitigation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import Floats
from fairerclip.applying.apply import AnyModel
from fairerclip.auditing.results import RetrievalSection
from fairerclip.data.store_rows import rows_in_memory
from fairerclip.experiment import UNKNOWN, Experiment
from fairerclip.metrics import retrieval_changes, retrieval_report
from fairerclip.metrics.retrieval.top_rows import default_cut


def class_columns(model: AnyModel, experiment: Experiment) -> list[int]:
    """Return the indices of the experiment's classes among the model's classes."""
    order = model.classes_.tolist()
    return [order.index(name) for name in experiment.classes]


def class_scores(
    experiment: Experiment, X: NDArray[Any], model: AnyModel | None
) -> tuple[Floats | None, Floats | None]:
    """Return the scores (n, c) of the classes before, None without prompts, and after, None without a model."""
    before = None if experiment.text is None else experiment.cosines(X)
    return before, None if model is None else model.scores(X)[:, class_columns(model, experiment)]


def retrieval_section(
    experiment: Experiment,
    split_name: str,
    model: AnyModel | None,
    k: int | None,
    *,
    pair: tuple[str, ...] | None = None,
    seed: int,
    confidence: float,
) -> RetrievalSection | None:
    """Measure composition and skew of the top k of every prompt; None without prompts or sensitive labels.

    If target labels are known, a row is relevant for the prompt of its class. Of rows on disk a sample is measured.
    Bias@k is that of ``pair``, by default of both groups where there are exactly two.
    """
    split = rows_in_memory(experiment.task.split(split_name))
    groups = experiment.groups(split)
    if groups is None or experiment.text is None:
        return None
    y = experiment.target(split)
    known = groups != UNKNOWN
    if y is not None and (y[known] != UNKNOWN).any():
        known &= y != UNKNOWN
    if not known.any():
        return None
    X = split.X[known]
    relevant = None if y is None else y[known][:, None] == np.array(experiment.classes)
    if relevant is not None and not relevant.any():
        relevant = None
    options: dict[str, Any] = {"relevant": relevant, "confidence": confidence, "random_state": seed}
    cut = default_cut(len(X)) if k is None else k
    values = np.unique(groups[known]).tolist()
    options["pair"] = tuple(values) if pair is None and len(values) == 2 else pair
    before, after = class_scores(experiment, X, model)
    if after is None:
        section = retrieval_report(before, groups[known], cut, **options).as_dict()
    else:
        section = retrieval_changes(before, after, groups[known], cut, **options).as_dict()
    prompts = dict(zip(experiment.task.class_names, experiment.task.target_prompts, strict=True))
    for name, query in zip(experiment.classes, section["queries"], strict=True):
        query |= {"name": name, "prompt": prompts[name]}
    return RetrievalSection.model_validate({"split": split_name, **section})
