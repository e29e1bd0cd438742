"""Bodies of requests → checked rows, texts, images and options. Nothing in a request names a file or an address."""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from fairerclip._util.types import Floats
from fairerclip.data.io.npy import DEFAULT_LIMITS, Header, check_size, native, read_header
from fairerclip.data.io.strict_json import strict_loads
from fairerclip.errors import FairerClipError, TaskFileError
from fairerclip.serving.answer_forms import JSON, NPY
from fairerclip.serving.problems import RequestProblem
from fairerclip.serving.request_guard import Exchange
from fairerclip.serving.service_settings import MAX_JSON_BYTES, ServiceLimits

IMAGES = ("image/jpeg", "image/png", "image/webp", "image/bmp")
SPARE_VALUES = 10_000
"""Values of a JSON body besides the numbers of its rows."""
MAX_FIELDS = 16
"""Most fields of the query of an address."""


class JsonBodyError(FairerClipError, ValueError):
    """A body is not strict JSON."""


@dataclass(eq=False)
class RequestFields:
    """What a request gives.

    Attributes
    ----------
    embeddings : array or list or None
        Rows as they came: an array from .npy, lists from JSON.
    images : list of bytes or None
        Files of images.
    fields : dict
        Other fields: of the JSON object, or texts of the query of the address.
    is_json : bool
        Whether fields have the types of JSON.
    """

    embeddings: Any = None
    images: list[bytes] | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    is_json: bool = True


async def read_given(
    exchange: Exchange, limits: ServiceLimits, width: int, allowed: Collection[str]
) -> RequestFields:
    """Read and parse the body of a request.

    Parameters
    ----------
    exchange : Exchange
        The request.
    limits : ServiceLimits
        Limits of the body.
    width : int
        Width p of rows.
    allowed : collection of str
        Names of fields; "embeddings", "images" and "texts" have rows, others are options.
    """
    encoding = exchange.headers.get(b"content-encoding", b"identity")
    if encoding != b"identity":
        raise RequestProblem(
            "unsupported_encoding", f"send the body without Content-Encoding; got {_shown(encoding)}"
        )
    given_type = exchange.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    kinds = {JSON, *((NPY,) if "embeddings" in allowed else ()), *(IMAGES if "images" in allowed else ())}
    kind = given_type.decode("latin-1")
    if kind not in kinds:
        raise RequestProblem(
            "unsupported_type", f"Content-Type must be one of {', '.join(sorted(kinds))}; got {kind!r:.80}"
        )
    query = _query(exchange.scope["query_string"])
    if kind == JSON:
        body = await exchange.body(min(limits.body_bytes, MAX_JSON_BYTES))
        _refuse_unknown(query, ())
        return _from_json(body, values=limits.rows * (width + 1) + SPARE_VALUES, allowed=allowed)
    body = await exchange.body(limits.body_bytes)
    _refuse_unknown(
        query, [name for name in allowed if name not in ("embeddings", "images", "texts", "query")]
    )
    if kind == NPY:
        return RequestFields(embeddings=read_npy_body(body), fields=query, is_json=False)
    return RequestFields(images=[body], fields=query, is_json=False)


def checked_rows(given: Any, width: int, most: int, name: str = "embeddings") -> Floats:
    """Return rows (n, p) that every model takes: finite floats, none of them zero.

    Parameters
    ----------
    given : array or list
        Rows as they came.
    width, most : int
        Width p of rows, and most rows.
    name : str
        Name of the field in messages.
    """
    rows = given if isinstance(given, np.ndarray) else _from_lists(given, width, most, name)
    if rows.ndim != 2:
        raise RequestProblem("wrong_shape", f"{name} must have shape (n, {width}); got {rows.shape}")
    if not len(rows):
        raise RequestProblem("no_rows", f"{name} must have at least one row; got none")
    _check_count(len(rows), most, name)
    if rows.shape[1] != width:
        raise RequestProblem("wrong_shape", f"{name} must have rows of {width} numbers; got {rows.shape[1]}")
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.einsum("ij,ij->i", rows, rows)
    if not (squares.min() > 0 and squares.max() < np.inf):  # or a row is very long or very short
        _check_values(rows, name)
    return rows


def _check_values(rows: Floats, name: str) -> None:
    finite, other = np.isfinite(rows).all(axis=1), rows.any(axis=1)
    if not finite.all():
        raise RequestProblem(
            "not_finite", f"row {finite.argmin()} of {name} holds NaN or infinity; leave it out"
        )
    if not other.all():
        raise RequestProblem(
            "zero_row", f"row {other.argmin()} of {name} holds zeros alone and has no direction; leave it out"
        )


