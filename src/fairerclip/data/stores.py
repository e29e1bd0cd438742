"""`EmbeddingStore`: embeddings on disk in common layouts, read by blocks and with ids.

A store is a sequence of parts. Rows are returned as float32 whatever type the files hold, and they are read only
when they are used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.arrays import row_squares
from fairerclip._util.files import reading
from fairerclip._util.types import Ints
from fairerclip.data.io.remote_path import RemotePath, as_location
from fairerclip.data.provenance import Provenance
from fairerclip.data.row_pass import BLOCK_ROWS
from fairerclip.data.store_parts import StorePart, array_part
from fairerclip.errors import FairerClipError, ShapeError, StoreError

if TYPE_CHECKING:
    from fairerclip.data.layouts import Ask

Array = NDArray[Any]
Floats = NDArray[np.float32]

UNIT_TOLERANCE = 1e-3
"""Distance from unit length up to which a row is taken for a unit row that was rounded; float16 rounding changes
lengths by up to 1e-4."""


class StoreOrigin(NamedTuple):
    """Path and options with which `open_store` opens the same rows in another process, and which of them are chosen."""

    path: str
    options: dict[str, Any]
    rows: Ints | None = None


class EmbeddingStore:
    """Embeddings (n, p) on disk that are used like an array but read block by block.

    A store can be given as ``X`` to `FairerCLIP.fit`, ``predict`` and ``transform``.

    Parameters
    ----------
    parts : sequence of StorePart
        Parts in the order of the rows; `open_store` finds them.
    path : str
        Name of the store in messages.
    provenance : Provenance or None
        Model that made the embeddings, if known.

    Examples
    --------
    >>> store = EmbeddingStore.from_array(np.eye(3), ids=["a", "b", "c"])
    >>> store.shape, store[1:].shape, store.ids.tolist()
    ((3, 3), (2, 3), ['a', 'b', 'c'])
    """

    ndim = 2
    dtype = np.dtype(np.float32)

    def __init__(
        self, parts: Sequence[StorePart], *, path: str = "store", provenance: Provenance | None = None
    ) -> None:
        if not parts or not sum(part.shape[0] for part in parts):
            raise StoreError(f"{path}: expected embeddings, found none")
        parts = [part for part in parts if part.shape[0]]
        for part in parts:
            if part.shape[1] != parts[0].shape[1]:
                raise StoreError(
                    f"{path}: expected one width, {part.where} has {part.shape[1]} and {parts[0].where} "
                    f"{parts[0].shape[1]}"
                )
            if (part.ids is None) != (parts[0].ids is None):
                bare, named = (part, parts[0]) if part.ids is None else (parts[0], part)
                raise StoreError(
                    f"{path}: expected ids for all rows, {named.where} has ids, {bare.where} none"
                )
        if provenance is not None and provenance.width != parts[0].shape[1]:
            raise StoreError(
                f"{path}: expected width {provenance.width} by its provenance, the embeddings have {parts[0].shape[1]}"
            )
        self.path, self.provenance = path, provenance
        self.parts = list(parts)
        self._starts = np.cumsum([0, *(part.shape[0] for part in parts)])  # (parts + 1,)
        self.shape = (int(self._starts[-1]), parts[0].shape[1])
        self._ids: Array | None = None
        self.origin: StoreOrigin | None = None

    @classmethod
    def from_array(
        cls, X: Any, ids: Any = None, *, provenance: Provenance | None = None, path: str = "array"
    ) -> EmbeddingStore:
        """Return a store over an array (n, p) or memory map, with ids (n,) or without."""
        array = np.asarray(X) if not isinstance(X, np.ndarray) else X
        rows = None if ids is None else np.asarray(ids).astype(np.str_)
        part = array_part(
            path, lambda: array, array.shape, array.dtype, None if rows is None else lambda: rows
        )
        return cls([part], path=path, provenance=provenance)

    def with_ids(self, ids: Any) -> EmbeddingStore:
        """Return a store of the same rows with these ids (n,), in the place of those of the files."""
        given = np.asarray(ids)
        names = given.astype(np.str_) if given.dtype.kind in "iuU" else given
        if names.dtype.kind != "U" or names.shape != (len(self),):
            raise StoreError(
                f"{self.path}: expected an id for each of the {len(self):,} rows, got ids of shape {names.shape} "
                f"({names.dtype})"
            )
        store = EmbeddingStore(self.parts, path=self.path, provenance=self.provenance)
        store._ids, store.origin = names, self.origin
        return store

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"EmbeddingStore({self.path!r}, shape={self.shape}, on disk {self.dtype_on_disk})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise StoreError(
                f"{self.path}: a store cannot become an array without a copy; leave out copy=False"
            )
        rows = self[:]
        return rows if dtype is None else rows.astype(dtype, copy=False)

    @property
    def dtype_on_disk(self) -> str:
        """Types of the numbers in the files, such as ``"float16"``."""
        return ", ".join(dict.fromkeys(part.dtype for part in self.parts))

    @property
    def has_ids(self) -> bool:
        """Whether rows have ids; they are not read for this."""
        return self._ids is not None or self.parts[0].ids is not None

    @property
    def held_ids(self) -> Array | None:
        """Ids (n,) of str that are in memory already: given ones, or those that `ids` has read."""
        return self._ids

    @property
    def ids(self) -> Array | None:
        """Ids (n,) of str, read once, or None if the files have none."""
        if self._ids is None and self.has_ids:
            with reading(StoreError):
                self._ids = np.concatenate([part_ids(part) for part in self.parts])
        return self._ids

    def __getitem__(self, rows: slice | Sequence[int] | Array) -> Floats:
        """Return rows (m, p) as float32, for a slice or an array of row numbers."""
        return self._rows(rows, _float32)

    def raw(self, rows: slice | Sequence[int] | Array) -> Array:
        """Return rows (m, p) in the widest float type of their files, without scaling to unit length."""
        return self._rows(rows, _as_stored)

    @reading(StoreError)
    def _rows(
        self, rows: slice | Sequence[int] | Array, convert: Callable[[StorePart, Array], Array]
    ) -> Array:
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                return self._range(start, max(start, stop), convert)
            rows = np.arange(start, stop, step)
        numbers = np.asarray(rows)
        if numbers.dtype == np.bool_ and numbers.shape == (len(self),):
            numbers = np.flatnonzero(numbers)
        if numbers.ndim != 1 or (numbers.dtype.kind not in "iu" and numbers.size):
            raise ShapeError(
                f"{self.path}: expected a slice or row numbers (m,), got {numbers.dtype} of shape {numbers.shape}"
            )
        return self._take(numbers.astype(np.int64), convert)

    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[tuple[Array, Floats]]:
        """Yield (ids, X (m, p) float32) block by block; without ids, row numbers take their place."""
        for start in range(0, len(self), rows):
            stop = min(start + rows, len(self))
            ids = self.ids
            yield (np.arange(start, stop) if ids is None else ids[start:stop]), self[start:stop]

    def _range(self, start: int, stop: int, convert: Callable[[StorePart, Array], Array]) -> Array:
        pieces = []
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        for part, begin in zip(self.parts[first:], self._starts[first:], strict=False):
            low, high = max(start - int(begin), 0), min(stop - int(begin), part.shape[0])
            if low >= high:
                break
            pieces.append(convert(part, part.source.read(low, high)))
        return _joined(pieces, self.shape[1])

    def _take(self, numbers: Ints, convert: Callable[[StorePart, Array], Array]) -> Array:
        n = len(self)
        outside = (numbers < -n) | (numbers >= n)
        if outside.any():
            raise ShapeError(
                f"{self.path}: expected row numbers from {-n} to {n - 1}, got {int(numbers[outside][0])}"
            )
        numbers = np.where(numbers < 0, numbers + n, numbers)
        order = np.argsort(numbers, kind="stable")
        ascending = numbers[order]  # so that each part is read once, from its beginning to its end
        edges = np.searchsorted(ascending, self._starts)
        pieces = [
            convert(part, part.source.take(ascending[low:high] - int(begin)))
            for part, begin, low, high in zip(
                self.parts, self._starts[:-1], edges[:-1], edges[1:], strict=True
            )
            if low < high
        ]
        rows = _joined(pieces, self.shape[1])
        out = np.empty_like(rows)
        out[order] = rows
        return out


def _joined(pieces: list[Array], width: int) -> Array:
    if not pieces:
        return np.empty((0, width), dtype=np.float32)
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _as_stored(part: StorePart, rows: Array) -> Array:
    if rows.shape[1:] != (part.shape[1],):
        raise StoreError(
            f"{part.where}: expected width {part.shape[1]}, got shape {rows.shape}; has it changed?"
        )
    if part.dtype == "bfloat16":
        from fairerclip.data.io.tensors import widen_bfloat16

        return widen_bfloat16(rows)
    return rows


def _float32(part: StorePart, rows: Array) -> Floats:
    """Return a float32 copy of rows; unit rows that were stored in 16 bits are scaled to unit length again."""
    with np.errstate(over="ignore"):  # values too large for float32 become infinite, which the callers report
        out = np.array(_as_stored(part, rows), dtype=np.float32, order="C")
    return unit_again(out) if part.dtype in ("float16", "bfloat16") else out


def part_ids(part: StorePart) -> Array:
    """Return the ids (n,) of a part; raise unless there is one for each row."""
    ids = np.asarray(part.ids() if part.ids is not None else [])
    if ids.dtype.kind != "U" or ids.shape != (part.shape[0],):
        raise StoreError(
            f"{part.where}: {part.shape[0]:,} embeddings but ids of shape {ids.shape} ({ids.dtype}); each row "
            "needs one"
        )
    return ids


def unit_again(rows: Floats) -> Floats:
    """Scale rows near unit length to unit length, in place, to undo rounding; other rows stay as they are."""
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.sqrt(row_squares(rows))
        near = np.abs(norms - 1.0) <= UNIT_TOLERANCE
    rows /= np.where(near, norms, 1.0).astype(np.float32)[:, None]
    return rows


@reading(StoreError)
def open_store(
    path: str | os.PathLike[str] | RemotePath,
    *,
    modality: str = "image",
    key: str | None = None,
    id_column: str | None = None,
    provenance: Provenance | None = None,
    incomplete: bool = False,
    ids: Any = None,
) -> EmbeddingStore:
    """Open embeddings on disk; the layout is recognised from the file or folder.

    Parameters
    ----------
    path : path-like
        ``.npy``, ``.npz``, ``.safetensors`` or ``.parquet``; a folder that clip-retrieval or ``fairerclip embed``
        wrote; a folder of shards of one kind, also beside parquet files of the same names (DataComp). A text such as
        ``"s3://bucket/folder"`` is a URL that fsspec opens: of ``.npy``, ``.parquet`` and folders of these.
    modality : "image" or "text"
        Embeddings to open in a folder that holds both.
    key : str or None
        Array, tensor or column to read if a file holds several, such as ``"l14_img"`` of DataComp.
    id_column : str or None
        Parquet column of ids, or column of the file ``ids``; None means the first of ``id``, ``image_path`` …
    provenance : Provenance or None
        Provenance of the embeddings, for layouts that do not record it.
    incomplete : bool
        Accept a store whose embedding has not finished.
    ids : path-like, sequence of str, or None
        Ids of the rows, in the place of those of the files; of a file as in `fairerclip.data.id_files.read_id_list`.

    Returns
    -------
    EmbeddingStore
        O(parts) memory; rows are read when they are used.

    Raises
    ------
    StoreError, JoinError
        The path holds no readable embeddings, or the file ``ids`` not one id for each row.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(Path(folder.name) / "x.npy", np.eye(4, dtype=np.float16))
    >>> open_store(Path(folder.name) / "x.npy")
    EmbeddingStore('...x.npy', shape=(4, 4), on disk float16)
    >>> folder.cleanup()
    """
    from fairerclip.data import layouts  # which imports this module

    if modality not in ("image", "text"):
        raise StoreError(f"modality must be 'image' or 'text', got {modality!r}")
    of_store = None if isinstance(ids, str | os.PathLike) else id_column  # or that of the file of ids
    location = as_location(path)
    parts, own = _found(location, layouts.Ask(modality, key, of_store, incomplete))
    store = EmbeddingStore(parts, path=str(location), provenance=provenance or own)
    store.origin = _origin(location, modality, key, of_store, incomplete)
    return store if ids is None else store.with_ids(_row_ids(ids, id_column, len(store)))


def _origin(
    location: Path | RemotePath, modality: str, key: str | None, id_column: str | None, incomplete: bool
) -> StoreOrigin:
    path = str(location) if isinstance(location, RemotePath) else os.path.abspath(location)
    options = {"modality": modality, "key": key, "id_column": id_column, "incomplete": incomplete}
    return StoreOrigin(path, options)


def _found(path: Path | RemotePath, ask: Ask) -> tuple[list[StorePart], Provenance | None]:
    from fairerclip.data.layouts import find_parts

    try:
        return find_parts(path, ask)
    except FairerClipError:
        raise
    except (OSError, ValueError) as error:  # no permission, or the name holds a NUL
        raise StoreError(f"{path!s}: expected embeddings, got {error}") from error


def _row_ids(ids: Any, id_column: str | None, rows: int) -> Any:
    """Return given ids, read from their file if they are the path of one."""
    if not isinstance(ids, str | os.PathLike):
        return ids
    from fairerclip.data.id_files import read_id_list

    return read_id_list(ids, id_column=id_column, rows=rows)
