"""The two kinds of classification heads of the baselines: cosines with class prompts, and a linear classifier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fairerclip._util.types import F64
from fairerclip.baselines.baseline import Baseline, Training
from fairerclip.data.embedding_rows import check_rows, unit_rows
from fairerclip.errors import LabelError, PromptError, ShapeError
from fairerclip.inputs.prompts import prototypes

VANISHED = 1e-10
"""A unit prompt that a map makes shorter than this counts as zero: the rest is rounding error."""


class CosineHead(Baseline):
    """Head whose scores are cosines of image rows with one vector per class, ``text_`` (c, p)."""

    fitted: ClassVar[tuple[str, ...]] = ("text_",)
    shapes = {"text_": ("c", "p")}  # noqa: RUF012 - a constant, as in every subclass

    def _class_scores(self, embedded: F64) -> F64:
        """Return the cosine with each class (b, c). O(b·p·c) time."""
        return np.asarray(unit_rows(embedded) @ self.text_.T)


class LinearHead(Baseline):
    """Head whose scores are the logits ``X @ coef_.T + intercept_`` of unit rows, with (c, p) and (c,)."""

    fitted: ClassVar[tuple[str, ...]] = ("coef_", "intercept_")
    shapes = {"coef_": ("c", "p"), "intercept_": ("c",)}  # noqa: RUF012

    def _class_scores(self, embedded: F64) -> F64:
        """Return the logit of each class (b, c). O(b·p·c) time."""
        return np.asarray(embedded @ self.coef_.T + self.intercept_)


def unit_prompts(T: F64, step: str) -> F64:
    """Normalise prompts (m, p) after a step of the method, and raise if the step made one zero."""
    vanished = np.flatnonzero(np.linalg.norm(T, axis=1) <= VANISHED)
    if len(vanished):
        raise PromptError(
            f"nothing is left of class prompts {vanished.tolist()[:5]} after {step}: they lie in the span of the "
            "sensitive prompts; give fewer or other sensitive prompts"
        )
    return unit_rows(T)


def map_prompts(model: Baseline, T: Any, apply: Callable[[F64], F64]) -> F64:
    """Check prompts (m, p), normalise them, apply the map of a model and normalise again."""
    check_is_fitted(model, model.fitted)
    rows = np.asarray(T, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != model.n_features_in_:
        raise ShapeError(f"T must have shape (m, {model.n_features_in_}); got {rows.shape}")
    check_rows(rows, "T", zero_is_error=True)
    return unit_prompts(apply(unit_rows(rows)), "the projection")


def class_prompts(data: Training, name: str) -> F64:
    """Return one unit vector per class (c, p), and raise if there are no class prompts."""
    if data.text is None:
        raise PromptError(f"{name} starts from class prompts: give text")
    return data.text


def projected_off(data: Training, name: str) -> tuple[F64, str]:
    """Return the embeddings (m, p) to project out and their name: spurious sentences, else all sensitive prompts."""
    if data.spurious is not None:
        return data.spurious, "spurious sentences"
    if data.sensitive_prompts is None:
        raise PromptError(
            f"{name} works on prompts of the sensitive values: give sensitive_text, or spurious_text"
        )
    return np.concatenate(data.sensitive_prompts), "sensitive prompts"


def sensitive_values(data: Training) -> list[F64]:
    """Return one unit vector per sensitive value, as a list of (v, p) per attribute."""
    values = prototypes(data.sensitive_prompts or [])
    return np.split(values, np.cumsum(data.attribute_sizes)[:-1])


def check_classes(data: Training, classes: Any, name: str) -> None:
    """Raise if a class has no labelled row of positive weight: a probe would never predict it."""
    if data.y is None:
        raise LabelError(f"{name} learns from labels: give y")
    totals = np.bincount(data.y, weights=data.weight, minlength=data.n_classes)
    if not np.all(totals > 0):
        raise LabelError(
            f"{name} has no labelled rows of classes {np.asarray(classes)[totals <= 0].tolist()[:10]}, which it could "
            "never predict; label some, or leave them out of classes= and text="
        )
