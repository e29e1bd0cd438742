"""The Contrastive Adapter of Zhang & Ré (2022)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fairerclip._util.checks import check_choice, check_count
from fairerclip._util.extras import require
from fairerclip._util.types import Ints
from fairerclip.baselines.adapter import Adapted
from fairerclip.baselines.gradient.pseudo_groups import draw_cells, equalise, pseudo_groups
from fairerclip.baselines.gradient.recipes import Contrasts, check_contrasts, counted, labels_of
from fairerclip.baselines.heads import class_prompts
from fairerclip.baselines.training_data import Needs, Training
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.errors import VanishedLabelWarning

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
"""Published parameters by dataset. The defaults are those for Waterbirds, except that gradients are averaged."""


@dataclass(kw_only=True, eq=False, repr=False)
class ContrastiveAdapter(Contrasts, Adapted):
    """Adapter that pulls rows with a wrong prediction of a simple classifier towards right ones of the same class.

    Odd epochs are contrastive: anchors are rows of a class that the classifier predicts as another class, positives
    are rows of that class that it predicts correctly, and negatives are the nearest neighbours of the anchor from
    other classes. Even epochs are cross-entropy with the frozen prompts, on rows drawn evenly over cells of class and
    predicted class.

    Needs class prompts and labels y, and the extra ``torch`` for training by gradient. It uses no sensitive values of
    the training rows, whose groups it predicts; validation rows with both labels choose the epoch where they are given.

    Parameters
    ----------
    hidden, temperature
        As in `Adapter` (variant "batchnorm").
    groups : {"zero-shot", "kmeans"}
        The simple classifier. The published default is UMAP and k-means; "kmeans" clusters principal components
        instead, and "zero-shot" uses the class prompts.
    positives : int
        Largest number of positives of an anchor.
    neighbours : int
        Number of nearest neighbours, by cosine of the original rows, from which negatives are drawn.
    negatives : int
        Number of neighbours drawn; those of the anchor's own class do not count in the loss.
    contrastive_temperature : float
        τ of the contrastive loss.
    anchors_per_step : int
        Number of anchors per step.
    anchor_reduction : {"mean", "sum"}
        Whether the gradients of these anchors are averaged, or added up as in the released code. With "sum" and 128
        anchors a contrastive step is 128 times as long at the same ``lr``, which even epochs use as well.
    anchor_share : float
        Share of the anchors drawn in an epoch. 1 takes each once (Waterbirds); the CelebA tables have 0.1.
    resample : {"cells", "upsample"}
        Rows of even epochs: ``cell_rows`` of each cell (Waterbirds), or classes upsampled to the largest and then,
        inside each class, cells upsampled to the largest (CelebA).
    cell_rows : int
        Number of rows drawn from each cell for "cells".
    epochs, lr, momentum, weight_decay, batch_size, max_steps, device, progress, random_state
        As in `Adapter`.

    Attributes
    ----------
    hidden_weight_, hidden_bias_ : array of shape (h, p) and (h,)
        Hidden layer.
    output_weight_, output_bias_ : array of shape (p, h) and (p,)
        Output layer.
    text_ : array of shape (c, p)
        One unit vector per class.
    diagnostics_ : dict
        As in `Adapter`, with the agreement of the pseudo-groups with y, and numbers of anchors and positives by class.

    Notes
    -----
    A contrastive epoch takes O(a·m·h²) time for a anchors of m rows each, and O(a·n·p) for their neighbours if
    there are more rows than ``neighbours``. Memory is O(n·p + 128·n): no n×n matrix is formed.
    Training needs torch; predicting does not.

    Differences from the paper: rows have unit length; the simple classifier is zero-shot by default, and
    ``groups="kmeans"`` clusters 16 principal components into as many clusters as classes in place of UMAP and k-means;
    neighbours are those of the anchor itself; short lists of positives are not padded; and the gradients of the anchors
    of a step are averaged by default, not added up. `PUBLISHED` has the complete recipes of both data sets.

    Licence of the released code: none. This is a new implementation.

    References
    ----------
    Zhang & Ré, "Contrastive Adapters for Foundation Model Group Robustness", NeurIPS 2022, arXiv:2207.07180.
    """

    needs: ClassVar[Needs] = Needs(
        labels="target", text=True, sensitive=False, validation=False, paper="Zhang & Ré 2022"
    )

    groups: str = "zero-shot"
    resample: str = "cells"
    cell_rows: int = 500

    @property
    def title(self) -> str:
        """Name of the method."""
        return "Contrastive Adapter"

    def _learn(self, data: Training) -> None:
        require("torch", "torch", "training a contrastive adapter")
        from fairerclip.baselines.gradient.contrast import Pairs, contrastive_epoch, count_pairs
        from fairerclip.baselines.gradient.loop import Epoch, Run
        from fairerclip.baselines.gradient.nets import AdapterNet, floats, start_weights

        check_choice("resample", self.resample, RESAMPLES)
        check_count("cell_rows", self.cell_rows)
        check_contrasts(self)
        seed, data = self._seed(), counted(data)
        self.text_ = class_prompts(data, "ContrastiveAdapter")
        y, predicted = labels_of(data), pseudo_groups(data, self.groups, seed)
        start = start_weights(self._width(data), data.X.shape[1], seed)
        net = AdapterNet(start, self.text_, self.temperature)
        run = Run(net, data, self)
        pairs = Pairs(y, predicted, floats(unit_rows(data.X)).to(run.device), self)

        def run_epoch(epoch: int) -> Epoch:
            rng = np.random.default_rng([seed, epoch])
            if epoch % 2:
                return contrastive_epoch(run, pairs, rng)
            return run.cross_entropy(self._draw(y, predicted, rng))

        if not len(pairs.anchors(np.random.default_rng(seed))):
            warnings.warn(
                f"groups={self.groups!r} agrees with y, or is wrong about all of a class: no row is an anchor and "
                "odd epochs do nothing",
                VanishedLabelWarning,
                stacklevel=3,
            )
        self.diagnostics_ = {
            **run.train(run_epoch, data.validation),
            "groups": self.groups,
            "agreement": float(np.mean(predicted == y)),
            **count_pairs(y, predicted),
        }
        self.__dict__.update(net.fitted())

    def _draw(self, y: Ints, predicted: Ints, rng: np.random.Generator) -> Ints:
        """Draw the rows of an even epoch, shuffled."""
        if self.resample == "cells":
            cells = y * (int(predicted.max()) + 1) + predicted
            return rng.permutation(draw_cells(cells, self.cell_rows, rng))
        rows = equalise(y, "upsample", rng)
        by_class = [rows[y[rows] == code] for code in np.unique(y)]
        return rng.permutation(np.concatenate([equalise(predicted[r], "upsample", rng, r) for r in by_class]))
