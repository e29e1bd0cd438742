"""First stages of methods in two stages: rows divided by class, and results that candidates share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np
from sklearn.utils import check_random_state

from fairerclip._util.types import Ints
from fairerclip.errors import ParameterError

Result = TypeVar("Result")
_MOST_KEPT = 8  # results of the latest first stages; each has a number per row, or per class and column
_KEPT: ContextVar[dict[bytes, Any] | None] = ContextVar("kept", default=None)


@contextmanager
def shared_stages() -> Iterator[None]:
    """Share first stages between fits of several models on the same rows, inside this context."""
    token = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(token)


def first_stage(compute: Callable[[], Result], *inputs: Any) -> Result:
    """Return ``compute()``; inside `shared_stages` a kept result of the same inputs.

    ``inputs`` are all arrays and parameters that the result depends on, with a name of the stage.
    """
    kept = _KEPT.get()
    if kept is None:
        return compute()
    content = hashlib.blake2b()
    for value in inputs:
        if isinstance(value, np.ndarray):
            content.update(repr((value.shape, value.dtype.str)).encode())
            content.update(np.ascontiguousarray(value).data)
        else:
            content.update(repr(value).encode())
    key = content.digest()
    if key not in kept:
        while len(kept) >= _MOST_KEPT:
            kept.pop(next(iter(kept)))
        kept[key] = compute()
    result: Result = kept[key]
    return result


def class_folds(y: Ints, folds: int, random_state: Any) -> Ints:
    """Draw a fold for each row (n,); the rows of a class are spread evenly over the folds.

    Examples
    --------
    >>> np.bincount(class_folds(np.array([0, 1, 0, 1, 1, 1]), 2, 0)).tolist()
    [3, 3]
    """
    try:
        rng = check_random_state(random_state)
    except ValueError as error:
        raise ParameterError(f"random_state: {error}") from None
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]  # class after class, at random inside each
    fold = np.empty(len(y), dtype=np.int64)
    fold[order] = np.arange(len(y)) % folds
    return fold
