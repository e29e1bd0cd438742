"""The neutral representation of FairCLIP (Wang et al. 2022): images equally similar to the prototypes of all values."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fairerclip._util.checks import LARGEST, check_choice, check_within
from fairerclip._util.types import F64, Ints
from fairerclip.baselines.heads import (
    CosineHead,
    class_prompts,
    differences,
    sensitive_codes,
    sensitive_values,
)
from fairerclip.baselines.learned_prefix import learned_prefix
from fairerclip.baselines.training_data import Needs, Training
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.errors import PromptError

PREFIXES = ("none", "learned")


class NeutralRepresentation(CosineHead):
    """Zero-shot classifier on image embeddings under a matrix that makes them equally similar to all sensitive values.

    This is FairCLIP of Wang, Zhang & Sang (2022) in embedding space, not the method of the same name for medical
    images (2024).

    Needs class prompts and sensitive values of the images: true values, or prompts to predict them from. It uses no
    labels and no gradient, does not change prompts, and ranks by any query.

    Parameters
    ----------
    strength : float, default=100.0
        Weight λ of equal similarities with the prototypes; 0 changes nothing.
    prompt_share : float, default=0.5
        Share α, from 0 to 1, of the prototypes that are prompts of the values. The others are the mean embeddings of
        the images of each value. Without prompts of the values it counts as 0.
    keep : float, default=1.0
        Weight μ of unchanged similarities with the class prompts.
    prefix : {"none", "learned"}, default="none"
        "learned" adds one vector to the prompts of all values of an attribute, learned so that the nearest prompt of a
        training row is that of its value; it needs ``sensitive_text``.

    Attributes
    ----------
    right_, left_ : array of shape (p, k) and (k, p)
        The map ``x − x·right_·left_`` of unit rows; k is the number of directions in which prototypes differ.
    text_ : array of shape (c, p)
        One unit vector per class.
    diagnostics_ : dict
        prompt_directions and image_directions (numbers of differences of prototypes), and a note; with a learned
        prefix also ``prefix``: for each attribute, in the order of ``sensitive_text``, the length of the vector, and
        the share of rows that the prompts read as their value before and after; None for an attribute with one value.

    Notes
    -----
    The matrix R minimises the mean over training rows of ``‖Rx − x‖² + λ·Σ wₖ(dₖ·Rx)² + (μ/c)·Σ (t·(Rx − x))²``. The d
    are the differences, at unit length, of every two prototypes of an attribute; those of prompts share the weight α,
    those of mean images, crossed over attributes, 1 − α. The minimiser is ``R = I − λ(I + λΣwddᵀ + (μ/c)Σttᵀ)⁻¹ Σwddᵀ``
    whatever the rows are, so they count through their means alone. The inverse is computed in the span of d and t
    (Woodbury identity). For λ → ∞ and μ = 0, R is the orthogonal projection off the d. O(n·p) time for the means.

    A learned prefix u minimises the cross-entropy of ``softmax(100·x·n(pᵥ + u))`` with the values of the rows, plus
    ``0.1‖u‖²``, over the prompts pᵥ of the values; prototypes are then ``n(pᵥ + u)``. It is learned from the values
    that the method is given. Values that were read from the prompts themselves agree with them already, so that u
    makes them surer and not better. A common vector cancels in comparisons of the prompts except through their
    lengths; it corrects prompts that read one value too often, and little else. It is dropped if it reads fewer
    training rows as their value; of other rows a few may be lost where the prompts read nearly all of them rightly.

    Details of the losses of the paper are known from its abstract and introduction only. As far as these tell, it
    has: the prototypes are prompts "a photo of a {value}" behind word vectors that are learned by
    gradient with labels of target and sensitive attributes (Attribute Prototype Learning), and the square
    re-representation matrix is learned by gradient under separate constraints for target and bias attributes
    (Representation Neutralization).

    Differences from the paper, as far as these tell: the word vectors would need the text encoder. Prompts and mean
    images together are the prototypes; a learned prefix is one vector in embedding space, the same for all prompts of
    an attribute, where word vectors change each prompt in another way, and it is learned from sensitive values alone.
    Both constraints are squared losses, which have a closed form; the class
    prompts are the target attributes, and no labels are used. Weights are ours, since a squared loss has other units.

    Licence of the released code: not known; we know of no released code. This is a new implementation.

    References
    ----------
    Wang, Zhang & Sang, "FairCLIP: Social Bias Elimination based on Attribute Prototype Learning and Representation
    Neutralization", 2022, arXiv:2210.14562.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.9, 0.1, -2.0], [0.3, 0.9, 2.0]])
    >>> sensitive = np.array([[0.1, 0.1, 1.0], [0.1, 0.1, -1.0]])
    >>> model = NeutralRepresentation(1e6, prompt_share=1, keep=0).fit(X, text=np.eye(3)[:2], sensitive_text=sensitive)
    >>> bool(np.abs(model.transform(X) @ (sensitive[0] - sensitive[1])).max() < 1e-5)
    True
    """

    needs = Needs("none", True, True, False, "Wang, Zhang & Sang 2022, arXiv:2210.14562")
    changes_embeddings = free_queries = True
    fitted: ClassVar[tuple[str, ...]] = ("text_", "right_", "left_")
    shapes = {"text_": ("c", "p"), "right_": ("p", "k"), "left_": ("k", "p")}  # noqa: RUF012

    def __init__(
        self, strength: float = 100.0, *, prompt_share: float = 0.5, keep: float = 1.0, prefix: str = "none"
    ) -> None:
        self.strength = strength
        self.prompt_share = prompt_share
        self.keep = keep
        self.prefix = prefix

    @property
    def title(self) -> str:
        """Name of the method."""
        return "FairCLIP (2022), neutral representation"

    def _learn(self, data: Training) -> None:
        check_within("strength", self.strength, 0.0, LARGEST)
        check_within("prompt_share", self.prompt_share, 0.0, 1.0)
        check_within("keep", self.keep, 0.0, LARGEST)
        check_choice("prefix", self.prefix, PREFIXES)
        self.text_ = class_prompts(data, "NeutralRepresentation")
        values = sensitive_values(data) if data.sensitive_prompts else []
        record: dict[str, Any] = {}
        if self.prefix == "learned":
            values, record["prefix"] = with_prefixes(data, values)
        prompts = [differences(part) for part in values]
        images = differences(group_means(data.X, sensitive_codes(data), data.weight))
        share = float(self.prompt_share) if prompts else 0.0
        found = [(share / max(1, len(prompts)), part) for part in prompts] + [(1 - share, images)]
        # Rows of B are √w·d, so that BᵀB is the weighted sum of ddᵀ.
        B = np.concatenate([np.sqrt(weight / max(1, len(part))) * unit_rows(part) for weight, part in found])
        self.right_, self.left_ = neutralised(B, self.text_, float(self.strength), float(self.keep))
        n_prompts = sum(len(part) for part in prompts)
        self.diagnostics_ = {
            "prompt_directions": n_prompts,
            "image_directions": len(images),
            "note": f"{n_prompts} differences of prompts and {len(images)} of mean images are neutralised",
            **record,
        }

    def _embed(self, rows: F64) -> F64:
        return np.asarray(rows - rows @ self.right_ @ self.left_)


def with_prefixes(data: Training, values: list[F64]) -> tuple[list[F64], list[dict[str, float] | None]]:
    """Return the prompts (v, p) of each attribute with its learned prefix, at unit length, and a record of each.

    The prompts of an attribute with a single value in all rows stay as they are, and its record is None.
    """
    if not values:
        raise PromptError(
            'prefix="learned" moves the prompts of the sensitive values: give sensitive_text, or prefix="none"'
        )
    moved: list[F64] = []
    records: list[dict[str, float] | None] = []
    for codes, prompts in zip(data.value_codes, values, strict=True):
        if codes is None:
            moved.append(prompts)
            records.append(None)
            continue
        prefix = learned_prefix(data.X, codes, prompts, data.weight)
        moved.append(unit_rows(prompts + prefix.offset))
        length = float(np.linalg.norm(prefix.offset))
        records.append({"length": length, "read_before": prefix.before, "read": prefix.after})
    return moved, records


def group_means(X: F64, s: Ints, weight: F64) -> F64:
    """Return the weighted mean (v, p) of the rows X (n, p) of every code of s (n,) that has weight (n,)."""
    codes = np.unique(s[weight > 0])
    shares = (s == codes[:, None]) * weight  # (v, n)
    return np.asarray(shares @ X / shares.sum(axis=1, keepdims=True))


def neutralised(B: F64, T: F64, strength: float, keep: float) -> tuple[F64, F64]:
    """Return right (p, k) and left (k, p) of the minimiser ``R = (I − right·left)ᵀ`` over all matrices.

    Parameters
    ----------
    B : array of shape (m, p)
        Directions to neutralise, each times the root of its weight.
    T : array of shape (c, p)
        Unit vectors whose similarities are kept.
    strength, keep : float
        Weights λ and μ of the two terms, as in `NeutralRepresentation`.
    """
    _, sizes, V = np.linalg.svd(B, full_matrices=False)
    rank = int(np.sum(sizes > max(B.shape) * np.finfo(np.float64).eps * sizes.max(initial=0.0)))
    B = np.sqrt(strength) * sizes[:rank, None] * V[:rank]  # (k, p), with the same BᵀB times λ
    T = np.sqrt(keep / len(T)) * T
    # B·(I + TᵀT)⁻¹ first: a solution for B and T together would lose as many digits as λ has.
    kept = B - (B @ T.T) @ np.linalg.solve(np.eye(len(T)) + T @ T.T, T)
    return np.asarray(B.T), np.asarray(np.linalg.solve(np.eye(rank) + kept @ B.T, kept))
