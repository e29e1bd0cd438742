"""Numbers of rows of a task by split, class and sensitive values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from fairerclip._util.types import Ints
from fairerclip.data.task import Split, Task

HANDFUL = 5
"""Validation rows of a cell below which a choice of a model for that cell is mostly chance."""
SHOWN = 5
UNKNOWN = "?"
MOST_CELLS = 1_000_000
"""Combinations of values up to which rows are counted by number, many times faster than by sorting."""


def count_cells(task: Task, attributes: Sequence[str] | None = None) -> dict[str, dict[tuple[str, ...], int]]:
    """Count the rows of each split by class and sensitive values; "?" is an unknown label.

    ``attributes`` are those whose values define the cells; by default all that a split has.

    Examples
    --------
    >>> from fairerclip.data import Split
    >>> rows = Split(np.eye(3, dtype=np.float32), np.array([0, 1, 1]))
    >>> count_cells(Task("t", {"train": rows}, None, ("a", "b"), ("a", "b")))
    {'train': {('a',): 1, ('b',): 2}}
    """
    out: dict[str, dict[tuple[str, ...], int]] = {}
    for name, split in task.splits.items():
        columns = [] if split.y is None else [(split.y, task.class_names)]
        chosen = [s for s in split.s if attributes is None or s in attributes]
        columns += [(split.s[s], task.sensitive[s].names) for s in chosen]
        if not columns:
            out[name] = {}
            continue
        out[name] = {
            tuple([*names, UNKNOWN][k] for k, (_, names) in zip(cell, columns, strict=True)): count
            for cell, count in _counted([codes for codes, _ in columns], [len(names) for _, names in columns])
        }
    return out


def _counted(columns: Sequence[Ints], sizes: Sequence[int]) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield the combinations of codes, -1 to size − 1, that occur, in their order, and how many rows have each."""
    shape = [size + 1 for size in sizes]
    if math.prod(shape) > MOST_CELLS:
        cells, counts = np.unique(np.column_stack(columns), axis=0, return_counts=True)
        yield from zip(map(tuple, cells.tolist()), counts.tolist(), strict=True)
        return
    joint = np.zeros(len(columns[0]), dtype=np.int64)
    for codes, size in zip(columns, shape, strict=True):
        joint *= size
        joint += codes
        joint += 1
    totals = np.bincount(joint, minlength=math.prod(shape))
    for cell in np.flatnonzero(totals):
        yield tuple(int(k) - 1 for k in np.unravel_index(cell, shape)), int(totals[cell])


def cell_name(cell: tuple[str, ...]) -> str:
    """Return the name of a cell, such as ``landbird × water``."""
    return " × ".join(cell)


def few_validation_rows(task: Task) -> dict[str, int]:
    """Return the cells with fewer than a handful of validation rows, and how many they have.

    Cells are those of the class and one attribute that occur in any split with the same labels, without unknown
    labels; none are returned if a task has no validation split, or no labels in it.
    """
    few: dict[str, int] = {}
    if "val" not in task.splits:
        return few
    alike = [name for name, split in task.splits.items() if _columns(split) == _columns(task.val)]
    for attributes in [[name] for name in task.val.s] or [[]]:
        counts = count_cells(task, attributes)
        cells = {cell: None for name in alike for cell in counts[name] if UNKNOWN not in cell}
        rows = {cell: counts["val"].get(cell, 0) for cell in sorted(cells)}
        few |= {cell_name(cell): n for cell, n in rows.items() if n < HANDFUL}
    return few


def _columns(split: Split) -> tuple[bool, tuple[str, ...]]:
    return split.y is not None, tuple(split.s)


def few_rows_note(task: Task) -> list[str]:
    """Return a sentence on the cells of `few_validation_rows`, or an empty list."""
    few = few_validation_rows(task)
    if not few:
        return []
    shown = ", ".join(f"{name} ({n})" for name, n in list(few.items())[:SHOWN])
    more = f" and {len(few) - SHOWN} others" if len(few) > SHOWN else ""
    return [
        f"Fewer than {HANDFUL} validation rows of {shown}{more}: a model chosen on so few rows is uncertain for them."
    ]
