"""Embeddings of a prompt set: one call of a text encoder, then averages over prompts as in CLIP, if requested."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairerclip.data.embedding_rows import row_lengths, unit_rows
from fairerclip.data.prompts.prompt_set import Prompts, PromptSet
from fairerclip.errors import NonFiniteError, ShapeError, ZeroRowError

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Texts = Floats | tuple[Floats, ...]  # (c, p), or c arrays (m, p)
Encode = Callable[[list[str]], NDArray[Any]]
UNNAMED_VALUE = -1
CANCELLED = 1e-6  # an average of float32 unit rows shorter than this is only rounding error


class EncodedAttribute(NamedTuple):
    """A sensitive attribute: names, prompts and prompt embeddings of its values."""

    names: tuple[str, ...]
    prompts: tuple[Prompts, ...]
    text: Texts  # (|S|, p), or |S| arrays (m, p)


class EncodedCounterfactual(NamedTuple):
    """Sentences that name a class and sensitive values, with the codes of both."""

    vectors: Floats  # (m, p)
    classes: Ints  # (m,)
    values: dict[str, Ints]  # attribute -> (m,); -1 where a sentence does not name it
    prompts: Prompts


class EncodedPairs(NamedTuple):
    """Pairs of sentences."""

    vectors: Floats  # (m, 2, p)
    prompts: tuple[tuple[str, str], ...]


SEPARATOR = " | "
"""Between the prompts of a class in the text that a task has."""


def joined_prompts(prompts: Prompts) -> str:
    """Return the prompts of a class as a task has them, in one text."""
    return SEPARATOR.join(prompts)


def separate_prompts(text: str) -> list[str]:
    """Return the prompts of a class from the text that a task has.

    Examples
    --------
    >>> separate_prompts(joined_prompts(("a bird", "a photo of a bird")))
    ['a bird', 'a photo of a bird']
    """
    return text.split(SEPARATOR)


@dataclass(frozen=True, eq=False)
class EncodedPrompts:
    """Embeddings of a prompt set; every row has unit length.

    Attributes
    ----------
    text_target : ndarray of shape (c, p), tuple of c arrays (m, p), or None
        Embeddings of the class prompts, averaged or one row per prompt; None if the set has no classes.
    target_prompts : tuple of c tuples of str
        Prompts of each class.
    class_names : tuple of c str
        Names of the classes, in the order of the labels.
    sensitive : dict of str to EncodedAttribute
        ``(names, prompts, text)`` of each attribute.
    counterfactual : EncodedCounterfactual or None
        ``(vectors, classes, values, prompts)``, never averaged; None if the set has none.
    spurious : ndarray of shape (m, p) or None
        Embeddings of the sentences whose span Orth-Proj and Orth-Cali project out.
    spurious_prompts : tuple of m str
        These sentences.
    harmful, helpful : EncodedPairs or None
        ``(vectors, prompts)`` of pairs of sentences for RoboShot; None if the set has none.
    variants : ndarray of shape (m, c, p) or None
        One vector per template and class; None unless all classes use the same two or more templates.
    templates : tuple of m str
        These templates.
    queries : ndarray of shape (m, p) or None
        Embeddings of the free queries for a gallery.
    query_prompts : tuple of m str
        These queries.
    """

    text_target: Texts | None
    target_prompts: tuple[Prompts, ...]
    class_names: tuple[str, ...]
    sensitive: dict[str, EncodedAttribute] = field(default_factory=dict)
    counterfactual: EncodedCounterfactual | None = None
    spurious: Floats | None = None
    variants: Floats | None = None
    templates: tuple[str, ...] = ()
    spurious_prompts: Prompts = ()
    queries: Floats | None = None
    query_prompts: Prompts = ()
    harmful: EncodedPairs | None = None
    helpful: EncodedPairs | None = None


def encode_prompts(prompt_set: PromptSet, encode: Encode, *, average: bool) -> EncodedPrompts:
    """Embed a prompt set with one call of a text encoder.

    Parameters
    ----------
    prompt_set : PromptSet
        Prompt set, as returned by `load_prompts`.
    encode : callable
        Takes m sentences and returns floats (m, p); rows may have any length.
    average : bool
        Whether to return one vector per class and per sensitive value: rows are scaled to unit length, averaged,
        and scaled to unit length again, as in CLIP's prompt ensembles. Otherwise return one array (m, p) for each,
        as ``FairerCLIP.fit(text=[...])`` takes them.

    Returns
    -------
    EncodedPrompts
        In float32; sums are computed in float64. Memory: about three times the m × p embeddings.

    Raises
    ------
    ShapeError
        The encoder did not return one row for each sentence.
    NonFiniteError, ZeroRowError
        The encoder returned rows that are not finite or zero, or the average of some prompts is zero.

    Examples
    --------
    >>> from fairerclip.data.prompts import load_prompts
    >>> lengths = lambda prompts: np.array([[len(p), p.count("a"), 1.0] for p in prompts])
    >>> encode_prompts(load_prompts("waterbirds"), lengths, average=True).text_target.shape
    (2, 3)
    """
    prompts = prompt_set.all_prompts()
    rows = _encoded(encode(list(prompts)), prompts)
    place = {prompt: i for i, prompt in enumerate(prompts)}
    sensitive = {
        attribute: EncodedAttribute(
            tuple(values), tuple(values.values()), _texts(rows, place, values, average)
        )
        for attribute, values in prompt_set.sensitive.items()
    }
    spurious, queries = prompt_set.spurious, prompt_set.queries
    variants = _variants(rows, place, prompt_set)
    return EncodedPrompts(
        text_target=_texts(rows, place, prompt_set.classes, average) if prompt_set.classes else None,
        target_prompts=prompt_set.class_prompts(),
        class_names=prompt_set.class_names,
        sensitive=sensitive,
        counterfactual=_counterfactual(prompt_set, rows, place) if prompt_set.counterfactual else None,
        spurious=_pick(rows, place, spurious).astype(np.float32) if spurious else None,
        variants=variants,
        templates=() if variants is None else prompt_set.templates,
        spurious_prompts=spurious,
        queries=_pick(rows, place, queries).astype(np.float32) if queries else None,
        query_prompts=queries,
        harmful=_pairs(rows, place, prompt_set.harmful),
        helpful=_pairs(rows, place, prompt_set.helpful),
    )


def _encoded(vectors: NDArray[Any], prompts: Sequence[str]) -> NDArray[np.float64]:
    raw = np.asarray(vectors)
    if raw.dtype.kind not in "fiu" or raw.ndim != 2 or len(raw) != len(prompts) or raw.shape[1] == 0:
        raise ShapeError(
            f"the text encoder must return numbers ({len(prompts)}, p), one row for each prompt, "
            f"got {raw.dtype} of shape {raw.shape}"
        )
    rows: NDArray[np.float64] = raw.astype(np.float64)
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        first = prompts[int(np.flatnonzero(~finite)[0])]
        raise NonFiniteError(
            f"the text encoder returned NaN or infinity for {(~finite).sum()} prompts, first {first!r}"
        )
    return _unit(rows, prompts, 0.0)


def _unit(rows: NDArray[np.float64], names: Sequence[str], noise: float) -> NDArray[np.float64]:
    """Return rows scaled to unit length; raise if one is not longer than `noise` and so has no direction."""
    zero = np.flatnonzero(row_lengths(rows) <= noise)
    if zero.size:
        raise ZeroRowError(
            f"expected embeddings with a direction, got zero for {names[int(zero[0])]!r} "
            f"({zero.size} of {len(rows)}); opposite prompts must not be averaged"
        )
    return unit_rows(rows)


def _pick(rows: NDArray[np.float64], place: Mapping[str, int], prompts: Sequence[str]) -> NDArray[np.float64]:
    picked: NDArray[np.float64] = rows[[place[prompt] for prompt in prompts]]
    return picked


def _pairs(
    rows: NDArray[np.float64], place: Mapping[str, int], pairs: tuple[tuple[str, str], ...]
) -> EncodedPairs | None:
    if not pairs:
        return None
    vectors = np.stack([_pick(rows, place, pair) for pair in pairs])
    return EncodedPairs(vectors.astype(np.float32), pairs)


def _texts(
    rows: NDArray[np.float64], place: Mapping[str, int], named: Mapping[str, Prompts], average: bool
) -> Texts:
    groups = [_pick(rows, place, prompts) for prompts in named.values()]
    if not average:
        return tuple(group.astype(np.float32) for group in groups)
    means = _unit(np.stack([group.mean(axis=0) for group in groups]), list(named), CANCELLED)
    averaged: Floats = means.astype(np.float32)
    return averaged


def _variants(rows: NDArray[np.float64], place: Mapping[str, int], prompt_set: PromptSet) -> Floats | None:
    by_template = prompt_set.class_prompts_by_template()
    if len(by_template) < 2:
        return None  # the vectors of a single template are those of text_target
    wordings = [
        _texts(rows, place, dict(zip(prompt_set.classes, prompts, strict=True)), average=True)
        for prompts in by_template
    ]
    stacked: Floats = np.stack([np.asarray(wording) for wording in wordings])
    return stacked


def _counterfactual(
    prompt_set: PromptSet, rows: NDArray[np.float64], place: Mapping[str, int]
) -> EncodedCounterfactual:
    sentences = prompt_set.counterfactual
    classes = np.array(
        [prompt_set.class_names.index(sentence.class_name) for sentence in sentences], dtype=np.int64
    )
    values = {}
    for attribute in prompt_set.sensitive:
        names = prompt_set.sensitive_names(attribute)
        codes = [
            names.index(sentence.sensitive[attribute]) if attribute in sentence.sensitive else UNNAMED_VALUE
            for sentence in sentences
        ]
        if any(code != UNNAMED_VALUE for code in codes):
            values[attribute] = np.array(codes, dtype=np.int64)
    prompts = tuple(sentence.prompt for sentence in sentences)
    vectors = _pick(rows, place, prompts).astype(np.float32)
    return EncodedCounterfactual(vectors, classes, values, prompts)
