"""Types that validate an untrusted JSON document, and the one-line error for a document that violates them.

The types are pydantic annotations. Each has the name that an error uses for it, so that an error reads
"plane.front[0]: expected a count, got int -1" and does not repeat a long input.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from fairerclip.errors import ResultsFileError

LARGEST = 10**15
"""Limit of the absolute value of a number: no figure of a report is larger, and arithmetic on it may overflow."""
LONGEST = 20_000
"""Limit of the number of characters of one text."""
ROUNDING = 1e-9
"""By how much a share may lie outside [0, 1], or a lower limit above an upper one."""
KEYS = "keys that are text"
BLOCK_KEYS = 1000
"""Keys of an object that are validated at once."""

T = TypeVar("T")
Problems = Iterator[tuple[str, str]]
"""Pairs of a place inside an object, and a message on what was expected there and what was found."""


@dataclass(frozen=True)
class Called:
    """The name that an error uses for the annotated type, whatever is wrong with the value."""

    name: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.custom_error_schema(
            handler(source),
            "called",
            custom_error_message="expected {name}",
            custom_error_context={"name": self.name},
        )


@dataclass(frozen=True)
class Between:
    """A finite number within limits; an integer stays an integer, so that it is written back unchanged."""

    low: float
    high: float

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        whole = core_schema.int_schema(ge=math.ceil(self.low), le=math.floor(self.high), strict=True)
        number = core_schema.float_schema(ge=self.low, le=self.high, strict=True, allow_inf_nan=False)
        return core_schema.union_schema([whole, number], mode="left_to_right")

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        return {"type": "number", "minimum": self.low, "maximum": self.high}


def disagreement(place: str, problem: str) -> PydanticCustomError:
    """Return an error for values that are each valid but do not fit together, at a place inside the object."""
    return PydanticCustomError("disagreement", "{problem}", {"place": place, "problem": problem})


def _rising(pair: tuple[float, float]) -> tuple[float, float]:
    if pair[0] > pair[1] + ROUNDING:
        raise ValueError
    return pair


def _not_below_low(high: float | None, info: ValidationInfo) -> float | None:
    low = info.data.get("low")
    if low is not None and high is not None and low > high + ROUNDING:
        raise disagreement("", f"expected at least low, {low}; got {high}")
    return high


def _in_blocks(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Validate an object by blocks of keys: pydantic collects every error of an object, which may be 300,000."""
    if not isinstance(value, dict) or len(value) <= BLOCK_KEYS:
        return handler(value)
    items = iter(value.items())
    checked: dict[str, Any] = {}
    while block := dict(islice(items, BLOCK_KEYS)):
        checked |= handler(block)
    return checked


Text = Annotated[str, Field(max_length=LONGEST), Called("text")]
Number = Annotated[float, Between(-LARGEST, LARGEST), Called("a number")]
Share = Annotated[float, Between(-ROUNDING, 1 + ROUNDING), Called("a number from 0 to 1")]
Integer = Annotated[int, Field(ge=-LARGEST, le=LARGEST), Called("an integer")]
Count = Annotated[int, Field(ge=0, le=LARGEST), Called("a count")]
Boolean = Annotated[bool, Called("true or false")]
Scalar = Annotated[
    bool | Number | Text | None,
    Field(union_mode="left_to_right"),
    Called("text, a number, true, false or null"),
]
Pair = Annotated[tuple[Number, Number], Field(strict=False), AfterValidator(_rising), Called("[low, high]")]
NotBelowLow = AfterValidator(_not_below_low)
"""Validator of the upper limit of an interval; the field ``low`` must be declared before it."""
High = Annotated[Number | None, NotBelowLow]
Many = Annotated[tuple[T, ...], Field(strict=False, fail_fast=True)]
"""A list in the document, a tuple in the object."""
Some = Annotated[tuple[T, ...], Field(strict=False, fail_fast=True, min_length=1)]
"""A list that is not empty."""
Keyed = Annotated[
    Mapping[Annotated[str, Field(max_length=LONGEST), Called(KEYS)], T], WrapValidator(_in_blocks)
]
"""An object with any keys and values of one type."""


class Part(BaseModel):
    """An object of a document: immutable, without unknown fields; a field that may be null may also be absent."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class ConsistentPart(Part):
    """An object whose fields must agree with each other."""

    @abstractmethod
    def problems(self) -> Problems:
        """Yield the place and a message for each disagreement between fields."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        for place, problem in self.problems():
            raise disagreement(place, problem)
        return self


def same_length(place: str, values: tuple[Any, ...], expected: int, called: str) -> Problems:
    """Yield a problem if a list does not have the expected length."""
    if len(values) != expected:
        yield place, f"expected {expected} {called}, got {len(values)}"


@contextmanager
def refusing() -> Iterator[None]:
    """Raise a `ResultsFileError` if an object made inside the block is not valid; also a decorator."""
    try:
        yield
    except ValidationError as error:
        raise ResultsFileError(refusal(error)) from None


def refusal(error: ValidationError) -> str:
    """Return the first validation error as one line: the place, what was expected, and what was found."""
    first = error.errors(include_url=False)[0]
    context = first.get("ctx", {})
    path = ""
    for key in first["loc"][:-2] if context.get("name") == KEYS else first["loc"]:
        path = f"{path}[{key}]" if isinstance(key, int) else f"{path}.{_shown(key)}" if path else _shown(key)
    if first["type"] == "disagreement":
        place = context["place"]
        path += f".{place}" if path and place else place
    return f"{path or 'the document'}: {_problem(first, context)}"


def _problem(first: ErrorDetails, context: Mapping[str, Any]) -> str:
    match first["type"]:
        case "disagreement":
            return str(context["problem"])
        case "missing":
            return "expected it to be there, got nothing"
        case "extra_forbidden":
            return "expected a key of the format, got one beyond it"
        case "called":
            expected = context["name"]
        case "too_short":
            expected = f"at least {context['min_length']} items"
        case "too_long":
            expected = f"at most {context['max_length']} items"
        case "model_type" | "dict_type":
            expected = "an object"
        case "tuple_type":
            expected = "a list"
        case _:  # a text that is none of the allowed ones
            expected = context.get("expected", "text")
    return f"expected {expected}, got {_came(first['input'])}"


def _shown(key: str) -> str:
    return key if key.isidentifier() and len(key) < 80 else ascii(key)[:80]


def _came(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple | dict):
        return "an object" if isinstance(value, dict) else f"a list of {len(value)}"
    if isinstance(value, str):
        return f"text of {len(value)} characters" if len(value) > 60 else f"text {value!a}"
    return ascii(value)[:60] if isinstance(value, float) else f"{type(value).__name__} {ascii(value)[:60]}"
