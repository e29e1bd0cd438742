"""Sensitive attributes of a mitigator: known values of its rows, labelled rows, prompts, and how values are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.arrays import as_numbers, to_numpy
from fairerclip._util.types import CODES, F64, Floats, Ints
from fairerclip.data.embedding_rows import check_rows, unit_rows
from fairerclip.embedding.value_reader import MAX_ROWS, ValueReader, read_from_labels, read_from_prompts
from fairerclip.errors import LabelError, ShapeError
from fairerclip.inputs.agreement import agreement, check_order
from fairerclip.inputs.prompts import PromptValues, sensitive_prompts
from fairerclip.inputs.sensitive import match_prompts
from fairerclip.inputs.sensitive_columns import SensitiveColumn, sensitive_columns


@dataclass(frozen=True, eq=False)
class MitigatedAttribute:
    """A sensitive attribute: a quantity, or categories with a reader of their probabilities.

    Attributes
    ----------
    name : str
        Name of the attribute.
    values : array of shape (v,) or None
        Its values; None for a quantity.
    prompts : list of v arrays of shape (m, p), or None
        Prompts of the values.
    reader : ValueReader or None
        Probabilities of the values of any row; None where all values are known and no reader is needed.
    record : dict
        What the values are read from, with counts; ready for JSON.
    """

    name: str
    values: NDArray[Any] | None
    prompts: list[Floats] | None
    reader: ValueReader | None
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def n_columns(self) -> int:
        """Number of label columns: one per value but the first, or one for a quantity."""
        return 1 if self.values is None else len(self.values) - 1

    def known(self, column: SensitiveColumn | None) -> NDArray[Any] | None:
        """Return what a column tells: a quantity (n,), probabilities (n, v) or codes (n,); None if it is not given."""
        found = None if column is None else recode(column, self.name, self.values)
        if self.values is None:
            if found is None or found.values is None:
                raise LabelError(
                    f"sensitive attribute {self.name!r} is a quantity and must be given for every row"
                )
            return found.values
        if found is None:
            return None
        return found.codes if found.soft is None else found.soft

    def columns(self, known: NDArray[Any] | None, X: Any) -> F64:
        """Return the label columns (b, v − 1) of a block of unit rows X (b, p): known values, else probabilities.

        ``known`` are the rows of the block of what the method `known` returns.
        """
        if self.values is None:
            if known is None:
                raise AssertionError("a quantity is given for every row")
            return known[:, None]
        v = len(self.values)
        if known is not None and known.ndim == 2:
            return np.asarray(known[:, 1:])
        codes = np.full(len(X), -1) if known is None else known
        missing = codes < 0
        P = np.eye(v)[codes]
        if missing.any():
            if self.reader is None:
                raise LabelError(f"sensitive attribute {self.name!r} is missing in {int(missing.sum())} rows")
            P[missing] = to_numpy(self.reader.probabilities(X[missing]))
        return np.asarray(P[:, 1:])


def term_sizes(attributes: Sequence[MitigatedAttribute], *, crossed: bool) -> list[int]:
    """Return the number of label columns of each term: the attributes, or all combinations of their values."""
    sizes = [attribute.n_columns for attribute in attributes]
    return [int(np.prod([size + 1 for size in sizes])) - 1] if crossed and sizes else sizes


@dataclass(frozen=True, eq=False)
class Given:
    """Arguments of a fit about the sensitive attributes, checked and in one form."""

    columns: dict[str, SensitiveColumn]
    """Attribute → its values in the rows X; a code of −1 is unknown."""
    prompts: Mapping[str, PromptValues]
    labelled: Floats | None
    """Unit rows (m, p) of ``labelled``."""
    labels: dict[str, SensitiveColumn]
    """Attribute → its values in the labelled rows."""

    @property
    def names(self) -> list[str]:
        """Names of all attributes, in the order in which they were given."""
        return list(dict.fromkeys([*self.columns, *self.labels, *self.prompts]))


def read_given(
    shape: tuple[int, int],
    sensitive_features: Any,
    sensitive_text: Any,
    labelled: Any,
    *,
    kind: str,
    missing_label: Any,
) -> Given:
    """Check ``sensitive_features``, ``sensitive_text`` and ``labelled`` of rows of shape (n, p)."""
    n, p = shape
    columns: list[SensitiveColumn] = []
    if sensitive_features is not None:
        columns = sensitive_columns(sensitive_features, kind=kind, missing_label=missing_label, depth=5)
    for column in columns:
        _check_length(column, n, "X")
    rows, labels = _labelled(labelled, p, kind=kind, missing_label=missing_label)
    occurring: dict[str, list[Any]] = {}
    for column in [*columns, *labels]:
        found = [] if column.categories is None else column.categories.tolist()
        occurring.setdefault(column.name, []).extend(
            v for v in found if v not in occurring.get(column.name, [])
        )
    prompts = sensitive_prompts(sensitive_text, p, occurring or None)
    return Given({c.name: c for c in columns}, prompts, rows, {c.name: c for c in labels})


def _labelled(
    given: Any, width: int, *, kind: str, missing_label: Any
) -> tuple[Floats | None, list[SensitiveColumn]]:
    if given is None:
        return None, []
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise ShapeError(f"labelled must be a pair (X_few, s_few); got {type(given).__name__}")
    X, s = given
    X = as_numbers(X, "labelled X")
    if X.ndim != 2 or X.shape[1] != width or not len(X):
        raise ShapeError(f"labelled rows must have shape (m, {width}), as wide as X; got {X.shape}")
    check_rows(X, "labelled X", zero_is_error=True)
    columns = sensitive_columns(s, kind=kind, missing_label=missing_label, depth=6)
    for column in columns:
        _check_length(column, len(X), "labelled X")
        if column.continuous:
            raise LabelError(
                f"labelled: {column.name!r} is a quantity, which cannot be read from a few rows; give it for every "
                "row with sensitive_features, or bin it"
            )
    return np.asarray(unit_rows(X)), columns


def _check_length(column: SensitiveColumn, n: int, name: str) -> None:
    values = column.values if column.values is not None else column.codes
    found = 0 if values is None else len(values)
    if found != n:
        raise ShapeError(f"{name} has {n} rows but sensitive attribute {column.name!r} has {found}")


def resolve_attribute(name: str, given: Given, X: Any, sample: Ints) -> MitigatedAttribute:
    """Return an attribute; where values of rows are unknown, with a reader learned from all that is known about it.

    ``sample`` are the numbers of rows of X (unit rows) from which the distribution of the cosines is estimated.
    """
    column, labels, prompts = given.columns.get(name), given.labels.get(name), given.prompts.get(name)
    if column is not None and column.continuous:
        return MitigatedAttribute(name, None, None, None, {"source": "given", "rows": int(X.shape[0])})
    parts = [part for part in (column, labels) if part is not None]
    values = _values(name, parts, prompts)
    column, labels = recode(column, name, values), recode(labels, name, values)
    groups = None if prompts is None else prompts.groups
    n_known = 0 if column is None or column.codes is None else int((column.codes >= 0).sum())
    if column is not None and (column.soft is not None or n_known == int(X.shape[0])):
        return MitigatedAttribute(name, values, groups, None, {"source": "given", "rows": int(X.shape[0])})
    rows, known = _known_rows(column, labels, given.labelled, X, len(values))
    if groups is not None and len(rows):
        check_order(
            agreement(rows, groups, known.argmax(axis=1)),
            values.tolist(),
            f"sensitive attribute {name!r}",
            by_position=prompts is not None and prompts.values is None,
            depth=6,
        )
    seen = X[sample]
    if (known.sum(axis=0) > 0).sum() >= 2:
        reader, penalty = read_from_labels(name, values, groups, seen, rows, known)
        source = "labelled rows" if groups is None else "prompts and labelled rows"
        record: dict[str, Any] = {"reader": source, "labelled_rows": len(rows), "penalty": penalty}
    elif groups is not None:
        reader, record = read_from_prompts(name, values, groups, seen), {"reader": "prompts"}
    else:
        raise LabelError(
            f"sensitive attribute {name!r} cannot be read: give its prompts (sensitive_text), or labelled rows of at "
            "least two values"
        )
    return MitigatedAttribute(name, values, groups, reader, record)


def _values(name: str, parts: Sequence[SensitiveColumn], prompts: PromptValues | None) -> NDArray[Any]:
    """Return the values of an attribute: those of its prompts, or all that occur."""
    if prompts is not None:
        found = [match_prompts(name, _of(part.codes), _of(part.categories), prompts)[1] for part in parts]
        names = range(len(prompts.groups)) if prompts.values is None else prompts.values
        return found[0] if found else np.array(list(names))
    seen = list(dict.fromkeys(v for part in parts for v in _of(part.categories).tolist()))
    if len({type(v) for v in seen}) == 1:
        seen = sorted(seen)
    values = np.empty(len(seen), dtype=object)
    values[:] = seen
    return np.asarray(seen) if np.asarray(seen).tolist() == seen else values


def recode(column: SensitiveColumn | None, name: str, values: NDArray[Any] | None) -> SensitiveColumn | None:
    """Return a column with codes, and probabilities, in the order of the values of its attribute."""
    if column is None or column.codes is None or column.categories is None or values is None:
        return column
    place = {value: k for k, value in enumerate(values.tolist())}
    found = column.categories.tolist()
    unknown = [value for value in found if value not in place]
    if unknown:
        raise LabelError(
            f"sensitive attribute {name!r} has the value {unknown[0]!r}, which the first rows did not have; "
            f"they had {list(place)[:10]}"
        )
    places = [place[value] for value in found]
    soft = column.soft
    if soft is not None:
        soft = np.zeros((len(soft), len(place)))
        soft[:, places] = column.soft
    codes = np.array([*places, -1], dtype=CODES)[column.codes]
    return SensitiveColumn(column.name, codes, values, None, soft)


def _of(array: NDArray[Any] | None) -> NDArray[Any]:
    if array is None:
        raise AssertionError("categories have codes")
    return array


def _known_rows(
    column: SensitiveColumn | None, labels: SensitiveColumn | None, labelled: Floats | None, X: Any, v: int
) -> tuple[Floats, F64]:
    """Return unit rows whose value is known, at most `MAX_ROWS` of each source, and the probabilities of the values."""
    rows, known = [np.empty((0, X.shape[1]), dtype=np.float32)], [np.empty((0, v))]
    if labels is not None and labels.codes is not None and labelled is not None:
        there = _spread(np.flatnonzero(labels.codes >= 0))
        rows.append(labelled[there])
        known.append(np.eye(v)[labels.codes[there]] if labels.soft is None else labels.soft[there])
    if column is not None and column.codes is not None:
        there = _spread(np.flatnonzero(column.codes >= 0))
        rows.append(to_numpy(X[there]))
        known.append(np.eye(v)[column.codes[there]])
    return np.concatenate(rows), np.concatenate(known)


def _spread(rows: Ints) -> Ints:
    """Return at most `MAX_ROWS` of some row numbers, evenly spread."""
    return rows[:: max(1, -(-len(rows) // MAX_ROWS))]
