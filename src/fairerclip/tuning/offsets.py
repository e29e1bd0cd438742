"""Offsets of the class scores, learned on labelled rows.

Offsets move the boundaries between classes, which can matter more than τ. Two classes have one boundary, found by a
line search; more classes have one offset each, changed in turn. The result does not depend on the order of the
classes or of the rows.
"""

from __future__ import annotations

import numpy as np

from fairerclip._util.types import F64
from fairerclip.tuning.judge import Judge
from fairerclip.tuning.objectives import EQUAL, Objective, judge_boundaries, judge_scores

LINE_SHARES = np.linspace(0.02, 0.5, 25)
"""Boundaries to try between two classes: those with this share of the rows on either side."""
STEPS = (0.5, 0.3, 0.18)
"""Steps of the offsets of several classes, in standard deviations of the margin between the best two scores."""
GAIN = 1e-3
"""Smallest gain for which an offset is kept: smaller gains are noise."""


def learn_offsets(judge: Judge, objective: Objective, scores: F64) -> tuple[F64, F64]:
    """Return the best values (g,) of models with scores (g, n, c), and their offsets (g, c), of mean zero."""
    if scores.shape[2] == 2:
        return _along_the_line(judge, objective, scores)
    return _in_turn(judge, objective, scores)


def _along_the_line(judge: Judge, objective: Objective, scores: F64) -> tuple[F64, F64]:
    none = np.zeros((len(scores), 1))
    steps = np.concatenate([none, -_boundaries(scores[:, :, 1] - scores[:, :, 0])], axis=1)  # (g, b)
    values = judge_boundaries(judge, objective, scores, steps)
    top = values.max(axis=1, keepdims=True)
    # The smallest of equally good offsets; none where the gain is too small.
    size = np.where(values >= top - EQUAL, np.abs(steps), np.inf)
    best = np.where(top[:, 0] > values[:, 0] + GAIN, size.argmin(axis=1), 0)[:, None]
    step = np.take_along_axis(steps, best, axis=1)
    return np.take_along_axis(values, best, axis=1)[:, 0], step * np.array([-0.5, 0.5])


def _boundaries(difference: F64) -> F64:
    """Return boundaries (g, b) midway between the score differences (g, n) of two rows; 0 between ties."""
    order = np.sort(difference, axis=1)
    n = order.shape[1]
    below = np.rint(LINE_SHARES * n).astype(np.int64)
    below = np.unique(
        np.concatenate([below, n - below])
    )  # symmetric, so that swapped classes have the same boundaries
    below = below[(below > 0) & (below < n)]
    left, right = order[:, below - 1], order[:, below]
    return np.asarray(np.where(left < right, (left + right) / 2, 0.0))


def _in_turn(judge: Judge, objective: Objective, scores: F64) -> tuple[F64, F64]:
    g, _, c = scores.shape
    top = np.partition(scores, -2, axis=2)[:, :, -2:]
    unit = (top[:, :, 1] - top[:, :, 0]).std(axis=1)
    offsets, models = np.zeros((g, c)), np.arange(g)
    values = judge_scores(judge, objective, scores)
    turns = scores.mean(axis=1).argsort(
        axis=1
    )  # by mean score, so that the order of the classes does not matter
    for step in STEPS:
        for k in turns.T:
            for sign in (-1.0, 1.0):
                tried = offsets.copy()
                tried[models, k] += sign * step * unit
                found = judge_scores(judge, objective, scores + tried[:, None, :])
                better = found > values + GAIN
                values, offsets = np.where(better, found, values), np.where(better[:, None], tried, offsets)
    return values, offsets - offsets.mean(axis=1, keepdims=True)
