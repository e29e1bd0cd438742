"""TIE*: image embeddings moved against the prompt of the sensitive value that is read from them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fairerclip._util.checks import check_within
from fairerclip._util.types import F64
from fairerclip.baselines.heads import CosineHead, class_prompts, sensitive_values
from fairerclip.baselines.training_data import Needs, Training
from fairerclip.errors import PromptError

MOST = 1e6
"""Largest ``scale``."""


class TIE(CosineHead):
    """Zero-shot classifier of images that are translated against the prompt of their sensitive value.

    Needs class prompts, prompts of the sensitive values (``sensitive_text``), and training images without labels.
    Values of S on the training images are used where they are given (``sensitive_features``) and read zero-shot from
    the prompts otherwise. No labels y, no gradient. It maps images alone, so that any query can be ranked.

    Parameters
    ----------
    scale : float, default=1.0
        Factor of the translation; 1 as published, 0 is `ZeroShot`.

    Attributes
    ----------
    values_ : array of shape (v, p)
        One unit prompt per sensitive value, over all attributes.
    shifts_ : array of shape (v,)
        Length of the translation of each value, ``scale·λ``; 0 for a value of no training row.
    attribute_ : array of shape (v,)
        Number of the attribute of each value.
    text_ : array of shape (c, p)
        One unit vector per class.
    diagnostics_ : dict
        sensitive ("true" or "predicted": the values that the lengths are from), shifts and a note.

    Notes
    -----
    With unit rows x and the unit prompt ``u_s`` of value s, ``λ_s`` is the mean of ``x·u_s`` over the training rows of
    value s, weighted by the row weights, and ``x' = x − λ_s u_s``.

    The paper has two forms: TIE takes the true value of every test image, and TIE* predicts it. ``predict`` never asks
    for S, so it is TIE*: ``ŝ`` is the value whose prompt has the largest cosine with the row. The lengths λ are those
    of TIE if S is given to ``fit``. With several attributes, which the paper has not, every attribute adds its own
    translation, and ŝ and λ are taken from the rows before any translation, so that the order has no effect. An
    attribute with one value in all training rows moves nothing; `fit` warns.

    Scores are cosines, whose norm ``‖x'‖`` changes rankings and no predicted class. O(n·p·v) time.

    Differences from the paper: several attributes, which it has not, are translated one by one.

    Licence of the released code: none. This is a new implementation from the paper.

    References
    ----------
    Lu, Chai & Wang, "Mitigating Spurious Correlations in Zero-Shot Multimodal Models", ICLR 2025,
    openreview:UsRKFYR4lM.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.array([[0.6, 0.5, 0.9, 0.0], [0.5, 0.6, 0.0, 0.9]])
    >>> text = [[1.0, 0.0, 0.0, 0.3], [0.0, 1.0, 0.3, 0.0]]
    >>> sensitive = [[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    >>> TIE(scale=0.0).fit(images, text=text, sensitive_text=sensitive).predict(images).tolist()
    [1, 0]
    >>> TIE().fit(images, text=text, sensitive_text=sensitive).predict(images).tolist()
    [0, 1]
    """

    needs = Needs("none", True, True, False, "Lu, Chai & Wang 2025, openreview:UsRKFYR4lM")
    changes_embeddings = free_queries = True
    fitted: ClassVar[tuple[str, ...]] = ("text_", "values_", "shifts_", "attribute_")
    shapes = {  # noqa: RUF012
        "text_": ("c", "p"),
        "values_": ("v", "p"),
        "shifts_": ("v",),
        "attribute_": ("v",),
    }

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    @property
    def title(self) -> str:
        """Name of the method."""
        return "TIE*"

    def _learn(self, data: Training) -> None:
        check_within("scale", self.scale, 0.0, MOST)
        self.text_ = class_prompts(data, "TIE")
        if data.sensitive_prompts is None:
            raise PromptError("TIE moves images along prompts of the sensitive values: give sensitive_text")
        attributes = sensitive_values(data)
        self.values_ = np.concatenate(attributes)
        self.attribute_ = np.repeat(np.arange(len(attributes)), data.attribute_sizes).astype(np.float64)
        lengths = [np.zeros(len(values)) for values in attributes]
        for length, values, codes in zip(lengths, attributes, data.value_codes, strict=True):
            if codes is not None:
                onehot = np.eye(len(values))[codes] * data.weight[:, None]
                sums = np.sum(onehot * (data.X @ values.T), axis=0)
                np.divide(sums, onehot.sum(axis=0), out=length, where=onehot.sum(axis=0) > 0)
        self.shifts_ = self.scale * np.concatenate(lengths)
        source = "true" if data.s_is_true else "predicted"
        self.diagnostics_ = {
            "sensitive": source,
            "shifts": self.shifts_.tolist(),
            "note": f"lengths of the translation from {source} sensitive values; those of new rows are predicted",
        }

    def _embed(self, rows: F64) -> F64:
        """Return the translated rows (b, p), not normalised again. O(b·p·v) time."""
        cosines, moved = rows @ self.values_.T, rows
        for attribute in np.unique(self.attribute_):
            own = np.flatnonzero(self.attribute_ == attribute)
            value = own[cosines[:, own].argmax(axis=1)]
            moved = moved - self.shifts_[value][:, None] * self.values_[value]
        return np.asarray(moved)
