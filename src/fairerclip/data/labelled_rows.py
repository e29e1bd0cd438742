"""Labelled rows of a data set or a label file, each with its split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import Ints
from fairerclip.data.datasets import DatasetIndex
from fairerclip.data.datasets.common import SPLIT_NAMES
from fairerclip.data.label_table import Column, LabelTable
from fairerclip.data.stratified_split import check_shares, stratified_split
from fairerclip.data.task_fields import SPLITS
from fairerclip.errors import LabelError


@dataclass(frozen=True)
class RandomShares:
    """Splits that are drawn once it is known which rows have an embedding: number of rows, shares and seed."""

    rows: int
    shares: tuple[float, float, float]
    seed: int

    def __len__(self) -> int:
        return self.rows


@dataclass(frozen=True)
class Labelled:
    """Labelled rows of a data set or a label file: id, split, class and sensitive values of each."""

    name: str
    ids: NDArray[Any] | None
    """(n,) of str; None if the rows are in the order of the embeddings and have no ids."""
    split: NDArray[Any] | RandomShares
    """(n,) train, val or test; or how to draw them."""
    y: Ints | None
    class_names: tuple[str, ...]
    sensitive: Mapping[str, tuple[Ints, tuple[str, ...]]]

    def __len__(self) -> int:
        return len(self.split)

    def splits(self, rows: Ints) -> NDArray[Any]:
        """Return the split (n,) of each row; random ones are drawn for the given rows only, and empty for others."""
        if not isinstance(self.split, RandomShares):
            return self.split
        rows = np.sort(rows)  # so that the order of the embeddings does not matter
        columns = [] if self.y is None else [self.y]
        columns += [codes for codes, _ in self.sensitive.values()]
        cells = np.zeros(len(rows), dtype=np.int64)
        if columns:
            table = np.column_stack([column[rows] for column in columns])
            cells = np.unique(table, axis=0, return_inverse=True)[1].reshape(-1)
        out = np.full(len(self), "", dtype="<U5")
        out[rows] = stratified_split(cells, self.split.shares, self.split.seed)
        return out


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
    shares: tuple[float, float, float] | None = (0.5, 0.1, 0.4),
    seed: int = 0,
) -> Labelled:
    """Return the labelled rows of a label file for `build_task`.

    Parameters
    ----------
    table : LabelTable
        Labels, as `read_labels` returns them.
    name : str
        Name of the task.
    target : str or None
        Column of the classes; None for a gallery.
    sensitive : sequence of str
        Columns of the sensitive attributes.
    split_column : str or None
        Column with train, val and test; None to draw splits at random.
    shares : tuple of three floats or None
        Shares of train, val and test of a random split, inside each cell of class and sensitive values; None makes all
        rows training rows.
    seed : int
        Seed of a random split.
    """
    y = None if target is None else table.columns[target]
    split: NDArray[Any] | RandomShares
    if split_column is not None:
        split = _named_split(table.columns[split_column])
    elif shares is None:
        split = np.full(len(table), SPLITS[0])
    else:
        check_shares(shares, seed)
        split = RandomShares(len(table), shares, seed)
    return Labelled(
        name,
        table.ids,
        split,
        None if y is None else y.codes,
        () if y is None else y.names,
        {s: (table.columns[s].codes, table.columns[s].names) for s in sensitive},
    )


def _named_split(column: Column) -> NDArray[np.str_]:
    """Return train, val or test for each row of a split column; raise if a value means none of them or is missing."""
    names = [SPLIT_NAMES.get(name.lower(), name.lower()) for name in column.names]
    unknown = sorted({name for name in names if name not in SPLITS})
    if unknown:
        raise LabelError(
            f"column {column.name!r} must hold train, val or test (or 0, 1, 2); got {', '.join(unknown[:5])}"
        )
    missing = int((column.codes < 0).sum())
    if missing:
        raise LabelError(f"column {column.name!r} has no split for {missing} rows")
    return np.array(names)[column.codes]
