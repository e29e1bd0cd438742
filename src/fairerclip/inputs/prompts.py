"""Prompt embeddings of classes and sensitive values in one form, and zero-shot predictions from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.arrays import Placed, as_numbers, beside, cast, empty, to_numpy
from fairerclip._util.types import CODES, F64, Floats, Ints
from fairerclip.data.embedding_rows import (
    LARGEST,
    SMALLEST,
    check_rows,
    row_lengths,
    unit_rows,
    working_rows,
)
from fairerclip.data.row_pass import map_rows
from fairerclip.errors import PromptError, RowTypeError, ShapeError


def prompt_groups(text: Any, width: int, name: str) -> list[Floats]:
    """Return prompts as a list of (m, p) arrays, one per class or value.

    ``text`` is (c, p), with one prompt each, or a sequence of c arrays with one or several prompts each.
    """
    if not isinstance(text, Iterable) or isinstance(text, (str, bytes, Mapping)):
        raise PromptError(
            f"{name} must hold one embedding, or one array of several, per class; got {type(text).__name__}"
        )
    groups: list[Floats] = []
    for k, group in enumerate(text):
        try:
            array = np.atleast_2d(as_numbers(group, f"entry {k}"))
        except RowTypeError as error:
            raise PromptError(
                f"{name} must hold embeddings (numbers), entry {k} is {type(group).__name__}; encode the prompts first "
                f"({error})"
            ) from None
        if array.ndim != 2 or array.shape[1] != width or array.shape[0] == 0:
            raise ShapeError(
                f"{name}: entry {k} has shape {np.shape(group)}, expected ({width},) or (m, {width}) as wide as X; "
                "image and text embeddings must come from the same model"
            )
        array = array.astype(np.float32 if array.dtype == np.float16 else array.dtype, copy=False)
        check_rows(array, f"{name}[{k}]", zero_is_error=True)
        groups.append(np.asarray(array, dtype=np.float64))
    if len(groups) < 2:
        raise PromptError(f"{name} must have prompts for at least 2 classes; got {len(groups)}")
    _check_distinct(groups, name)
    return groups


def _check_distinct(groups: list[Floats], name: str) -> None:
    owner: dict[bytes, int] = {}
    for k, group in enumerate(groups):
        for row in group:
            first = owner.setdefault(row.tobytes(), k)
            if first != k:
                raise PromptError(
                    f"{name}: entries {first} and {k} have the same prompt embedding, so they cannot be "
                    "distinguished; give prompts that differ"
                )


@dataclass(frozen=True)
class PromptValues:
    """Prompts of one sensitive attribute: an array (m, p) per value, and the values if they were named."""

    groups: list[Floats]
    values: tuple[Any, ...] | None

    @property
    def names(self) -> tuple[Any, ...]:
        """Values in the order of the prompts: the numbers of the prompts if they were not named."""
        return tuple(range(len(self.groups))) if self.values is None else self.values


def sensitive_prompts(
    sensitive_text: Any, width: int, columns: Mapping[str, Sequence[Any]] | None
) -> dict[str, PromptValues]:
    """Return the prompts of each sensitive attribute by name; an unnamed attribute is ``"s"``.

    ``sensitive_text`` holds the prompts of one attribute, or is a mapping from attribute to its prompts.
    The prompts of an attribute are (v, p), v arrays (m, p), or a mapping from value to (p,) or (m, p).
    ``columns`` are the given attributes with the values that occur in them; None if none were given.
    """
    if sensitive_text is None:
        return {}
    only = "s" if columns is None else next(iter(columns))
    if not isinstance(sensitive_text, Mapping):
        if columns is not None and len(columns) > 1:
            raise PromptError(
                f"sensitive_features has {len(columns)} columns {list(columns)}; "
                "give sensitive_text as a mapping from column name to prompts"
            )
        by_name = {only: sensitive_text}
    elif _maps_values(sensitive_text, columns):
        by_name = {only: sensitive_text}
    else:
        by_name = {str(k): v for k, v in sensitive_text.items()}
        unknown = [] if columns is None else [k for k in by_name if k not in columns]
        if unknown and columns is not None:
            raise PromptError(f"sensitive_text names {unknown}, sensitive_features has {list(columns)}")
    return {name: _prompt_values(text, width, name) for name, text in by_name.items()}


def _maps_values(text: Mapping[Any, Any], columns: Mapping[str, Sequence[Any]] | None) -> bool:
    """Return whether the keys of a mapping are values of a single attribute, and not attributes."""
    if columns is not None:
        (values, *others) = columns.values()
        is_single = not others and bool(values)
        return is_single and not set(map(str, text)) <= set(columns) and set(values) <= set(text)
    # With one vector per key the keys are values; with larger entries they are attributes.
    return all(not isinstance(v, Mapping) and np.ndim(v) == 1 for v in text.values())


def _prompt_values(text: Any, width: int, name: str) -> PromptValues:
    label = "sensitive_text" if name == "s" else f"sensitive_text[{name!r}]"
    if isinstance(text, Mapping):
        return PromptValues(prompt_groups(list(text.values()), width, label), tuple(text))
    return PromptValues(prompt_groups(text, width, label), None)


def _unit(T: NDArray[np.floating]) -> F64:
    return unit_rows(np.asarray(T, dtype=np.float64))


def prototypes(prompts: Sequence[NDArray[np.floating]]) -> F64:
    """Return one unit vector per class (c, p): prompts normalised, averaged and normalised, as in CLIP."""
    means = []
    for k, group in enumerate(prompts):
        if np.any(group, axis=1).all() and np.any(mean := _unit(group).mean(axis=0)):
            means.append(mean)
            continue
        raise PromptError(
            f"the prompts (or, without prompts, the mean embedding) of entry {k} are zero or cancel out, so their "
            "cosine with a row is undefined; give other prompts"
        )
    return _unit(np.stack(means))


class _Cosines:
    """Function of blocks: cosines (b, c) of rows with unit prototypes T (c, p); 0 for a zero row."""

    def __init__(self, T: F64, origin: NDArray[np.floating] | float = 0.0) -> None:
        self._columns, self._origin = Placed(T.T.astype(np.float32)), origin

    def __call__(self, rows: Any) -> Floats:
        rows = working_rows(rows)
        is_zero = np.ndim(self._origin) == 0 and self._origin == 0
        moved = rows if is_zero else rows - beside(rows, np.asarray(self._origin))
        lengths = row_lengths(moved)
        (columns,) = self._columns.beside(empty(rows, (0,), np.float32))
        if bool(((lengths > SMALLEST) & (lengths < LARGEST)).all()):
            return to_numpy(cast(cast(moved, np.float32) @ columns / lengths[:, None], np.float32))
        # Scaled to unit length before the product: products of such rows exceed the range of float32.
        return to_numpy(cast(unit_rows(moved), np.float32) @ columns)


class _CosineRows(_Cosines):
    """The cosines, ``centred`` over the classes of each row or not."""

    def __init__(self, T: F64, *, centred: bool) -> None:
        super().__init__(T)
        self._centred = centred

    def __call__(self, rows: Any) -> tuple[Floats]:  # type: ignore[override]
        cosines = super().__call__(rows)
        return (cosines - cosines.mean(axis=1, keepdims=True) if self._centred else cosines,)


class _Best(_Cosines):
    """The class with the largest cosine, and its lead over the second."""

    def __call__(self, rows: Any) -> tuple[Ints, Floats]:  # type: ignore[override]
        cosines = super().__call__(rows)
        top = np.partition(cosines, -2, axis=1)[:, -2:]
        return cosines.argmax(axis=1).astype(CODES), top[:, 1] - top[:, 0]


def zero_shot_scores(X: Any, T: F64, *, centred: bool) -> Floats:
    """Return cosines (n, c) of rows with unit prototypes T (c, p), optionally ``centred`` over the classes of each row.

    The mean of a row over all prompts has no effect on its class, but it does on a ranking of rows by one prompt.
    """
    (found,) = map_rows(X, _CosineRows(T, centred=centred))
    return np.asarray(found)


def zero_shot(
    X: Any, prompts: Sequence[NDArray[np.floating]], origin: NDArray[np.floating] | float = 0.0
) -> tuple[Ints, Floats]:
    """Predict classes zero-shot by cosine, with margins: best minus second best. O(n·p·c) time.

    Parameters
    ----------
    X : array of shape (n, p)
        Embeddings; read by blocks.
    prompts : sequence of c arrays of shape (m, p)
        Prompt embeddings of each class.
    origin : float or array of shape (p,)
        Point from which angles are measured; subtracted from rows and prompts.

    Returns
    -------
    codes : int array of shape (n,)
        Predicted classes.
    margins : float32 array of shape (n,)
        Differences of the two largest cosines.
    """
    codes, margins = map_rows(X, _Best(prototypes([p - origin for p in prompts]), origin))
    return codes, margins


def without_span(T: F64, other: F64) -> F64:
    """Project the rows of T (c, p) onto the orthogonal complement of the rows of ``other`` (m, p)."""
    _, sizes, basis = np.linalg.svd(other, full_matrices=False)
    basis = basis[sizes > 1e-6 * sizes[0]]
    return np.asarray(T - (T @ basis.T) @ basis)
