"""Rules for ``tokenizer.json``: only known steps, which must not make a prompt much longer.

The tokenizers library executes the steps of the file, and a few lines can replace each letter by ten, eight times in
a row.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from typing import Any

from fairerclip.encoders.config import MAX_CONTEXT
from fairerclip.errors import EncoderError

MAX_STEPS = 64
"""Most normalizers, splitters or processors of one tokenizer."""
MAX_GROWTH = 1000
"""Most characters that all steps together may make of one character."""
MAX_ADDED_CHARACTERS = 200_000
"""Most characters of all added tokens together, to which the steps are applied when the file is loaded."""
_NORMALIZERS = {
    **dict.fromkeys(
        ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents", "Nmt", "Sequence"), 1
    ),
    "BertNormalizer": 3,
    "ByteLevel": 4,
}
_SPLITTERS = {
    **dict.fromkeys(
        (
            "Sequence",
            "Split",
            "Whitespace",
            "WhitespaceSplit",
            "BertPreTokenizer",
            "Punctuation",
            "Digits",
            "UnicodeScripts",
        ),
        1,
    ),
    "ByteLevel": 4,
    "Metaspace": 2,
}
"""Most characters that a step makes of one; Unicode forms count as 1, because repeating them changes nothing."""
_PROCESSORS = frozenset(
    {"Sequence", "ByteLevel", "BertProcessing", "RobertaProcessing", "TemplateProcessing"}
)


def check_tokenizer(values: Any, where: str) -> None:
    """Raise if a tokenizer has unknown steps, or steps that would make a prompt too long.

    Parameters
    ----------
    values : object
        Content of ``tokenizer.json``.
    where : str
        Name of the file in messages.
    """
    try:
        growth = math.prod(
            _normalizer(step, where) for step in _steps(values, "normalizer", "normalizers", where)
        )
        for step in _steps(values, "pre_tokenizer", "pretokenizers", where):
            growth *= _known(step, _SPLITTERS, "pre_tokenizer", where)
        added = sum(_added_ids(step, where) for step in _steps(values, "post_processor", "processors", where))
        characters = sum(len(token["content"]) for token in values.get("added_tokens") or ())
    except EncoderError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise EncoderError(f"{where} is not a tokenizer: {type(error).__name__}: {error!s:.120}") from None
    for value, limit, expected in (
        (growth, MAX_GROWTH, "steps that make at most {} characters of one"),
        (added, MAX_CONTEXT, "a post_processor that adds at most {} ids"),
        (characters, MAX_ADDED_CHARACTERS, "added tokens of at most {} characters together"),
    ):
        if value > limit:
            raise EncoderError(f"{where}: expected {expected.format(f'{limit:,}')}, got more")


def _steps(values: Any, key: str, below: str, where: str) -> Iterator[Any]:
    """Yield the steps of a part of the file, also those inside sequences."""
    stack = [] if values.get(key) is None else [values[key]]
    count = 0
    while stack:
        step = stack.pop()
        count += 1
        if count > MAX_STEPS:
            raise EncoderError(f"{where}: expected a {key} of at most {MAX_STEPS} steps, got more")
        if step["type"] == "Sequence":
            stack += step[below]
        yield step


def _known(step: Any, growth: dict[str, int], part: str, where: str) -> int:
    if step["type"] not in growth:
        raise EncoderError(
            f"{where}: expected a {part} of a known type, got {step['type']!r:.60}; known are "
            f"{', '.join(sorted(growth))}"
        )
    return growth[step["type"]]


def _normalizer(step: Any, where: str) -> int:
    """Return the most characters that a normalizer makes of one."""
    match step["type"]:
        case "Replace":
            literal = step["pattern"].get("String")
            if literal:
                return max(1, math.ceil(len(step["content"]) / len(literal)))
            return 1 + len(step["content"])  # an empty match is possible between any two characters
        case "Prepend":
            return 1 + len(step["prepend"])
        case "Precompiled":
            # The table holds the length of a trie, the trie, and the replacement texts, each ended by a NUL.
            table = base64.b64decode(step["precompiled_charsmap"] or "")
            texts = table[4 + int.from_bytes(table[:4], "little") :]
            return max(1, *map(len, texts.split(b"\0")))
        case _:
            return _known(step, _NORMALIZERS, "normalizer", where)


def _added_ids(step: Any, where: str) -> int:
    """Return the most ids that a processor adds to those of a prompt."""
    if step["type"] not in _PROCESSORS:
        raise EncoderError(
            f"{where}: expected a post_processor of a known type, got {step['type']!r:.60}; known are "
            f"{', '.join(sorted(_PROCESSORS))}"
        )
    if step["type"] != "TemplateProcessing":
        return 2
    pieces = [*step["single"], *step["pair"]]
    if sum("Sequence" in piece for piece in step["single"]) > 1:
        raise EncoderError(f"{where}: expected a template with the prompt once, got it several times")
    special = [piece["SpecialToken"]["id"] for piece in pieces if "SpecialToken" in piece]
    return sum(len(step["special_tokens"][name]["ids"]) for name in special)
