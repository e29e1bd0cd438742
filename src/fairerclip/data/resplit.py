"""The same task with its rows dealt anew: how much of a figure is the luck of one split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import Ints
from fairerclip.data.task import Split, Task
from fairerclip.errors import ParameterError


def resplit(task: Task, seed: int, *, sensitive: Sequence[str] | None = None) -> Task:
    """Swap rows between the splits of a task, but only with rows of the same class and sensitive values.

    Every split keeps its number of rows in every cell, so what makes the training split hard (a class tied to a
    sensitive value, say) stays as it is; pooling all rows would undo it. Unknown labels are cells of their own.

    Parameters
    ----------
    task : Task
        With two splits or more.
    seed : int
        The same seed deals the same rows.
    sensitive : sequence of str, optional
        The attributes whose values make the cells; all of them unless given.

    Examples
    --------
    >>> from fairerclip.data import simulate
    >>> task = simulate("multiclass", seed=0)
    >>> other = resplit(task, 1)
    >>> bool((np.bincount(other.train.y) == np.bincount(task.train.y)).all())
    True
    """
    if len(task.splits) < 2:
        raise ParameterError(f"{task.name} has one split only: there is nothing to swap rows with")
    for name in sensitive or ():
        task.sensitive_attribute(name)
    names = list(task.sensitive) if sensitive is None else list(sensitive)
    cells = np.unique(
        np.concatenate([_cells(split, names) for split in task.splits.values()]), axis=0, return_inverse=True
    )[1].reshape(-1)
    rng = np.random.default_rng(seed)
    dealt = np.arange(len(cells))
    for cell in range(int(cells.max()) + 1):
        rows = np.flatnonzero(cells == cell)
        dealt[rows] = rng.permutation(rows)
    return replace(task, splits=_take(task, dealt), extra={})  # row numbers kept in extra would be wrong now


def _cells(split: Split, names: Sequence[str]) -> Ints:
    """Codes (n, 1 + a) of the class and of each attribute; -1 where there is no label."""
    return np.column_stack([_known(split, column) for column in (split.y, *map(split.s.get, names))])


def _known(split: Split, column: Ints | None) -> Ints:
    """A column of labels as it is, or -1 for every row of a split that has none."""
    return np.full(len(split), -1, dtype=np.int64) if column is None else column


def _take(task: Task, dealt: Ints) -> dict[str, Split]:
    """Splits of the old sizes, with the same kinds of label, and the rows that were dealt to them."""
    old = list(task.splits.values())
    X = np.concatenate([split.X for split in old])
    y = np.concatenate([_known(split, split.y) for split in old])
    s = {name: np.concatenate([_known(split, split.s.get(name)) for split in old]) for name in task.sensitive}
    ids = _joined([split.ids for split in old])
    out, start = {}, 0
    for name, split in task.splits.items():
        rows = dealt[start : start + len(split)]
        out[name] = Split(
            X[rows],
            None if split.y is None else y[rows],
            {key: column[rows] for key, column in s.items() if key in split.s},
            None if ids is None else ids[rows],
        )
        start += len(split)
    return out


def _joined(parts: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    """One array of all splits; None unless every split has it."""
    there = [part for part in parts if part is not None]
    return np.concatenate(there) if len(there) == len(parts) else None
