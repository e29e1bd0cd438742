"""Joining of embeddings and labels by id; by position only where the caller asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.checks import check_choice
from fairerclip._util.types import Ints
from fairerclip.data.hashing import Hashes, hash_rows, random_keys, sort_hashes, text_words
from fairerclip.errors import JoinError

Array = NDArray[Any]

SHOWN = 5
HINT_IDS = 20_000
"""Ids of each side that are compared to explain why no id matches."""
MATCHES = ("exact", "basename", "stem")
"""Parts of ids that must be equal: all, the name of the file without its folders, or also without its ending."""
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


def join_by_position(embeddings: int, labels: int) -> Join:
    """Match row k of the embeddings with row k of the labels; raise unless there are as many of both.

    Examples
    --------
    >>> join_by_position(3, 3).rows_in_labels.tolist()
    [0, 1, 2]
    """
    if embeddings != labels:
        raise JoinError(
            f"rows can be joined by position only if there are as many labels as embeddings: expected "
            f"{embeddings:,} labels, got {labels:,}; give ids, so that rows are joined by id"
        )
    return Join(np.arange(embeddings, dtype=np.int64), 0, 0, (), ())


def join(store_ids: Any, label_ids: Any, *, match: str = "exact") -> Join:
    """Find the label of every embedding.

    Parameters
    ----------
    store_ids : array of str of shape (n,)
        Ids of the embeddings.
    label_ids : array of str of shape (m,)
        Ids of the labels.
    match : "exact", "basename" or "stem"
        Part of the ids that is compared: all, the file name without folders, or also without its ending.

    Returns
    -------
    Join
        O((n + m) log(n + m)) time; 40 bytes per id in addition to the ids.

    Raises
    ------
    JoinError
        An id, or the compared part of two ids, occurs twice on one side, or no id matches.

    Examples
    --------
    >>> join(["x/b.jpg", "x/a.jpg"], ["a.jpg", "b.jpg"], match="basename").rows_in_labels.tolist()
    [1, 0]
    >>> join(["b", "a", "x"], ["a", "b", "c"]).rows_in_labels.tolist()
    [1, 0, -1]
    """
    check_choice("match", match, MATCHES)
    all_left, all_right = _text(store_ids, "embeddings"), _text(label_ids, "labels")
    left, right = _cut(all_left, match, "embeddings"), _cut(all_right, match, "labels")
    width = max(left.dtype.itemsize, right.dtype.itemsize) // 4
    while True:
        # A collision of hashes is resolved by drawing other keys; the result does not depend on the keys.
        keys = random_keys(width, np.random.default_rng())
        rows = _matched(left, right, keys)
        if rows is not None:
            break
    if not (rows >= 0).any():
        left_names, right_names = all_left[:HINT_IDS].tolist(), all_right[:HINT_IDS].tolist()
        raise JoinError(_no_match(left_names, right_names, (len(left), len(right)), match))
    without = np.flatnonzero(rows < 0)
    used = np.zeros(len(right), dtype=bool)
    used[rows[rows >= 0]] = True
    unused = np.flatnonzero(~used)
    return Join(
        rows,
        len(without),
        len(unused),
        tuple(all_left[without[:SHOWN]].tolist()),
        tuple(all_right[unused[:SHOWN]].tolist()),
    )


def _text(ids: Any, side: str) -> NDArray[np.str_]:
    if ids is None:
        raise JoinError(
            f"the {side} have no ids, and rows are not joined by position unless you ask for it; give ids"
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


def _base_name(name: str) -> str:
    """Return the name of a file without its folders; an id that is only a folder stays as it is."""
    return PurePosixPath(name.replace("\\", "/")).name or name


_REDUCE: Mapping[str, Callable[[str], str]] = {
    "basename": _base_name,
    "stem": lambda name: PurePosixPath(_base_name(name)).stem or name,
}


def _cut(ids: NDArray[np.str_], match: str, side: str) -> NDArray[np.str_]:
    """Return the part of each id that is compared; raise, with both ids, if two different ids have the same part."""
    if match == "exact":
        return ids
    cut = _REDUCE[match]
    owner: dict[str, str] = {}
    shared: dict[str, tuple[str, str]] = {}
    names = ids.tolist()
    for name in names:
        first = owner.setdefault(cut(name), name)
        if first != name:
            shared.setdefault(cut(name), (first, name))
    if shared:
        pairs = "; ".join(f"{cut(a)!r} of {a!r} and {b!r}" for a, b in [*shared.values()][:SHOWN])
        more = "; …" if len(shared) > SHOWN else ""
        raise JoinError(
            f"--match {match}: {len(shared):,} names are those of several {side}: {pairs}{more}; join by whole ids, or "
            "change the ids of one side"
        )
    return np.array([cut(name) for name in names], dtype=np.str_)


_CUTS: tuple[tuple[str, str | None, Callable[[str], str]], ...] = (
    ("without their directories", "basename", _REDUCE["basename"]),
    ("without their file endings", "stem", lambda name: name[: len(name) - len(PurePosixPath(name).suffix)]),
    ("without directories and file endings", "stem", _REDUCE["stem"]),
    ("in lower case and without surrounding spaces", None, lambda name: name.strip().lower()),
)


def _no_match(left: Sequence[str], right: Sequence[str], rows: tuple[int, int], match: str) -> str:
    """Return the message on embeddings and labels without a common id: the first ids, and how they would match.

    ``rows`` are the numbers of all embeddings and labels.
    """
    message = (
        f"no id of the {rows[0]:,} embeddings is among the {rows[1]:,} labels: embeddings have ids such as "
        f"{left[0]!r}, labels such as {right[0]!r}"
    )
    for change, flag, cut in _CUTS:
        if flag != match and {cut(name) for name in left} & {cut(name) for name in right}:
            remedy = f'give --match {flag} (match="{flag}" in Python)' if flag else ""
            return f"{message}; they would match {change}: {remedy or 'change the ids of one side'}"
    return f"{message}; check that both are of the same images and that the id column is the right one"
