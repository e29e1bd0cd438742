"""Completion of the sensitive attributes: known values, and zero-shot predictions for missing ones."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import CODES, Ints
from fairerclip.errors import (
    ConstantSensitiveWarning,
    LabelError,
    NoSensitiveWarning,
    PromptError,
    ShapeError,
    VanishedLabelWarning,
)
from fairerclip.inputs.agreement import agreement, check_order, check_swapped
from fairerclip.inputs.encode import as_labels, occurring
from fairerclip.inputs.prompts import PromptValues, sensitive_prompts, zero_shot
from fairerclip.inputs.sensitive_columns import SensitiveColumn, intersect, sensitive_columns
from fairerclip.inputs.target import Guess, ResolvedTarget, indexes_prompts, mapping_to_write

COUNTED_GROUPS = 1 << 24
"""Number of combinations of sensitive values up to which there is a table of them; beyond, rows are sorted."""


@dataclass(frozen=True)
class ResolvedSensitive:
    """Sensitive attributes without missing values: one column per term of the objective."""

    columns: list[SensitiveColumn]
    values: dict[str, NDArray[Any]]
    """Attribute → (n,) its values, known and predicted; empty if no value was missing."""
    trust: dict[str, dict[str, Any]]
    """Attribute → counts and margins of the predicted values."""
    prompts: Mapping[str, PromptValues] = field(default_factory=dict)
    """Attribute → (m, p) prompts of each value."""
    guesses: Mapping[str, Guess] = field(default_factory=dict)
    """Attribute → rows whose value was predicted; the categories are in the order of the prompts then."""
    attributes: Sequence[SensitiveColumn] = ()
    """Columns of the attributes one by one; ``columns`` may hold their combinations instead."""

    @property
    def all_prompts(self) -> list[NDArray[np.floating]]:
        """Prompts (m, p) of each value of each attribute."""
        return [group for values in self.prompts.values() for group in values.groups]

    @property
    def groups(self) -> Ints | None:
        """Joint codes (n,) of all categorical attributes, or None if there are none."""
        codes = [c.codes for c in self.columns if c.codes is not None]
        if not codes:
            return None
        joint: Ints = np.zeros(len(codes[0]), dtype=CODES)
        count = 1
        for code in codes:
            values = int(code.max(initial=0)) + 1
            if count * values > COUNTED_GROUPS:
                found = np.unique(joint.astype(np.int64) * values + code, return_inverse=True)[1]
                joint = found.astype(CODES)
            else:  # neither sorted nor widened: there may be many rows
                joint = joint * CODES(values) + code.astype(CODES, copy=False)
                joint = occurring(joint)[1]
            count = int(joint.max(initial=0)) + 1
        return joint


def resolve_sensitive(
    X: Any,
    sensitive_features: Any,
    sensitive_text: Any,
    target: ResolvedTarget,
    *,
    kind: str,
    terms: str,
    missing_label: Any,
    keep_constant: bool = False,
) -> ResolvedSensitive:
    """Complete the sensitive attributes: keep known values and predict missing ones zero-shot.

    Predicted values are not refined later, because mitigation removes the information that they depend on. Raise or
    warn if the prompts contradict the known values or seem to be those of the ``target``. An attribute with one value
    only is left out with a warning, unless ``keep_constant``: other rows may have other values.
    """
    columns, prompts = known_values(
        sensitive_features, sensitive_text, X.shape, kind=kind, missing_label=missing_label
    )
    if not columns:
        warnings.warn(
            "neither sensitive_features nor sensitive_text is given: the objective has no term for S and nothing is "
            "mitigated",
            NoSensitiveWarning,
            stacklevel=4,
        )
        return ResolvedSensitive([], {}, {})
    guesses: dict[str, Guess] = {}
    complete: list[SensitiveColumn] = []
    for column in columns:  # a comprehension is a stack level of its own before Python 3.12
        complete.append(_complete(X, column, prompts, target, guesses))
    known = {
        c.name: (c.codes, c.categories) for c in complete if c.codes is not None and c.categories is not None
    }
    # Made only where a value was guessed: as text, the values of many rows take much memory.
    values = {name: categories[codes] for name, (codes, categories) in known.items()} if guesses else {}
    trust = {name: guess.summary(*known[name]) for name, guess in guesses.items()}
    joined = [intersect(complete)] if terms == "intersection" and len(complete) > 1 else complete
    kept = list(joined) if keep_constant else _without_constant(joined)
    separate = kept if joined is complete else complete
    return ResolvedSensitive(kept, values, trust, prompts, guesses, separate)


def known_values(
    sensitive_features: Any, sensitive_text: Any, shape: tuple[int, ...], *, kind: str, missing_label: Any
) -> tuple[list[SensitiveColumn], dict[str, PromptValues]]:
    """Return the known values of the sensitive attributes for rows of shape (n, p), and the prompts of each."""
    if sensitive_features is None:
        prompts = sensitive_prompts(sensitive_text, shape[1], None)
        unknown = np.full(shape[0], -1, dtype=CODES)
        return [SensitiveColumn(name, unknown, np.arange(0), None) for name in prompts], prompts
    columns = sensitive_columns(sensitive_features, kind=kind, missing_label=missing_label, depth=6)
    occurring = {c.name: [] if c.categories is None else c.categories.tolist() for c in columns}
    return columns, sensitive_prompts(sensitive_text, shape[1], occurring)


def _complete(
    X: Any,
    column: SensitiveColumn,
    prompts: Mapping[str, PromptValues],
    target: ResolvedTarget,
    guesses: dict[str, Guess],
) -> SensitiveColumn:
    values = column.values if column.values is not None else column.codes
    if values is None or len(values) != X.shape[0]:
        raise ShapeError(
            f"X has {X.shape[0]} rows but sensitive attribute {column.name!r} has "
            f"{0 if values is None else len(values)}"
        )
    if column.codes is None or column.categories is None or column.soft is not None:
        return column
    missing = column.codes < 0
    if column.name not in prompts:
        if not missing.any():
            return column
        raise LabelError(
            f"sensitive attribute {column.name!r} is missing in {int(missing.sum())} of {len(missing)} rows; "
            "give sensitive_text= to predict it from, or drop those rows"
        )
    column_prompts = prompts[column.name]
    codes, categories = match_prompts(column.name, column.codes, column.categories, column_prompts)
    _check_meaning(X, column.name, column_prompts, codes, categories, target)
    if not missing.any():
        return column
    predicted, margins = zero_shot(X, column_prompts.groups)
    guesses[column.name] = Guess(missing, margins)
    codes = np.where(missing, predicted, codes).astype(CODES)
    absent = np.bincount(codes, minlength=len(categories)) == 0
    if 0 < absent.sum() < len(categories) - 1:  # a single value is reported as constant
        warnings.warn(
            f"sensitive attribute {column.name!r}: no row is predicted as {categories[absent].tolist()}; check the "
            "prompts",
            VanishedLabelWarning,
            stacklevel=5,
        )
    return SensitiveColumn(column.name, codes, categories, None)


def _check_meaning(
    X: Any, name: str, prompts: PromptValues, codes: Ints, categories: NDArray[Any], target: ResolvedTarget
) -> None:
    """Compare the prompts of an attribute with its known values, and with the labels of the target."""
    if target.has_text:
        known = codes if (codes >= 0).any() else None
        check_swapped(X, target.prompts, target.known, prompts.groups, known, depth=6)
    check_order(
        agreement(X, prompts.groups, codes),
        categories.tolist(),
        f"sensitive attribute {name!r}",
        by_position=prompts.values is None,
        depth=6,
    )


def match_prompts(
    name: str, codes: Ints, categories: NDArray[Any], prompts: PromptValues
) -> tuple[Ints, NDArray[Any]]:
    """Return codes in the order of the prompts, and the values of the prompts."""
    n, values = len(prompts.groups), categories.tolist()
    if prompts.values is not None:
        place = {value: k for k, value in enumerate(prompts.values)}
        unknown = [value for value in values if value not in place]
        if unknown:
            raise PromptError(
                f"sensitive attribute {name!r} has values {unknown[:5]} without prompts; there are prompts for "
                f"{list(place)[:10]}"
            )
        new_codes = np.array([*(place[value] for value in values), -1], dtype=CODES)
        return new_codes[codes], as_labels(list(prompts.values))
    if not values:  # no value is known: the values are the numbers of the prompts
        return codes, np.arange(n)
    if not indexes_prompts(categories, n):
        raise PromptError(
            f"the prompts of sensitive attribute {name!r} are an array of {n} entries and its values are "
            f"{[str(value) for value in values[:10]]}, so it is unknown which prompt belongs to which value; write "
            f"{mapping_to_write('sensitive_text', values)}. Only values that are the numbers 0 to {n - 1} of the "
            "entries need no mapping"
        )
    return np.where(codes < 0, -1, categories[codes]).astype(CODES), np.arange(n)


def _without_constant(columns: Sequence[SensitiveColumn]) -> list[SensitiveColumn]:
    kept = []
    for column in columns:
        values = column.values if column.values is not None else column.codes
        if column.soft is not None:
            # Rows may differ in any column, even if the same value is the most likely one for all of them.
            values = np.unique(column.soft, axis=0, return_inverse=True)[1].reshape(-1)
        if values is not None and len(np.unique(values)) > 1:
            kept.append(column)
            continue
        warnings.warn(
            f"sensitive attribute {column.name!r} has one value only, so that nothing is mitigated for it. "
            "Check its labels or prompts",
            ConstantSensitiveWarning,
            stacklevel=5,
        )
    return kept
