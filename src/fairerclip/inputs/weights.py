"""Weights of the training rows: sub-sampling, and balance between classes or groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.arrays import as_numbers
from fairerclip._util.checks import LARGEST, check_interval
from fairerclip._util.types import F64, Ints
from fairerclip.errors import ParameterError, RowTypeError, ShapeError


def check_weights(sample_weight: Any, n: int) -> F64:
    """Return row weights (n,), checked; ones for None."""
    if sample_weight is None:
        return np.ones(n)
    try:
        weight = as_numbers(sample_weight, "sample_weight").astype(np.float64, copy=False)
    except RowTypeError as error:
        raise ParameterError(f"sample_weight must hold numbers, one per row of X; {error}") from None
    if weight.ndim == 0:
        weight = np.full(n, float(weight))
    if weight.shape != (n,):
        raise ShapeError(f"sample_weight.shape == {weight.shape}, expected {(n,)}: one weight per row of X")
    if not np.all(np.isfinite(weight)) or np.any(weight < 0) or not np.any(weight > 0):
        raise ParameterError(
            "sample_weight must be finite and nowhere negative, and not zero for every row: no weight is left"
        )
    check_interval("the largest sample_weight", float(weight.max()), 0, LARGEST, "[]")
    return weight


def balancing_weights(codes: Ints, sample_weight: F64) -> F64:
    """Scale row weights so that every code that occurs has the same total weight: (n,)."""
    totals = np.bincount(codes, weights=sample_weight)
    share = np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)
    return np.asarray(sample_weight * share[codes] * (sample_weight.sum() / np.count_nonzero(totals)))


def draw_rows(
    codes: Ints, sizes: Mapping[int, int], random_state: np.random.RandomState
) -> NDArray[np.bool_]:
    """Draw ``sizes[code]`` rows of each code without replacement: a mask (n,)."""
    mask = np.zeros(len(codes), dtype=bool)
    for code, size in sizes.items():
        rows = np.flatnonzero(codes == code)
        mask[random_state.choice(rows, size=min(size, len(rows)), replace=False)] = True
    return mask


def draw_weights(
    y: Ints,
    classes: NDArray[Any],
    sample_weight: F64,
    subsample: Any,
    random_state: np.random.RandomState,
) -> F64:
    """Return sample weights (n,) that are 0 for rows not drawn; rows of weight zero are never drawn.

    Parameters
    ----------
    y : array of shape (n,)
        Class codes.
    classes : array of shape (c,)
        Class labels.
    sample_weight : array of shape (n,)
        Weights of the user.
    subsample
        As `FairerCLIP` takes it.
    random_state : numpy.random.RandomState
        Source of the draws.
    """
    if subsample is None:
        return sample_weight
    drawn = np.where(sample_weight > 0, y, -1)
    return sample_weight * draw_rows(drawn, _sizes(subsample, drawn, classes), random_state)


def weigh_classes(
    class_weight: Any, y: Ints, groups: Ints | None, classes: NDArray[Any], sample_weight: F64
) -> F64:
    """Multiply row weights (n,) by what ``class_weight`` gives the rows of each class, or of each class × group."""
    if class_weight is None:
        return sample_weight
    if isinstance(class_weight, Mapping):
        weight = sample_weight * class_factors(class_weight, classes)[y]
        if not np.any(weight > 0):
            raise ParameterError(f"class_weight={class_weight!r} leaves no row a weight above zero")
        return np.asarray(weight)
    if isinstance(class_weight, str) and class_weight == "balanced":
        return balancing_weights(y, sample_weight)
    if isinstance(class_weight, str) and class_weight == "group":
        if groups is None:
            raise ParameterError(
                "class_weight='group' needs a categorical sensitive attribute: give sensitive_features or "
                "sensitive_text, or use class_weight='balanced'"
            )
        lowest = int(groups.min(initial=0))
        cells = y * (int(groups.max(initial=0)) - lowest + 1) + (groups - lowest)
        return balancing_weights(np.asarray(cells, dtype=np.int64), sample_weight)
    raise ParameterError(
        "class_weight must be None, 'balanced', 'group' or a mapping {class: weight}; got "
        f"{class_weight!r:.200}"
    )


def _sizes(subsample: Any, drawn: Ints, classes: NDArray[Any]) -> dict[int, int]:
    """Return how many rows of each class code to keep; rows with code -1 cannot be drawn."""
    counts = np.bincount(drawn[drawn >= 0], minlength=len(classes))
    if isinstance(subsample, str) and subsample.split(":")[0] == "balanced":
        share = 1.0 if subsample == "balanced" else _share(subsample[9:], f"subsample={subsample!r:.200}")
        size = max(1, round(share * int(counts[counts > 0].min())))
        return {c: size for c in range(len(classes)) if counts[c]}
    if isinstance(subsample, list | tuple | np.ndarray):
        if np.ndim(subsample) != 1 or len(subsample) != len(classes):
            raise ParameterError(
                f"subsample must be {len(classes)} shares, one per class in the order of classes_ "
                f"({classes.tolist()[:10]}); got {subsample!r:.200}"
            )
        subsample = dict(zip(classes.tolist(), subsample, strict=True))
    if not isinstance(subsample, Mapping):
        raise ParameterError(
            "subsample must be None, 'balanced', 'balanced:SHARE', a mapping {class: share kept} or a list "
            f"with one share per class; got {subsample!r:.200}"
        )
    sizes = {k: int(count) for k, count in enumerate(counts)}
    for k, (label, share) in _by_code(subsample, classes, "subsample").items():
        sizes[k] = max(1, round(_share(share, f"subsample[{label!r}]") * sizes[k]))
    return sizes


def class_factors(weights: Mapping[Any, Any], classes: NDArray[Any]) -> F64:
    """Return the weight of each class (c,); a class that is not named has weight 1."""
    factors = np.ones(len(classes))
    for k, (label, weight) in _by_code(weights, classes, "class_weight").items():
        check_interval(f"class_weight[{label!r}]", weight, 0, LARGEST, "[]")
        factors[k] = weight
    return factors


def _by_code(values: Mapping[Any, Any], classes: NDArray[Any], parameter: str) -> dict[int, tuple[Any, Any]]:
    """Return label and value by class code; a label that is no class is an error."""
    codes = {label: k for k, label in enumerate(classes.tolist())}
    unknown = [label for label in values if label not in codes]
    if unknown:
        raise ParameterError(
            f"{parameter} has keys that are not classes: {unknown[:10]}; the classes are {classes.tolist()[:10]}"
        )
    return {codes[label]: (label, value) for label, value in values.items()}


def _share(value: Any, name: str) -> float:
    try:
        share = float(value)
    except (TypeError, ValueError):
        share = -1.0
    if not 0 < share <= 1:
        raise ParameterError(f"{name}: the share kept must be a number in (0, 1]; got {value!r:.200}")
    return share