def read_npy_body(body: bytes) -> Floats:
    """Return the array of an .npy, without a copy; raise a `RequestProblem` unless it is one of floats."""
    try:
        header = _header(body[:10], body[10 : 10 + int.from_bytes(body[8:10], "little")])
        check_size("body", header, len(body))
    except TaskFileError as error:
        raise RequestProblem("invalid_npy", str(error)) from None
    if header.dtype.kind != "f":
        raise RequestProblem("wrong_dtype", f"expected float16, float32 or float64; got {header.dtype}")
    flat = np.frombuffer(body, dtype=header.dtype, offset=header.length)
    return np.asarray(native("body", flat.reshape(header.shape, order="F" if header.fortran else "C")))


@lru_cache(maxsize=64)
def _header(start: bytes, rest: bytes) -> Header:
    """Return the checked header of an .npy of version 1, which numpy writes; requests repeat a few headers."""
    if start[6:8] not in (b"\x01\x00", b""):
        raise TaskFileError("body: expected .npy of version 1.0, as numpy.save writes it")
    return read_header("body", io.BytesIO(start + rest), DEFAULT_LIMITS)


def whole_number(given: RequestFields, name: str, least: int, most: int) -> int | None:
    """Return an option that is a whole number, or None."""
    value = given.fields.get(name)
    if (
        isinstance(value, str)
        and not given.is_json
        and value.isascii()
        and value.isdigit()
        and len(value) < 19
    ):
        value = int(value)
    if value is not None and (type(value) is not int or not least <= value <= most):
        raise RequestProblem(
            "invalid_request", f"{name} must be a whole number from {least} to {most}; got {value!r:.80}"
        )
    return value


def _from_json(body: bytes, *, values: int, allowed: Collection[str]) -> RequestFields:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise RequestProblem(
            "invalid_utf8", f"expected JSON in UTF-8; got {error.reason} at byte {error.start}"
        ) from None
    try:
        fields = strict_loads(body, "body", JsonBodyError, limit=len(body), values=values)
    except JsonBodyError as error:
        raise RequestProblem("invalid_json", str(error)) from None
    if not isinstance(fields, dict):
        raise RequestProblem("invalid_request", f"expected a JSON object; got {type(fields).__name__}")
    _refuse_unknown(fields, allowed)
    images = fields.pop("images", None)
    return RequestFields(
        fields.pop("embeddings", None), None if images is None else _from_base64(images), fields
    )


def _from_base64(images: Any) -> list[bytes]:
    if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
        raise RequestProblem("invalid_request", "images must be a list of texts, each the base64 of a file")
    try:
        return [base64.b64decode(image, validate=True) for image in images]
    except (binascii.Error, ValueError):
        raise RequestProblem(
            "invalid_request", "images must be base64, without line breaks or data: before it"
        ) from None


def _from_lists(given: Any, width: int, most: int, name: str) -> Floats:
    """Return lists of numbers as an array; texts, booleans and null are not taken for numbers."""
    if not isinstance(given, list) or not all(isinstance(row, list) for row in given):
        raise RequestProblem("wrong_shape", f"{name} must be a list of lists of {width} numbers")
    _check_count(len(given), most, name)
    for place, row in enumerate(given):
        if len(row) != width:
            raise RequestProblem(
                "wrong_shape", f"{name} must have rows of {width} numbers; row {place} has {len(row)}"
            )
    kinds = set(map(type, chain.from_iterable(given))) - {int, float}
    if kinds:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise RequestProblem("wrong_dtype", f"{name} must hold numbers alone; got {names}")
    try:
        return np.array(given, dtype=np.float64)
    except OverflowError:
        raise RequestProblem(
            "not_finite", f"{name} hold a whole number that is too large for a float"
        ) from None


def _check_count(count: int, most: int, name: str) -> None:
    if count > most:
        raise RequestProblem(
            "too_many_rows", f"{name} may have at most {most} rows; got {count}: send several requests"
        )


def _query(raw: bytes) -> dict[str, str]:
    """Return the fields of the query of an address, each of which may occur once."""
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(raw),
            errors="strict",
            max_num_fields=MAX_FIELDS,
        )
    except ValueError:  # also UnicodeDecodeError
        raise RequestProblem(
            "invalid_request", "the query of the address is not of the form name=value&name=value"
        ) from None
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise RequestProblem("invalid_request", "the query of the address has a name twice")
    return fields


def _refuse_unknown(fields: Mapping[str, Any], allowed: Collection[str]) -> None:
    unknown = sorted(set(fields) - set(allowed))
    if unknown:
        raise RequestProblem(
            "invalid_request",
            f"unknown field {unknown[0]!r:.80}; known here: {', '.join(sorted(allowed)) or 'none'}",
        )


def _shown(raw: bytes) -> str:
    return repr(raw[:80].decode("latin-1"))
