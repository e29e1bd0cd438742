"""Offsets of the class scores to try: boundaries between two classes, or steps of one class after another.

Offsets move the boundaries between classes, which can matter more than τ. The result does not depend on the order of
the classes or of the rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fairerclip._util.types import F64

LINE_SHARES = np.linspace(0.02, 0.5, 13)
"""Boundaries to try between two classes: those with this share of the rows on either side."""
STEPS = (0.5, 0.3, 0.18)
"""Steps of the offsets of several classes, in standard deviations of the margin between the best two scores."""
GAIN = 1e-3
"""Smallest gain for which an offset is kept: smaller gains are noise."""


def learn_offsets(scores: F64, values: F64, judge: Callable[[F64, F64], F64]) -> tuple[F64, F64]:
    """Return the best values (g,) of models with scores (g, n, c), and their offsets (g, c), of mean zero.

    Parameters
    ----------
    scores : array of shape (g, n, c)
        Scores without offsets.
    values : array of shape (g,)
        Their values.
    judge : callable
        Returns the values (m,) of scores (m, n, c) with the offsets (m, c) added.
    """
    if scores.shape[2] == 2:
        return _along_the_line(scores, values, judge)
    return _in_turn(scores, values, judge)


def _along_the_line(scores: F64, values: F64, judge: Callable[[F64, F64], F64]) -> tuple[F64, F64]:
    best, offsets = values.copy(), np.zeros((len(scores), 2))
    for g, own in enumerate(scores):
        steps = -boundaries(own[:, 1] - own[:, 0])  # (b,)
        if not len(steps):
            continue
        tried = steps[:, None] * np.array([-0.5, 0.5])
        found = judge(np.broadcast_to(own, (len(steps), *own.shape)), tried)
        top = found.max()
        if top > values[g] + GAIN:
            # The smallest of equally good offsets.
            place = np.where(found >= top - GAIN, np.abs(steps), np.inf).argmin()
            best[g], offsets[g] = found[place], tried[place]
    return best, offsets


def boundaries(difference: F64) -> F64:
    """Return boundaries (b,) midway between the score differences (n,) of two rows that differ."""
    order = np.sort(difference)
    n = len(order)
    below = np.rint(LINE_SHARES * n).astype(np.int64)
    # Symmetric, so that swapped classes have the same boundaries.
    below = np.unique(np.concatenate([below, n - below]))
    below = below[(below > 0) & (below < n)]
    left, right = order[below - 1], order[below]
    return np.asarray((left + right)[left < right] / 2)


def _in_turn(scores: F64, values: F64, judge: Callable[[F64, F64], F64]) -> tuple[F64, F64]:
    g, _, c = scores.shape
    top = np.partition(scores, -2, axis=2)[:, :, -2:]
    unit = (top[:, :, 1] - top[:, :, 0]).std(axis=1)
    offsets, best, models = np.zeros((g, c)), values.copy(), np.arange(g)
    # By mean score, so that the order of the classes does not matter.
    turns = scores.mean(axis=1).argsort(axis=1)
    for step in STEPS:
        for k in turns.T:
            for sign in (-1.0, 1.0):
                tried = offsets.copy()
                tried[models, k] += sign * step * unit
                found = judge(scores, tried)
                better = found > best + GAIN
                best, offsets = np.where(better, found, best), np.where(better[:, None], tried, offsets)
    return best, offsets - offsets.mean(axis=1, keepdims=True)
