"""Parameters of training by gradient descent, with their checks, and the rows that are used; needs no torch."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from fairerclip._util.checks import (
    LARGEST,
    as_number,
    check_choice,
    check_count,
    check_number,
    check_positive,
    check_within,
)
from fairerclip._util.types import Ints
from fairerclip.baselines.training_data import Training
from fairerclip.errors import LabelError, ParameterError

Progress = Callable[[dict[str, Any]], None]
REDUCTIONS = ("mean", "sum")
TRAINING = 2
"""Revision of the training code; cached runs of another revision may have other weights and are run again."""


@dataclass(kw_only=True, eq=False, repr=False)
class Recipe:
    """Parameters of the training; the defaults are those of Zhang & Ré.

    Attributes
    ----------
    epochs, batch_size : int
        Number of epochs, and of rows per batch.
    lr, momentum, weight_decay : float
        Parameters of stochastic gradient descent.
    max_steps : int or None
        Stop after the epoch in which this number of batches is reached; None for no limit. In the Contrastive Adapter
        an anchor with its rows is a batch.
    device : {"auto", "cpu", "cuda"}
        "auto" uses a GPU if there is one.
    random_state : int, RandomState or None
        Source of the starting weights, the order of rows and the draws.
    progress : callable or None
        Called with a record after each epoch; ``record["fitted"]()`` returns the fitted arrays of that epoch by name.
    """

    epochs: int = 100
    lr: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 5e-5
    batch_size: int = 128
    max_steps: int | None = None
    device: str = "auto"
    random_state: Any = None
    progress: Progress | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class Contrasts:
    """Parameters of a contrastive epoch; the defaults are the published ones, except for ``anchor_reduction``.

    Attributes
    ----------
    positives, neighbours, negatives, anchors_per_step, anchor_share, anchor_reduction, contrastive_temperature
        As in `fairerclip.baselines.contrastive_adapter.ContrastiveAdapter`.
    """

    positives: int = 2048
    neighbours: int = 4096
    negatives: int = 2048
    contrastive_temperature: float = 0.1
    anchors_per_step: int = 128
    anchor_share: float = 1.0
    anchor_reduction: str = "mean"


def check_recipe(recipe: Recipe) -> int:
    """Raise for the first parameter that is out of range, and return the seed given by ``random_state``."""
    seed = seed_of(recipe.random_state)
    for name in ("epochs", "batch_size"):
        check_count(name, getattr(recipe, name))
    check_positive("lr", recipe.lr)
    check_number("momentum", recipe.momentum, 0, 1)
    check_within("weight_decay", recipe.weight_decay, 0, LARGEST)
    if recipe.max_steps is not None:
        check_count("max_steps", recipe.max_steps)
    check_choice("device", recipe.device, ("auto", "cpu", "cuda"))
    if recipe.progress is not None and not callable(recipe.progress):
        raise ParameterError(f"progress must be callable or None; got {recipe.progress!r}")
    return seed


def check_contrasts(contrasts: Contrasts) -> None:
    """Raise for the first parameter that is out of range."""
    for name in ("positives", "neighbours", "negatives", "anchors_per_step"):
        check_count(name, getattr(contrasts, name))
    if as_number(contrasts.anchor_share) != 1:
        check_number("anchor_share, if not 1,", contrasts.anchor_share, 0, 1, open_below=True)
    check_choice("anchor_reduction", contrasts.anchor_reduction, REDUCTIONS)
    check_positive("contrastive_temperature", contrasts.contrastive_temperature)


def seed_of(random_state: Any) -> int:
    """Return an integer seed as it is, or draw one from any other random state that scikit-learn accepts."""
    if isinstance(random_state, numbers.Integral) and 0 <= int(random_state) < 2**63:
        return int(random_state)
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError:
        raise ParameterError(
            f"random_state must be None, an integer of at least 0 or a RandomState; got {random_state!r}"
        ) from None


def counted(data: Training) -> Training:
    """Return the training data restricted to rows of positive weight."""
    labels = labels_of(data)
    used = data.weight > 0
    if not used.any():
        raise LabelError("every row has weight zero: give at least one row a positive weight")
    groups = None if data.s is None else data.s[used]
    return replace(data, X=data.X[used], y=labels[used], s=groups, weight=data.weight[used])


def labels_of(data: Training) -> Ints:
    """Return the class codes, and raise if there are none."""
    if data.y is None:
        raise LabelError("training by gradient learns from labels: give y")
    return data.y


def shuffled(n: int, seed: int, epoch: int) -> Ints:
    """Return the numbers of n rows in the random order of an epoch."""
    return np.random.default_rng([seed, epoch]).permutation(n)
