"""DFR without group labels: a probe on rows balanced over pseudo-groups, as in the tables of Zhang & Ré (2022)."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairerclip._util.checks import check_choice
from fairerclip.baselines.base import F64, Ints, Training
from fairerclip.baselines.pseudo_groups import equalise, pseudo_groups
from fairerclip.baselines.sgd_probe import fit_linear
from fairerclip.baselines.training import Progress, Recipe, counted, labels_of, seed_of

DRAWS = ("subsample", "upsample")


def train_pseudo(
    data: Training,
    how: str = "subsample",
    *,
    groups: str = "zero-shot",
    epochs: int = 100,
    lr: float = 1e-3,
    momentum: float = 0.9,
    weight_decay: float = 5e-5,
    batch_size: int = 128,
    scale: float | str = "auto",
    max_steps: int | None = None,
    device: str = "auto",
    random_state: Any = None,
    progress: Progress | None = None,
) -> tuple[F64, F64, dict[str, Any]]:
    """Coefficients (c, p), intercepts (c,) and diagnostics of a probe trained on balanced draws.

    Among the rows that the simple classifier takes for one class, true classes are equally many: subsampled to
    the rarest that occurs there, or upsampled to the most common. Drawn afresh in every epoch, from ``seed + epoch``.

    Parameters
    ----------
    data : rows with labels, and class prompts for ``groups="zero-shot"``; rows of weight zero are left out.
    how : "subsample" or "upsample".
    groups : "zero-shot" or "kmeans"; see `pseudo_groups`.
    epochs, lr, momentum, weight_decay, batch_size, scale, max_steps, device, random_state, progress
        As in `train_probe`.
    """
    check_choice("how", how, DRAWS)
    recipe = Recipe(
        epochs=epochs,
        lr=lr,
        momentum=momentum,
        weight_decay=weight_decay,
        batch_size=batch_size,
        max_steps=max_steps,
        device=device,
        seed=seed_of(random_state),
        progress=progress,
    )
    data = counted(data)
    y = labels_of(data)
    predicted = pseudo_groups(data, groups, recipe.seed)
    coef, intercept, diagnostics = fit_linear(
        data, recipe, scale, lambda epoch: balanced_draw(y, predicted, how, recipe.seed + epoch)
    )
    agreement = float(np.mean(predicted == y))
    return coef, intercept, {**diagnostics, "groups": groups, "agreement": agreement}


def balanced_draw(y: Ints, predicted: Ints, how: str, seed: int) -> Ints:
    """Shuffled row numbers, with the true classes equally many in each predicted class."""
    rng = np.random.default_rng(seed)
    draws = []
    for code in np.unique(predicted):
        rows = np.flatnonzero(predicted == code)
        draws.append(equalise(y[rows], how, rng, rows))
    return rng.permutation(np.concatenate(draws))
