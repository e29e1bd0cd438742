"""Fields of a task file: their keys, and checks of their arrays.

These functions do not use `Task`: they take arrays by key and raise `TaskFileError`.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import Ints
from fairerclip.data.io.bounded_text import nearest
from fairerclip.errors import TaskFileError

Array = NDArray[Any]
Floats = NDArray[np.float32]

SPLITS = ("train", "val", "test")
UNNAMED = "s"  # the attribute of s_train, text_sensitive, …
UNKNOWN = -1
CLOSE = 0.85  # similarity to a known key from which an unknown key counts as misspelled
SIMILAR = 0.6  # similarity from which a known key is offered in a warning
_SHOWN = 5
_BLOCK = 8192  # rows checked at once: bounds the temporary boolean arrays
MAX_VARIANTS = 1000
MAX_ATTRIBUTES = 64
MAX_SENTENCES = 10_000
USED_EXTRA = ("small_train",)
"""Arrays beside the format that the package uses: row numbers of the small training set of `reproduce`."""
_SINGLE = (
    *("text_target", "target_prompts", "class_names", "simulated", "name"),
    *("text_target_variants", "target_templates"),
    *("text_spurious", "spurious_prompts"),
    *("text_counterfactual", "counterfactual_prompts", "counterfactual_classes"),
    *("text_harmful", "harmful_prompts", "text_helpful", "helpful_prompts"),
    *("text_queries", "query_prompts"),
)
_PER_SPLIT = ("image", "y", "ids")
_PER_ATTRIBUTE = ("text_sensitive", "sensitive_prompts", "sensitive_names")
_NAMED_S = re.compile(rf"s_(.+)_({'|'.join(SPLITS)})")
_NAMED_PART = re.compile(rf"({'|'.join(_PER_ATTRIBUTE)})_(.+)")


def s_key(attribute: str, split: str) -> str:
    """Return the key of a sensitive attribute's values in a split.

    Examples
    --------
    >>> s_key("sex", "train"), s_key("s", "train")
    ('s_sex_train', 's_train')
    """
    return f"s_{split}" if attribute == UNNAMED else f"s_{attribute}_{split}"


def part_key(part: str, attribute: str) -> str:
    """Return the key of an attribute's texts, prompts or names.

    Examples
    --------
    >>> part_key("text_sensitive", "sex"), part_key("text_sensitive", "s")
    ('text_sensitive_sex', 'text_sensitive')
    """
    return part if attribute == UNNAMED else f"{part}_{attribute}"


def words_key(kind: str) -> str:
    """Return the key of the text of the sentences of a kind.

    Examples
    --------
    >>> words_key("spurious"), words_key("queries")
    ('spurious_prompts', 'query_prompts')
    """
    return "query_prompts" if kind == "queries" else f"{kind}_prompts"


def attributes(keys: Iterable[str], path: str) -> list[str]:
    """Return the names of the sensitive attributes that the keys mention, in the order of the file."""
    unnamed = {s_key(UNNAMED, split) for split in SPLITS} | set(_PER_ATTRIBUTE)
    names: dict[str, None] = {}
    for key in keys:
        match = _NAMED_S.fullmatch(key)
        part = _NAMED_PART.fullmatch(key)
        name = match[1] if match else part[2] if part else None
        if name == UNNAMED:
            raise TaskFileError(
                f"{path}: {key!r} has an attribute called {UNNAMED!r}, which is reserved; choose another name"
            )
        if key in unnamed or name is not None:
            names[name or UNNAMED] = None
    if len(names) > MAX_ATTRIBUTES:
        raise TaskFileError(
            f"{path}: expected at most {MAX_ATTRIBUTES} sensitive attributes, got {len(names)}"
        )
    return list(names)


def known_keys(names: Iterable[str]) -> set[str]:
    """Return every key of the format, given the names of the attributes."""
    known = {*_SINGLE, *(f"{kind}_{split}" for kind in _PER_SPLIT for split in SPLITS)}
    for name in (UNNAMED, *names):
        known |= set(_keys_of(name))
    return known


def unknown_keys(keys: Iterable[str], names: Iterable[str], path: str) -> list[str]:
    """Return the keys that are not of the format; raise if one looks like a misspelled key of the format."""
    known = known_keys(names)
    unknown = [key for key in keys if key not in known]
    for key in unknown:
        near = nearest(key, sorted(known), cutoff=CLOSE)
        if near:
            raise TaskFileError(f"{path}: unknown array {key!r}; did you mean {near[0]!r}?")
    return unknown


def unused_arrays(keys: Iterable[str], names: list[str], unknown: Iterable[str]) -> list[str]:
    """Return sentences on arrays that nothing uses and on attributes whose names are probably misspelled.

    An attribute counts as misspelled if its name is near that of another one and it has fewer arrays.

    Examples
    --------
    >>> unused_arrays(["s_sex_train", "s_sex_test", "s_sexx_val", "notes"], ["sex", "sexx"], ["notes"])
    ["nothing uses the array 'notes'", "'s_sexx_val' is of an attribute 'sexx'; did you mean 's_sex_val'?"]
    """
    known = sorted(known_keys(names))
    out = []
    for key in unknown:
        if key not in USED_EXTRA:
            near = nearest(key, known, cutoff=SIMILAR)
            out.append(f"nothing uses the array {key!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    parts = {name: [key for key in keys if key in _keys_of(name)] for name in names if name != UNNAMED}
    for name, given in parts.items():
        near = [
            other
            for other in nearest(name, [n for n in parts if n != name], len(parts), cutoff=CLOSE)
            if len(parts[other]) > len(given)
        ]
        for key in given if near else ():
            meant = _keys_of(near[0])[_keys_of(name).index(key)]
            out.append(f"{key!r} is of an attribute {name!r}; did you mean {meant!r}?")
    return out


def _keys_of(attribute: str) -> list[str]:
    """Return every key of an attribute, in an order that does not depend on its name."""
    return [s_key(attribute, split) for split in SPLITS] + [part_key(p, attribute) for p in _PER_ATTRIBUTE]


def embeddings(array: Array, where: str) -> Floats:
    """Check rows (n, p) and return them in float32; `where` names file and key in messages."""
    if array.dtype.kind != "f" or array.ndim != 2:
        raise TaskFileError(f"{where}: expected floats (n, p), got {array.dtype} of shape {array.shape}")
    if 0 in array.shape:
        raise TaskFileError(f"{where}: expected at least one row and one column, got shape {array.shape}")
    with np.errstate(over="ignore"):  # values too large for float32 become infinite and are reported below
        rows: Floats = np.ascontiguousarray(array, dtype=np.float32)
    finite, zero = np.ones(len(rows), dtype=bool), np.zeros(len(rows), dtype=bool)
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        finite[start : start + _BLOCK] = np.isfinite(block).all(axis=1)
        zero[start : start + _BLOCK] = ~block.any(axis=1)
    _raise_if_any(where, ~finite, "finite values (in float32)", "NaN or infinity")
    _raise_if_any(where, zero, "rows with a direction", "zeros only")
    return rows


def variants(
    arrays: Mapping[str, Array], c: int, width: int, path: str
) -> tuple[Floats, tuple[str, ...]] | None:
    """Check other wordings of the class prompts (m, c, p) and their names; return None if there are none."""
    key, names_key = "text_target_variants", "target_templates"
    if key not in arrays:
        if names_key in arrays:
            raise TaskFileError(f"{path}: expected {key} with {names_key}, got none")
        return None
    given = arrays[key]
    if given.dtype.kind != "f" or given.ndim != 3 or given.shape[1:] != (c, width):
        raise TaskFileError(
            f"{path}: {key}: expected floats (m, {c}, {width}), one row for each class and as wide as the images, "
            f"got {given.dtype} of shape {given.shape}"
        )
    if not 1 <= len(given) <= MAX_VARIANTS:
        raise TaskFileError(f"{path}: {key}: expected 1 to {MAX_VARIANTS} wordings, got {len(given)}")
    text = embeddings(given.reshape(-1, width), f"{path}: {key}, counted over wordings and classes")
    names = tuple(f"wording {i + 1}" for i in range(len(given)))
    if names_key in arrays:
        names = strings(arrays[names_key], f"{path}: {names_key}")
    if len(names) != len(given) or not all(name.strip() for name in names):
        raise TaskFileError(
            f"{path}: {names_key}: expected a text for each of the {len(given)} wordings, got {len(names)}, "
            f"{sum(not name.strip() for name in names)} of them empty"
        )
    return text.reshape(given.shape), names


def sentences(
    arrays: Mapping[str, Array], kind: str, c: int | None, width: int, path: str
) -> tuple[Floats, tuple[str, ...], Ints | None] | None:
    """Check embeddings (m, p) of sentences, their text, and, unless ``c`` is None, the class of each in [0, c).

    Return None if there are no sentences of this kind: "spurious", "counterfactual" or "queries".
    """
    key, key_of_words, classes_key = f"text_{kind}", words_key(kind), f"{kind}_classes"
    parts = [key_of_words] if c is None else [key_of_words, classes_key]
    if key not in arrays:
        orphans = [part for part in parts if part in arrays]
        if orphans:
            raise TaskFileError(f"{path}: expected {key} with {', '.join(orphans)}, got none")
        return None
    text = embeddings(arrays[key], f"{path}: {key}")
    m = len(text)
    if text.shape[1] != width or m > MAX_SENTENCES:
        raise TaskFileError(
            f"{path}: {key}: expected at most {MAX_SENTENCES} rows of width {width} as the images, got {text.shape}"
        )
    noun = "query" if kind == "queries" else f"{kind} sentence"
    words = tuple(f"{noun} {i + 1}" for i in range(m))
    if key_of_words in arrays:
        words = strings(arrays[key_of_words], f"{path}: {key_of_words}")
    if len(words) != m or not all(word.strip() for word in words):
        raise TaskFileError(
            f"{path}: {key_of_words}: expected a text for each of the {m} rows of {key}, got {len(words)}, "
            f"{sum(not word.strip() for word in words)} of them empty"
        )
    if c is None:
        return text, words, None
    if classes_key not in arrays:
        raise TaskFileError(f"{path}: expected {classes_key}, the class of each row of {key}, got none")
    classes = labels(arrays[classes_key], m, c, f"{path}: {classes_key}")
    _raise_if_any(f"{path}: {classes_key}", classes == UNKNOWN, f"a class from 0 to {c - 1}", "-1 (unknown)")
    return text, words, classes


def pairs(
    arrays: Mapping[str, Array], kind: str, width: int, path: str
) -> tuple[Floats, tuple[tuple[str, ...], ...]] | None:
    """Check embeddings (m, 2, p) of pairs of sentences and their text (m, 2); return None if there are none.

    The kind is "harmful" or "helpful".
    """
    key, key_of_words = f"text_{kind}", words_key(kind)
    if key not in arrays:
        if key_of_words in arrays:
            raise TaskFileError(f"{path}: expected {key} with {key_of_words}, got none")
        return None
    given = arrays[key]
    if given.dtype.kind != "f" or given.ndim != 3 or given.shape[1:] != (2, width):
        raise TaskFileError(
            f"{path}: {key}: expected floats (m, 2, {width}), two rows for each pair and as wide as the images, got "
            f"{given.dtype} of shape {given.shape}"
        )
    if not 1 <= len(given) <= MAX_SENTENCES:
        raise TaskFileError(f"{path}: {key}: expected 1 to {MAX_SENTENCES} pairs, got {len(given)}")
    text = embeddings(given.reshape(-1, width), f"{path}: {key}, counted over pairs and sentences")
    words = np.array([[f"{kind} sentence {2 * i + j + 1}" for j in range(2)] for i in range(len(given))])
    words = arrays.get(key_of_words, words)
    if words.dtype.kind != "U" or words.shape != given.shape[:2] or not (np.char.strip(words) != "").all():
        raise TaskFileError(
            f"{path}: {key_of_words}: expected a text for each of the {len(given)} × 2 sentences of {key}, got "
            f"{words.dtype} of shape {words.shape}, or empty ones"
        )
    return text.reshape(given.shape), tuple(tuple(map(str, pair)) for pair in words)


def texts(
    arrays: Mapping[str, Array], keys: tuple[str, ...], width: int, path: str
) -> tuple[Floats | None, tuple[str, ...], tuple[str, ...]]:
    """Return prompt embeddings, prompts and names under three keys; absent ones are None or empty."""
    text = embeddings(arrays[keys[0]], f"{path}: {keys[0]}") if keys[0] in arrays else None
    prompts, names = (strings(arrays[key], f"{path}: {key}") if key in arrays else () for key in keys[1:])
    if text is not None:
        check_width(text, width, f"{path}: {keys[0]}", "the images")
    counts = {key: len(arrays[key]) for key in keys if key in arrays}
    if len(set(counts.values())) > 1 or 0 in counts.values():
        came = ", ".join(f"{count} in {key}" for key, count in counts.items())
        raise TaskFileError(
            f"{path}: expected equal numbers of prompts, names and texts, above 0, got {came}"
        )
    return text, prompts, names


def numbered(stem: str, text: Floats | None, codes: Mapping[str, Ints], path: str) -> tuple[str, ...]:
    """Return numbered names, one for each prompt embedding, or without these for each label up to the largest."""
    count = max((int(a.max()) + 1 for a in codes.values()), default=0) if text is None else len(text)
    rows = sum(len(a) for a in codes.values())
    if count == 0:
        raise TaskFileError(f"{path}: expected a known label, names or texts for {stem!r}, got -1 only")
    if text is None and count > rows:  # one wrong large label must not make millions of names
        raise TaskFileError(f"{path}: expected labels of {stem!r} below the {rows} rows, got {count - 1}")
    return tuple(f"{stem} {i}" for i in range(count))


def check_named(names: tuple[str, ...], where: str) -> None:
    """Raise if a name is empty: where labels are names, an empty one means an unknown label."""
    empty = [k for k, name in enumerate(names) if not name]
    if empty:
        raise TaskFileError(f"{where}: entry {empty[0]} is empty; give every class and every value a name")


def check_width(rows: Floats, width: int, where: str, other: str) -> None:
    """Raise if rows (n, p) do not have the width of the ``other`` array."""
    if rows.shape[1] != width:
        raise TaskFileError(f"{where}: expected width {width} as {other}, got {rows.shape[1]}")


def check_orphans(arrays: Mapping[str, Array], present: list[str], names: list[str], path: str) -> None:
    """Raise if labels or ids are given for a split that has no embeddings."""
    for split in SPLITS:
        keys = [f"y_{split}", f"ids_{split}", *(s_key(name, split) for name in names)]
        orphans = [key for key in keys if key in arrays]
        if split not in present and orphans:
            raise TaskFileError(f"{path}: expected image_{split} with {', '.join(orphans)}, got none")


def labels(array: Array, n: int, count: int | None, where: str) -> Ints:
    """Check that labels are integers (n,) in [-1, count) and return them as int64."""
    if array.dtype.kind not in "iub" or array.shape != (n,):
        raise TaskFileError(f"{where}: expected {n} integers (n,), got {array.dtype} of shape {array.shape}")
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise TaskFileError(f"{where}: expected integers of 64 bits with sign, got {int(array.max())}")
    values: Ints = array.astype(np.int64)
    outside = values < UNKNOWN
    if count is not None:
        outside |= values >= count
    top = "" if count is None else f" to {count - 1}"
    _raise_if_any(where, outside, f"-1 (unknown) or 0{top}", f"{values[outside][:_SHOWN].tolist()}")
    return values


def strings(array: Array, where: str) -> tuple[str, ...]:
    """Check text (m,) and return it as str."""
    if array.dtype.kind != "U" or array.ndim != 1:
        raise TaskFileError(f"{where}: expected strings (m,), got {array.dtype} of shape {array.shape}")
    return tuple(str(text) for text in array)


def row_ids(array: Array, n: int, where: str) -> Array:
    """Check that there is one id per row (n,), as text or integers."""
    if array.dtype.kind not in "Uiu" or array.shape != (n,):
        raise TaskFileError(
            f"{where}: expected {n} strings or integers (n,), got {array.dtype} {array.shape}"
        )
    return array


def scalar(arrays: Mapping[str, Array], key: str, kind: str, path: str) -> Any:
    """Return the single value under a key, of the given dtype kind, or None if the key is absent."""
    if key not in arrays:
        return None
    array = arrays[key]
    if array.dtype.kind != kind or array.size != 1:
        raise TaskFileError(
            f"{path}: {key!r}: expected one value of kind {kind!r}, got {array.dtype} of shape {array.shape}"
        )
    return array.item()


def _raise_if_any(where: str, bad: NDArray[np.bool_], expected: str, came: str) -> None:
    rows = np.flatnonzero(bad)
    if rows.size:
        more = ", …" if rows.size > _SHOWN else ""
        first = ", ".join(map(str, rows[:_SHOWN]))
        raise TaskFileError(f"{where}: expected {expected}, got {came} in {rows.size} rows: {first}{more}")
