"""Bootstrap on counts: to draw n rows with replacement is to draw the counts of their cells once."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairerclip.errors import LabelError, ParameterError


def resample(counts: ArrayLike, n_replicates: int = 1000, random_state: Any = None) -> NDArray[np.int64]:
    """Counts of n_replicates samples of the same size, drawn with replacement: (n_replicates, *counts.shape).

    A sample of n rows from the observed ones has multinomial counts, so the time is O(n_replicates·cells)
    whatever n.

    Parameters
    ----------
    counts : array of int, any shape
        Rows in each cell.
    n_replicates : int, default=1000
    random_state : None, int or Generator

    Examples
    --------
    >>> draws = resample([[30, 70], [0, 100]], 500, random_state=0)
    >>> draws.shape, set(draws.sum(axis=(1, 2)).tolist()), int(draws[:, 1, 0].max())
    ((500, 2, 2), {200}, 0)
    """
    N, B = np.asarray(counts), index(n_replicates)
    if N.dtype.kind not in "iu" or (N < 0).any():
        raise ParameterError("counts must be integers of at least 0")
    if B < 1:
        raise ParameterError(f"n_replicates must be at least 1; got {B}")
    total = int(N.sum())
    if total == 0:
        raise LabelError("every count is 0: there is nothing to draw from")
    rng = np.random.default_rng(random_state)
    # Only cells that have rows: the others stay empty, and the draws cost less.
    full = np.flatnonzero(N)
    draws = np.zeros((B, N.size), dtype=np.int64)
    draws[:, full] = rng.multinomial(total, N.ravel()[full] / total, size=B)
    return draws.reshape(B, *N.shape)
