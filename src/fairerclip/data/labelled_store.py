"""`label_store`: a table of labels of any size, matched with the rows of a store block by block."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.files import reading
from fairerclip.data.build import check_ids
from fairerclip.data.coded_labels import CodedLabels
from fairerclip.data.id_index import HashCollision, IdHasher, IdIndex, same_ids
from fairerclip.data.io.bounded_text import text_array
from fairerclip.data.join import (
    HINT_IDS,
    SHOWN,
    join_by_position,
    match_lines,
    no_match_message,
    repeated_message,
    shared_message,
)
from fairerclip.data.label_table import ColumnEncoder, label_batches, no_blank
from fairerclip.data.labelled_rows import check_all_split, split_names
from fairerclip.data.store_rows import id_blocks, ids_at, select_rows
from fairerclip.data.stores import EmbeddingStore, open_store
from fairerclip.data.task_fields import SPLITS
from fairerclip.errors import JoinError, LabelError, ParameterError, PositionJoinWarning

Array = NDArray[Any]
Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, eq=False)
class StoreSplit:
    """Rows of one split of a labelled store: arguments of a fit.

    Attributes
    ----------
    X : EmbeddingStore
        The rows, on disk.
    y : CodedLabels or None
        Labels (n,); None without a target.
    s : dict of str to CodedLabels
        Sensitive attribute → its values (n,).
    """

    X: EmbeddingStore
    y: CodedLabels | None
    s: dict[str, CodedLabels]

    def __len__(self) -> int:
        return len(self.X)


@dataclass(frozen=True, eq=False)
class LabelledStore:
    """A store whose rows have labels; `label_store` makes one.

    Attributes
    ----------
    store : EmbeddingStore
        All rows.
    labels : dict of str to CodedLabels
        Column → labels of the rows of the store, one to two bytes each; unknown for a row that the table does not have.
    target : str or None
        Column of the target.
    sensitive : tuple of str
        Columns of the sensitive attributes.
    split_of : array of shape (n,) of int8
        Place in train, val, test of each row; -1 for a row that the table does not have.
    notes : list of str
        Sentences on rows of one side that the other does not have.
    """

    store: EmbeddingStore
    labels: dict[str, CodedLabels]
    target: str | None
    sensitive: tuple[str, ...]
    split_of: Array = field(repr=False)
    notes: list[str] = field(repr=False)

    @property
    def splits(self) -> list[str]:
        """Names of the splits that have rows."""
        counts = np.bincount(self.split_of[self.split_of >= 0], minlength=len(SPLITS))
        return [name for name, count in zip(SPLITS, counts, strict=True) if count]

    def rows(self, split: str) -> Array:
        """Return the numbers (m,) of the rows of a split."""
        if split not in self.splits:
            raise LabelError(
                f"no row belongs to the split {split!r}; there are rows of {', '.join(self.splits)}"
            )
        return np.flatnonzero(self.split_of == SPLITS.index(split))

    def split(self, name: str = "train") -> StoreSplit:
        """Return the rows of a split and their labels, ready for `FairerCLIP.fit`; without a split column all rows."""
        rows = self.rows(name)
        return StoreSplit(
            select_rows(self.store, rows),
            None if self.target is None else self.labels[self.target][rows],
            {attribute: self.labels[attribute][rows] for attribute in self.sensitive},
        )


@reading(JoinError)
def label_store(
    store: Any,
    table: Any,
    *,
    id_column: str | None = None,
    target: str | None = None,
    sensitive: Sequence[str] = (),
    split_column: str | None = None,
    match: str = "exact",
    by_position: bool = False,
    progress: Progress | None = None,
) -> LabelledStore:
    r"""Match a table of labels with the rows of a store, without either of them in memory.

    The table is read once, in blocks. A table in the order of the store is recognised; any other is joined by hashes of
    the ids, in 20 to 32 bytes per row of the table. Labels take one byte per row and column up to 127 values.

    Parameters
    ----------
    store : EmbeddingStore, str or Path
        Embeddings with ids, or their path.
    table, id_column
        As in `read_labels`.
    target, sensitive : str or None, sequence of str
        Column of the classes, and columns of the sensitive attributes.
    split_column : str or None
        Column with train, val and test, or their other names; None puts all rows into train.
    match, by_position
        As in `build_task`.
    progress : callable, optional
        Called with the number of rows of the table that have been read, and None.

    Returns
    -------
    LabelledStore
        Rows that the table does not have belong to no split. Errors are those of `read_labels` and `join`.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = Path(folder.name) / "labels.csv"
    >>> _ = file.write_text("image,hair,sex\nb,dark,f\na,blond,m\n")
    >>> store = EmbeddingStore.from_array(np.eye(2), ids=["a", "b"])
    >>> rows = label_store(store, file, id_column="image", target="hair", sensitive=["sex"]).split()
    >>> np.asarray(rows.y).tolist(), np.asarray(rows.s["sex"]).tolist()
    (['blond', 'dark'], ['m', 'f'])
    >>> folder.cleanup()
    """
    opened = store if isinstance(store, EmbeddingStore) else open_store(store)
    columns = [name for name in (target, *sensitive, split_column) if name is not None]
    if len(set(columns)) != len(columns) or not columns:
        raise ParameterError("target, sensitive and split_column must name different columns, at least one")
    job = _Join(opened, Path(table), columns, split_column, match, progress)
    labels, matched, notes = job.by_position() if by_position else job.by_id(id_column)
    if by_position:
        _warn_of_position(opened, match)
    split_of = _split_codes(labels, split_column, matched, len(opened))
    kept = {name: labels[name] for name in columns if name != split_column}
    return LabelledStore(opened, kept, target, tuple(sensitive), split_of, notes)


def _warn_of_position(store: EmbeddingStore, match: str) -> None:
    if match != "exact":
        raise ParameterError(
            f"match={match!r} compares ids, but rows are joined by position: give one of them"
        )
    warnings.warn(
        f"{len(store):,} rows are joined by position: row k of {store.path} is taken for row k of the labels. Only "
        "their numbers were compared; labels in another order would not be noticed",
        PositionJoinWarning,
        stacklevel=4,
    )


def _split_codes(labels: dict[str, CodedLabels], column: str | None, matched: Array | None, n: int) -> Array:
    """Return the place of each row's split in `SPLITS`, -1 for rows without labels."""
    out = np.zeros(n, dtype=np.int8)
    if column is not None:
        coded = labels[column]
        known = coded.codes if matched is None else coded.codes[matched]
        names = split_names(column, coded.names)
        check_all_split(column, known)
        places = np.array([*(SPLITS.index(name) for name in names), -1], dtype=np.int8)
        out = places[coded.codes]
    if matched is not None:
        out[~matched] = -1
    return out


