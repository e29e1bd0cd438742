"""RoboShot: images without the differences of harmful pairs of sentences, and with more of those of helpful pairs."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fairerclip._util.checks import check_within
from fairerclip._util.types import F64
from fairerclip.baselines.heads import CosineHead, class_prompts, sensitive_values
from fairerclip.baselines.orth_proj import project, span, warn_if_equal
from fairerclip.baselines.training_data import PAIR_KINDS, Needs, Training, unit_or_zero
from fairerclip.errors import PromptError

MOST = 1000.0
"""Largest ``remove`` and ``boost``."""


class RoboShot(CosineHead):
    """Zero-shot classifier of images that lose harmful directions and gain in helpful ones.

    Needs class prompts, and pairs of sentences (``text_pairs``) as published, or prompts of the sensitive values
    (``sensitive_text``) in their place. It uses no labels, no sensitive values of images and no gradient, and learns
    nothing from images. It maps images alone, so that any query can be ranked.

    Parameters
    ----------
    remove, boost : float, default=1.0
        Share of the harmful part that is subtracted, and of the helpful part that is added; both are 1 as published.

    Attributes
    ----------
    harmful_, helpful_ : array of shape (r, p) and (h, p)
        Orthonormal rows that span the differences of the pairs.
    text_ : array of shape (c, p)
        One unit vector per class.
    diagnostics_ : dict
        pairs ("given" or "prompts"), n_harmful, n_helpful and a note.

    Notes
    -----
    With an orthonormal basis q of the differences ``a − b`` of harmful pairs, ``x ← n(x − cos(x, q_k)·q_k)`` for every
    k; then ``x ← n(x + cos(x, q_k)·q_k)`` with a basis of helpful pairs. Normalising in between changes the length
    only, so all steps together are ``n((I + HᵀH)(I − QᵀQ) x)``, which does not depend on the order of pairs or the
    choice of the bases.

    Pairs are given as ``text_pairs={"harmful": (m, 2, p), "helpful": (m, 2, p)}``; a kind that is absent is left out.
    The prompt sets "waterbirds" and "celeba-blond" of the package have pairs in our own words.
    Without ``text_pairs``, the prompts of each two values of an attribute are harmful pairs, and those of each two
    classes are helpful pairs. Boosting the differences of classes doubles all differences of class scores, up to the
    length of the row, and changes no prediction; it has an effect on rankings.

    Differences from the paper: it takes pairs from a language model and bases from a QR decomposition, in which
    linearly dependent differences give arbitrary directions; here they add none. Its adaptation to unlabelled images is
    not part of this. O(n·p·(r + h)) time.

    Licence of the released code: none. This is a new implementation from the paper.

    References
    ----------
    Adila et al., "Zero-Shot Robustification of Zero-Shot Models", ICLR 2024, arXiv:2309.04344.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.array([[0.9, 0.1, -2.0], [0.3, 0.9, 2.0]])
    >>> text = [[1.0, 0.0, 0.9], [0.0, 1.0, 0.0]]
    >>> pairs = {"harmful": [[[0.5, 0.5, 1.0], [0.5, 0.5, -1.0]]]}
    >>> RoboShot().fit(images, text=text, text_pairs=pairs).predict(images).tolist()
    [0, 1]
    """

    needs = Needs("none", True, True, False, "Adila et al. 2024, arXiv:2309.04344")
    prompts_alone = True
    changes_embeddings = free_queries = True
    sentences = ("text_pairs",)
    fitted: ClassVar[tuple[str, ...]] = ("text_", "harmful_", "helpful_")
    shapes = {"text_": ("c", "p"), "harmful_": ("r", "p"), "helpful_": ("h", "p")}  # noqa: RUF012

    def __init__(self, remove: float = 1.0, *, boost: float = 1.0) -> None:
        self.remove = remove
        self.boost = boost

    @property
    def title(self) -> str:
        """Name of the method."""
        return "RoboShot"

    def _learn(self, data: Training) -> None:
        check_within("remove", self.remove, 0.0, MOST)
        check_within("boost", self.boost, 0.0, MOST)
        self.text_ = class_prompts(data, "RoboShot")
        differences, counts, source = self._differences(data)
        self.harmful_, self.helpful_ = (span(rows) for rows in differences)
        if self.remove == 1.0:
            boosted = self.text_ + self.boost * (self.text_ @ self.helpful_.T) @ self.helpful_
            left = project(boosted, self.harmful_)  # images times these are the scores, but for lengths
            step = "the removal of harmful differences"
            warn_if_equal(self.text_, left, self.classes_, step, "give other pairs, or prompts of the values")
        n_harmful, n_helpful = counts
        words = "given" if source == "given" else "made of prompts of sensitive values and classes"
        self.diagnostics_ = {
            "pairs": source,
            "n_harmful": n_harmful,
            "n_helpful": n_helpful,
            "note": f"{n_harmful} harmful and {n_helpful} helpful pairs, {words}",
        }

    def _differences(self, data: Training) -> tuple[list[F64], list[int], str]:
        """Return rows (m, p) with the span of the harmful and of the helpful differences, their numbers and source."""
        if data.pairs is not None:
            none = np.zeros((0, 2, self.text_.shape[1]))
            given = [data.pairs.get(kind, none) for kind in PAIR_KINDS]
            return [pairs[:, 0] - pairs[:, 1] for pairs in given], [len(pairs) for pairs in given], "given"
        if data.sensitive_prompts is None:
            raise PromptError(
                "RoboShot needs pairs of sentences: give text_pairs, or sensitive_text to make them of"
            )
        made = [sensitive_values(data), [self.text_]]
        # The differences of each two rows of a part have the span of those from its first row.
        return (
            [np.concatenate([rows[1:] - rows[0] for rows in parts]) for parts in made],
            [sum(len(rows) * (len(rows) - 1) // 2 for rows in parts) for parts in made],
            "prompts",
        )

    def _embed(self, rows: F64) -> F64:
        """Return the mapped rows (b, p) at unit length, zero where nothing is left. O(b·p·(r + h)) time."""
        rows = rows - self.remove * (rows @ self.harmful_.T) @ self.harmful_
        return unit_or_zero(rows + self.boost * (rows @ self.helpful_.T) @ self.helpful_)
