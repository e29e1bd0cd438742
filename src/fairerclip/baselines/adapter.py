"""Adapters: a small network on image embeddings, trained for classification by frozen class prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairerclip._util.checks import check_choice, check_count, check_number, check_positive
from fairerclip._util.extras import require
from fairerclip._util.types import F64
from fairerclip.baselines.baseline import Baseline
from fairerclip.baselines.gradient.recipes import Recipe, check_recipe, counted, shuffled
from fairerclip.baselines.heads import class_prompts
from fairerclip.baselines.training_data import Needs, Training
from fairerclip.data.embedding_rows import unit_rows

VARIANTS = ("batchnorm", "clip-adapter")
MAX_HIDDEN = 65_536
"""Largest width of the hidden layer; wider ones would take gigabytes for any embedding."""


@dataclass(kw_only=True, eq=False, repr=False)
class Adapted(Recipe, Baseline):
    """Base class of the adapters: their common parameters, and prediction with the fitted network.

    Batch normalisation with its running statistics is an affine map. It is folded into the hidden layer, so a fitted
    network is four arrays and needs no torch.
    """

    hidden: int | None = 128
    temperature: float = 100.0
    fitted: ClassVar[tuple[str, ...]] = (
        "hidden_weight_",
        "hidden_bias_",
        "output_weight_",
        "output_bias_",
        "text_",
    )
    shapes: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "hidden_weight_": ("h", "p"),
        "hidden_bias_": ("h",),
        "output_weight_": ("p", "h"),
        "output_bias_": ("p",),
        "text_": ("c", "p"),
    }

    changes_embeddings: ClassVar[bool] = True

    def _class_scores(self, embedded: F64) -> F64:
        """Return cosines (b, c) of adapted rows with the class prompts, times the temperature. O(b·p·c) time."""
        return np.asarray(self.temperature * unit_rows(embedded) @ self.text_.T)

    def _embed(self, rows: F64) -> F64:
        """Return the adapted embeddings (b, p), not normalised. O(b·p·h) time."""
        hidden = np.maximum(rows @ self.hidden_weight_.T + self.hidden_bias_, 0.0)
        return np.asarray(hidden @ self.output_weight_.T + self.output_bias_)

    def _seed(self) -> int:
        """Check the common parameters, and return the seed of the training."""
        check_positive("temperature", self.temperature)
        if self.hidden is not None:
            check_count("hidden", self.hidden, MAX_HIDDEN)
        return check_recipe(self)

    def _width(self, data: Training) -> int:
        """Return the width of the hidden layer."""
        return max(1, data.X.shape[1] // 4) if self.hidden is None else int(self.hidden)


@dataclass(kw_only=True, eq=False, repr=False)
class Adapter(Adapted):
    """Adapter ``f(x) = W₂·ReLU(BN(W₁x)) + b₂``, trained by plain cross-entropy over all rows.

    Logits are 100 times the cosine of f(x) and the class prompts, which are not trained.

    Needs class prompts and labels y, and the extra ``torch`` for training by gradient. It uses no sensitive values of
    the training rows; validation rows with both labels choose the epoch where they are given.

    Parameters
    ----------
    hidden : int or None
        Width of the hidden layer; None for a quarter of the width of the embedding, as in CLIP-Adapter.
    variant : {"batchnorm", "clip-adapter"}
        The adapter of Zhang & Ré (2022) above, or the one of Gao et al. (2021),
        ``f(x) = ratio·ReLU(W₂·ReLU(W₁x)) + (1 − ratio)·x``, trained by the same recipe.
    ratio : float
        Share of the network in "clip-adapter"; "batchnorm" has no residual and does not use it.
    temperature : float
        Factor of the cosines.
    epochs, lr, momentum, weight_decay, batch_size, max_steps, device, progress
        As in `fairerclip.baselines.gradient.recipes.Recipe`. The tables have 100 epochs for Waterbirds, 50 for CelebA.
    random_state : int, RandomState or None
        Source of the starting weights and of the order of rows.

    Attributes
    ----------
    hidden_weight_, hidden_bias_ : array of shape (h, p) and (h,)
        Hidden layer.
    output_weight_, output_bias_ : array of shape (p, h) and (p,)
        Output layer.
    text_ : array of shape (c, p)
        One unit vector per class.
    diagnostics_ : dict
        The epoch that was kept and why, and the history of all epochs.

    Notes
    -----
    Training needs torch; predicting does not. With validation rows the epoch with the best worst-group accuracy on
    them is kept, as published.

    Differences from the paper: rows have unit length, where those of the paper are the output of the encoder;
    "clip-adapter" is trained by the recipe of Zhang & Ré, and not by that of CoOp; a batch of one row is normalised
    with the running statistics.

    Licence of the released code: none, of both papers. This is a new implementation.

    References
    ----------
    Zhang & Ré, "Contrastive Adapters for Foundation Model Group Robustness", NeurIPS 2022, arXiv:2207.07180.
    Gao et al., "CLIP-Adapter: Better Vision-Language Models with Feature Adapters", 2021, arXiv:2110.04544.
    """

    needs: ClassVar[Needs] = Needs(
        labels="target",
        text=True,
        sensitive=False,
        validation=False,
        paper="Gao et al. 2021, as in Zhang & Ré 2022",
    )

    variant: str = "batchnorm"
    ratio: float = 0.2

    @property
    def title(self) -> str:
        """Name of the method."""
        return "CLIP-Adapter" if self.variant == "clip-adapter" else "adapter"

    def _learn(self, data: Training) -> None:
        require("torch", "torch", "training an adapter")
        from fairerclip.baselines.gradient.loop import Run
        from fairerclip.baselines.gradient.nets import AdapterNet, ClipAdapterNet, start_weights

        check_choice("variant", self.variant, VARIANTS)
        check_number("ratio", self.ratio, 0, 1, open_below=True)
        seed, data = self._seed(), counted(data)
        self.text_ = class_prompts(data, "Adapter")
        start = start_weights(self._width(data), data.X.shape[1], seed)
        if self.variant == "batchnorm":
            net = AdapterNet(start, self.text_, self.temperature)
        else:
            net = ClipAdapterNet(start, self.text_, self.temperature, self.ratio)
        run = Run(net, data, self)
        self.diagnostics_ = run.train(
            lambda epoch: run.cross_entropy(shuffled(len(data.X), seed, epoch)), data.validation
        )
        self.__dict__.update(net.fitted())

    def _embed(self, rows: F64) -> F64:
        if self.variant == "batchnorm":
            return super()._embed(rows)
        return np.asarray(self.ratio * np.maximum(super()._embed(rows), 0.0) + (1 - self.ratio) * rows)
