"""Counts of predictions per class and sensitive value, and resampled counts; see docs/math.md#groups."""

from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairerclip.errors import LabelError, ParameterError, ShapeError
from fairerclip.metrics.label_codes import FloatArray

Counts = NDArray[np.int64]


def _count(code: NDArray[np.intp], shape: tuple[int, ...]) -> Counts:
    return np.bincount(code, minlength=int(np.prod(shape))).reshape(shape).astype(np.int64, copy=False)


def _codes(values: ArrayLike, size: int, name: str) -> NDArray[np.intp]:
    array = np.asarray(values)
    if array.dtype.kind not in "biu":
        raise LabelError(f"{name} must be integer codes; got dtype {array.dtype}")
    if array.size and (array.min() < 0 or array.max() >= size):
        raise LabelError(f"{name} must lie in 0..{size - 1}; got {array.min()}..{array.max()}")
    return array.astype(np.intp, copy=False)


def cell_accuracies(
    y_true: ArrayLike, y_pred: ArrayLike, s: ArrayLike, n_classes: int, n_sensitive: int
) -> tuple[Counts, Counts]:
    """Count correct predictions and rows in each cell of class and sensitive value, for g predictions at once.

    O(g·n) time, O(n + g·c·|S|) memory.

    Parameters
    ----------
    y_true, s : int array of shape (n,)
        Codes below ``n_classes`` and ``n_sensitive``.
    y_pred : int array of shape (g, n) or (n,)
        Predicted codes, one row per model; (n,) counts as g = 1. A code outside the classes is an error.
    n_classes, n_sensitive : int
        c and |S|.

    Returns
    -------
    hits : int64 array of shape (g, c, |S|)
        Correct predictions.
    counts : int64 array of shape (c, |S|)
        Rows.

    Examples
    --------
    >>> hits, counts = cell_accuracies([0, 0, 1, 1], [[0, 1, 1, 1], [0, 0, 0, 0]], [0, 1, 0, 1], 2, 2)
    >>> hits.tolist(), counts.tolist()
    ([[[1, 0], [1, 1]], [[1, 1], [0, 0]]], [[1, 1], [1, 1]])
    """
    y, a = _codes(y_true, n_classes, "y_true"), _codes(s, n_sensitive, "s")
    p = np.atleast_2d(_codes(y_pred, n_classes, "y_pred"))
    if y.ndim != 1 or y.shape != a.shape or p.ndim != 2 or p.shape[1] != y.size:
        raise ShapeError(
            "y_true and s must have shape (n,) and y_pred (g, n) or (n,); "
            f"got {y.shape}, {a.shape} and {np.shape(y_pred)}"
        )
    shape = (n_classes, n_sensitive)
    cell = y * n_sensitive + a  # (n,)
    hits = np.empty((len(p), *shape), dtype=np.int64)
    for out, prediction in zip(
        hits, p, strict=True
    ):  # one model at a time: a (g, n) mask may not fit in memory
        out[...] = _count(cell[prediction == y], shape)
    return hits, _count(cell, shape)


def confusion_counts(
    y_true: ArrayLike, s: ArrayLike, *y_pred: ArrayLike, n_classes: int, n_sensitive: int
) -> Counts:
    """Count rows by sensitive value, class and predicted class (|S|, c, c); each further prediction adds an axis.

    O(n) time and memory.

    Parameters
    ----------
    y_true, s : int array of shape (n,)
        Codes below ``n_classes`` and ``n_sensitive``.
    *y_pred : int array of shape (n,)
        Predicted codes, of one model or of several on the same rows.

    Examples
    --------
    >>> confusion_counts([0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 1], n_classes=2, n_sensitive=2).tolist()
    [[[1, 0], [0, 1]], [[0, 1], [0, 1]]]
    """
    code, shape = _codes(s, n_sensitive, "s"), (n_sensitive, *(n_classes,) * (1 + len(y_pred)))
    for name, values in (("y_true", y_true), *(("y_pred", p) for p in y_pred)):
        other = _codes(values, n_classes, name)
        if other.shape != code.shape or code.ndim != 1:
            raise ShapeError(f"s and {name} must have shape (n,) each; got {code.shape} and {other.shape}")
        code = code * n_classes + other
    return _count(code, shape)


def shrunken_worst_group(hits: ArrayLike, counts: ArrayLike, prior: float = 8) -> FloatArray:
    """Compute the worst-group accuracy with each group shrunk towards the overall accuracy, to choose models.

    The minimum over nonempty cells of ``(hits + prior·mean) / (n + prior)``, where ``mean`` is the overall
    accuracy. O(g·c·|S|) time and memory. See docs/math.md#groups.

    Parameters
    ----------
    hits : array of shape (g, c, |S|) or (c, |S|)
        From `cell_accuracies`.
    counts : array of shape (c, |S|)
        Rows per cell; empty cells are skipped.
    prior : float, default=8
        Number of rows with the overall accuracy that are added to each cell; 0 gives the plain worst group.

    Returns
    -------
    array of shape (g,) or ()
        One value per prediction.

    Examples
    --------
    >>> shrunken_worst_group([[[90, 1], [90, 8]]], [[100, 2], [100, 10]], prior=8).round(3).tolist()
    [0.813]
    """
    h, n = np.asarray(hits, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    if n.ndim != 2 or h.shape[-2:] != n.shape or h.ndim not in (2, 3):
        raise ShapeError(
            f"hits must have shape (g, c, |S|) or (c, |S|) and counts (c, |S|); got {h.shape} and {n.shape}"
        )
    if not prior >= 0:
        raise ParameterError(f"prior must be at least 0; got {prior}")
    if not n.any():
        raise LabelError("every cell is empty, so there is no worst group; give counts with rows")
    mean = h.sum(axis=(-2, -1), keepdims=True) / n.sum()
    nonempty = n > 0
    shrunk = (h + prior * mean)[..., nonempty] / (n[nonempty] + prior)
    return np.asarray(shrunk.min(axis=-1))


def resample(counts: ArrayLike, n_replicates: int = 1000, random_state: Any = None) -> Counts:
    """Draw the counts of n_replicates samples of the same size with replacement: ``(n_replicates, *counts.shape)``.

    A sample of n rows with replacement has multinomial counts, so the time is O(n_replicates·cells) for any n.

    Parameters
    ----------
    counts : int array of any shape
        Rows in each cell.
    n_replicates : int, default=1000
        Number of samples.
    random_state : None, int or Generator
        Source of the draws.

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
    # Drawn for cells with rows only: the others stay empty, and the draws cost less.
    nonempty = np.flatnonzero(N)
    draws = np.zeros((B, N.size), dtype=np.int64)
    draws[:, nonempty] = rng.multinomial(total, N.ravel()[nonempty] / total, size=B)
    return draws.reshape(B, *N.shape)
