"""Agreement of prompts with known labels.

Prompts given as an array are matched to classes by position, and a model would learn a wrong order without an error.
So, where labels are known, they are compared with the zero-shot predictions of the prompts.
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
from fairerclip.inputs.prompts import prototypes, zero_shot_scores

MAX_ROWS = 5000
"""Most rows that are read, evenly spaced; they give the agreement within one or two percentage points."""
ORDER_ROWS, ORDER_MARGIN = 20, 0.2
"""Fewest known labels, and smallest gain in agreement, for which another order is taken for the right one."""
CHANCE_ROWS, CHANCE_ERRORS = 100, 2.0
"""Fewest known labels, and number of standard errors within which an agreement counts as chance."""
SWAP_MARGIN, SWAP_ERRORS = 0.05, 3.0
"""Prompts look swapped if those of S agree with Y better than those of Y by both: a margin, and standard errors."""


@dataclass(frozen=True)
class Agreement:
    """Agreement of zero-shot predictions with known labels, as the mean over classes of their accuracy."""

    given: float
    """Mean over the classes of the share of their rows that is predicted correctly, in the given order."""
    best: float
    """The same in the order of the prompts that agrees best, evaluated on rows that were not used to choose it."""
    error: float
    """Standard error of the agreement under random predictions."""
    chance: float
    """Agreement under random predictions."""
    rows: int
    """Number of rows compared."""

    @property
    def prefers_another_order(self) -> bool:
        """Whether another order of the prompts agrees with the labels by 0.2 more."""
        return self.rows >= ORDER_ROWS and self.best - self.given > ORDER_MARGIN

    @property
    def is_chance(self) -> bool:
        """Whether the agreement is not above chance in any order."""
        return (
            self.rows >= CHANCE_ROWS
            and max(self.given, self.best) <= self.chance + CHANCE_ERRORS * self.error
        )


def agreement(X: Any, prompts: Sequence[Floats], codes: Ints) -> Agreement | None:
    """Compare zero-shot predictions with known labels; return None unless two classes have two rows each.

    Scores are first centred on their mean over the classes, so that prompts which favour one class can be compared.

    Parameters
    ----------
    X : array of shape (n, p)
        Embeddings.
    prompts : sequence of v arrays of shape (m, p)
        Prompt embeddings of each class or value.
    codes : array of shape (n,)
        Index of each row's label among the prompts; -1 for unknown.
    """
    known = np.flatnonzero(codes >= 0)
    known = known[:: max(1, -(-len(known) // MAX_ROWS))]
    y = codes[known]
    counts = np.bincount(y, minlength=len(prompts))
    present = np.flatnonzero(counts > 1)
    if len(present) < 2:
        return None
    cosines = zero_shot_scores(_KnownRows(X, known), prototypes(prompts), centred=False)
    means = np.stack([cosines[y == k].mean(axis=0, dtype=np.float64) for k in present])
    predicted = (cosines - means.mean(axis=0)).argmax(axis=1)
    halves = [_confusion(y[half], predicted[half], present, len(prompts)) for half in _halves(y)]
    held_out = [_best_order(evaluated, chosen_on) for chosen_on, evaluated in (halves, halves[::-1])]
    correct = np.arange(len(present)), present
    return Agreement(
        given=float(np.mean([half[correct].mean() for half in halves])),
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
    """Return a mask of every second row of each class, and a mask of the other rows."""
    order = np.argsort(y, kind="stable")
    first = np.zeros(len(y), dtype=bool)
    starts = np.cumsum(np.bincount(y)) - np.bincount(y)
    first[order] = (np.arange(len(y)) - starts[y[order]]) % 2 == 0
    return first, ~first


def _confusion(y: Ints, predicted: Ints, present: Ints, n_values: int) -> F64:
    """Return the shares (classes present, v) of each class that are predicted as each value."""
    counts = np.zeros((n_values, n_values))
    np.add.at(counts, (y, predicted), 1.0)
    return np.asarray(counts[present] / counts[present].sum(axis=1, keepdims=True))


def _best_order(evaluated: F64, chosen_on: F64) -> float:
    """Return the agreement on one half of the rows in the order that is best on the other half."""
    rows, columns = linear_sum_assignment(-chosen_on)
    return float(evaluated[rows, columns].mean())


def check_order(
    result: Agreement | None, names: Sequence[Any], attribute: str, *, by_position: bool, depth: int
) -> None:
    """Raise if another order of the prompts agrees with the labels by 0.2 more; warn if prompts are named.

    Also warn if the prompts agree with the labels no better than chance. ``depth`` is the stack level of the warnings.
    """
    if result is None:
        return
    if result.prefers_another_order:
        mapping = ", ".join(f"{name!r}: …" for name in list(names)[:10])
        message = (
            f"the prompts of {attribute} contradict its labels: zero-shot, {worded(result.given)} of the rows of a "
            f"class are predicted correctly on average; in another order of the prompts {worded(result.best)} would be"
        )
        if by_position:
            raise PromptError(
                f"{message}. They were taken in the order {list(names)[:10]}; give a mapping {{{mapping}}} from each "
                "label to its prompt"
            )
        warnings.warn(f"{message}. Check prompts and labels", PromptOrderWarning, stacklevel=depth + 1)
    elif result.is_chance:
        warnings.warn(
            f"the prompts of {attribute} predict its labels no better than chance: zero-shot, {worded(result.given)} "
            f"of the rows of a class are predicted correctly on average (chance: {worded(result.chance)}). Check that "
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
    """Raise or warn if the class prompts and the sensitive prompts seem to be swapped.

    Raise if each of the two agrees better with the labels of the other; warn if no sensitive value is known.

    Parameters
    ----------
    X : array of shape (n, p)
        Embeddings.
    text, sensitive_text : sequences of arrays of shape (m, p)
        Prompts of the classes and of the sensitive values.
    y, s : arrays of shape (n,)
        Known codes, -1 elsewhere; s is None if no value is known.
    depth : int
        Stack level of the warning.
    """
    if len(text) != len(sensitive_text):
        return  # swapped prompts would have raised already, because of the number of classes
    class_on_y, sensitive_on_y = agreement(X, text, y), agreement(X, sensitive_text, y)
    if class_on_y is None or sensitive_on_y is None or class_on_y.rows < ORDER_ROWS:
        return
    lead = sensitive_on_y.best - class_on_y.best  # in the best order each: `check_order` reports a wrong one
    if lead <= 0:
        return
    message = (
        f"sensitive_text predicts the labels y better than text does ({worded(sensitive_on_y.best)} against "
        f"{worded(class_on_y.best)} of the rows of a class, on average)"
    )
    if s is not None:
        class_on_s, sensitive_on_s = agreement(X, text, s), agreement(X, sensitive_text, s)
        if class_on_s is None or sensitive_on_s is None:
            return
        if class_on_s.best - sensitive_on_s.given > ORDER_MARGIN:
            raise PromptError(
                f"text and sensitive_text seem to be swapped: {message}, and text predicts the sensitive values better "
                f"than sensitive_text does ({worded(class_on_s.best)} against {worded(sensitive_on_s.given)}). Swap "
                "them"
            )
        return
    if lead > max(SWAP_MARGIN, SWAP_ERRORS * class_on_y.error):
        warnings.warn(
            f"{message}: the two are swapped, or y and the sensitive attribute are strongly correlated in these rows",
            SwappedPromptsWarning,
            stacklevel=depth + 1,
        )
