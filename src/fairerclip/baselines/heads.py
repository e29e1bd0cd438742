"""The two kinds of classification heads of the baselines: cosines with class prompts, and a linear classifier."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from fairerclip._util.types import F64, Ints
from fairerclip.baselines.baseline import Baseline
from fairerclip.baselines.training_data import VANISHED, Training
from fairerclip.errors import LabelError, PromptError
from fairerclip.inputs.prompts import prototypes


class CosineHead(Baseline):
    """Head whose scores are cosines of image rows with one vector per class, ``text_`` (c, p)."""

    fitted: ClassVar[tuple[str, ...]] = ("text_",)
    shapes = {"text_": ("c", "p")}  # noqa: RUF012 - a constant, as in every subclass

    def _class_scores(self, embedded: F64) -> F64:
        """Return the cosine with each class (b, c). O(b·p·c) time."""
        return self._match(embedded, self.text_)


class LinearHead(Baseline):
    """Head whose scores are the logits ``X @ coef_.T + intercept_`` of unit rows, with (c, p) and (c,)."""

    fitted: ClassVar[tuple[str, ...]] = ("coef_", "intercept_")
    shapes = {"coef_": ("c", "p"), "intercept_": ("c",)}  # noqa: RUF012

    def _class_scores(self, embedded: F64) -> F64:
        """Return the logit of each class (b, c). O(b·p·c) time."""
        return np.asarray(embedded @ self.coef_.T + self.intercept_)


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


def sensitive_codes(data: Training) -> Ints:
    """Return the group codes (n,), true or predicted zero-shot; one code for all rows if S has a single value."""
    return np.zeros(len(data.X), dtype=np.int64) if data.s is None else data.s


def values_as_target(data: Training) -> Training:
    """Return the rows with their sensitive values as the classes to learn, coded without gaps."""
    s = np.unique(sensitive_codes(data), return_inverse=True)[1].reshape(-1)
    return replace(data, y=s, n_groups=int(s.max()) + 1)


def varies(s: Ints, weight: F64) -> bool:
    """Return whether codes (n,) have more than one value among rows of positive weight."""
    return len(np.unique(s[weight > 0])) > 1


def sensitive_values(data: Training) -> list[F64]:
    """Return one unit vector per sensitive value, as a list of (v, p) per attribute."""
    values = prototypes(data.sensitive_prompts or [])
    return np.split(values, np.cumsum(data.attribute_sizes)[:-1])


def mean_prompt(data: Training, text: F64) -> F64:
    """Return the mean (p,) of class prompts (c, p) and of the prompts of sensitive values, if there are any."""
    values = sensitive_values(data) if data.sensitive_prompts else ()
    return np.asarray(np.concatenate([text, *values]).mean(axis=0))


def differences(rows: F64) -> F64:
    """Return the differences (d, p) of every two rows (m, p), without those that are rounding errors.

    Examples
    --------
    >>> differences(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    first, second = np.triu_indices(len(rows), 1)
    found = rows[first] - rows[second]
    return np.asarray(found[np.linalg.norm(found, axis=1) > VANISHED])


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
