"""Prompt debiasing: a change of all prompts is learned against an adversary that predicts S from similarities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairerclip._util.checks import check_count, check_positive
from fairerclip._util.extras import require
from fairerclip._util.types import F64
from fairerclip.baselines.gradient.recipes import Recipe, check_recipe, counted, shuffled
from fairerclip.baselines.heads import CosineHead, class_prompts, values_as_target
from fairerclip.baselines.training_data import Needs, Training


@dataclass(kw_only=True, eq=False, repr=False)
class PromptDebiasing(Recipe, CosineHead):
    """Zero-shot classifier with a learned addition to prompts that hides S from an adversary.

    Needs class prompts and sensitive values of the images: true values, or prompts to predict them from; and the extra
    ``torch`` for training by gradient. It uses no labels, does not change images, and ranks by any query.

    Parameters
    ----------
    strength : float
        Weight λ of the term that hides S.
    rank : int
        Rank of the part of the addition that depends on the prompt; 0 for one offset of all prompts.
    hidden : int
        Width of the hidden layer of the adversary.
    adversary_lr : float
        Step size of the adversary.
    warm_up : int
        Epochs in which the adversary alone learns, before the prompts change.
    temperature : float
        Factor of the cosines in the contrastive term.
    epochs, lr, momentum, weight_decay, batch_size, max_steps, device, progress
        Training of the addition, as in `fairerclip.baselines.gradient.recipes.Recipe`.
    random_state : int, RandomState or None
        Source of the starting weights and of the order of rows.

    Attributes
    ----------
    offset_, left_, right_ : array of shape (p,), (p, r) and (r, p)
        The prompt t becomes ``t + offset_ + left_·(right_·t)``, normalised.
    text_ : array of shape (c, p)
        Class prompts after the change.
    diagnostics_ : dict
        The epoch that was kept and why, and the history of all epochs.

    Notes
    -----
    An adversary with one hidden layer predicts S from the cosines of an image with all class prompts, standardised in
    every batch. For every batch it takes five steps, and then the addition takes a step on
    ``CE(q, q₀) + λ·max(0, H(S) − A)``, where A is the adversary's cross-entropy, H(S) the entropy of S, and q and q₀
    the class probabilities of an image by changed and by unchanged prompts. Several attributes are crossed. Row weights
    multiply both losses. If S has one value, nothing is to be hidden. Prompts that are far from all class prompts are
    changed as well, and less reliably.

    Details of the losses of the paper are known from its abstract and introduction only.

    Differences from the paper, as far as these tell: it prepends two learned tokens to every query, which needs the
    text encoder. In embedding space the addition is affine: an offset alone is common to all prompts, so it would
    cancel in every comparison of classes; the part of low rank lets it depend on the prompt, as tokens do. It learns
    from true labels of FairFace, from queries about people, and by the contrastive loss of pairs of images and
    captions; here the queries are the class prompts, and images are paired with the classes that unchanged prompts
    predict. The adversary's loss is raised up to that of a guess without any image, and not without bound.

    Licence of the released code: MIT. It has no training; this is a new implementation.

    References
    ----------
    Berg et al., "A Prompt Array Keeps the Bias Away: Debiasing Vision-Language Models with Adversarial Learning", AACL
    2022, arXiv:2203.11933.
    """

    needs: ClassVar[Needs] = Needs("none", True, True, False, "Berg et al. 2022, arXiv:2203.11933")
    changes_prompts: ClassVar[bool] = True
    free_queries: ClassVar[bool] = True
    fitted: ClassVar[tuple[str, ...]] = ("text_", "offset_", "left_", "right_")
    shapes: ClassVar[dict[str, tuple[str, ...]]] = {
        "text_": ("c", "p"),
        "offset_": ("p",),
        "left_": ("p", "r"),
        "right_": ("r", "p"),
    }

    strength: float = 1.0
    rank: int = 8
    hidden: int = 32
    adversary_lr: float = 0.1
    warm_up: int = 2
    temperature: float = 100.0
    epochs: int = 20
    lr: float = 0.01
    weight_decay: float = 0.0

    @property
    def title(self) -> str:
        """Name of the method."""
        return "Prompt debiasing"

    def _learn(self, data: Training) -> None:
        require("torch", "torch", "training prompts")
        from fairerclip.baselines.gradient.debiasing import Adversary, PromptNet
        from fairerclip.baselines.gradient.loop import Run

        seed = check_recipe(self)
        for name in ("strength", "adversary_lr", "temperature"):
            check_positive(name, getattr(self, name))
        check_count("rank", self.rank, 4096, least=0)
        check_count("hidden", self.hidden, 65_536)
        check_count("warm_up", self.warm_up, least=0)
        text = class_prompts(data, "PromptDebiasing")
        data = counted(values_as_target(data))
        net = PromptNet(text, self.temperature, self.rank, seed)
        run = Run(net, data, self)
        adversary = Adversary(run, data, self.hidden, float(self.adversary_lr), seed)
        adversary.warm_up(self.warm_up, seed)
        self.diagnostics_ = run.train(
            lambda epoch: adversary.epoch(shuffled(len(data.X), seed, epoch), float(self.strength)),
            data.validation,
        )
        self.__dict__.update(net.fitted())

    def _embed_text(self, rows: F64) -> F64:
        return moved(rows, self.offset_, self.left_, self.right_)


def moved(T: F64, offset: F64, left: F64, right: F64) -> F64:
    """Return prompts (m, p) with ``offset + left·(right·t)`` added, not normalised."""
    return np.asarray(T + offset + (T @ right.T) @ left.T)
