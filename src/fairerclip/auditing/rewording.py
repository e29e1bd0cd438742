"""Other wordings of a task's prompts, embedded by the model that embedded its images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import Floats
from fairerclip.auditing.sections.wording import cosines_of_wordings
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.data.prompts import DEFAULT_TEMPLATES, as_templates
from fairerclip.data.prompts.encoded_prompts import separate_prompts
from fairerclip.data.prompts.templates import filled
from fairerclip.errors import ProvenanceError, ShapeError
from fairerclip.experiment import Experiment
from fairerclip.inputs.prompts import prototypes

if TYPE_CHECKING:
    from fairerclip.data import Task
    from fairerclip.encoders.encoder import Encoder


RELATED = 0.5
"""Prompts of the same class have a larger cosine than this if one model embedded both; with two models it is near 0."""
SAME = 0.999
"""Equal sentences that one model embedded twice have a larger cosine, also in half precision."""


def variants_from_encoder(
    experiment: Experiment, encoder: Encoder, templates: Sequence[str] = DEFAULT_TEMPLATES
) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    """Embed the class names of a task in each template.

    Parameters
    ----------
    experiment : Experiment
        Its task's class names go into the templates.
    encoder : Encoder
        The model that embedded the task's images, as `fairerclip.encoders.load` gives it.
    templates : sequence of str
        1 to 1000 sentences with one ``{}`` each.

    Returns
    -------
    texts : array of shape (m, c, p)
        Unit rows, one for each of m templates and c classes.
    templates : tuple of str
        The m templates.

    Raises
    ------
    PromptFileError
        A template has no ``{}``, or there are too many.
    ProvenanceError
        The encoder is not the model that embedded the task, by its width and by its embeddings of the task's prompts.
    """
    task = experiment.task
    chosen = as_templates(templates)
    _check_possible(task, encoder)
    sentences = [filled(template, name) for template in chosen for name in task.class_names]
    rows = np.asarray(encoder.encode_text(sentences), dtype=np.float32)
    expected = len(chosen), len(task.class_names), task.width
    if rows.shape != (len(sentences), task.width):
        raise ShapeError(f"{encoder.name} gave shape {rows.shape} for {len(sentences)} prompts")
    texts = rows.reshape(expected)
    _check_same_space(task.text_target, texts, encoder.name)
    return texts, chosen


def check_encoder(task: Task, encoder: Encoder) -> None:
    """Raise `ProvenanceError` if an encoder does not give the class prompts of a task their embeddings."""
    _check_possible(task, encoder)
    if task.text_target is None:
        return
    found = prototypes([encoder.encode_text(separate_prompts(text)) for text in task.target_prompts])
    cosines = np.sum(found * unit_rows(np.asarray(task.text_target, dtype=np.float64)), axis=1)
    if cosines.min() < SAME:
        raise ProvenanceError(
            f"class prompts embedded by {encoder.name} have a cosine of {cosines.min():.3f} with those of {task.name}, "
            "where 1 is expected: give the model that embedded this task, with the same weights"
        )


def _check_possible(task: Task, encoder: Encoder) -> None:
    if task.simulated:
        raise ProvenanceError(
            f"{task.name} is simulated: its embeddings come from no encoder, so its prompts cannot be embedded"
        )
    if encoder.width != task.width:
        raise ProvenanceError(
            f"{encoder.name} gives embeddings of width {encoder.width} and {task.name} has width {task.width}: give "
            "the model that embedded its images"
        )


def _check_same_space(task_text: Floats | None, texts: Floats, encoder: str) -> None:
    """Raise if the texts do not lie near the task's prompts of the same classes, as those of another model do not."""
    if task_text is None:
        return
    cosines = cosines_of_wordings(task_text, texts)
    if cosines.mean(axis=1).max() < RELATED:
        raise ProvenanceError(
            f"prompts embedded by {encoder} have a cosine of at most {cosines.max():.2f} with the task's prompts of "
            "the same classes: give the model that embedded this task"
        )
