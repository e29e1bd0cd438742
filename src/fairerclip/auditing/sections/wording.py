"""The same zero-shot audit in other words: how much of a figure is the prompt's wording."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.data.prompts import DEFAULT_TEMPLATES, as_templates
from fairerclip.data.prompts.templates import filled
from fairerclip.errors import (
    NonFiniteError,
    ParameterError,
    ProvenanceError,
    ShapeError,
    ZeroRowError,
)
from fairerclip.experiment import Experiment
from fairerclip.inputs.image_rows import unit_rows
from fairerclip.inputs.zero_shot_scores import zero_shot
from fairerclip.metrics import GroupReport

if TYPE_CHECKING:
    from fairerclip.encoders.encoder import Encoder

Floats = NDArray[np.floating]

OWN = "the task's own prompts"
"""Name of the wording that the task uses, where it is none of those given."""
SAME = 1e-5
"""Cosines that differ from 1 by less are those of the same prompt."""
RELATED = 0.5
"""A class's own prompt and its name, embedded by one model, have a larger cosine than this; two models have none."""


def audit_wording(
    experiment: Experiment,
    split: str,
    texts: Floats,
    templates: Sequence[str],
    *,
    confidence: float = 0.95,
) -> dict[str, Any]:
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
    dict
        ``split``; ``templates``, one entry per wording with its average, worst group and equal-opportunity
        difference; ``used``, the index of the wording that the task uses. Where it is none of these it is
        added in front, so that the others have something to be compared with; None if the task has no prompts.

    Examples
    --------
    >>> from fairerclip.data import simulate
    >>> task = simulate("waterbirds", scale=0.05, width=64)
    >>> found = audit_wording(Experiment.of(task), "test", task.variants.text, task.variants.templates)
    >>> [entry["template"] for entry in found["templates"]][:2], found["used"]
    (["the task's own prompts", 'wording 1 (simulated)'], 0)
    """
    given = _checked(experiment, texts, templates)
    names, own = list(templates), experiment.text
    used = None if own is None else _place(own, given)
    if own is not None and used is None:
        given, names, used = np.concatenate([own[None].astype(given.dtype), given]), [OWN, *names], 0
    rows = experiment.task.split(split)
    classes = np.array(experiment.classes)
    entries = []
    for name, text in zip(names, given, strict=True):
        codes, _ = zero_shot(rows.X, [prompt[None] for prompt in text])
        entries.append({"template": name, **_figures(experiment.report(rows, classes[codes], confidence))})
    return {"split": split, "templates": entries, "used": used}


def variants_from_encoder(
    experiment: Experiment, encoder: Encoder, templates: Sequence[str] = DEFAULT_TEMPLATES
) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    """Embed the task's class names in each template: unit rows (m, c, p), and the templates.

    Parameters
    ----------
    experiment : Experiment
        Its task's class names go into the templates.
    encoder : Encoder
        The model that embedded the task's images, as `fairerclip.encoders.load` gives it.
    templates : sequence of str
        1 to 1000 sentences with one ``{}`` each.

    Raises
    ------
    PromptFileError
        A template has no ``{}``, or there are too many.
    ProvenanceError
        The encoder is not the model that the task's embeddings come from, as far as can be told.
    """
    task = experiment.task
    chosen = as_templates(templates)
    if task.simulated:
        raise ProvenanceError(f"{task.name} was drawn, not embedded: no encoder belongs to it")
    if encoder.width != task.width:
        raise ProvenanceError(
            f"{encoder.name} gives {encoder.width} columns and {task.name} has {task.width}: give the model that "
            "embedded its images"
        )
    sentences = [filled(template, name) for template in chosen for name in task.class_names]
    rows = np.asarray(encoder.encode_text(sentences), dtype=np.float32)
    expected = len(chosen), len(task.class_names), task.width
    if rows.shape != (len(sentences), task.width):
        raise ShapeError(f"{encoder.name} gave shape {rows.shape} for {len(sentences)} prompts")
    texts = rows.reshape(expected)
    _check_same_space(task.text_target, texts, encoder.name)
    return texts, chosen


def _check_same_space(own: Floats | None, texts: Floats, encoder: str) -> None:
    """Refuse texts of another model: its width may be the same, its directions are not."""
    if own is None:
        return
    related = np.einsum("cp,mcp->mc", _unit(own), _unit(texts))
    if related.mean(axis=1).max() < RELATED:
        raise ProvenanceError(
            f"prompts embedded by {encoder} have a cosine of {related.max():.2f} at most with the task's own prompts "
            "for the same classes: it is not the model that embedded this task"
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
    cosines = np.einsum("cp,mcp->mc", _unit(own), _unit(texts)).min(axis=1)
    best = int(cosines.argmax())
    return best if cosines[best] > 1 - SAME else None


def _unit(rows: Floats) -> Floats:
    flat = np.asarray(rows, dtype=np.float64).reshape(-1, rows.shape[-1])
    return unit_rows(flat).reshape(rows.shape)


def _figures(report: GroupReport) -> dict[str, Any]:
    return {
        "average": _estimate(report, "average", report.average),
        "worst_group": _estimate(report, "worst_group", report.worst.accuracy),
        "worst_name": report.worst.name,
        "eod": None if report.eod is None else _estimate(report, "eod", report.eod),
    }


def _estimate(report: GroupReport, figure: str, value: float) -> dict[str, float]:
    low, high = report.intervals[figure]
    return {"value": value, "low": low, "high": high}
