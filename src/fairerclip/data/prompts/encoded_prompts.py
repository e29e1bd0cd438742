"""From sentences to embeddings: one call of a text encoder, then averages as CLIP takes them, or none."""

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
CANCELLED = 1e-6  # unit rows of float32 that cancel leave an average of about this length


class EncodedAttribute(NamedTuple):
    """A sensitive attribute: its values' names, their prompts, and the embeddings."""

    names: tuple[str, ...]
    prompts: tuple[Prompts, ...]
    text: Texts  # (|S|, p), or |S| arrays (m, p)


class EncodedCounterfactual(NamedTuple):
    """Sentences that name a class and sensitive values, with the codes of both."""

    vectors: Floats  # (m, p)
    classes: Ints  # (m,)
    values: dict[str, Ints]  # attribute -> (m,); -1 where a sentence does not name it
    prompts: Prompts


@dataclass(frozen=True, eq=False)
class EncodedPrompts:
    """Embeddings of a prompt set; every row is of unit length.

    Attributes
    ----------
    text_target : ndarray of shape (c, p), tuple of c arrays (m, p), or None
        Averaged, or kept apart; None where the set has no classes.
    target_prompts : tuple of c tuples of str
        The sentences behind each class.
    class_names : tuple of c str
        In the order of the labels.
    sensitive : dict of str to EncodedAttribute
        ``(names, prompts, text)`` of each attribute.
    counterfactual : EncodedCounterfactual or None
        ``(vectors, classes, values, prompts)``, never averaged; None where there are none.
    spurious : ndarray of shape (m, p) or None
        The sentences that Orth-Proj and Orth-Cali project out, and
    spurious_prompts : tuple of m str
        their words.
    variants : ndarray of shape (m, c, p) or None
        One vector per template and class; None unless the classes are several templates filled in.
    templates : tuple of m str
        Those templates.
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


def encode_prompts(prompt_set: PromptSet, encode: Encode, *, average: bool) -> EncodedPrompts:
    """Embed a prompt set with one call of a text encoder.

    Parameters
    ----------
    prompt_set : PromptSet
        As `load_prompts` gives it.
    encode : callable
        Takes m sentences and returns floats (m, p), of any length.
    average : bool
        One vector per class and per sensitive value: rows are brought to unit length, averaged, and brought to
        unit length again, as CLIP's ensembles are. Otherwise one array (m, p) for each, as
        ``FairerCLIP.fit(text=[...])`` takes them.

    Returns
    -------
    EncodedPrompts
        In float32; sums are taken in float64. Memory: about three times the m × p embeddings.

    Raises
    ------
    ShapeError
        The encoder did not return one row for each sentence.
    NonFiniteError, ZeroRowError
        It returned rows that have no direction, or prompts whose average has none.

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
    spurious = prompt_set.spurious
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
    """Rows of unit length; those no longer than `noise` have no direction and are refused."""
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


def _texts(
    rows: NDArray[np.float64], place: Mapping[str, int], named: Mapping[str, Prompts], average: bool
) -> Texts:
    apart = [_pick(rows, place, prompts) for prompts in named.values()]
    if not average:
        return tuple(one.astype(np.float32) for one in apart)
    means = _unit(np.stack([one.mean(axis=0) for one in apart]), list(named), CANCELLED)
    averaged: Floats = means.astype(np.float32)
    return averaged


def _variants(rows: NDArray[np.float64], place: Mapping[str, int], prompt_set: PromptSet) -> Floats | None:
    by_template = prompt_set.class_prompts_by_template()
    if len(by_template) < 2:
        return None  # one template alone is what text_target is
    each = [
        _texts(rows, place, dict(zip(prompt_set.classes, prompts, strict=True)), average=True)
        for prompts in by_template
    ]
    stacked: Floats = np.stack([np.asarray(one) for one in each])
    return stacked


def _counterfactual(
    prompt_set: PromptSet, rows: NDArray[np.float64], place: Mapping[str, int]
) -> EncodedCounterfactual:
    given = prompt_set.counterfactual
    classes = np.array([prompt_set.class_names.index(one.class_name) for one in given], dtype=np.int64)
    values = {}
    for attribute in prompt_set.sensitive:
        names = prompt_set.sensitive_names(attribute)
        codes = [
            names.index(one.sensitive[attribute]) if attribute in one.sensitive else UNNAMED_VALUE
            for one in given
        ]
        if any(code != UNNAMED_VALUE for code in codes):
            values[attribute] = np.array(codes, dtype=np.int64)
    prompts = tuple(one.prompt for one in given)
    vectors = _pick(rows, place, prompts).astype(np.float32)
    return EncodedCounterfactual(vectors, classes, values, prompts)
