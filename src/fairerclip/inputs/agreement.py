"""Whether prompts mean what the known labels mean.

Prompts that come as an array are matched to classes by position, and a wrong order is silent: the model learns it.
Where labels are known they show it, so they are compared with what the prompts read zero-shot.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fairerclip._util.numbers import worded
from fairerclip._util.types import F64, Floats, Ints
from fairerclip.errors import (
    PromptError,
    PromptOrderWarning,
    SwappedPromptsWarning,
    UninformativePromptsWarning,
)
from fairerclip.inputs.prompts import cosine_blocks, prototypes

MAX_ROWS = 5000
"""Rows that are read, evenly spaced: their share of agreement is known to a point or two."""
ORDER_ROWS, ORDER_MARGIN = 20, 0.2
"""With so many known labels, another order that agrees with them by so much more is taken for the right one."""
CHANCE_ROWS, CHANCE_ERRORS = 100, 2.0
"""With so many known labels, an agreement within so many standard errors of chance is no agreement."""
SWAP_MARGIN, SWAP_ERRORS = 0.05, 3.0
"""The prompts of S must agree with Y by so much more than those of Y, and by so many standard errors."""


@dataclass(frozen=True)
class Agreement:
    """How well zero-shot readings of known rows agree with their labels, each class counting alike."""

    given: float
    """Mean over the classes of the share of their rows that is read as that class."""
    best: float
    """The same in the order of the prompts that suits the labels best, on rows that did not choose the order."""
    error: float
    """Standard error of an agreement by chance."""
    chance: float
    rows: int

    @property
    def prefers_another_order(self) -> bool:
        """Whether another order agrees with the labels far better."""
        return self.rows >= ORDER_ROWS and self.best - self.given > ORDER_MARGIN

    @property
    def is_chance(self) -> bool:
        """Whether the prompts tell nothing of the labels."""
        return (
            self.rows >= CHANCE_ROWS
            and max(self.given, self.best) <= self.chance + CHANCE_ERRORS * self.error
        )


def agreement(X: Any, prompts: Sequence[Floats], codes: Ints) -> Agreement | None:
    """Compare zero-shot readings with known labels; None where fewer than two classes have two rows each.

    Scores are centred on the mean of the classes first: prompts that favour one class still tell an order.

    Parameters
    ----------
    X : (n, p) embeddings.
    prompts : v arrays (m, p) of prompts.
    codes : (n,) place of each row's label among the prompts; -1 for unknown.
    """
    known = np.flatnonzero(codes >= 0)
    known = known[:: max(1, -(-len(known) // MAX_ROWS))]
    y = codes[known]
    counts = np.bincount(y, minlength=len(prompts))
    present = np.flatnonzero(counts > 1)
    if len(present) < 2:
        return None
    cosines = np.concatenate([block for _, block in cosine_blocks(_KnownRows(X, known), prototypes(prompts))])
    means = np.stack([cosines[y == k].mean(axis=0, dtype=np.float64) for k in present])
    read = (cosines - means.mean(axis=0)).argmax(axis=1)
    halves = [_confusion(y[side], read[side], present, len(prompts)) for side in _halves(y)]
    held_out = [_in_order(judge, choose) for choose, judge in (halves, halves[::-1])]
    own = np.arange(len(present)), present
    return Agreement(
        given=float(np.mean([half[own].mean() for half in halves])),
        best=float(np.mean(held_out)),
        error=float(np.sqrt(np.sum(_variance(len(prompts)) / counts[present])) / len(present)),
        chance=1 / len(prompts),
        rows=len(y),
    )


@dataclass(frozen=True)
class _KnownRows:
    """Some rows of an array or store, read block by block."""

    X: Any
    rows: Ints

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), int(self.X.shape[1])

    def __getitem__(self, block: slice) -> Any:
        return self.X[self.rows[block]]


def _variance(n_values: int) -> float:
    return (1 - 1 / n_values) / n_values


def _halves(y: Ints) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Masks of every other row of each class, and of the rest."""
    order = np.argsort(y, kind="stable")
    first = np.zeros(len(y), dtype=bool)
    starts = np.cumsum(np.bincount(y)) - np.bincount(y)
    first[order] = (np.arange(len(y)) - starts[y[order]]) % 2 == 0
    return first, ~first


