"""Zero-shot accuracy by group with other wordings of the prompts."""

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
"""Name of the wording that the task uses, if it is none of the given ones."""
SAME = 1e-5
"""Two prompts are the same if their cosine differs from 1 by less than this."""


def audit_wording(
    experiment: Experiment,
    split: str,
    texts: Floats,
    templates: Sequence[str],
    *,
    confidence: float = 0.95,
) -> WordingSection:
    """Measure zero-shot accuracy by group with each wording of the class prompts.

    O(n·p·c) time for each wording.

    Parameters
    ----------
    experiment : Experiment
        The chosen classes and sensitive attributes.
    split : str
        A split with target and sensitive labels.
    texts : array of shape (m, c, p)
        Prompt embeddings of all c classes of the task, in their order, in each wording.
    templates : sequence of m str
        Name of each wording.
    confidence : float, default=0.95
        Level of the intervals.

    Returns
    -------
    WordingSection
        If the wording that the task uses is none of the given ones, it is added in front for comparison.

    Examples
    --------
    >>> from fairerclip.data import simulate
    >>> task = simulate("waterbirds", scale=0.05, width=64)
    >>> found = audit_wording(Experiment.of(task), "test", task.variants.text, task.variants.templates)
    >>> [wording.template for wording in found.templates][:2], found.used
    (["the task's own prompts", 'wording 1 (simulated)'], 0)
    """
    wordings = _checked(experiment, texts, templates)
    names, task_text = list(templates), experiment.text
    used = None if task_text is None else _place(task_text, wordings)
    if task_text is not None and used is None:
        wordings = np.concatenate([task_text[None].astype(wordings.dtype), wordings])
        names, used = [OWN, *names], 0
    rows = experiment.task.split(split)
    classes = np.array(experiment.classes)
    results = []
    for name, text in zip(names, wordings, strict=True):
        codes, _ = zero_shot(rows.X, [prompt[None] for prompt in text])
        results.append(_template(name, experiment.report(rows, classes[codes], confidence)))
    return WordingSection(split=split, templates=tuple(results), used=used)


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
    """Return the texts (m, c, p) of the chosen classes, or raise if they are not valid."""
    given, task = np.asarray(texts), experiment.task
    if given.dtype.kind != "f" or given.ndim != 3 or given.shape[1:] != (task.n_classes, task.width):
        raise ShapeError(
            f"wordings must be floats (m, {task.n_classes}, {task.width}), one row for each class of {task.name}; "
            f"got {given.dtype} of shape {given.shape}"
        )
    if not len(given) or len(given) != len(templates):
        raise ParameterError(
            f"expected one template per wording, and at least one; got {len(templates)} for {len(given)} wordings"
        )
    if not np.isfinite(given).all():
        raise NonFiniteError("wordings hold NaN or infinity; embed their prompts again")
    if not given.any(axis=2).all():
        raise ZeroRowError("a wording has a prompt of zeros only, which has no direction; embed it again")
    return given[:, [task.class_names.index(name) for name in experiment.classes]]


def _place(text: Floats, wordings: Floats) -> int | None:
    """Return the index of the wording that is the same as a text (c, p), or None."""
    cosines = cosines_of_wordings(text, wordings).min(axis=1)
    best = int(cosines.argmax())
    return best if cosines[best] > 1 - SAME else None


def cosines_of_wordings(text: Floats, wordings: Floats) -> Floats:
    """Return cosines (m, c) of prompts (c, p) with those of the same class in each wording (m, c, p)."""
    return np.asarray(np.einsum("cp,mcp->mc", _unit(text), _unit(wordings)))


def _unit(rows: Floats) -> Floats:
    flat = np.asarray(rows, dtype=np.float64).reshape(-1, rows.shape[-1])
    return unit_rows(flat).reshape(rows.shape)
