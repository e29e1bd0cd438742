"""DeAR: a linear residual is added to image embeddings, so that a frozen classifier cannot tell S."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairerclip._util.checks import LARGEST, check_count, check_positive, check_within
from fairerclip._util.extras import require
from fairerclip._util.types import F64
from fairerclip.baselines.gradient.recipes import Recipe, check_recipe, counted, shuffled
from fairerclip.baselines.heads import CosineHead, class_prompts, values_as_target
from fairerclip.baselines.training_data import Needs, Training

TEMPERATURE = 100.0
"""Factor of the cosines of class prompts where validation rows are judged; it changes no prediction."""


@dataclass(kw_only=True, eq=False, repr=False)
class DeAR(Recipe, CosineHead):
    """Zero-shot classifier on ``φ(x) = x + Wx + b``, trained so that a frozen classifier of S is left uncertain.

    Needs class prompts and sensitive values of the images: true values, or prompts to predict them from; and the extra
    ``torch`` for training by gradient. It uses no labels, does not change prompts, and ranks by any query.

    Parameters
    ----------
    strength : float
        Weight λ of the term that hides S.
    hidden : int
        Width of the hidden layer of the classifier of S; 0 for a linear one.
    classifier_epochs : int
        Epochs of its training, before the residual is trained.
    classifier_lr, classifier_decay : float
        Step size and weight decay of its training.
    epochs, lr, momentum, weight_decay, batch_size, max_steps, device, progress
        Training of the residual, as in `fairerclip.baselines.gradient.recipes.Recipe`.
    random_state : int, RandomState or None
        Source of the starting weights and of the order of rows.

    Attributes
    ----------
    residual_weight_, residual_bias_ : array of shape (p, p) and (p,)
        W and b.
    text_ : array of shape (c, p)
        One unit vector per class.
    diagnostics_ : dict
        The epoch that was kept and why, and the history of all epochs.

    Notes
    -----
    A classifier learns S from unit rows and is frozen. Then W and b, which start at zero, minimise the mean of
    ``‖φ(x) − x‖² + λ·KL(uniform, p(S | φ(x)/‖φ(x)‖))``. Row weights multiply both losses. Several attributes are
    crossed. If S has one value, the classifier knows nothing to hide, and φ(x) = x. With validation rows the epoch with
    the best worst-group accuracy on them is kept, otherwise the last one.

    Details of the losses of the paper are known from its abstract and introduction only.

    Differences from the paper, as far as these tell: it adds the negative cross-entropy of the classifier, which has no
    lower bound, and the entropy for some attributes; here the divergence from uniform probabilities, which is zero at
    best, has the place of both. Its classifier is a network with a head for every attribute, and learns from true
    labels of FairFace. Here it is linear with a large weight decay, because a small change of x misleads a network or
    an unpenalised classifier and leaves S in other directions: on validation rows of FairFace the mean MaxSkew of free
    queries fell from 0.19 to 0.09, and with a network of 128 units to 0.12. The classifier sees φ(x) at unit length, as
    cosines do. Step sizes and weights are ours, for unit rows, with the optimiser of the other methods by gradient.

    Licence of the released code: not known; we know of no released code. This is a new implementation. A patent on the
    method was granted (US 12430898).

    References
    ----------
    Seth, Hemani & Agarwal, "DeAR: Debiasing Vision-Language Models with Additive Residuals", CVPR 2023,
    arXiv:2303.10431.
    """

    needs: ClassVar[Needs] = Needs("none", True, True, False, "Seth, Hemani & Agarwal 2023, arXiv:2303.10431")
    changes_embeddings: ClassVar[bool] = True
    free_queries: ClassVar[bool] = True
    fitted: ClassVar[tuple[str, ...]] = ("text_", "residual_weight_", "residual_bias_")
    shapes: ClassVar[dict[str, tuple[str, ...]]] = {
        "text_": ("c", "p"),
        "residual_weight_": ("p", "p"),
        "residual_bias_": ("p",),
    }

    strength: float = 1.0
    hidden: int = 0
    classifier_epochs: int = 20
    classifier_lr: float = 0.03
    classifier_decay: float = 0.1
    epochs: int = 20
    lr: float = 0.003
    weight_decay: float = 0.0

    @property
    def title(self) -> str:
        """Name of the method."""
        return "DeAR"

    def _learn(self, data: Training) -> None:
        require("torch", "torch", "training DeAR")
        from fairerclip.baselines.gradient.debiasing import ResidualNet, residual_epoch, trained_classifier
        from fairerclip.baselines.gradient.loop import Run

        seed = check_recipe(self)
        check_positive("strength", self.strength)
        check_positive("classifier_lr", self.classifier_lr)
        check_within("classifier_decay", self.classifier_decay, 0.0, LARGEST)
        check_count("hidden", self.hidden, 65_536, least=0)
        check_count("classifier_epochs", self.classifier_epochs)
        self.text_ = class_prompts(data, "DeAR")
        data = counted(values_as_target(data))
        teacher = Recipe(
            epochs=self.classifier_epochs,
            lr=self.classifier_lr,
            weight_decay=self.classifier_decay,
            batch_size=self.batch_size,
            device=self.device,
        )
        classifier = trained_classifier(data, self.hidden, teacher, seed)
        net = ResidualNet(self.text_, TEMPERATURE)
        run = Run(net, data, self)
        self.diagnostics_ = run.train(
            lambda epoch: residual_epoch(
                run, classifier, float(self.strength), shuffled(len(data.X), seed, epoch)
            ),
            data.validation,
        )
        self.__dict__.update(net.fitted())

    def _embed(self, rows: F64) -> F64:
        return np.asarray(rows + rows @ self.residual_weight_.T + self.residual_bias_)
