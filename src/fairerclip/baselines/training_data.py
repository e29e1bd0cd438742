"""What a baseline needs and receives: labels and prompts are resolved as in `FairerCLIP`, before a method learns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.arrays import as_numbers
from fairerclip._util.types import F64, Ints
from fairerclip.data.embedding_rows import check_rows, unit_rows
from fairerclip.errors import PromptError, ShapeError
from fairerclip.inputs.prompts import prototypes
from fairerclip.inputs.sensitive import ResolvedSensitive, match_prompts, resolve_sensitive
from fairerclip.inputs.target import ResolvedTarget, resolve_target
from fairerclip.inputs.weights import check_weights

PAIR_KINDS = ("harmful", "helpful")
"""Kinds of ``text_pairs``."""
EQUAL = 1e-6
"""Entries of unit embeddings that differ by less are those of equal sentences, in single precision."""
VANISHED = 1e-10
"""A unit row that a map makes shorter than this counts as zero: the rest is rounding error."""

IN_THE_SPAN = "they lie in the span of the sensitive prompts; give fewer or other sensitive prompts"
"""Why a projection may leave nothing of a prompt, and what to do."""


class Needs(NamedTuple):
    """Inputs that a method must be given, and its paper."""

    labels: str
    """Labels of the training rows that are needed: "none", "target" (y) or "all" (y and true s)."""
    text: bool
    """Whether it needs class prompts."""
    sensitive: bool
    """Whether it needs sensitive values in training: true values, or prompts to predict them from."""
    validation: bool
    """Whether it needs validation rows with y and s, to stop or to learn from."""
    paper: str
    """Reference of the method."""


class Validation(NamedTuple):
    """Validation rows (m, p) with codes of class and group."""

    X: F64
    y: Ints
    s: Ints


@dataclass(frozen=True, eq=False)
class Training:
    """Training rows with resolved labels and prompts, as a method receives them.

    Attributes
    ----------
    X : array of shape (n, p)
        Unit rows whose label is known; all rows if the method takes no labels.
    y : array of shape (n,) or None
        Class codes; None without labels.
    s : array of shape (n,) or None
        Group codes, true or predicted zero-shot; several attributes are crossed. None without sensitive values.
    s_is_true : bool
        Whether ``s`` was given for every row.
    weight : array of shape (n,)
        Row weights.
    n_classes, n_groups : int
        Numbers of classes and of groups.
    text : array of shape (c, p) or None
        One unit vector per class.
    prompts : list of c arrays of shape (m, p), or None
        Prompts of each class.
    sensitive_prompts : list of arrays of shape (m, p), or None
        Prompts of each sensitive value, over all attributes.
    validation : Validation or None
        Validation rows.
    attribute_sizes : tuple of int
        Number of entries of ``sensitive_prompts`` that belong to each attribute, in order.
    spurious : array of shape (m, p) or None
        Unit embeddings of sentences about the sensitive attributes.
    counterfactual : mapping from class code to array of shape (m, p), or None
        For some classes, unit embeddings of sentences that name the class with a sensitive value.
    pairs : mapping from "harmful" or "helpful" to array of shape (m, 2, p), or None
        Unit embeddings of pairs of sentences.
    words : list of c lists of str, or None
        Sentences of each class, for a method that embeds them itself.
    value_codes : tuple of int arrays of shape (n,), or None
        For each attribute of ``sensitive_prompts``, the places of the rows' values among its prompts, true or predicted
        zero-shot; None for an attribute that has one value in all rows.
    value_names : mapping from str to tuple
        For each attribute of ``sensitive_prompts``, its values in the order of its prompts.
    """

    X: F64
    y: Ints | None
    s: Ints | None
    s_is_true: bool
    weight: F64
    n_classes: int
    n_groups: int
    text: F64 | None
    prompts: list[NDArray[Any]] | None
    sensitive_prompts: list[NDArray[Any]] | None
    validation: Validation | None
    attribute_sizes: tuple[int, ...] = ()
    spurious: F64 | None = None
    counterfactual: Mapping[int, F64] | None = None
    pairs: Mapping[str, F64] | None = None
    words: list[list[str]] | None = None
    value_codes: tuple[Ints | None, ...] = ()
    value_names: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


def training_data(
    X: NDArray[Any],
    y: Any,
    text: Any,
    given: tuple[Any, Any],
    sample_weight: Any,
    classes: Iterable[Any] | None,
    missing_label: Any,
    learns: bool,
) -> tuple[NDArray[Any], Training]:
    """Check rows X (n, p), labels and prompts, and return the classes (c,) with everything that a method receives.

    ``given`` are sensitive values and their prompts; if both are None there are no attributes. If the method
    ``learns`` from labels, rows without one are left out.
    """
    X = X.astype(np.float64, copy=False)
    check_rows(X, "X", zero_is_error=True)
    X = unit_rows(X)
    weight = check_weights(sample_weight, len(X))
    target = resolve_target(X, y, text, weight, classes=classes, missing_label=missing_label, learns=learns)
    sensitive = None
    if any(values is not None for values in given):
        sensitive = resolve_sensitive(
            *(X, *given, target), kind="categorical", terms="each", missing_label=missing_label
        )
    return target.classes, _collect(X, weight, target, sensitive, only_labelled=learns)


def _collect(
    X: F64, weight: F64, target: ResolvedTarget, sensitive: ResolvedSensitive | None, *, only_labelled: bool
) -> Training:
    """Collect the rows with their labels, weights, sensitive values and prompts."""
    rows = np.ones(len(X), dtype=bool)
    if only_labelled and target.guess is not None:
        rows = ~target.guess.rows
    groups = None if sensitive is None else sensitive.groups
    prompts = {} if sensitive is None else sensitive.prompts
    return Training(
        X=X[rows],
        y=target.codes[rows],
        s=None if groups is None else groups[rows],
        s_is_true=sensitive is not None and not sensitive.trust,
        weight=weight[rows],
        n_classes=len(target.classes),
        n_groups=0 if groups is None else int(groups.max()) + 1,
        text=prototypes(target.prompts) if target.has_text else None,
        prompts=target.prompts if target.has_text else None,
        sensitive_prompts=None if sensitive is None or not prompts else sensitive.all_prompts,
        validation=None,
        attribute_sizes=tuple(len(values.groups) for values in prompts.values()),
        value_codes=() if sensitive is None else _value_codes(sensitive, rows),
        value_names={name: values.names for name, values in prompts.items()},
    )


def _value_codes(sensitive: ResolvedSensitive, rows: NDArray[np.bool_]) -> tuple[Ints | None, ...]:
    """Return, for each attribute with prompts, the codes of some rows in the order of its prompts."""
    columns = {column.name: column for column in sensitive.attributes}
    found: list[Ints | None] = []
    for name, prompts in sensitive.prompts.items():
        column = columns.get(name)
        if column is None or column.codes is None or column.categories is None:
            found.append(None)
        else:
            found.append(match_prompts(name, column.codes, column.categories, prompts)[0][rows])
    return tuple(found)


def unit_sentences(given: Any, width: int, name: str) -> F64 | None:
    """Check embeddings of sentences (m, p) and return them at unit length."""
    if given is None:
        return None
    rows = as_numbers(given, name).astype(np.float64, copy=False)
    if rows.ndim != 2 or rows.shape[1] != width or not len(rows):
        raise ShapeError(f"{name} must have shape (m, {width}), as wide as X; got {rows.shape}")
    check_rows(rows, name, zero_is_error=True)
    return np.asarray(unit_rows(rows))


def unit_pairs(given: Any, width: int, name: str) -> F64:
    """Check embeddings of pairs of sentences (m, 2, p) and return them at unit length."""
    try:
        array = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.empty(0)
    if array.ndim != 3 or array.shape[1:] != (2, width) or not len(array):
        raise ShapeError(
            f"{name} must be embeddings of shape (m, 2, {width}), as wide as X; got {np.shape(given)}"
        )
    rows = array.reshape(-1, width)
    if not np.isfinite(rows).all() or not rows.any(axis=1).all():
        raise PromptError(f"{name} must be finite embeddings, none of them zero; embed their prompts again")
    pairs = unit_rows(rows).reshape(array.shape)
    equal = np.flatnonzero(np.abs(pairs[:, 0] - pairs[:, 1]).max(axis=1) < EQUAL)
    if equal.size:
        raise PromptError(
            f"{name}: expected pairs of two different sentences, got equal ones in pair {equal[0]}"
        )
    return pairs


def text_pairs_of(given: Any, width: int) -> dict[str, F64] | None:
    """Check harmful and helpful pairs of sentences and return them at unit length."""
    if given is None:
        return None
    if not isinstance(given, Mapping) or not given or set(given) - set(PAIR_KINDS):
        raise PromptError(
            f'text_pairs must be a mapping with "harmful", "helpful" or both; got {given!r:.60}'
        )
    return {kind: unit_pairs(pairs, width, f"text_pairs[{kind!r}]") for kind, pairs in given.items()}


def unit_or_zero(rows: F64) -> F64:
    """Return mapped images (b, p) at unit length; one of which a map left rounding errors alone becomes zero.

    Examples
    --------
    >>> unit_or_zero(np.array([[3.0, 4.0], [1e-16, -2e-16]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    there = np.linalg.norm(rows, axis=1, keepdims=True) > VANISHED
    return np.asarray(unit_rows(np.where(there, rows, 0.0)))


def unit_prompts(T: F64, step: str, *, kind: str = "class prompts", remedy: str = IN_THE_SPAN) -> F64:
    """Normalise prompts (m, p) after a step of the method, and raise if the step made one zero."""
    vanished = np.flatnonzero(np.linalg.norm(T, axis=1) <= VANISHED)
    if len(vanished):
        raise PromptError(f"nothing is left of {kind} {vanished.tolist()[:5]} after {step}: {remedy}")
    return unit_rows(T)
