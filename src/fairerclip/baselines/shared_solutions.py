"""Work that fits of several models on the same rows share, while a context asks for it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
Result = TypeVar("Result")
_MOST_KEPT = 8  # results of the latest first stages; each has a number per row, or per class and column
_LARGE = 1 << 20  # bytes of an input whose digest is kept: that of the rows, which many fits have in common
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
    answer = kept_answer(compute, inputs)
    return keep_answer(compute, inputs, compute(*inputs)) if answer is None else answer


def kept_answer(compute: Callable[..., T], inputs: tuple[Any, ...]) -> T | None:
    """Return the latest answer of a function inside `shared_solutions`, if it is of equal inputs; else None."""
    latest = _LATEST.get()
    if latest is None or compute not in latest:
        return None
    if all(map(_equal, latest[compute][0], inputs)):
        answer: T = latest[compute][1]
        return answer
    del latest[compute]  # before the next answer takes memory
    return None


def keep_answer(compute: Callable[..., T], inputs: tuple[Any, ...], answer: T) -> T:
    """Return the answer of a function, and keep it inside `shared_solutions`."""
    latest = _LATEST.get()
    if latest is not None:
        latest[compute] = (inputs, answer)
    return answer


def first_stage(compute: Callable[[], Result], *inputs: Any) -> Result:
    """Return ``compute()``; inside `shared_solutions` a kept result of the same inputs.

    ``inputs`` are all arrays and parameters that the result depends on, with a name of the stage.
    """
    latest = _LATEST.get()
    if latest is None:
        return compute()
    kept: dict[bytes, Any] = latest.setdefault(first_stage, ((), {}))[1]
    content = hashlib.blake2b()
    for value in inputs:
        large = isinstance(value, np.ndarray) and value.nbytes > _LARGE
        content.update(once(_digest, value) if large else _digest(value))
    key = content.digest()
    if key not in kept:
        while len(kept) >= _MOST_KEPT:
            kept.pop(next(iter(kept)))
        kept[key] = compute()
    result: Result = kept[key]
    return result


def _digest(value: Any) -> bytes:
    if not isinstance(value, np.ndarray):
        return hashlib.blake2b(repr(value).encode()).digest()
    content = hashlib.blake2b(repr((value.shape, value.dtype.str)).encode())
    content.update(np.ascontiguousarray(value).data)
    return content.digest()


def _equal(a: Any, b: Any) -> bool:
    """Return whether two inputs are equal: the same object, or equal arrays, numbers, texts or collections of them."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    return isinstance(a, int | float | str | np.generic) and bool(a == b)
