"""Closed-form rotation: images and prompts turned away from the differences of the sensitive prompts."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fairerclip._util.checks import check_within
from fairerclip._util.types import F64
from fairerclip.baselines.heads import CosineHead, class_prompts, sensitive_values
from fairerclip.baselines.orth_proj import project, span, warn_if_equal
from fairerclip.baselines.training_data import VANISHED, Needs, Training, unit_prompts
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.errors import PromptError


class Rotation(CosineHead):
    """Zero-shot classifier whose images and prompts are rotated out of the span of differences of sensitive prompts.

    Needs class prompts and prompts of the sensitive values (``sensitive_text``). It uses no labels, no sensitive values
    of images and no gradient, learns nothing from images, and maps both images and prompts in closed form, so that any
    query can be ranked.

    Parameters
    ----------
    weight : float, default=0.5
        Weight of fairness against that of utility, from 0 (no change) to 1 (the projection). 0.5 as published.

    Attributes
    ----------
    basis_ : array of shape (r, p)
        Orthonormal rows that span the differences of the prompts of an attribute's values.
    text_ : array of shape (c, p)
        Rotated class prompts.
    diagnostics_ : dict
        directions (their number r) and a note.

    Notes
    -----
    Let A be the span of ``p_g − p_1`` over the values g, where ``p_g`` is the normalised mean of the prompts of g. A
    unit embedding is split, ``e = e∥ + e⊥`` with e∥ in A, ``a = ‖e∥‖`` and ``b = ‖e⊥‖``, and becomes
    ``u = √(1 − α²)·ê⊥ + α·ê∥``, which stays in the plane of both. The kept length α minimises
    ``max(w·α/a, (1 − w)·(1 − u·e)/(1 − b))`` over [0, a]: the first is the share of the attribute that is left, the
    second the loss of similarity to e as a share of the loss of the projection. With w = ½ this is the published
    formula, ``α* = (E − b·√(E² − a²)) / (E² + b²)`` with ``E = a + (1 − b)/a``. With other weights
    ``E = a + ρ·(1 − b)/a`` and ``ρ = w/(1 − w)``. It is computed as ``α = a / (1 + r + b·√(r(r + 2)))`` with
    ``r = ρ/(1 + b)``, the same number without a division by a and without cancellation.

    A row in the complement of A (a = 0) does not change. A row inside of A (b = 0), for which the published formula is
    not defined, does not change either: there is no direction to rotate it to.

    Differences from the paper: it treats several attributes by prompts for every combination of values. Here there are
    prompts of values only, and A is the sum of the spans of the attributes; it is what the differences of the sums
    ``p_g + p_h`` span. The prompts of a value are those given, and not written by a language model. O(n·p·r) time.

    Licence of the released code: CC BY-NC, which allows no commercial use. This is a new implementation from the paper.

    References
    ----------
    Lian et al., "A Closed-Form Solution for Debiasing Vision-Language Models with Utility Guarantees Across Modalities
    and Tasks", CVPR 2026, arXiv:2603.12998.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.array([[0.9, 0.1, -2.0], [0.3, 0.9, 2.0]])
    >>> text = [[1.0, 0.0, 0.9], [0.0, 1.0, 0.0]]
    >>> sensitive = [[0.5, 0.5, 1.0], [0.5, 0.5, -1.0]]
    >>> Rotation(weight=0.0).fit(images, text=text, sensitive_text=sensitive).predict(images).tolist()
    [1, 0]
    >>> Rotation().fit(images, text=text, sensitive_text=sensitive).predict(images).tolist()
    [0, 1]
    """

    needs = Needs("none", True, True, False, "Lian et al. 2026, arXiv:2603.12998")
    prompts_alone = True
    changes_embeddings = changes_prompts = free_queries = True
    fitted: ClassVar[tuple[str, ...]] = ("text_", "basis_")
    shapes = {"text_": ("c", "p"), "basis_": ("r", "p")}  # noqa: RUF012

    def __init__(self, weight: float = 0.5) -> None:
        self.weight = weight

    @property
    def title(self) -> str:
        """Name of the method."""
        return "Closed-form rotation"

    def _learn(self, data: Training) -> None:
        check_within("weight", self.weight, 0.0, 1.0)
        text = class_prompts(data, "Rotation")
        if data.sensitive_prompts is None:
            raise PromptError("Rotation compares the prompts of the sensitive values: give sensitive_text")
        self.basis_ = span(np.concatenate([values[1:] - values[0] for values in sensitive_values(data)]))
        self.text_ = unit_prompts(self._embed_text(text), "the rotation")
        if self.weight == 1.0:  # the projection
            left, remedy = project(text, self.basis_), "give other prompts of the sensitive values"
            warn_if_equal(text, left, self.classes_, "the rotation with weight 1", remedy)
        self.diagnostics_ = {
            "directions": len(self.basis_),
            "note": f"rotated out of {len(self.basis_)} differences of sensitive prompts",
        }

    def _embed(self, rows: F64) -> F64:
        return rotate(rows, self.basis_, self.weight)

    def _embed_text(self, rows: F64) -> F64:
        return self._embed(rows)


def rotate(rows: F64, basis: F64, weight: float) -> F64:
    """Return rows (n, p), normalised and rotated out of the span of orthonormal rows (r, p). O(n·p·r) time.

    Examples
    --------
    >>> rotate(np.array([[0.6, 0.8]]), np.array([[1.0, 0.0]]), 1.0).tolist()
    [[0.0, 1.0]]
    """
    rows = unit_rows(rows)
    across = project(rows, basis)
    along = rows - across
    a, b = (np.linalg.norm(part, axis=1) for part in (along, across))
    alpha = kept_length(a, b, weight)
    turned = np.sqrt(1.0 - alpha**2)[:, None] * unit_rows(across) + alpha[:, None] * unit_rows(along)
    return np.where(((a > VANISHED) & (b > VANISHED))[:, None], turned, rows)


def kept_length(a: F64, b: F64, weight: float) -> F64:
    """Return the length α (n,) that is kept of the part of length a inside of A, where b is that of the other part.

    Examples
    --------
    >>> kept_length(np.array([0.6]), np.array([0.8]), 0.5).round(4).tolist()
    [0.2392]
    """
    if weight == 1:
        return np.zeros_like(a)
    r = weight / (1.0 - weight) / (1.0 + b)
    return np.asarray(a / (1.0 + r + b * np.sqrt(r * (r + 2.0))))
