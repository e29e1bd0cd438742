"""The Contrastive Adapter of Zhang & Ré (2022)."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np

from fairerclip._util.checks import check_choice, check_count
from fairerclip._util.extras import require
from fairerclip.baselines.adapter import Adapted, AdapterNet, hidden_width, recipe_of, start_weights, text_of
from fairerclip.baselines.base import Ints, Needs, Training
from fairerclip.baselines.contrast import Pairs, Sizes, contrastive_epoch, count_pairs
from fairerclip.baselines.pseudo_groups import draw_cells, equalise, pseudo_groups
from fairerclip.baselines.training import (
    Epoch,
    Momentum,
    Rows,
    counted,
    cross_entropy_epoch,
    device_of,
    labels_of,
    tensor,
    train,
)
from fairerclip.errors import VanishedLabelWarning
from fairerclip.inputs.image_rows import unit_rows

RESAMPLES = ("cells", "upsample")
PUBLISHED: dict[str, dict[str, Any]] = {
    "waterbirds": {
        "epochs": 100,
        "lr": 1e-3,
        "batch_size": 128,
        "anchor_share": 1.0,
        "anchor_reduction": "sum",
        "resample": "cells",
        "cell_rows": 500,
    },
    "celeba": {
        "epochs": 50,
        "lr": 1e-3,
        "batch_size": 128,
        "anchor_share": 0.1,
        "anchor_reduction": "sum",
        "resample": "upsample",
    },
}
"""The published runs of each dataset. The defaults are those for Waterbirds, but for gradients that are averaged."""


class ContrastiveAdapter(Adapted):
    """An adapter that pulls rows a simple classifier gets wrong towards rows of their class that it gets right.

    Odd epochs are contrastive: anchors are rows of a class taken for another one; positives are rows of that class
    taken for it; negatives are the anchor's nearest neighbours of other classes. Even epochs are cross-entropy
    against the frozen prompts, on rows drawn evenly over cells of class and predicted class.

    Parameters
    ----------
    hidden, temperature
        As in `Adapter` (variant "batchnorm").
    groups : "zero-shot" or "kmeans"
        The simple classifier. The published default is UMAP and k-means; "kmeans" clusters principal components
        instead, "zero-shot" reads the prompts.
    positives, neighbours, negatives : int
        Most positives of an anchor; how many nearest neighbours, by cosine of the rows as given, negatives are
        drawn from; how many of them are drawn, those of the anchor's own class not counting in the loss.
    contrastive_temperature : float
        τ of the contrastive loss.
    anchors_per_step : int
        Anchors whose gradients make one step.
    anchor_reduction : "mean" or "sum"
        Whether these gradients are averaged, or added up as the released code does: with 128 anchors a contrastive
        step is then 128 times as long at the same ``lr``, which even epochs share.
    anchor_share : float
        Share of the anchors drawn in an epoch; 1 takes each once (Waterbirds), the CelebA tables have 0.1.
    resample : "cells" or "upsample"
        Rows of even epochs: ``cell_rows`` of each cell (Waterbirds), or classes upsampled to the largest and then,
        inside each class, cells upsampled to the largest (CelebA).
    cell_rows : int
    epochs, lr, momentum, weight_decay, batch_size, max_steps, device, progress, random_state
        As in `Adapter`.

    Attributes
    ----------
    hidden_weight_ (h, p), hidden_bias_ (h,), output_weight_ (p, h), output_bias_ (p,), text_ (c, p)
    diagnostics_ : dict
        As of `Adapter`, with the agreement of the pseudo-groups with y, and anchors and positives of each class.

    Notes
    -----
    A contrastive epoch takes O(a·m·h²) time for a anchors of m rows each, and O(a·n·p) for their neighbours where
    there are more rows than ``neighbours``. Memory is O(n·p + 128·n): no n×n matrix is formed.
    Training needs torch; predicting does not.

    References
    ----------
    Zhang & Ré, "Contrastive adapters for foundation model group robustness", NeurIPS 2022.
    """

    added = {**Adapted.added, "anchor_reduction": "mean"}  # noqa: RUF012
    needs: ClassVar[Needs] = Needs(
        labels="target", text=True, sensitive=False, validation=False, paper="Zhang & Ré 2022"
    )

    def __init__(
        self,
        *,
        hidden: int | None = 128,
        temperature: float = 100.0,
        groups: str = "zero-shot",
        positives: int = 2048,
        neighbours: int = 4096,
        negatives: int = 2048,
        contrastive_temperature: float = 0.1,
        anchors_per_step: int = 128,
        anchor_share: float = 1.0,
        anchor_reduction: str = "mean",
        resample: str = "cells",
        cell_rows: int = 500,
        epochs: int = 100,
        lr: float = 1e-3,
        momentum: float = 0.9,
        weight_decay: float = 5e-5,
        batch_size: int = 128,
        max_steps: int | None = None,
        device: str = "auto",
        random_state: Any = None,
        progress: Any = None,
    ) -> None:
        self.hidden = hidden
        self.temperature = temperature
        self.groups = groups
        self.positives = positives
        self.neighbours = neighbours
        self.negatives = negatives
        self.contrastive_temperature = contrastive_temperature
        self.anchors_per_step = anchors_per_step
        self.anchor_share = anchor_share
        self.anchor_reduction = anchor_reduction
        self.resample = resample
        self.cell_rows = cell_rows
        self.epochs = epochs
        self.lr = lr
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_steps = max_steps
        self.device = device
        self.random_state = random_state
        self.progress = progress

    def _learn(self, data: Training) -> None:
        torch = require("torch", "torch", "training a contrastive adapter")
        recipe, sizes = recipe_of(self), self._sizes()
        data, text = counted(data), text_of(data)
        y = labels_of(data)
        predicted = pseudo_groups(data, self.groups, recipe.seed)
        device = torch.device(device_of(recipe))
        width = data.X.shape[1]
        weights = start_weights(hidden_width(self.hidden, width), width, recipe.seed)
        net = AdapterNet(weights, text, self.temperature, device)
        rows = Rows.of(data, device)
        pairs = Pairs(y, predicted, tensor(unit_rows(data.X), device), sizes)
        sgd = Momentum(net.parameters, recipe)

        def run_epoch(epoch: int) -> Epoch:
            rng = np.random.default_rng([recipe.seed, epoch])
            if epoch % 2:
                return contrastive_epoch(net, sgd, rows, pairs, rng)
            return cross_entropy_epoch(net, sgd, rows, self._draw(y, predicted, rng), recipe.batch_size)

        if not len(pairs.anchors(np.random.default_rng(recipe.seed))):
            warnings.warn(
                f"groups={self.groups!r} agrees with y, or is wrong about all of a class: no row is an anchor and "
                "odd epochs do nothing",
                VanishedLabelWarning,
                stacklevel=3,
            )
        self.diagnostics_ = {
            **train(net, run_epoch, recipe, data.validation),
            "groups": self.groups,
            "agreement": float(np.mean(predicted == y)),
            **count_pairs(y, predicted),
        }
        self.text_ = text
        self.__dict__.update(net.fitted())

    def _sizes(self) -> Sizes:
        check_choice("resample", self.resample, RESAMPLES)
        check_count("cell_rows", self.cell_rows)
        return Sizes(
            positives=self.positives,
            neighbours=self.neighbours,
            negatives=self.negatives,
            anchors_per_step=self.anchors_per_step,
            anchor_share=self.anchor_share,
            temperature=self.contrastive_temperature,
            anchor_reduction=self.anchor_reduction,
        )

    def _draw(self, y: Ints, predicted: Ints, rng: np.random.Generator) -> Ints:
        """Shuffled rows of an even epoch."""
        if self.resample == "cells":
            cells = y * (int(predicted.max()) + 1) + predicted
            return rng.permutation(draw_cells(cells, self.cell_rows, rng))
        rows = equalise(y, "upsample", rng)
        inside = [rows[y[rows] == code] for code in np.unique(y)]
        return rng.permutation(np.concatenate([equalise(predicted[r], "upsample", rng, r) for r in inside]))