def _confusion(y: Ints, read: Ints, present: Ints, n_values: int) -> F64:
    """(classes present, v) shares of each class that are read as each value."""
    counts = np.zeros((n_values, n_values))
    np.add.at(counts, (y, read), 1.0)
    return np.asarray(counts[present] / counts[present].sum(axis=1, keepdims=True))


def _in_order(judge: F64, choose: F64) -> float:
    """Agreement in the order that one half likes best, on the other half."""
    rows, columns = linear_sum_assignment(-choose)
    return float(judge[rows, columns].mean())


def check_order(
    found: Agreement | None, names: Sequence[Any], what: str, *, by_position: bool, depth: int
) -> None:
    """Refuse prompts by position that contradict the known labels; warn of named ones, and of chance."""
    if found is None:
        return
    if found.prefers_another_order:
        shown = ", ".join(f"{name!r}: …" for name in list(names)[:10])
        message = (
            f"the prompts of {what} contradict its labels: read zero-shot, they find {worded(found.given)} of the rows "
            f"of a class on average; in another order they would find {worded(found.best)}"
        )
        if by_position:
            raise PromptError(
                f"{message}. They were taken in the order {list(names)[:10]}; give a mapping {{{shown}}} that says "
                "which prompt belongs to which label"
            )
        warnings.warn(f"{message}. Check prompts and labels", PromptOrderWarning, stacklevel=depth + 1)
    elif found.is_chance:
        warnings.warn(
            f"the prompts of {what} say no more of its labels than chance: read zero-shot, they find "
            f"{worded(found.given)} of the rows of a class on average (chance: {worded(found.chance)}). Check that "
            "prompts, labels and image embeddings belong together and come from one model",
            UninformativePromptsWarning,
            stacklevel=depth + 1,
        )


def check_swapped(
    X: Any,
    text: Sequence[Floats],
    y: Ints,
    sensitive_text: Sequence[Floats],
    s: Ints | None,
    *,
    depth: int,
) -> None:
    """Refuse, or warn of, class prompts and sensitive prompts that look exchanged.

    Parameters
    ----------
    X : (n, p) embeddings.
    text, sensitive_text : as many prompts of classes as of sensitive values.
    y, s : (n,) known codes, -1 elsewhere; s is None where no value is known.
    """
    if len(text) != len(sensitive_text):
        return  # they could not have been exchanged: the number of classes would not fit
    own, other = agreement(X, text, y), agreement(X, sensitive_text, y)
    if own is None or other is None or own.rows < ORDER_ROWS:
        return
    lead = other.best - own.best  # another order is said elsewhere
    if lead <= 0:
        return
    message = (
        f"sensitive_text tells the labels y better than text does ({worded(other.best)} against {worded(own.best)} of "
        "the rows of a class, on average)"
    )
    if s is not None:
        read, told = agreement(X, text, s), agreement(X, sensitive_text, s)
        if read is None or told is None:
            return
        if read.best - told.given > ORDER_MARGIN:
            raise PromptError(
                f"text and sensitive_text seem to be swapped: {message}, and text tells the sensitive values better "
                f"than sensitive_text does ({worded(read.best)} against {worded(told.given)}). Exchange them"
            )
        return
    if lead > max(SWAP_MARGIN, SWAP_ERRORS * own.error):
        warnings.warn(
            f"{message}: the two are swapped, or y and the sensitive attribute are closely tied in these rows",
            SwappedPromptsWarning,
            stacklevel=depth + 1,
        )
