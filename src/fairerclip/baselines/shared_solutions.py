"""Work that fits of several models on the same rows share, while a context asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
_Kept = dict[Callable[..., Any], tuple[tuple[Any, ...], Any]]
_LATEST: ContextVar[_Kept | None] = ContextVar("latest", default=None)


@contextmanager
def shared_solutions() -> Iterator[None]:
    """Share work between fits of several models on the same rows, inside this context.

    The latest rows are prepared once, and another C starts from the solutions of the nearest C. Solutions may differ
    within the tolerance of each fit.
    """
    token = _LATEST.set({})
    try:
        yield
    finally:
        _LATEST.reset(token)


def once(compute: Callable[..., T], *inputs: Any) -> T:
    """Return ``compute(*inputs)``; inside `shared_solutions` the latest answer, if it is of equal inputs.

    Inputs and the answer are kept, not copied, so nothing may change them. One answer per function is kept, so memory
    is that of one fit.
    """
    latest = _LATEST.get()
    if latest is None:
        return compute(*inputs)
    kept = latest.get(compute)
    if kept is None or not all(map(_equal, kept[0], inputs)):
        latest.pop(compute, None)  # before the next answer takes memory
        kept = latest[compute] = (inputs, compute(*inputs))
    answer: T = kept[1]
    return answer


def _equal(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return type(a) is type(b) and bool(a == b)
