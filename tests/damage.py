"""Damage to a good file: bytes and, where it is or begins with JSON, its values."""

import copy
import json

from hypothesis import strategies as st

DEEP: list = []
for _ in range(900):
    DEEP = [DEEP]
NUMBERS = [-1, 0, 1.5, 2**63, 10**400, 1e308, float("nan")]
TEXTS = ["", "\0", "\ud800", "../../etc/passwd", "x" * 300, "9" * 400, "é,\r\n"]
VALUES = [None, True, *NUMBERS, *TEXTS, [], {}, [[]], [None], {"a": {}}, DEEP]
JUNK = [text.encode("utf-8", "surrogatepass") for text in TEXTS] + [
    number.to_bytes(8, "little") for number in (0, 1, 2**31 - 1, 2**32 - 1, 2**63, 2**64 - 1)
]


def places(value):
    """Every list or table of a document with each of its keys."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        if isinstance(inner, dict | list):
            yield from places(inner)


def split_json(good):
    """The JSON document of a file, as text or as the header of safetensors, and what stands behind it."""
    size = int.from_bytes(good[:8], "little")
    for text, rest in ((good, None), (good[8 : 8 + size], good[8 + size :])):
        try:
            document = json.loads(text)
        except ValueError:
            continue
        if isinstance(document, dict | list) and document:
            return document, rest
    return None, None


@st.composite
def changed_json(draw, document, rest):
    document = copy.deepcopy(document)
    holder, key = draw(st.sampled_from(list(places(document))))
    action = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
    if action == "remove":
        del holder[key]
    elif action == "add" and isinstance(holder, dict):
        holder[draw(st.sampled_from(TEXTS))] = draw(st.sampled_from(VALUES))
    else:
        holder[key] = draw(st.sampled_from(VALUES))
    text = json.dumps(document, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    return text if rest is None else len(text).to_bytes(8, "little") + text + rest


@st.composite
def changed_bytes(draw, good):
    """The file with bytes flipped, cut off, dropped, repeated or replaced by others."""
    raw = bytearray(good)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(len(raw) - 1, 0)))
        end = at + draw(st.sampled_from([1, 4, 64]))
        action = draw(st.sampled_from(["flip", "flip", "cut", "drop", "repeat", "replace", "insert"]))
        if action == "flip":
            raw[at:end] = bytes(byte ^ 1 << draw(st.integers(0, 7)) for byte in raw[at : at + 1])
        elif action == "cut":
            del raw[at:]
        elif action == "drop":
            del raw[at:end]
        elif action == "repeat":
            raw[at:at] = raw[at:end] * draw(st.sampled_from([1, 100]))
        else:
            junk = draw(st.sampled_from(JUNK))
            raw[at : at + len(junk) if action == "replace" else at] = junk
    return bytes(raw)


def damaged(good):
    document, rest = split_json(good)
    return changed_bytes(good) if document is None else changed_bytes(good) | changed_json(document, rest)
