"""Random redistribution of the rows of a task over its splits, to measure how much results depend on the split."""

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
    """Permute the rows of a task over its splits, inside each cell of class and sensitive values.

    Every split keeps its number of rows in every cell, so a correlation of class and sensitive value in the training
    split stays as it is; a permutation of all rows would remove it. Unknown labels are cells of their own.

    Parameters
    ----------
    task : Task
        With two splits or more.
    seed : int
        Seed of the permutation.
    sensitive : sequence of str, optional
        Attributes whose values define the cells; by default all.

    Examples
    --------
    >>> from fairerclip.data import simulate
    >>> task = simulate("multiclass", seed=0)
    >>> other = resplit(task, 1)
    >>> bool((np.bincount(other.train.y) == np.bincount(task.train.y)).all())
    True
    """
    if len(task.splits) < 2:
        raise ParameterError(f"expected a task with two splits or more, {task.name} has one")
    for name in sensitive or ():
        task.sensitive_attribute(name)
    names = list(task.sensitive) if sensitive is None else list(sensitive)
    cells = np.unique(
        np.concatenate([_cells(split, names) for split in task.splits.values()]), axis=0, return_inverse=True
    )[1].reshape(-1)
    rng = np.random.default_rng(seed)
    order = np.arange(len(cells))
    for cell in range(int(cells.max()) + 1):
        rows = np.flatnonzero(cells == cell)
        order[rows] = rng.permutation(rows)
    return replace(task, splits=_take(task, order), extra={})  # row numbers in extra would be wrong now


def _cells(split: Split, names: Sequence[str]) -> Ints:
    """Return the codes (n, 1 + a) of the class and of each attribute; -1 where there is no label."""
    return np.column_stack([_known(split, column) for column in (split.y, *map(split.s.get, names))])


def _known(split: Split, column: Ints | None) -> Ints:
    """Return a column of labels, or -1 for every row of a split that has no such column."""
    return np.full(len(split), -1, dtype=np.int64) if column is None else column


def _take(task: Task, order: Ints) -> dict[str, Split]:
    """Return splits of the old sizes and with the same columns, filled with all rows in the given order."""
    old = list(task.splits.values())
    X = np.concatenate([split.X for split in old])
    y = np.concatenate([_known(split, split.y) for split in old])
    s = {name: np.concatenate([_known(split, split.s.get(name)) for split in old]) for name in task.sensitive}
    ids = _joined([split.ids for split in old])
    out, start = {}, 0
    for name, split in task.splits.items():
        rows = order[start : start + len(split)]
        out[name] = Split(
            X[rows],
            None if split.y is None else y[rows],
            {key: column[rows] for key, column in s.items() if key in split.s},
            None if ids is None else ids[rows],
        )
        start += len(split)
    return out


def _joined(parts: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    """Concatenate the arrays of all splits; return None unless every split has one."""
    given = [part for part in parts if part is not None]
    return np.concatenate(given) if len(given) == len(parts) else None
