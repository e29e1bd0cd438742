"""Orth-Proj: class prompts without the directions of the sensitive prompts."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fairerclip._util.types import F64
from fairerclip.baselines.baseline import Needs, Training
from fairerclip.baselines.heads import CosineHead, class_prompts, map_prompts, projected_off, unit_prompts
from fairerclip.data.embedding_rows import unit_rows

PAPER = "Chuang et al. 2023, arXiv:2302.00070"


class OrthProj(CosineHead):
    """Zero-shot with class prompts projected on what is orthogonal to the sensitive prompts.

    Needs class prompts, and either sentences about the sensitive attributes (``spurious_text``), as published, or
    prompts of the sensitive values (``sensitive_text``), which stand in for them; takes no labels and learns nothing
    from images, which it leaves as they are.

    Attributes
    ----------
    basis_ : (r, p) orthonormal rows that span what is projected off.
    text_ : (c, p) projected class prompts, of length one.
    diagnostics_ : dict with projected ("spurious sentences" or "sensitive prompts") and a note.

    Notes
    -----
    ``P₀ = I − VᵀV`` with the rows of V an orthonormal basis of all these sentences, normalised and not centred:
    what they share, such as "a photo of", goes too. The published code takes V from a randomised singular value
    decomposition with as many components as prompts; here it is exact, and prompts that depend on others add no
    direction. Where a class has several prompts it is their mean that is projected.

    References
    ----------
    Chuang et al., "Debiasing Vision-Language Models via Biased Prompts", 2023, arXiv:2302.00070.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.array([[0.9, 0.1, -2.0], [0.3, 0.9, 2.0]])
    >>> text = [[1.0, 0.0, 0.9], [0.0, 1.0, 0.0]]
    >>> sensitive = [[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]
    >>> OrthProj().fit(images, text=text, sensitive_text=sensitive).predict(images).tolist()
    [0, 1]
    """

    needs = Needs("none", True, True, False, PAPER)
    takes_sentences = True
    fitted: ClassVar[tuple[str, ...]] = ("text_", "basis_")
    shapes = {"text_": ("c", "p"), "basis_": ("r", "p")}  # noqa: RUF012

    def _learn(self, data: Training) -> None:
        off, what = projected_off(data, "OrthProj")
        self.basis_ = span(off)
        self.text_ = unit_prompts(project(class_prompts(data, "OrthProj"), self.basis_), "the projection")
        self.diagnostics_ = {"projected": what, "note": f"{len(off)} {what} are projected off"}

    def transform_text(self, T: Any) -> F64:
        """Any prompts (m, p), projected and of length one."""
        return map_prompts(self, T, lambda rows: project(rows, self.basis_))


def span(E: F64) -> F64:
    """Orthonormal rows (r, p) that span the rows of E (m, p), each normalised first; r is their rank.

    O(m·p·min(m, p)) time.

    Examples
    --------
    >>> span(np.array([[2.0, 0.0], [-1.0, 0.0]])).shape, span(np.zeros((1, 2))).shape
    ((1, 2), (0, 2))
    """
    _, sizes, V = np.linalg.svd(unit_rows(np.asarray(E, dtype=np.float64)), full_matrices=False)
    rank = int(np.sum(sizes > max(E.shape) * np.finfo(np.float64).eps * sizes.max(initial=0.0)))
    return np.asarray(V[:rank])


def project(T: F64, basis: F64) -> F64:
    """Rows of T (m, p) without their part in the span of orthonormal rows (r, p). O(m·p·r) time."""
    once = T - (T @ basis.T) @ basis
    return np.asarray(once - (once @ basis.T) @ basis)  # twice: what rounding left in the first is gone
