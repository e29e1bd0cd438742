"""Other wordings of a task's prompts, embedded by the model that embedded its images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import Floats
from fairerclip.auditing.sections.wording import cosines_of_wordings
from fairerclip.data.prompts import DEFAULT_TEMPLATES, as_templates
from fairerclip.data.prompts.templates import filled
from fairerclip.errors import ProvenanceError, ShapeError
from fairerclip.experiment import Experiment

if TYPE_CHECKING:
    from fairerclip.encoders.encoder import Encoder


RELATED = 0.5
"""A class's own prompt and its name, embedded by one model, have a larger cosine than this; two models have none."""


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
    related = cosines_of_wordings(own, texts)
    if related.mean(axis=1).max() < RELATED:
        raise ProvenanceError(
            f"prompts embedded by {encoder} have a cosine of {related.max():.2f} at most with the task's own prompts "
            "for the same classes: it is not the model that embedded this task"
        )
