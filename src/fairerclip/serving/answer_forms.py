"""Answers as JSON, or as one array in .npy, by what the request accepts."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fairerclip._util.types import Floats
from fairerclip.serving.problems import RequestProblem

JSON, NPY = "application/json", "application/x-npy"
RANGES = {JSON: ("application/json", "application/*", "*/*"), NPY: ("application/x-npy",)}
"""Media ranges of an Accept header that mean each form, the most exact first."""
MAX_ACCEPT_BYTES = 1000
BLOCK_VALUES = 8192
"""Numbers that are written as JSON at a time, in some 15 ms; between blocks, other requests get their turn."""


def accepted_form(accept: bytes) -> str:
    """Return the form that an Accept header prefers, JSON if it does not care.

    Raises
    ------
    RequestProblem
        It accepts neither form.

    Examples
    --------
    >>> accepted_form(b"application/json;q=0.5, application/x-npy"), accepted_form(b"")
    ('application/x-npy', 'application/json')
    """
    text = accept[:MAX_ACCEPT_BYTES].decode("latin-1").lower()
    if not text.strip():
        return JSON
    quality: dict[str, float] = {}
    for part in text.split(","):
        name, _, parameters = part.partition(";")
        quality[name.strip()] = _quality(parameters)
    best = {form: next((quality[r] for r in ranges if r in quality), 0.0) for form, ranges in RANGES.items()}
    form = max(best, key=lambda form: best[form])
    if not best[form]:
        raise RequestProblem("not_acceptable", f"Accept must allow {JSON} or {NPY}; got {text!r:.80}")
    return form


def _quality(parameters: str) -> float:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return min(max(float(value), 0.0), 1.0)
            except ValueError:
                return 0.0
    return 1.0


class Reply(NamedTuple):
    """An answer: its body, its type, its status, and further headers."""

    body: bytes
    kind: str = JSON
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()


def as_json(value: Any) -> Reply:
    """Return a JSON answer."""
    return Reply(_dumped(value).encode())


def _dumped(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


async def as_json_blocks(fields: Mapping[str, Any]) -> Reply:
    """Return a JSON object, some of whose values are arrays, as `as_json` would with their lists."""
    parts: list[str] = []
    for name, value in fields.items():
        parts.append(("," if parts else "{") + json.dumps(name) + ":")
        if isinstance(value, np.ndarray):
            parts += [part async for part in _array_parts(value)]
        else:
            parts.append(_dumped(value))
    return Reply("".join([*parts, "}"]).encode())


async def _array_parts(array: np.ndarray) -> AsyncIterator[str]:
    rows = max(1, BLOCK_VALUES // max(1, array[:1].size))
    yield "["
    for start in range(0, len(array), rows):
        if start:
            await asyncio.sleep(0)
            yield ","
        yield _dumped(array[start : start + rows].tolist())[1:-1]
    yield "]"


def as_npy(array: Floats) -> Reply:
    """Return an array as .npy."""
    return Reply(_npy_header(array.shape, array.dtype.str) + array.tobytes(), NPY)


def as_error(problem: RequestProblem, request_id: str) -> Reply:
    """Return an error."""
    return Reply(problem.document(request_id), JSON, problem.status, problem.headers)


@lru_cache(maxsize=64)
def _npy_header(shape: tuple[int, ...], dtype: str) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"shape": shape, "fortran_order": False, "descr": dtype})
    return out.getvalue()
