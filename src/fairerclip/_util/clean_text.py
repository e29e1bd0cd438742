"""Functions that prepare foreign text for display: they replace hidden characters and shorten long names."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

LONGEST = 120
"""Characters of a name that are shown; the results keep the whole name."""
REPLACED = "\N{REPLACEMENT CHARACTER}"
_JOINERS = {"\u200c", "\u200d"}  # several scripts and many emoji need them
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
SENTENCES = {"verdict", "sentence", "advice", "text", "limits", "failure", "note", "drift"}
"""Keys whose text is a sentence: long names in it are shortened, the sentence itself is not."""
VERBATIM = {"command", "digest"}


def clean(text: str) -> str:
    r"""Replace control, direction and lone surrogate characters, so that no character of a text is hidden.

    Examples
    --------
    >>> clean("a\tb\u202ec")
    'a b�c'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_clean_character, text))


def _clean_character(mark: str) -> str:
    if mark.isspace() and mark not in "\u00a0\u202f":
        return " "
    return REPLACED if unicodedata.category(mark) in _HIDDEN and mark not in _JOINERS else mark


def cleaned(value: Any) -> Any:
    """Return a copy of a JSON value with every text and key cleaned; O(size)."""
    if isinstance(value, Mapping):
        return {clean(str(key)): cleaned(item) for key, item in value.items()}
    if isinstance(value, str):
        return clean(value)
    return [cleaned(item) for item in value] if isinstance(value, list | tuple) else value


def shorten(text: str, most: int = LONGEST) -> str:
    """Shorten a long text to its beginning and its end, with an ellipsis between.

    Examples
    --------
    >>> shorten("a" * 200 + " × sex", 30)
    'aaaaaaaaaaaaaaaaaaa…aaaa × sex'
    """
    tail = most // 3
    return text if len(text) <= most else f"{text[: most - tail - 1]}…{text[-tail:]}"


def quoted(value: Any, most: int = LONGEST) -> str:
    """Return the ``repr`` of a value in one line, shortened.

    Examples
    --------
    >>> quoted(["a", 1]), quoted("a" * 200, 12)
    ("['a', 1]", "'aaaaaa…aaa'")
    """
    return shorten(" ".join(repr(value).split()), most)


def with_short_names(results: Any) -> Any:
    """Return a copy of results for display, with every long name shortened, also inside sentences.

    Different names stay different, so that parts which refer to each other by name still match. O(size of the results).
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for text in dict.fromkeys(_long_names(results)):
        short, count = shorten(text), 1
        while short in taken:
            count += 1
            short = f"{shorten(text)} ({count})"
        taken.add(short)
        names[text] = short
    longest_first = sorted(names, key=len, reverse=True)
    return _renamed(results, names, longest_first) if names else results


def _long_names(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            if len(name) > LONGEST:
                yield name
            yield from _long_names(item, name)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _long_names(item, key)
    elif isinstance(value, str) and len(value) > LONGEST and key not in SENTENCES | VERBATIM:
        yield value


def _renamed(value: Any, names: Mapping[str, str], longest_first: list[str], key: str = "") -> Any:
    if isinstance(value, Mapping):
        return {
            names.get(name, name): _renamed(item, names, longest_first, name) for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_renamed(item, names, longest_first, key) for item in value]
    if not isinstance(value, str) or len(value) <= LONGEST or key in VERBATIM:
        return value
    if key not in SENTENCES:
        return names[value]
    for name in longest_first:
        value = value.replace(name, names[name])
    return value
