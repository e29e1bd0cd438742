"""Linear probes by stochastic gradient descent, on all rows or on balanced draws, as in Zhang & Ré (2022)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fairerclip._util.checks import check_choice, check_positive
from fairerclip._util.extras import require
from fairerclip._util.types import F64, Ints
from fairerclip.baselines.gradient.pseudo_groups import balanced_draw, pseudo_groups
from fairerclip.baselines.gradient.recipes import Recipe, check_recipe, counted, labels_of, shuffled
from fairerclip.baselines.training_data import Training

UNIT_ROW_SCALE = 10.0
"""Factor of unit rows in training: the step size of the recipe is made for embeddings of this length."""
DRAWS = ("subsample", "upsample")

Fitted = tuple[F64, F64, dict[str, Any]]


def train_probe(data: Training, *, scale: float | str = "auto", **recipe: Any) -> Fitted:
    """Train a softmax probe on shuffled rows; return coefficients (c, p), intercepts (c,) and diagnostics.

    O(epochs·n·p·c) time, O(n·p) memory for a single-precision copy of the rows.

    Parameters
    ----------
    data : Training
        Rows with labels; rows of weight zero are left out. The epoch is chosen on its validation rows.
    scale : "auto" or float
        Factor of the rows in training; the returned coefficients are for the original rows. "auto" is 10 for unit
        rows and 1 otherwise, because the step size of the recipe is made for CLIP embeddings before normalisation and
        is too short for unit rows.
    **recipe
        Parameters of `Recipe`. Weight decay acts on the intercepts as well.

    Notes
    -----
    Without early stopping the weights tend to the minimum of ``mean_i CE_i + (weight_decay/2)·(‖W‖² + ‖b‖²)``.
    """
    parameters = Recipe(**recipe)
    seed, data = check_recipe(parameters), counted(data)
    return _fit_linear(data, parameters, seed, scale, lambda epoch: shuffled(len(data.X), seed, epoch))


def train_pseudo(
    data: Training,
    how: str = "subsample",
    *,
    groups: str = "zero-shot",
    scale: float | str = "auto",
    **recipe: Any,
) -> Fitted:
    """Train a probe on balanced draws (DFR without group labels); return what `train_probe` returns.

    Among the rows that the simple classifier predicts as one class, true classes are made equally frequent:
    subsampled to the rarest that occurs there, or upsampled to the most common. Rows are drawn anew in every epoch,
    from ``seed + epoch``.

    Parameters
    ----------
    data : Training
        Rows with labels, and class prompts for ``groups="zero-shot"``; rows of weight zero are left out.
    how : {"subsample", "upsample"}
        How the classes are balanced.
    groups : {"zero-shot", "kmeans"}
        The simple classifier; see `pseudo_groups`.
    scale, **recipe
        As in `train_probe`.
    """
    check_choice("how", how, DRAWS)
    parameters = Recipe(**recipe)
    seed, data = check_recipe(parameters), counted(data)
    y, predicted = labels_of(data), pseudo_groups(data, groups, seed)
    coef, intercept, diagnostics = _fit_linear(
        data, parameters, seed, scale, lambda epoch: balanced_draw(y, predicted, how, seed + epoch)
    )
    agreement = float(np.mean(predicted == y))
    return coef, intercept, {**diagnostics, "groups": groups, "agreement": agreement}


def _fit_linear(
    data: Training, recipe: Recipe, seed: int, scale: float | str, draw: Callable[[int], Ints]
) -> Fitted:
    """Train the probe, in each epoch on the row numbers ``draw(epoch)`` in that order."""
    require("torch", "torch", "a probe trained by gradient")
    from fairerclip.baselines.gradient.loop import Epoch, Run
    from fairerclip.baselines.gradient.nets import LinearNet

    factor = row_scale(data.X, scale)
    net = LinearNet(data.X.shape[1], data.n_classes, seed, factor)
    run = Run(net, data, recipe, factor)
    row_counts: list[int] = []

    def run_epoch(epoch: int) -> Epoch:
        order = draw(epoch)
        row_counts.append(len(order))
        return run.cross_entropy(order)

    validation = data.validation
    if validation is not None:
        validation = validation._replace(X=validation.X * factor)
    diagnostics = run.train(run_epoch, validation)
    diagnostics.update(scale=factor, rows_per_epoch=int(np.median(row_counts)))
    heads = net.fitted()
    return heads["coef_"], heads["intercept_"], diagnostics


def row_scale(X: F64, scale: float | str) -> float:
    """Return the factor of the rows in training.

    Examples
    --------
    >>> row_scale(np.eye(3), "auto"), row_scale(7 * np.eye(3), "auto"), row_scale(np.eye(3), 2)
    (10.0, 1.0, 2.0)
    """
    if isinstance(scale, str) and scale == "auto":
        norms = np.linalg.norm(X, axis=1)
        return UNIT_ROW_SCALE if np.allclose(norms, 1.0, atol=0.01) else 1.0
    check_positive("scale, if not 'auto',", scale)
    return float(scale)
