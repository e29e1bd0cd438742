"""What a JSON document must look like, as data; and the check of a document against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fairerclip.errors import FairerClipError

LARGEST = 1e15
"""Beyond this no figure of a report makes sense, and arithmetic on it may overflow."""
LONGEST = 20_000
"""Characters of one text."""

Problems = Iterator[tuple[str, str]]


@dataclass(frozen=True)
class Value:
    """One text, number or the like: what it is called, alone and as many, and how to tell it."""

    one: str
    many: str
    good: Callable[[Any], bool]


@dataclass(frozen=True)
class Maybe:
    """Null or the other."""

    spec: Spec


@dataclass(frozen=True)
class Many:
    """A list. Lists with the same ``size`` agree in length, each less its own ``extra`` items.

    A length is agreed on by the first list of that name, for its object and everything inside it. A list
    that ``may_be_empty`` agrees without items, too.
    """

    item: Spec
    size: str | None = None
    extra: int = 0
    least: int = 0
    may_be_empty: bool = False


@dataclass(frozen=True)
class Keyed:
    """An object of any keys, its values alike."""

    item: Spec


@dataclass(frozen=True)
class Fields:
    """An object with these keys; one that may be null may also be absent.

    ``also`` yields (path inside the object, what was expected and what came) for what types cannot say.
    """

    fields: Mapping[str, Spec]
    also: Callable[[dict[str, Any]], Problems] | None = None


Spec = Value | Maybe | Many | Keyed | Fields


def is_text(value: Any) -> bool:
    """Whether it is text that UTF-8 can hold, of a bearable length."""
    if not isinstance(value, str) or len(value) > LONGEST:
        return False
    return not any("\ud800" <= c <= "\udfff" for c in value)


def is_number(value: Any) -> bool:
    """Whether it is a finite number of a bearable size; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and is_number(value)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_number, value)) and ordered(*value)


def ordered(low: float, high: float) -> bool:
    """Whether low is at most high, but for rounding."""
    return low <= high + 1e-9


TEXT = Value("text", "texts", is_text)
NUMBER = Value("a number", "numbers", is_number)
INTEGER = Value("an integer", "integers", _is_integer)
COUNT = Value("a count", "integers", lambda v: _is_integer(v) and v >= 0)
SHARE = Value("a number from 0 to 1", "numbers", lambda v: is_number(v) and -1e-9 <= v <= 1 + 1e-9)
BOOLEAN = Value("true or false", "truth values", lambda v: isinstance(v, bool))
PAIR = Value("[low, high]", "pairs", _is_pair)
SCALAR = Value(
    "text, a number, true, false or null",
    "values",
    lambda v: v is None or isinstance(v, bool) or is_text(v) or is_number(v),
)


def one_of(*allowed: str) -> Value:
    """One of a few texts."""
    return Value(f"one of {', '.join(allowed)}", "texts", lambda v: isinstance(v, str) and v in allowed)


def checked(value: Any, spec: Spec, error: type[FairerClipError], *, exact: bool = False) -> Any:
    """A copy of what ``spec`` describes, or ``error`` with the path of the first thing that is otherwise.

    Keys that ``spec`` does not know are left out of the copy, or refused if ``exact``. O(size) time; the
    recursion is as deep as ``spec``.

    Examples
    --------
    >>> from fairerclip.errors import ResultsFileError
    >>> spec = Fields({"names": Many(TEXT, "names"), "counts": Many(INTEGER, "names")})
    >>> checked({"names": ["a", "b"], "counts": [1, 2], "more": 0}, spec, ResultsFileError)
    {'names': ['a', 'b'], 'counts': [1, 2]}
    >>> checked({"names": ["a", "b"], "counts": [1]}, spec, ResultsFileError)
    Traceback (most recent call last):
    fairerclip.errors.ResultsFileError: counts: expected 2 integers, got 1
    """
    return _Check(error, exact).value(value, spec, "", {})


@dataclass(frozen=True)
class _Check:
    error: type[FairerClipError]
    exact: bool

    def value(self, value: Any, spec: Spec, path: str, sizes: dict[str, int]) -> Any:
        if isinstance(spec, Maybe):
            return None if value is None else self.value(value, spec.spec, path, sizes)
        if isinstance(spec, Value):
            return value if spec.good(value) else self.fail(path, spec.one, value)
        if isinstance(spec, Many):
            return self.many(value, spec, path, sizes)
        if not isinstance(value, dict):
            return self.fail(path, "an object", value)
        if isinstance(spec, Keyed):
            return {
                self.key(k, path): self.value(v, spec.item, _at(path, k), sizes) for k, v in value.items()
            }
        return self.fields(value, spec, path, dict(sizes))

    def many(self, value: Any, spec: Many, path: str, sizes: dict[str, int]) -> list[Any]:
        if not isinstance(value, list):
            return list(self.fail(path, "a list", value))
        called = spec.item.many if isinstance(spec.item, Value) else "items"
        if len(value) < spec.least:
            self.fail(path, f"at least {spec.least} {called}", value)
        if spec.size is not None and not (spec.may_be_empty and not value):
            agreed = sizes.setdefault(spec.size, len(value) - spec.extra)
            if agreed != len(value) - spec.extra:
                raise self.error(f"{path}: expected {agreed + spec.extra} {called}, got {len(value)}")
        return [self.value(item, spec.item, f"{path}[{i}]", sizes) for i, item in enumerate(value)]

    def fields(self, value: dict[str, Any], spec: Fields, path: str, sizes: dict[str, int]) -> dict[str, Any]:
        for key in value if self.exact else ():
            if key not in spec.fields:
                raise self.error(
                    f"{_at(path, key)}: expected {', '.join(spec.fields)}; got a key beyond them"
                )
        copy = {}
        for key, part in spec.fields.items():
            if key not in value and not isinstance(part, Maybe):
                raise self.error(f"{_at(path, key)}: expected it to be there, got an object without it")
            copy[key] = self.value(value.get(key), part, _at(path, key), sizes)
        for inside, problem in spec.also(copy) if spec.also else ():
            raise self.error(
                f"{path}{'.' if path and inside[:1] not in ('', '[') else ''}{inside}: {problem}"
            )
        return copy

    def key(self, key: Any, path: str) -> str:
        return key if is_text(key) else str(self.fail(path, "keys that are text", key))

    def fail(self, path: str, expected: str, value: Any) -> Any:
        raise self.error(f"{path or 'the document'}: expected {expected}, got {_came(value)}")


def _at(path: str, key: Any) -> str:
    shown = key if isinstance(key, str) and key.isidentifier() and len(key) < 80 else ascii(key)[:80]
    return f"{path}.{shown}" if path else shown


def _came(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | dict):
        return f"a list of {len(value)}" if isinstance(value, list) else "an object"
    if isinstance(value, str):
        return f"text of {len(value)} characters" if len(value) > 60 else f"text {value!a}"
    return ascii(value)[:60] if isinstance(value, float) else f"{type(value).__name__} {ascii(value)[:60]}"
