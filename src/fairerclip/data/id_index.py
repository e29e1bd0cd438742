"""Look-up of ids by 64-bit hashes, so that a join needs neither list of ids in memory.

A second, independent hash of each id is compared before two ids are taken for the same. Both hashes have random keys;
if two different ids agree in the first one, `HashCollision` asks the caller to begin anew with other keys. That two of
ten million different ids agree in both has a probability below 10⁻²⁰.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import Ints
from fairerclip.data.hashing import Hashes, hash_rows, random_keys, sort_hashes, text_words
from fairerclip.data.join import compared_part

Array = NDArray[Any]

KEYS = 256
"""Random numbers that are drawn at first, one per character of an id; more are drawn for longer ids."""


class HashCollision(Exception):
    """Two different ids have the same first hash: the join begins anew with other keys."""


class IdHasher:
    """Two hashes of the compared part of ids, with random keys of their own.

    Parameters
    ----------
    match : "exact", "basename" or "stem"
        Part of the ids that is compared, as in `join`.
    """

    def __init__(self, match: str = "exact") -> None:
        self.match, self._cut = match, compared_part(match)
        self._rng = np.random.default_rng()
        self._keys = [random_keys(KEYS, self._rng) for _ in range(2)]

    def __call__(self, ids: Array) -> tuple[Hashes, Hashes]:
        """Return both hashes (b,) of ids (b,)."""
        if self.match != "exact":
            ids = np.array([self._cut(name) for name in ids.tolist()], dtype=np.str_)
        ids = np.asarray(ids, dtype=np.str_)
        ids = ids if ids.dtype.itemsize else ids.astype("<U1")
        words = text_words(ids.astype(ids.dtype.newbyteorder("="), copy=False))
        while len(self._keys[0]) < words.shape[1]:
            self._keys = [np.concatenate([keys, random_keys(len(keys), self._rng)]) for keys in self._keys]
        return hash_rows(words, self._keys[0]), hash_rows(words, self._keys[1])


class IdIndex:
    """Ids that are added block by block, and then looked up block by block.

    Memory: 16 bytes per id while they are added, 32 bytes while they are sorted, and then 20 bytes.

    Parameters
    ----------
    hasher : IdHasher
        Hashes of the ids of both sides.

    Examples
    --------
    >>> index = IdIndex(IdHasher())
    >>> index.add(np.array(["b", "a"]))
    >>> index.repeated()
    []
    >>> index.rows(np.array(["a", "c"]))[0].tolist()
    [1, -1]
    """

    def __init__(self, hasher: IdHasher) -> None:
        self._hasher = hasher
        self._parts: tuple[list[Hashes], list[Hashes]] = ([], [])
        self._order: Array = np.empty(0, dtype=np.uint32)
        self._first = self._second = np.empty(0, dtype=np.uint64)

    def add(self, ids: Array) -> None:
        """Add a block of ids (b,)."""
        for part, hashes in zip(self._parts, self._hasher(ids), strict=True):
            part.append(hashes)

    def repeated(self) -> list[tuple[int, int]]:
        """Sort the hashes; return the rows of ids that are there twice, one pair of rows for each such id."""
        # Each array is deleted as soon as it is not needed, so that few are in memory at a time.
        first = np.concatenate(self._parts[0])
        self._parts[0].clear()
        order, self._first = sort_hashes(first)
        del first
        self._order = order.astype(np.uint32) if len(order) < 2**32 else order
        del order
        second = np.concatenate(self._parts[1])
        self._parts[1].clear()
        self._second = second[self._order]
        twice = np.flatnonzero(self._first[1:] == self._first[:-1])
        if (self._second[twice] != self._second[twice + 1]).any():
            raise HashCollision
        # Of an id that is there more than twice, the first two rows.
        starts = twice[np.flatnonzero(np.diff(twice, prepend=-2) != 1)] if len(twice) else twice
        return [(int(a), int(b)) for a, b in np.sort(self._pairs(starts), axis=1)]

    def _pairs(self, places: Ints) -> Array:
        return np.column_stack([self._order[places], self._order[places + 1]]).astype(np.int64)

    def rows(self, ids: Array) -> tuple[Ints, Hashes]:
        """Return the row (b,) of each of the ids (b,), -1 if it is not there, and the first hash of each id."""
        first, second = self._hasher(ids)
        order = np.argsort(first)  # so that memory is read in order
        place = np.empty(len(first), dtype=np.int64)
        place[order] = np.searchsorted(self._first, first[order])
        np.minimum(place, len(self._first) - 1, out=place)
        found = self._first[place] == first
        if (self._second[place[found]] != second[found]).any():
            raise HashCollision
        return np.where(found, self._order[place].astype(np.int64), -1), first


def same_ids(first: Array, second: Sequence[str] | Array) -> bool:
    """Return whether two blocks of ids are equal."""
    return len(first) == len(second) and bool(np.array_equal(first, np.asarray(second)))
