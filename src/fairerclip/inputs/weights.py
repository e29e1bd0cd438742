"""Row weights that balance classes or groups, and sub-sampling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import F64, Ints
from fairerclip.errors import ParameterError, ShapeError


def check_weights(sample_weight: Any, n: int) -> F64:
    """Row weights (n,): ones, or the user's, checked."""
    if sample_weight is None:
        return np.ones(n)
    try:
        weight = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"sample_weight must hold numbers, one per row of X; {error}") from None
    if weight.ndim == 0:
        weight = np.full(n, float(weight))
    if weight.shape != (n,):
        raise ShapeError(f"sample_weight.shape == {weight.shape}, expected {(n,)}: one weight per row of X")
    if not np.all(np.isfinite(weight)) or np.any(weight < 0) or not np.any(weight > 0):
        raise ParameterError(
            "sample_weight must be finite and nowhere negative, and not zero for every row: no weight is left"
        )
    return weight


def balancing_weights(codes: Ints, sample_weight: F64) -> F64:
    """Scale row weights so that every code that occurs has the same total weight: (n,)."""
    totals = np.bincount(codes, weights=sample_weight)
    share = np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)
    return np.asarray(sample_weight * share[codes] * (sample_weight.sum() / np.count_nonzero(totals)))


def subsample(codes: Ints, keep: Mapping[int, int], random_state: np.random.RandomState) -> NDArray[np.bool_]:
    """Keep so many rows of each code, drawn without replacement: (n,) mask."""
    mask = np.zeros(len(codes), dtype=bool)
    for code, size in keep.items():
        rows = np.flatnonzero(codes == code)
        mask[random_state.choice(rows, size=min(size, len(rows)), replace=False)] = True
    return mask


def row_weights(
    class_weight: Any,
    y: Ints,
    groups: Ints | None,
    classes: NDArray[Any],
    sample_weight: F64,
    random_state: np.random.RandomState,
) -> F64:
    """Resolve ``class_weight`` into one weight per row (n,); rows left out by sub-sampling get zero.

    None, "balanced", "group", "subsample", "subsample:SHARE" (of the class-balanced size), {class: share kept}, or
    shares kept in the order of the classes.
    """
    if class_weight is None:
        return sample_weight
    drawn = np.where(sample_weight > 0, y, -1)  # sub-sampling never draws a row of weight zero
    if isinstance(class_weight, list | tuple | np.ndarray):
        if np.ndim(class_weight) != 1 or len(class_weight) != len(classes):
            raise ParameterError(
                f"class_weight must be {len(classes)} shares, one per class in the order of classes_ "
                f"({classes.tolist()[:10]}); got {class_weight!r}"
            )
        class_weight = dict(zip(classes.tolist(), class_weight, strict=True))
    if isinstance(class_weight, Mapping):
        return sample_weight * _kept_shares(class_weight, drawn, classes, random_state)
    if class_weight == "balanced":
        return balancing_weights(y, sample_weight)
    if class_weight == "group":
        if groups is None:
            raise ParameterError(
                "class_weight='group' needs a categorical sensitive attribute: give sensitive_features or "
                "sensitive_text, or use class_weight='balanced'"
            )
        cells = np.unique(np.column_stack([y, groups]), axis=0, return_inverse=True)[1]
        return balancing_weights(np.asarray(cells, dtype=np.int64).reshape(-1), sample_weight)
    if isinstance(class_weight, str) and class_weight.split(":")[0] == "subsample":
        share = _share(class_weight.partition(":")[2] or "1", class_weight)
        counts = np.bincount(drawn[drawn >= 0], minlength=len(classes))
        size = max(1, round(share * int(counts[counts > 0].min())))
        kept = {c: size for c in range(len(classes)) if counts[c]}
        return sample_weight * subsample(drawn, kept, random_state)
    raise ParameterError(
        "class_weight must be None, 'balanced', 'group', 'subsample', 'subsample:SHARE', a mapping "
        f"{{class: share kept}} or a share per class; got {class_weight!r}"
    )


def _kept_shares(
    shares: Mapping[Any, Any], y: Ints, classes: NDArray[Any], random_state: np.random.RandomState
) -> F64:
    place = {c: k for k, c in enumerate(classes.tolist())}
    unknown = [c for c in shares if c not in place]
    if unknown:
        raise ParameterError(f"class_weight names {unknown}, the classes are {classes.tolist()[:10]}")
    counts = np.bincount(y[y >= 0], minlength=len(classes))
    keep = {k: int(counts[k]) for k in range(len(classes))}
    for label, share in shares.items():
        k = place[label]
        keep[k] = max(1, round(_share(share, f"class_weight[{label!r}]") * int(counts[k])))
    return subsample(y, keep, random_state).astype(np.float64)


def _share(value: Any, what: str) -> float:
    try:
        share = float(value)
    except (TypeError, ValueError):
        share = -1.0
    if not 0 < share <= 1:
        raise ParameterError(f"{what}: the share kept must be a number in (0, 1]; got {value!r}")
    return share
