"""All group figures as functions of counts; see docs/math.md#groups.

The counts N (…, |S|, c, c) are the numbers of rows of sensitive value s and class y that were predicted as p. All
group figures follow from them, so one evaluation, a thousand bootstrap replicates and a path use the same code.
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairerclip.errors import LabelError, PositiveClassWarning, ShapeError
from fairerclip.metrics.label_codes import FloatArray


@dataclass(frozen=True, eq=False)
class Rates:
    """Numerators and denominators (…, c, |S|) of recall, false positive rate and selection rate."""

    hits: NDArray[Any]
    counts: NDArray[Any]
    selected: NDArray[Any]
    rows: NDArray[Any]

    @classmethod
    def of(cls, N: ArrayLike) -> Rates:
        """Compute the rates from counts N (…, |S|, c, c)."""
        N = np.asarray(N)
        if N.ndim < 3 or N.shape[-1] != N.shape[-2]:
            raise ShapeError(f"counts must have shape (…, |S|, c, c); got {N.shape}")
        hits = np.swapaxes(np.diagonal(N, axis1=-2, axis2=-1), -1, -2)
        counts = np.swapaxes(N.sum(axis=-1), -1, -2)
        selected = np.swapaxes(N.sum(axis=-2), -1, -2)
        rows = np.broadcast_to(counts.sum(axis=-2, keepdims=True), counts.shape)
        return cls(hits, counts, selected, rows)

    @property
    def recall(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows of the class that were predicted as it, of all its rows: the accuracy of the cell (y, s)."""
        return self.hits, self.counts

    @property
    def false_positive(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows of other classes that were predicted as this one, of all their rows."""
        return self.selected - self.hits, self.rows - self.counts

    @property
    def selection(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows of any class that were predicted as this one, of all rows."""
        return self.selected, self.rows


def ratio(rate: tuple[NDArray[Any], NDArray[Any]]) -> FloatArray:
    """Divide numerator by denominator; NaN where the denominator is zero."""
    k, n = rate
    out = np.full(np.broadcast_shapes(k.shape, n.shape), np.nan)
    return np.asarray(np.divide(k, n, out=out, where=n > 0))


def positive_classes(n_classes: int, positive: int | None) -> list[int]:
    """Return the codes of the classes that EOD is computed on: the positive one, else the second of two, else all."""
    if positive is not None:
        return [positive]
    return [1] if n_classes == 2 else list(range(n_classes))


def positive_class(classes: Sequence[Any], positive: Hashable | None) -> Any:
    """Return the class that EOD is computed on: the given one, else the second of two, else None for all classes.

    The sorted order of two names does not tell which one is positive, so the choice is reported in a warning.
    """
    if positive is not None:
        if positive not in classes:
            raise LabelError(f"positive={positive!r} is none of the classes {list(classes)}")
        return classes[
            list(classes).index(positive)
        ]  # the label itself: a given numpy scalar has another type
    if len(classes) != 2:
        return None
    if not all(isinstance(label, numbers.Real) for label in classes):
        warnings.warn(
            f"EOD is taken on {classes[1]!r}, the second of the classes {list(classes)} in sorted order: give "
            f"positive={classes[1]!r} if it is the one you mean, else positive={classes[0]!r}",
            PositiveClassWarning,
            stacklevel=3,
        )
    return classes[1]


def positive_code(classes: Sequence[Any], positive: Any) -> int | None:
    """Return the code of the class that EOD is computed on."""
    return None if positive is None else list(classes).index(positive)


def signed_weights(defined: NDArray[np.bool_]) -> FloatArray:
    """Return weights (…, |S|) whose sum of rates is the mean of later minus earlier over pairs of defined values.

    The j-th of m defined values has the weight (2j − m + 1) / (m(m − 1)/2), or 0 if fewer than two are defined.
    """
    m = defined.sum(axis=-1, keepdims=True)
    order = np.cumsum(defined, axis=-1) - 1
    pairs = np.maximum(m * (m - 1) / 2, 1)
    return np.asarray(np.where(defined & (m > 1), (2 * order - m + 1) / pairs, 0.0))


def _spread(rate: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the largest difference between two values (…, c), NaN if fewer than two are defined, and its sign."""
    low, high = np.where(np.isnan(rate), np.inf, rate), np.where(np.isnan(rate), -np.inf, rate)
    enough = np.isfinite(rate).sum(axis=-1) > 1
    difference = np.where(enough, high.max(axis=-1) - low.min(axis=-1), np.nan)
    return difference, np.where(high.argmax(axis=-1) >= low.argmin(axis=-1), 1.0, -1.0)


def _largest(values: FloatArray) -> FloatArray:
    """Return the maximum over the last axis, NaN if no value is defined."""
    top = np.where(np.isnan(values), -np.inf, values).max(axis=-1)
    return np.asarray(np.where(np.isinf(top), np.nan, top))


def _mean(values: FloatArray) -> FloatArray:
    defined = ~np.isnan(values)
    total = np.where(defined, values, 0.0).sum(axis=-1)
    n = defined.sum(axis=-1)
    return np.asarray(np.divide(total, n, out=np.full(n.shape, np.nan), where=n > 0))


def evaluate(
    N: ArrayLike, positive: int | None = None, train_counts: ArrayLike | None = None
) -> dict[str, FloatArray]:
    """Compute all figures of counts N (…, |S|, c, c): name → array (…), NaN where a figure is not defined.

    O(size of N) time.

    Parameters
    ----------
    N : int array of shape (…, |S|, c, c)
        Rows by sensitive value, class and predicted class.
    positive : int, optional
        Code of the class that ``eod`` is computed on; by default the second of two, else all.
    train_counts : array of shape (c, |S|), optional
        Training group sizes, for ``train_weighted_average``.

    Examples
    --------
    >>> figures = evaluate([[[8, 2], [1, 9]], [[9, 1], [5, 5]]])
    >>> {name: round(float(figures[name]), 3) for name in ("average", "worst_group", "eod_signed")}
    {'average': 0.775, 'worst_group': 0.5, 'eod_signed': -0.4}
    """
    rates = Rates.of(N)
    recall, n_classes = ratio(rates.recall), rates.hits.shape[-2]
    n = rates.counts.sum(axis=(-2, -1))
    average = ratio((rates.hits.sum(axis=(-2, -1)), n))
    worst = np.where(np.isnan(recall), np.inf, recall).min(axis=(-2, -1))
    worst = np.where(np.isinf(worst), np.nan, worst)
    spread, sign = _spread(recall)
    chosen = positive_classes(n_classes, positive)
    eod = _largest(spread[..., chosen])
    largest_class = np.where(np.isnan(spread[..., chosen]), -1.0, spread[..., chosen]).argmax(axis=-1)
    eod_sign = np.take_along_axis(sign[..., chosen], largest_class[..., None], axis=-1)[..., 0]
    signed = (signed_weights(~np.isnan(recall)) * np.nan_to_num(recall)).sum(axis=-1)
    odds = np.concatenate([spread, _spread(ratio(rates.false_positive))[0]], axis=-1)
    return {
        "average": average,
        "train_weighted_average": _weighted(recall, train_counts),
        "worst_group": worst,
        "gap": average - worst,
        "eod": eod,
        "eod_signed": eod_sign * eod,
        "eod_mean": _mean(spread),
        "eod_mean_signed": _mean(np.where(np.isnan(spread), np.nan, signed)),
        "equalized_odds_difference": _largest(odds),
        "demographic_parity_difference": _largest(_spread(ratio(rates.selection))[0]),
    }


def _weighted(recall: FloatArray, train_counts: ArrayLike | None) -> FloatArray:
    if train_counts is None:
        return np.full(recall.shape[:-2], np.nan)
    weights = np.where(np.isnan(recall), 0.0, np.asarray(train_counts, dtype=np.float64))
    return ratio(((weights * np.nan_to_num(recall)).sum(axis=(-2, -1)), weights.sum(axis=(-2, -1))))
