"""Zero-shot accuracy on a task that has nothing to do with the rankings, under the maps of a method."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import F64
from fairerclip.baselines.baseline import Baseline
from fairerclip.data import Task
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.embedding.strength_path import REPLICATES
from fairerclip.errors import LabelError
from fairerclip.metrics.intervals import clopper_pearson
from fairerclip.study.split_figures import CONFIDENCE


def unrelated_figures(model: Baseline, task: Task, *, with_intervals: bool = False) -> dict[str, Any]:
    """Return the zero-shot accuracy on another task's test rows under the maps of a model, and its change."""
    X, y, text = unrelated_rows(task)
    before = (unit_rows(X.astype(np.float64)) @ unit_rows(text).T).argmax(axis=1) == y
    after = model.query_scores(X, text).argmax(axis=1) == y
    figures: dict[str, Any] = {
        "unrelated": float(after.mean() - before.mean()),
        "unrelated_accuracy": float(after.mean()),
    }
    if with_intervals:
        low, high = clopper_pearson(after.sum(), len(y), CONFIDENCE)
        change = change_interval(int((after & ~before).sum()), int((before & ~after).sum()), len(y))
        figures["intervals"] = {"unrelated": change, "unrelated_accuracy": (float(low), float(high))}
    return figures


def change_interval(gained: int, lost: int, n: int) -> tuple[float, float]:
    """Return the interval of ``(gained − lost) / n`` from resampled rows (seeded), in memory that n does not change."""
    shares = np.array([gained, lost, n - gained - lost]) / n
    drawn = np.random.default_rng(0).multinomial(n, shares, size=REPLICATES)
    low, high = np.quantile((drawn[:, 0] - drawn[:, 1]) / n, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def unrelated_rows(task: Task) -> tuple[NDArray[Any], NDArray[Any], F64]:
    """Return the labelled test rows (n, p) of another task, their classes (n,) and the class prompts (c, p)."""
    rows = task.splits.get("test") or next(iter(task.splits.values()))
    if task.text_target is None or rows.y is None or not (rows.y >= 0).any():
        raise LabelError(f"{task.name}: expected an unrelated task with class prompts and target labels")
    known = np.flatnonzero(rows.y >= 0)
    return np.asarray(rows.X)[known], rows.y[known], np.asarray(task.text_target, dtype=np.float64)
