"""A linear probe by stochastic gradient descent, as the tables of Zhang & Ré (2022) have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fairerclip._util.checks import check_positive
from fairerclip._util.extras import require
from fairerclip.baselines.base import F64, Ints, Training
from fairerclip.baselines.training import (
    Epoch,
    Momentum,
    Progress,
    Recipe,
    Rows,
    Tensor,
    array,
    counted,
    cross_entropy_epoch,
    device_of,
    parameter,
    seed_of,
    train,
    uniform,
)

UNIT_ROW_SCALE = 10.0
"""What unit rows are multiplied with: the recipe's step size is made for embeddings that long."""

Draw = Callable[[int], Ints]


def train_probe(
    data: Training,
    *,
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
    """Coefficients (c, p), intercepts (c,) and diagnostics of a softmax probe trained on shuffled rows.

    O(epochs·n·p·c) time, O(n·p) memory for a single-precision copy of the rows.

    Parameters
    ----------
    data : rows with labels; rows of weight zero are left out. ``validation`` chooses the epoch.
    epochs, lr, momentum, weight_decay, batch_size, max_steps, device, progress
        As in `Recipe`. Weight decay acts on the intercepts, too.
    scale : "auto" or float
        Rows are multiplied with it while training; the coefficients returned fit the rows as given. "auto" is 10
        for rows of length one, 1 otherwise: the recipe was made for CLIP embeddings before they are normalised, and
        its step is too short for normalised ones.
    random_state : int, RandomState or None

    Notes
    -----
    Without early stopping it tends to the minimum of ``mean_i CE_i + (weight_decay/2)·(‖W‖² + ‖b‖²)``.
    """
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
    return fit_linear(data, recipe, scale, lambda epoch: shuffled(len(data.X), recipe.seed, epoch))


def shuffled(n: int, seed: int, epoch: int) -> Ints:
    """The n rows in the order of this epoch."""
    return np.random.default_rng([seed, epoch]).permutation(n)


def fit_linear(
    data: Training, recipe: Recipe, scale: float | str, draw: Draw
) -> tuple[F64, F64, dict[str, Any]]:
    """The probe, trained in each epoch on the rows that ``draw(epoch)`` names, in that order."""
    torch = require("torch", "torch", "a probe trained by gradient")
    factor = row_scale(data.X, scale)
    device = torch.device(device_of(recipe))
    net = _Linear(data.X.shape[1], data.n_classes, recipe.seed, device, factor)
    rows = Rows.of(data, device, factor)
    sgd = Momentum(net.parameters, recipe)
    drawn: list[int] = []

    def run_epoch(epoch: int) -> Epoch:
        order = draw(epoch)
        drawn.append(len(order))
        return cross_entropy_epoch(net, sgd, rows, order, recipe.batch_size)

    validation = data.validation
    if validation is not None:
        validation = validation._replace(X=validation.X * factor)
    diagnostics = train(net, run_epoch, recipe, validation)
    diagnostics.update(scale=factor, rows_per_epoch=int(np.median(drawn)))
    heads = net.fitted()
    return heads["coef_"], heads["intercept_"], diagnostics


def row_scale(X: F64, scale: float | str) -> float:
    """The factor that rows are trained with.

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


class _Linear:
    """``Wx + b`` of rows that were multiplied with ``factor``."""

    def __init__(self, width: int, n_classes: int, seed: int, device: Any, factor: float) -> None:
        rng = np.random.default_rng(seed)
        self.parameters = {
            "weight": parameter(uniform(rng, (n_classes, width), width), device),
            "bias": parameter(uniform(rng, (n_classes,), width), device),
        }
        self.buffers: dict[str, Tensor] = {}
        self._factor = factor

    def logits(self, X: Tensor, *, training: bool) -> Tensor:
        return X @ self.parameters["weight"].T + self.parameters["bias"]

    def fitted(self) -> dict[str, F64]:
        """Coefficients and intercepts for rows as they were given."""
        weight, bias = (array(self.parameters[name]) for name in ("weight", "bias"))
        return {"coef_": weight * self._factor, "intercept_": bias}
