"""The same zero-shot audit in other words: how much of a figure is the prompt's wording."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairerclip._util.types import Floats
from fairerclip.auditing.group_results import StageReport
from fairerclip.auditing.results import WordingSection, WordingTemplate
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.errors import NonFiniteError, ParameterError, ShapeError, ZeroRowError
from fairerclip.experiment import Experiment
from fairerclip.inputs.prompts import zero_shot
from fairerclip.metrics import GroupReport

OWN = "the task's own prompts"
"""Name of the wording that the task uses, where it is none of those given."""


SAME = 1e-5
"""Cosines that differ from 1 by less are those of the same prompt."""


def audit_wording(
    experiment: Experiment,
    split: str,
    texts: Floats,
    templates: Sequence[str],
    *,
    confidence: float = 0.95,
) -> WordingSection:
    """Zero-shot accuracy by group with each wording of the class prompts.

    O(n·p·c) time for each wording.

    Parameters
    ----------
    experiment : Experiment
        The chosen classes and sensitive attributes.
    split : str
        A split with target and sensitive labels.
    texts : array, shape (m, c, p)
        Prompt embeddings of all c classes of the task, in their order, in each wording.
    templates : sequence of m str
        What each wording is called.
    confidence : float, default=0.95
        Of the intervals.

    Returns
    -------
    WordingSection
        Where the wording that the task uses is none of these it is added in front, so that the others have something
        to be compared with.

    Examples
    --------
    >>> from fairerclip.data import simulate
    >>> task = simulate("waterbirds", scale=0.05, width=64)
    >>> found = audit_wording(Experiment.of(task), "test", task.variants.text, task.variants.templates)
    >>> [wording.template for wording in found.templates][:2], found.used
    (["the task's own prompts", 'wording 1 (simulated)'], 0)
    """
    given = _checked(experiment, texts, templates)
    names, own = list(templates), experiment.text
    used = None if own is None else _place(own, given)
    if own is not None and used is None:
        given, names, used = np.concatenate([own[None].astype(given.dtype), given]), [OWN, *names], 0
    rows = experiment.task.split(split)
    classes = np.array(experiment.classes)
    found = []
    for name, text in zip(names, given, strict=True):
        codes, _ = zero_shot(rows.X, [prompt[None] for prompt in text])
        found.append(_template(name, experiment.report(rows, classes[codes], confidence)))
    return WordingSection(split=split, templates=tuple(found), used=used)


def _template(name: str, report: GroupReport) -> WordingTemplate:
    stage = StageReport.model_validate(report.as_dict())
    return WordingTemplate(
        template=name,
        average=stage.estimate("average"),
        worst_group=stage.estimate("worst_group"),
        worst_name=report.worst.name,
        eod=None if report.eod is None else stage.estimate("eod"),
    )


def _checked(experiment: Experiment, texts: Floats, templates: Sequence[str]) -> Floats:
    """Texts (m, c, p) of the chosen classes."""
    given, task = np.asarray(texts), experiment.task
    if given.dtype.kind != "f" or given.ndim != 3 or given.shape[1:] != (task.n_classes, task.width):
        raise ShapeError(
            f"wordings must be floats (m, {task.n_classes}, {task.width}), one row for each class of {task.name}; "
            f"got {given.dtype} of shape {given.shape}"
        )
    if not len(given) or len(given) != len(templates):
        raise ParameterError(
            f"expected a template for each of the wordings, at least one; got {len(templates)} for {len(given)}"
        )
    if not np.isfinite(given).all():
        raise NonFiniteError("wordings hold NaN or infinity; embed their prompts again")
    if not given.any(axis=2).all():
        raise ZeroRowError("a wording has a prompt of zeros only, which has no direction; embed it again")
    return given[:, [task.class_names.index(name) for name in experiment.classes]]


def _place(own: Floats, texts: Floats) -> int | None:
    cosines = cosines_of_wordings(own, texts).min(axis=1)
    best = int(cosines.argmax())
    return best if cosines[best] > 1 - SAME else None


def cosines_of_wordings(own: Floats, texts: Floats) -> Floats:
    """Return cosines (m, c) of prompts (c, p) with their like in each wording (m, c, p)."""
    return np.asarray(np.einsum("cp,mcp->mc", _unit(own), _unit(texts)))


def _unit(rows: Floats) -> Floats:
    flat = np.asarray(rows, dtype=np.float64).reshape(-1, rows.shape[-1])
    return unit_rows(flat).reshape(rows.shape)
