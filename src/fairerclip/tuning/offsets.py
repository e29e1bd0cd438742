"""Where the boundaries between classes lie: offsets of the scores, learned on labelled rows.

The zero of a score decides more than τ does, and a closed form sets it where the training rows are balanced. Two
classes have one offset, searched along its line; more have one each, moved in turn.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairerclip.tuning.judge import Judge
from fairerclip.tuning.objectives import Objective, judge_scores, offset_shifts

F64 = NDArray[np.float64]

LINE_POINTS = 49
"""Offsets tried between two classes: where these shares of the rows would change sides."""
STEPS = (0.5, 0.3, 0.18)
"""Steps of the offsets of several classes, in spreads of the margin between the best two."""
GAIN = 1e-3
"""An offset has to gain this much: what gains less is luck, and zero is where the closed form put it."""


def learn_offsets(judge: Judge, objective: Objective, scores: F64) -> tuple[float, F64]:
    """Offsets (c,) that the objective likes best for scores (n, c), and its value with them."""
    if scores.shape[1] == 2:
        return _along_the_line(judge, objective, scores)
    return _in_turn(judge, objective, scores)


def _along_the_line(judge: Judge, objective: Objective, scores: F64) -> tuple[float, F64]:
    difference = scores[:, 1] - scores[:, 0]
    order = np.sort(difference)
    places = np.interp(np.linspace(0.02, 0.98, LINE_POINTS) * (len(order) - 1), np.arange(len(order)), order)
    candidates = np.concatenate([[0.0], -places])
    drawn = judge.accuracies(judge.margins(scores), offset_shifts(candidates))
    values = objective.values(drawn, judge.counts)
    best = int(values.argmax())
    best = best if values[best] > values[0] + GAIN else 0
    return float(values[best]), np.array([0.0, candidates[best]])


def _in_turn(judge: Judge, objective: Objective, scores: F64) -> tuple[float, F64]:
    top = np.partition(scores, -2, axis=1)[:, -2:]
    unit = float((top[:, 1] - top[:, 0]).std())
    offsets = np.zeros(scores.shape[1])
    value = judge_scores(judge, objective, scores)
    for step in STEPS:
        for k in range(len(offsets)):
            for sign in (-1.0, 1.0):
                tried = offsets.copy()
                tried[k] += sign * step * unit
                found = judge_scores(judge, objective, scores + tried)
                if found > value + GAIN:
                    value, offsets = found, tried
    return value, offsets - offsets.mean()
