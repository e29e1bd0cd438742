"""Orth-Cali: Orth-Proj calibrated on pairs of prompts that differ in the sensitive value alone."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fairerclip._util.checks import LARGEST, check_within
from fairerclip._util.types import F64
from fairerclip.baselines.heads import (
    CosineHead,
    class_prompts,
    projected_off,
    sensitive_values,
)
from fairerclip.baselines.orth_proj import PAPER, project, span
from fairerclip.baselines.sentences import compose_pairs, pairs_inside
from fairerclip.baselines.training_data import Needs, Training, unit_pairs, unit_prompts
from fairerclip.errors import ParameterError, PromptError


class OrthCali(CosineHead):
    """Zero-shot classifier with class prompts under a projection that is calibrated on pairs of prompts.

    Needs class prompts, sentences to project out as in `OrthProj`, and pairs of sentences: as published, all pairs
    within a class of ``counterfactual_text``. It uses no labels, no sensitive values of images and no gradient, learns
    nothing from images and does not change them.

    Parameters
    ----------
    lam : float, default=1000.0
        Weight λ of the pairs; 0 gives `OrthProj`.
    pairs : array of shape (m, 2, p), optional
        Embeddings of m pairs of prompts for one class and different sensitive values, such as "a photo of a male
        celebrity with blond hair" and the same with "female", in place of the pairs of ``counterfactual_text``. They
        are normalised first. Without either, pairs are *composed* from prompts: ``n(n(t) + n(u))`` represents class t
        with value u, and there is a pair for every class and every two values of an attribute of ``sensitive_text``.
        This is our approximation; the published method embeds sentences.

    Attributes
    ----------
    basis_ : array of shape (r, p)
        Orthonormal rows that span the projected-out sentences.
    directions_, shrink_ : array of shape (k, p) and (k,)
        Orthonormal directions, and the share of each that is removed before the projection.
    text_ : array of shape (c, p)
        Class prompts under the map, normalised.
    diagnostics_ : dict
        projected (as in `OrthProj`), pairs ("counterfactual sentences", "given" or "composed"), n_pairs and a note.

    Notes
    -----
    The minimiser over P of ``‖P − P₀‖² + (λ/m)·Σ ‖P zᵢ − P zⱼ‖²`` is ``P = P₀ (I + (λ/m)·Σ ddᵀ)⁻¹`` with
    ``d = zᵢ − zⱼ``. The inverse is computed in the span of the d, which has at most min(m, p) dimensions (Woodbury
    identity): O(m·p·min(m, p)) time instead of p³.

    Differences from the paper and its code: P₀ is that of `OrthProj`, which is exact and not randomised; and pairs are
    composed where there are no sentences.

    Licence of the released code: MIT. This is a new implementation.

    References
    ----------
    Chuang et al., "Debiasing Vision-Language Models via Biased Prompts", 2023, arXiv:2302.00070.
    """

    needs = Needs("none", True, True, False, PAPER)
    prompts_alone = True
    takes_sentences = changes_prompts = free_queries = True
    sentences = ("spurious_text", "counterfactual_text")
    fitted: ClassVar[tuple[str, ...]] = ("text_", "basis_", "directions_", "shrink_")
    shapes = {  # noqa: RUF012
        "text_": ("c", "p"),
        "basis_": ("r", "p"),
        "directions_": ("k", "p"),
        "shrink_": ("k",),
    }

    def __init__(self, lam: float = 1000.0, *, pairs: Any = None) -> None:
        self.lam = lam
        self.pairs = pairs

    @property
    def title(self) -> str:
        """Name of the method."""
        return "Orth-Cali"

    def _learn(self, data: Training) -> None:
        check_within("lam", self.lam, 0.0, LARGEST)
        text = class_prompts(data, "OrthCali")
        removed, name = projected_off(data, "OrthCali")
        self.basis_ = span(removed)
        pairs, source = self._pairs(data, text)
        self.directions_, self.shrink_ = calibration(pairs[:, 0] - pairs[:, 1], self.lam)
        self.text_ = unit_prompts(self._embed_text(text), "the projection")
        self.diagnostics_ = {
            "projected": name,
            "pairs": source,
            "n_pairs": len(pairs),
            "note": f"{len(removed)} {name} are projected off; {len(pairs)} pairs, {source}",
        }

    def _pairs(self, data: Training, text: F64) -> tuple[F64, str]:
        """Return the pairs (m, 2, p) to bring together, and the name of their source."""
        if self.pairs is not None:
            if data.counterfactual is not None:
                raise ParameterError(
                    "pairs= and counterfactual_text= both say what to bring together: give one"
                )
            return unit_pairs(self.pairs, data.X.shape[1], "pairs"), "given"
        if data.counterfactual is not None:
            pairs = pairs_inside(list(data.counterfactual.values()))
            if not len(pairs):
                raise PromptError("counterfactual_text has no class with two sentences, so there is no pair")
            return pairs, "counterfactual sentences"
        if data.sensitive_prompts is None:
            raise PromptError(
                "OrthCali needs pairs: give counterfactual_text, or sensitive_text to compose them from"
            )
        return compose_pairs(text, sensitive_values(data)), "composed"

    def _embed_text(self, T: F64) -> F64:
        """Return ``P t`` for every row t: the calibration first, then the projection."""
        return project(T - (T @ self.directions_.T) * self.shrink_ @ self.directions_, self.basis_)


def calibration(d: F64, lam: float) -> tuple[F64, F64]:
    """Return U (k, p) and shrink (k,) with ``(I + (λ/m)·Σ ddᵀ)⁻¹ = I − Uᵀ diag(shrink) U``, for rows d (m, p).

    Examples
    --------
    >>> U, shrink = calibration(np.array([[2.0, 0.0]]), 1.0)
    >>> (np.eye(2) - U.T * shrink @ U).round(12).tolist()
    [[0.2, 0.0], [0.0, 1.0]]
    """
    _, sizes, U = np.linalg.svd(d, full_matrices=False)
    weight = lam / len(d) * sizes**2
    return np.asarray(U), np.asarray(weight / (1.0 + weight))
