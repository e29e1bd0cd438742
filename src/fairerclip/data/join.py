"""Joining of embeddings and labels by id, never by position."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import Ints
from fairerclip.data.hashing import Hashes, hash_rows, random_keys, sort_hashes, text_words
from fairerclip.errors import JoinError

Array = NDArray[Any]

SHOWN = 5
HINT_IDS = 20_000
"""Ids of each side that are compared to explain why no id matches."""
_COMPARED = 1 << 16  # rows whose ids are compared at once


@dataclass(frozen=True, eq=False)
class Join:
    """Result of `join`: the label of each embedding.

    Attributes
    ----------
    rows_in_labels : ndarray of shape (n,) of int64
        For each embedding its row in the labels, or -1 if it has none.
    unmatched_embeddings, unmatched_labels : int
        Numbers of embeddings without a label and of labels without an embedding.
    first_embeddings, first_labels : tuple of str
        Ids of the first few of these.
    """

    rows_in_labels: Ints
    unmatched_embeddings: int
    unmatched_labels: int
    first_embeddings: tuple[str, ...]
    first_labels: tuple[str, ...]

    @property
    def matched(self) -> int:
        """Number of embeddings that have a label."""
        return len(self.rows_in_labels) - self.unmatched_embeddings

    def lines(self) -> list[str]:
        """Return sentences on how many embeddings and labels match, and which do not."""
        out = [f"{self.matched:,} of {len(self.rows_in_labels):,} embeddings have a label."]
        for count, first, fault in (
            (self.unmatched_embeddings, self.first_embeddings, "embeddings have no label"),
            (self.unmatched_labels, self.first_labels, "labels have no embedding"),
        ):
            if count:
                out.append(f"{count:,} {fault}: {', '.join(first)}{', …' if count > len(first) else ''}.")
        return out


def join(store_ids: Any, label_ids: Any) -> Join:
    """Find the label of every embedding.

    Parameters
    ----------
    store_ids : array of str of shape (n,)
        Ids of the embeddings.
    label_ids : array of str of shape (m,)
        Ids of the labels.

    Returns
    -------
    Join
        O((n + m) log(n + m)) time; 40 bytes per id in addition to the ids.

    Raises
    ------
    JoinError
        An id occurs twice on one side, or no id matches.

    Examples
    --------
    >>> join(["b", "a", "x"], ["a", "b", "c"]).rows_in_labels.tolist()
    [1, 0, -1]
    """
    left, right = _text(store_ids, "embeddings"), _text(label_ids, "labels")
    width = max(left.dtype.itemsize, right.dtype.itemsize) // 4
    while True:
        # A collision of hashes is resolved by drawing other keys; the result does not depend on the keys.
        keys = random_keys(width, np.random.default_rng())
        rows = _matched(left, right, keys)
        if rows is not None:
            break
    if not (rows >= 0).any():
        raise JoinError(_no_match_message(left, right))
    without = np.flatnonzero(rows < 0)
    used = np.zeros(len(right), dtype=bool)
    used[rows[rows >= 0]] = True
    unused = np.flatnonzero(~used)
    return Join(
        rows,
        len(without),
        len(unused),
        tuple(left[without[:SHOWN]].tolist()),
        tuple(right[unused[:SHOWN]].tolist()),
    )


def _text(ids: Any, side: str) -> NDArray[np.str_]:
    if ids is None:
        raise JoinError(
            f"the {side} have no ids: rows are joined by id, never by position; name an id column"
        )
    array = np.asarray(ids)
    if array.dtype.kind in "iu":
        array = array.astype(np.str_)
    if array.dtype.kind == "O" and all(isinstance(name, str) for name in array.ravel()):
        array = array.astype(np.str_)
    if array.ndim != 1 or array.dtype.kind != "U" or not len(array):
        raise JoinError(f"expected ids of {side} as strings (n,), got {array.dtype} of shape {array.shape}")
    array = array if array.dtype.itemsize else array.astype("<U1")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _matched(left: NDArray[np.str_], right: NDArray[np.str_], keys: Hashes) -> Ints | None:
    """Return the row of each left id among the right ones, or None if two different ids have the same hash."""
    left_order, left_hash = _sorted_unique(left, keys, "embeddings")
    right_order, right_hash = _sorted_unique(right, keys, "labels")
    if left_hash is None or right_hash is None:
        return None
    place = np.searchsorted(right_hash, left_hash)  # both sorted, so memory is read in order
    np.minimum(place, len(right_hash) - 1, out=place)
    matches = np.flatnonzero(right_hash[place] == left_hash)
    rows = np.full(len(left), -1, dtype=np.int64)
    rows[left_order[matches]] = right_order[place[matches]]
    return rows if _equal(left, right, rows) else None


def _equal(left: NDArray[np.str_], right: NDArray[np.str_], rows: Ints) -> bool:
    """Return whether every id equals its match; compared as numbers, which is faster than as text."""
    a, b = text_words(left), text_words(right)
    width = min(a.shape[1], b.shape[1])
    known = np.flatnonzero(rows >= 0)
    for start in range(0, len(known), _COMPARED):
        block = known[start : start + _COMPARED]
        left_words, right_words = a[block], b[rows[block]]
        same = np.array_equal(left_words[:, :width], right_words[:, :width])
        if (
            not same or left_words[:, width:].any() or right_words[:, width:].any()
        ):  # a shorter id ends in zeros
            return False
    return True


def _sorted_unique(ids: NDArray[np.str_], keys: Hashes, side: str) -> tuple[Ints, Hashes | None]:
    """Return the order that sorts the hashes of ids, and these hashes, or None if different ids share a hash."""
    order, hashes = sort_hashes(hash_rows(text_words(ids), keys))
    twice = np.flatnonzero(hashes[1:] == hashes[:-1])
    if not twice.size:
        return order, hashes
    first, second = ids[order[twice]], ids[order[twice + 1]]
    repeated = np.unique(first[first == second])
    if repeated.size:
        shown = ", ".join(map(repr, repeated[:SHOWN].tolist()))
        more = ", …" if repeated.size > SHOWN else ""
        raise JoinError(
            f"{repeated.size:,} ids of the {side} are given more than once: {shown}{more}; give each id once"
        )
    return order, None


_CUTS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("without their directories", lambda name: PurePosixPath(name.replace("\\", "/")).name),
    ("without their file endings", lambda name: name[: len(name) - len(PurePosixPath(name).suffix)]),
    ("without directories and file endings", lambda name: PurePosixPath(name.replace("\\", "/")).stem),
    ("in lower case and without surrounding spaces", lambda name: name.strip().lower()),
)


def _no_match_message(left: NDArray[np.str_], right: NDArray[np.str_]) -> str:
    message = (
        f"no id of the {len(left):,} embeddings is among the {len(right):,} labels: embeddings have ids such as "
        f"{str(left[0])!r}, labels such as {str(right[0])!r}"
    )
    left_names, right_names = left[:HINT_IDS].tolist(), right[:HINT_IDS].tolist()
    for change, cut in _CUTS:
        if {cut(name) for name in left_names} & {cut(name) for name in right_names}:
            return f"{message}; they would match {change}: change the ids of one side"
    return f"{message}; check that both are of the same images and that the id column is the right one"