Found = tuple[dict[str, CodedLabels], Array | None, list[str]]
"""Labels of the rows of a store by column, which rows have labels (None for all), and sentences."""


@dataclass(frozen=True, eq=False)
class _Join:
    """One reading of a table."""

    store: EmbeddingStore
    table: Path
    columns: list[str]
    split_column: str | None
    match: str
    progress: Progress | None

    def by_position(self) -> Found:
        labels, rows = self._read(None, lambda ids: None)
        join_by_position(len(self.store), rows)
        return labels, None, []

    def by_id(self, id_column: str | None) -> Found:
        if id_column is None:
            raise ParameterError("id_column is needed: it names the column of ids; or give by_position=True")
        check_ids(self.store)
        while True:
            try:
                return self._by_hash(id_column)
            except HashCollision:
                continue  # with other keys

    def _read(
        self, id_column: str | None, see_ids: Callable[[Array], None]
    ) -> tuple[dict[str, CodedLabels], int]:
        """Return the labels of all rows of the table, and their number; give the ids of each block to ``see_ids``."""
        wanted = list(dict.fromkeys([*([] if id_column is None else [id_column]), *self.columns]))
        encoders = {name: ColumnEncoder(name, self.table) for name in self.columns}
        rows = 0
        for batch in label_batches(self.table, wanted)[0]:
            by_name = dict(zip(wanted, batch, strict=True))
            if id_column is not None:
                names = no_blank(by_name[id_column], self.table, id_column, rows)
                see_ids(text_array(names, str(self.table), "an id", JoinError))
            for name, encoder in encoders.items():
                encoder.update(by_name[name])
            rows += len(batch[0])
            if self.progress is not None:
                self.progress(rows, None)
        if not rows:
            raise JoinError(f"{self.table}: expected rows after the header, found none")
        return {name: e.coded(name == self.split_column) for name, e in encoders.items()}, rows

    def _by_hash(self, id_column: str) -> Found:
        hasher = IdHasher(self.match)
        index, order = IdIndex(hasher), _SameOrder(self.store)

        def see(ids: Array) -> None:
            index.add(ids)
            order.see(ids)

        labels, rows = self._read(id_column, see)
        repeated = index.repeated()
        if repeated:
            raise JoinError(
                self._repeated(repeated, "labels", lambda wanted: self._table_ids(id_column, wanted))
            )
        if order.holds(rows):
            return labels, None, []
        return self._matched(index, labels, rows, id_column)

    def _matched(self, index: IdIndex, labels: dict[str, CodedLabels], rows: int, id_column: str) -> Found:
        """Return the labels in the order of the store, after a look-up of its ids."""
        n = len(self.store)
        codes = {name: np.full(n, -1, dtype=coded.codes.dtype) for name, coded in labels.items()}
        matched, used = np.zeros(n, dtype=bool), np.zeros(rows, dtype=bool)
        strangers: list[Array] = []
        first: list[str] = []
        start, twice = 0, False
        for ids in id_blocks(self.store):
            found, hashes = index.rows(ids)
            known = found >= 0
            place = found[known]
            twice = twice or bool(used[place].any()) or len(np.unique(place)) < len(place)
            used[place] = True
            matched[start : start + len(ids)] = known
            for name, coded in labels.items():
                codes[name][start : start + len(ids)][known] = coded.codes[place]
            strangers.append(hashes[~known])
            first += ids[~known][: SHOWN - len(first)].tolist()
            start += len(ids)
        unknown = np.sort(np.concatenate(strangers))
        if twice or (unknown[1:] == unknown[:-1]).any():
            self._check_store_ids()
        if not matched.any():
            raise JoinError(self._no_match(id_column, rows))
        missing = (n - int(matched.sum()), rows - int(used.sum()))
        unused = self._table_ids(id_column, np.flatnonzero(~used)[:SHOWN]) if missing[1] else []
        notes = match_lines(n, missing, first, unused) if any(missing) else []
        named = {name: CodedLabels(codes[name], coded.names) for name, coded in labels.items()}
        return named, None if matched.all() else matched, notes

    # Messages: the ids that they name are read again ------------------------------------------------

    def _check_store_ids(self) -> None:
        """Raise if ids of the store are given twice; a second look, after their hashes were."""
        index = IdIndex(IdHasher(self.match))
        for ids in id_blocks(self.store):
            index.add(ids)
        repeated = index.repeated()
        if not repeated:
            raise HashCollision  # two strangers, or a stranger and a known id
        raise JoinError(self._repeated(repeated, "embeddings", lambda wanted: ids_at(self.store, wanted)))

    def _repeated(
        self, pairs: Sequence[tuple[int, int]], side: str, names_of: Callable[[Any], list[str]]
    ) -> str:
        """Return the message on ids that are given twice, or whose compared parts are."""
        shown = sorted(pairs)[:SHOWN]
        names = names_of([row for pair in shown for row in pair])
        both = list(zip(names[::2], names[1::2], strict=True))
        if all(a == b for a, b in both):
            return repeated_message(len(pairs), [a for a, _ in both], side)
        return shared_message(self.match, len(pairs), [(a, b) for a, b in both if a != b], side)

    def _table_ids(self, id_column: str, wanted: Any) -> list[str]:
        """Return the ids of some rows of the table."""
        rows = [int(row) for row in wanted]
        found, start, left = {}, 0, set(rows)
        for (ids,) in label_batches(self.table, [id_column])[0]:
            for row in [row for row in left if row < start + len(ids)]:
                found[row] = str(ids[row - start])
                left.remove(row)
            start += len(ids)
            if not left:
                break
        return [found[row] for row in rows]

    def _no_match(self, id_column: str, rows: int) -> str:
        heads = [
            [str(name) for name in islice((name for block in blocks for name in block), HINT_IDS)]
            for blocks in (id_blocks(self.store), self._names(id_column))
        ]
        return no_match_message(heads[0], heads[1], (len(self.store), rows), self.match)

    def _names(self, id_column: str) -> Iterator[Sequence[str | None]]:
        for (ids,) in label_batches(self.table, [id_column])[0]:
            yield ids


class _SameOrder:
    """Comparison of the ids of a table with those of a store, row by row, as long as they are the same."""

    def __init__(self, store: EmbeddingStore) -> None:
        self._rows = len(store)
        self._blocks = id_blocks(store)
        self._waiting: Array = np.empty(0, dtype="<U1")
        self._same = True

    def see(self, ids: Array) -> None:
        """Compare the next ids of the table."""
        while self._same and len(self._waiting) < len(ids):
            block = next(self._blocks, None)
            if block is None:
                self._same = False
                return
            self._waiting = np.concatenate([self._waiting, block])
        if self._same:
            self._same = same_ids(self._waiting[: len(ids)], ids)
            self._waiting = self._waiting[len(ids) :]

    def holds(self, rows: int) -> bool:
        """Return whether the table had the same ids in the same order, and no others."""
        return self._same and rows == self._rows
