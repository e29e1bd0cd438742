"""Labelled rows of a data set or a label file, each with its split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.checks import check_range
from fairerclip._util.types import Ints
from fairerclip.data.datasets import DatasetIndex
from fairerclip.data.label_table import Column, LabelTable
from fairerclip.data.task_fields import SPLITS
from fairerclip.errors import LabelError, ParameterError

SPLIT_NAMES = {
    "0": "train",
    "1": "val",
    "2": "test",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "eval": "test",
}
"""Accepted values of a split column besides train, val and test."""


@dataclass(frozen=True)
class Labelled:
    """Labelled rows of a data set or a label file: id, split, class and sensitive values of each."""

    name: str
    ids: NDArray[Any] | None
    """(n,) of str; None if the rows are in the order of the embeddings and have no ids."""
    split: NDArray[Any]
    """(n,) train, val or test."""
    y: Ints | None
    class_names: tuple[str, ...]
    sensitive: dict[str, tuple[Ints, tuple[str, ...]]]


def from_dataset(index: DatasetIndex) -> Labelled:
    """Return the labelled rows of a data set."""
    return Labelled(index.name, index.ids, index.split, index.y, index.class_names, index.sensitive)


def from_table(
    table: LabelTable,
    *,
    name: str,
    target: str | None,
    sensitive: Sequence[str],
    split_column: str | None = None,
    shares: tuple[float, float, float] = (0.5, 0.1, 0.4),
    seed: int = 0,
) -> Labelled:
    """Return the labelled rows of a label file, split by a column, or at random with the given shares."""
    y = None if target is None else table.columns[target]
    if split_column is None:
        split = random_split(len(table), shares, seed)
    else:
        split = _named_split(table.columns[split_column])
    return Labelled(
        name,
        table.ids,
        split,
        None if y is None else y.codes,
        () if y is None else y.names,
        {s: (table.columns[s].codes, table.columns[s].names) for s in sensitive},
    )


def random_split(n: int, shares: tuple[float, float, float], seed: int) -> NDArray[np.str_]:
    """Return "train", "val" or "test" for each of n rows, drawn at random with shares that sum to one."""
    if not (min(shares) >= 0 and abs(sum(shares) - 1) <= 1e-9):
        raise ParameterError(f"split shares must be non-negative and sum to 1; got {shares}")
    check_range("seed", seed)
    counts = np.floor(np.cumsum(shares) * n + 0.5).astype(int)
    out = np.empty(n, dtype="<U5")
    order = np.random.default_rng(seed).permutation(n)
    for name, start, stop in zip(SPLITS, [0, *counts[:-1]], counts, strict=True):
        out[order[start:stop]] = name
    return out


def _named_split(column: Column) -> NDArray[np.str_]:
    names = [SPLIT_NAMES.get(name.lower(), name.lower()) for name in column.names]
    unknown = sorted({name for name in names if name not in SPLITS})
    if unknown:
        raise LabelError(
            f"column {column.name!r} must hold train, val or test (or 0, 1, 2); got {', '.join(unknown[:5])}"
        )
    if (column.codes < 0).any():
        raise LabelError(f"column {column.name!r} has no split for {int((column.codes < 0).sum())} rows")
    return np.array(names)[column.codes]
