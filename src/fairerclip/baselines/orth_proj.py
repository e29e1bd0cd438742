"""Orth-Proj: class prompts projected onto the orthogonal complement of the sensitive prompts."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np

from fairerclip._util.types import F64
from fairerclip.baselines.heads import CosineHead, class_prompts, projected_off
from fairerclip.baselines.training_data import EQUAL, Needs, Training, unit_prompts
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.errors import TextCollapseWarning

PAPER = "Chuang et al. 2023, arXiv:2302.00070"


class OrthProj(CosineHead):
    """Zero-shot classifier with class prompts projected onto the orthogonal complement of the sensitive prompts.

    Needs class prompts, and either sentences about the sensitive attributes (``spurious_text``), as published, or
    prompts of the sensitive values (``sensitive_text``) in their place. It uses no labels, no sensitive values of
    images and no gradient, learns nothing from images and does not change them.

    Attributes
    ----------
    basis_ : array of shape (r, p)
        Orthonormal rows that span the projected-out sentences.
    text_ : array of shape (c, p)
        Projected class prompts, normalised.
    diagnostics_ : dict
        projected ("spurious sentences" or "sensitive prompts") and a note.

    Notes
    -----
    ``P₀ = I − VᵀV``, where the rows of V are an orthonormal basis of these sentences, normalised and not centred. So
    the part that they share, such as "a photo of", is removed as well. If a class has several prompts, their mean is
    projected.

    Differences from the paper and its code: V is from a randomised singular value decomposition there, with as many
    components as prompts; here it is exact, and linearly dependent prompts add no direction.

    Licence of the released code: MIT. This is a new implementation.

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
    prompts_alone = True
    takes_sentences = changes_prompts = free_queries = True
    sentences = ("spurious_text",)
    fitted: ClassVar[tuple[str, ...]] = ("text_", "basis_")
    shapes = {"text_": ("c", "p"), "basis_": ("r", "p")}  # noqa: RUF012

    @property
    def title(self) -> str:
        """Name of the method."""
        return "Orth-Proj"

    def _learn(self, data: Training) -> None:
        removed, name = projected_off(data, "OrthProj")
        self.basis_ = span(removed)
        self.text_ = unit_prompts(project(class_prompts(data, "OrthProj"), self.basis_), "the projection")
        self.diagnostics_ = {"projected": name, "note": f"{len(removed)} {name} are projected off"}

    def _embed_text(self, rows: F64) -> F64:
        return project(rows, self.basis_)


def span(E: F64) -> F64:
    """Return orthonormal rows (r, p) that span the rows of E (m, p), normalised first; r is their rank.

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
    """Project rows of T (m, p) onto the orthogonal complement of the orthonormal rows (r, p). O(m·p·r) time."""
    once = T - (T @ basis.T) @ basis
    return np.asarray(once - (once @ basis.T) @ basis)  # a second time to remove rounding errors of the first


def warn_if_equal(prompts: F64, left: F64, classes: Any, step: str, remedy: str) -> None:
    """Warn if two prompts (c, p) differ, and what counts of them for mapped images, ``left`` (c, p), does not.

    The scores of such classes differ by rounding errors only.
    """
    before, after = _squared_distances(prompts), _squared_distances(left)
    alike = np.argwhere(np.triu((before > EQUAL) & (after <= EQUAL**2), 1))
    if len(alike):
        first, second = (np.asarray(classes).tolist()[place] for place in alike[0])
        rest = len(alike) - 1
        others = f", as for {rest} other pair{'' if rest == 1 else 's'} of classes" if rest else ""
        warnings.warn(
            f"nothing is left of the difference of the prompts of classes {first!r} and {second!r} after {step}, so "
            f"that their scores are equal up to rounding{others}: {remedy}",
            TextCollapseWarning,
            stacklevel=4,
        )


def _squared_distances(rows: F64) -> F64:
    """Return the squared distance of every two rows (m, p), to about 1e-15."""
    products = rows @ rows.T
    lengths = np.diag(products)
    return np.asarray(lengths[:, None] + lengths - 2 * products)
