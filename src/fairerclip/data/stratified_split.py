"""Random splits in which every cell of class and sensitive values has its shares."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.checks import check_range
from fairerclip._util.types import Ints
from fairerclip.data.task_fields import SPLITS
from fairerclip.errors import ParameterError

_DIGITS = 10**9  # largest denominator of a share: 0.1 is a tenth here, as the user wrote it


def stratified_split(cells: Ints, shares: tuple[float, float, float], seed: int) -> NDArray[np.str_]:
    """Draw the split of each row at random, with the shares inside each cell.

    A cell that has a row for each split of a positive share has at least one row in each of them; its other rows are
    divided by largest remainder. Smaller cells are divided together.

    Parameters
    ----------
    cells : ndarray of int of shape (n,)
        Number of the cell of each row.
    shares : tuple of three floats
        Shares of train, val and test; they sum to one.
    seed : int
        Seed of the random order of the rows.

    Returns
    -------
    ndarray of shape (n,) of str
        "train", "val" or "test". O(n log n) time.

    Examples
    --------
    >>> split = stratified_split(np.array([0] * 20 + [1] * 4), (0.5, 0.1, 0.4), seed=0)
    >>> [int(np.sum(split[20:] == name)) for name in ("train", "val", "test")]
    [2, 1, 1]
    """
    check_shares(shares, seed)
    codes, sizes = np.unique(cells, return_inverse=True, return_counts=True)[1:]
    too_small = sizes < sum(share > 0 for share in shares)
    codes = np.where(too_small[codes], len(sizes), codes)  # one cell of all rows of such cells, the last one
    order = np.random.default_rng(seed).permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]  # cell by cell, at random inside each
    exact = [Fraction(share).limit_denominator(_DIGITS) for share in shares]
    out = np.empty(len(codes), dtype="<U5")
    start = 0
    for code, size in zip(*np.unique(codes, return_counts=True), strict=True):
        for name, count in zip(SPLITS, divided(int(size), exact, spread=code < len(sizes)), strict=True):
            out[order[start : start + count]] = name
            start += count
    return out


def check_shares(shares: tuple[float, float, float], seed: int) -> None:
    """Raise if shares are negative or do not sum to one, or if the seed is out of range."""
    if not (min(shares) >= 0 and abs(sum(shares) - 1) <= 1e-9):
        raise ParameterError(f"split shares must be non-negative and sum to 1; got {shares}")
    check_range("seed", seed)


def divided(size: int, shares: Sequence[Fraction], *, spread: bool) -> list[int]:
    """Divide a number of rows by shares: the counts nearest to ``size · share`` in the sum of squares.

    With ``spread``, every positive share gets a row at least. Of equally near counts, the first splits get more.

    Examples
    --------
    >>> divided(7, [Fraction(1, 2), Fraction(1, 10), Fraction(2, 5)], spread=True)
    [3, 1, 3]
    """
    quotas = [size * share / sum(shares) for share in shares]
    least = [int(spread and share > 0) for share in shares]
    counts = [max(low, int(quota)) for low, quota in zip(least, quotas, strict=True)]
    places = range(len(counts))
    while sum(counts) < size:
        counts[max(places, key=lambda i: (quotas[i] - counts[i], -i))] += 1
    while sum(counts) > size:
        above = [i for i in places if counts[i] > least[i]]
        counts[max(above, key=lambda i: (counts[i] - quotas[i], i))] -= 1
    return counts
