"""Labels of any kind, zero-shot pseudo-labels, and row weights that balance classes or groups."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.errors import LabelError, ManyCategoriesWarning, ParameterError, PromptError
from fairerclip.inputs import BLOCK_ROWS, unit_rows, working_dtype

F64 = NDArray[np.float64]
Floats = NDArray[np.floating]
Ints = NDArray[np.int64]

MANY_CATEGORIES = 50
"""A categorical attribute with more values than this is probably a quantity."""


@dataclass(frozen=True)
class Encoded:
    """Labels as codes into their classes; -1 marks a missing label."""

    codes: Ints
    classes: NDArray[Any]

    @property
    def missing(self) -> NDArray[np.bool_]:
        """(n,) rows without a label."""
        return self.codes < 0


def as_labels(labels: Any) -> NDArray[Any]:
    """1-D array without the conversions that np.asarray would make of mixed types and tuples."""
    if isinstance(labels, (list, tuple)):
        kinds = {type(v) for v in labels}
        if len(kinds) > 1 or any(issubclass(k, (tuple, frozenset)) for k in kinds):
            out = np.empty(len(labels), dtype=object)
            out[:] = list(labels)
            return out
    return np.asarray(labels)


def _is_missing(value: Any, missing_label: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, (float, np.floating)) and np.isnan(value):
        return True
    return missing_label is not None and bool(value == missing_label)


def encode(labels: Any, *, missing_label: Any = None, classes: Iterable[Any] | None = None) -> Encoded:
    """Encode labels of any hashable type; None, NaN and ``missing_label`` are missing.

    Classes are sorted, by type and text where they have no order in common, unless given.

    Examples
    --------
    >>> encode(["cat", None, "bird"]).codes
    array([ 1, -1,  0])
    """
    if not isinstance(missing_label, Hashable):
        raise ParameterError(f"missing_label must be one label or None; got {missing_label!r:.200}")
    values = as_labels(labels)
    if values.ndim != 1:
        raise LabelError(f"labels should be a 1d array, got an array of shape {values.shape} instead")
    if values.dtype.kind in "biufU":
        missing = np.zeros(len(values), dtype=bool)
        if values.dtype.kind == "f":
            missing = np.isnan(values)
        if missing_label is not None and not isinstance(
            missing_label, tuple
        ):  # which is none of these labels
            missing |= np.asarray(values == missing_label)
        found, codes = np.unique(values[~missing], return_inverse=True)
        full = np.full(len(values), -1, dtype=np.int64)
        full[~missing] = codes
    else:
        full, found = _encode_objects(values, missing_label)
    if classes is None:
        return Encoded(full, found)
    return _recode(full, found, as_labels(list(classes)))


def sort_labels(labels: Iterable[Any]) -> list[Any]:
    """Distinct labels in their own order, or by type and text where they have none in common."""
    distinct = list(dict.fromkeys(labels))
    try:
        return sorted(distinct)
    except TypeError:
        return sorted(distinct, key=lambda label: (type(label).__name__, str(label)))


def _encode_objects(values: NDArray[Any], missing_label: Any) -> tuple[Ints, NDArray[Any]]:
    present = [(i, v) for i, v in enumerate(values.tolist()) if not _is_missing(v, missing_label)]
    try:
        seen = list(dict.fromkeys(v for _, v in present))
    except TypeError as error:
        raise LabelError(f"labels must be hashable; {error}") from None
    seen = sort_labels(seen)
    index = {v: k for k, v in enumerate(seen)}
    codes = np.full(len(values), -1, dtype=np.int64)
    for i, v in present:
        codes[i] = index[v]
    kinds = {type(v) for v in seen}
    if len(kinds) == 1 and kinds <= {str, int, float, bool}:
        return codes, np.asarray(seen)
    classes = np.empty(len(seen), dtype=object)
    classes[:] = seen
    return codes, classes


def _recode(codes: Ints, found: NDArray[Any], classes: NDArray[Any]) -> Encoded:
    place = {v: k for k, v in enumerate(classes.tolist())}
    if len(place) != len(classes):
        raise LabelError(f"classes must be distinct; got {classes.tolist()}")
    unknown = [v for v in found.tolist() if v not in place]
    if unknown:
        raise LabelError(f"labels {unknown[:5]} are not among the classes {classes.tolist()[:10]}")
    move = np.array([place[v] for v in found.tolist()] + [-1], dtype=np.int64)
    return Encoded(move[codes], classes)


@dataclass(frozen=True, eq=False)
class SoftValues:
    """A sensitive attribute that is known with doubt: a probability of each value for every row.

    Parameters
    ----------
    probabilities : (n, v) each row sums to one.
    values : (v,) what the columns stand for.

    Examples
    --------
    >>> SoftValues([[0.9, 0.1], [0.4, 0.6]], ["female", "male"]).codes
    array([0, 1])
    """

    probabilities: F64
    values: NDArray[Any]

    def __post_init__(self) -> None:
        try:
            P = np.asarray(self.probabilities, dtype=np.float64)
        except (TypeError, ValueError):
            raise LabelError("probabilities must be an array (n, v) of numbers") from None
        values = as_labels(self.values)
        if P.ndim != 2 or values.ndim != 1 or P.shape[1] != len(values):
            raise LabelError(
                f"probabilities must have shape (n, v) with one column per value; got {P.shape} for {len(values)}"
            )
        if (
            not np.all(np.isfinite(P))
            or P.min(initial=0.0) < 0
            or not np.allclose(P.sum(axis=1), 1, atol=1e-4)
        ):
            raise LabelError("probabilities must be finite, nowhere negative, and sum to one in each row")
        if len(set(values.tolist())) != len(values):
            raise LabelError(f"values must be distinct, one per column; got {values.tolist()[:10]}")
        object.__setattr__(self, "probabilities", P)
        object.__setattr__(self, "values", values)

    @property
    def codes(self) -> Ints:
        """(n,) the likeliest value."""
        return np.asarray(self.probabilities.argmax(axis=1), dtype=np.int64)

    def column(self, name: str) -> SensitiveColumn:
        """As a column of sensitive features."""
        return SensitiveColumn(name, self.codes, self.values, None, self.probabilities)


@dataclass(frozen=True)
class SensitiveColumn:
    """One sensitive attribute: categories (with codes, maybe in doubt) or a quantity (with values)."""

    name: str
    codes: Ints | None
    categories: NDArray[Any] | None
    values: F64 | None
    soft: F64 | None = None
    """(n, v) probabilities of the categories, where they are known with doubt."""

    @property
    def continuous(self) -> bool:
        """Whether it is a quantity."""
        return self.values is not None


def sensitive_columns(
    features: Any, *, kind: str = "auto", missing_label: Any = None
) -> list[SensitiveColumn]:
    """Split ``sensitive_features`` into columns and decide what each one is.

    Floating columns with a non-integer value are quantities, everything else is categorical, as
    scikit-learn tells targets apart; ``kind`` overrides. `SoftValues` are taken as they are.
    """
    if isinstance(features, SoftValues):
        return [features.column("s")]
    if isinstance(features, Mapping) and any(isinstance(v, SoftValues) for v in features.values()):
        parts = [
            [value.column(str(name))]
            if isinstance(value, SoftValues)
            else sensitive_columns({name: value}, kind=kind, missing_label=missing_label)
            for name, value in features.items()
        ]
        return [column for part in parts for column in part]
    names, columns = _columns(features)
    out = []
    for name, column in zip(names, columns, strict=True):
        numeric = column.dtype.kind == "f"
        finite = column[~np.isnan(column)] if numeric else column
        continuous = kind == "continuous" or (
            kind == "auto" and numeric and bool(np.any(finite != np.floor(finite)))
        )
        if not continuous:
            encoded = encode(column, missing_label=missing_label)
            if len(encoded.classes) > MANY_CATEGORIES:
                warnings.warn(
                    f"sensitive attribute {name!r} has {len(encoded.classes)} distinct values and is treated as "
                    "categories; if it is a quantity, set sensitive_kind='continuous'",
                    ManyCategoriesWarning,
                    stacklevel=4,
                )
            out.append(SensitiveColumn(name, encoded.codes, encoded.classes, None))
            continue
        try:
            values = np.asarray(column, dtype=np.float64)
        except (TypeError, ValueError):
            raise LabelError(f"sensitive attribute {name!r} is not numeric, so it is no quantity") from None
        if not np.all(np.isfinite(values)):
            rows = np.flatnonzero(~np.isfinite(values))
            raise LabelError(
                f"continuous sensitive attribute {name!r} has {len(rows)} missing or infinite values, first in "
                f"row {rows[0]}; a quantity cannot be guessed from prompts: drop those rows or bin the values"
            )
        out.append(SensitiveColumn(name, None, None, values))
    return out


def _columns(features: Any) -> tuple[list[str], list[NDArray[Any]]]:
    if isinstance(features, Mapping):
        columns = [as_labels(v) for v in features.values()]
        for name, column in zip(features, columns, strict=True):
            if column.ndim != 1:
                raise LabelError(f"sensitive attribute {name!r} must have one axis; got shape {column.shape}")
        return [str(k) for k in features], columns
    if hasattr(features, "columns") and hasattr(features, "to_numpy"):  # a data frame, whoever made it
        return [str(c) for c in features.columns], [np.asarray(features[c]) for c in features.columns]
    array = as_labels(features)
    if array.ndim == 1:
        name = getattr(features, "name", None)
        return [str(name) if name is not None else "s"], [array]
    if array.ndim == 2:
        names = ["s"] if array.shape[1] == 1 else [f"s{j}" for j in range(array.shape[1])]
        return names, [array[:, j] for j in range(array.shape[1])]
    raise LabelError(f"sensitive_features must have one or two axes; got shape {array.shape}")


def intersect(columns: Sequence[SensitiveColumn]) -> SensitiveColumn:
    """Cross several categorical attributes into one whose values are the combinations that occur."""
    quantities = [c.name for c in columns if c.continuous]
    if quantities:
        raise LabelError(f"an intersection needs categories; {quantities} are quantities: bin them first")
    doubtful = [c.name for c in columns if c.soft is not None]
    if doubtful:
        raise LabelError(
            f"an intersection needs known categories; {doubtful} are probabilities: use terms 'each'"
        )
    stacked = np.column_stack([c.codes for c in columns if c.codes is not None])
    found, codes = np.unique(stacked, axis=0, return_inverse=True)
    categories = np.empty(len(found), dtype=object)
    for k, combination in enumerate(found):
        categories[k] = tuple(
            c.categories[v] for c, v in zip(columns, combination, strict=True) if c.categories is not None
        )
    return SensitiveColumn("×".join(c.name for c in columns), codes.reshape(-1), categories, None)


def _unit(T: NDArray[np.floating]) -> F64:
    return unit_rows(np.asarray(T, dtype=np.float64))


def prototypes(prompts: Sequence[NDArray[np.floating]]) -> F64:
    """One unit vector per class (c, p): prompts normalised, averaged and normalised, as CLIP does."""
    means = []
    for k, group in enumerate(prompts):
        if np.any(group, axis=1).all() and np.any(mean := _unit(group).mean(axis=0)):
            means.append(mean)
            continue
        raise PromptError(
            f"the prompts (or, without prompts, the mean embedding) of entry {k} are zero or cancel out, so that no "
            "cosine with them is defined; give prompts that point somewhere"
        )
    return _unit(np.stack(means))


def cosine_blocks(
    X: Any, T: F64, origin: NDArray[np.floating] | float = 0.0
) -> Iterator[tuple[slice, Floats]]:
    """Cosines (b, c) of rows with unit prototypes T (c, p), block by block; 0 for a row that is zero."""
    columns = T.T.astype(np.float32)
    for start in range(0, int(X.shape[0]), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        rows = np.asarray(X[block])
        rows = rows.astype(working_dtype(rows.dtype), copy=False)
        # Of unit length before the product: squares and products of rows as they come may leave float32.
        unit = unit_rows(rows if np.ndim(origin) == 0 and origin == 0 else rows - origin)
        yield block, unit.astype(np.float32, copy=False) @ columns


def zero_shot(
    X: Any, prompts: Sequence[NDArray[np.floating]], origin: NDArray[np.floating] | float = 0.0
) -> tuple[Ints, F64]:
    """Zero-shot classes by cosine and their margins, best minus second best. O(n·p·c) time.

    Parameters
    ----------
    X : (n, p) embeddings; read by blocks.
    prompts : c arrays (m, p) of prompt embeddings.
    origin : (p,) point from which angles are measured; subtracted from rows and prompts.

    Returns
    -------
    codes (n,), margins (n,) in cosine units.
    """
    n = int(X.shape[0])
    codes, margins = np.empty(n, dtype=np.int64), np.empty(n)
    for block, cosines in cosine_blocks(X, prototypes([p - origin for p in prompts]), origin):
        codes[block] = cosines.argmax(axis=1)
        top = np.partition(cosines, -2, axis=1)[:, -2:]
        margins[block] = top[:, 1] - top[:, 0]
    return codes, margins


def without_span(T: F64, other: F64) -> F64:
    """Rows of T (c, p) without what the rows of ``other`` (m, p) span: what class prompts say besides S."""
    _, sizes, basis = np.linalg.svd(other, full_matrices=False)
    basis = basis[sizes > 1e-6 * sizes[0]]
    return np.asarray(T - (T @ basis.T) @ basis)


def zero_shot_scores(X: Any, T: F64, *, centred: bool) -> Floats:
    """Cosines of rows with unit prototypes T (n, c), ``centred`` over the classes of each row or as they are.

    What a row has in common with all prompts says nothing of its class, but it does rank rows by one prompt.
    """
    out = np.empty((int(X.shape[0]), len(T)), dtype=np.float32)
    for block, cosines in cosine_blocks(X, T):
        out[block] = cosines - cosines.mean(axis=1, keepdims=True) if centred else cosines
    return out


def balancing_weights(codes: Ints, sample_weight: F64) -> F64:
    """Scale row weights so that every code that occurs has the same total weight: (n,)."""
    totals = np.bincount(codes, weights=sample_weight)
    share = np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)
    return np.asarray(sample_weight * share[codes] * (sample_weight.sum() / np.count_nonzero(totals)))


def subsample(codes: Ints, keep: Mapping[int, int], random_state: np.random.RandomState) -> NDArray[np.bool_]:
    """Keep so many rows of each code, drawn without replacement: (n,) mask."""
    mask = np.zeros(len(codes), dtype=bool)
    for code, size in keep.items():
        rows = np.flatnonzero(codes == code)
        mask[random_state.choice(rows, size=min(size, len(rows)), replace=False)] = True
    return mask


def row_weights(
    class_weight: Any,
    y: Ints,
    groups: Ints | None,
    classes: NDArray[Any],
    sample_weight: F64,
    random_state: np.random.RandomState,
) -> F64:
    """Resolve ``class_weight`` into one weight per row (n,); rows left out by sub-sampling get zero.

    None, "balanced", "group", "subsample", "subsample:SHARE" (of the class-balanced size), {class: share kept}, or
    shares kept in the order of the classes.
    """
    if class_weight is None:
        return sample_weight
    drawn = np.where(sample_weight > 0, y, -1)  # sub-sampling never draws a row of weight zero
    if isinstance(class_weight, list | tuple | np.ndarray):
        if np.ndim(class_weight) != 1 or len(class_weight) != len(classes):
            raise ParameterError(
                f"class_weight must be {len(classes)} shares, one per class in the order of classes_ "
                f"({classes.tolist()[:10]}); got {class_weight!r}"
            )
        class_weight = dict(zip(classes.tolist(), class_weight, strict=True))
    if isinstance(class_weight, Mapping):
        return sample_weight * _kept_shares(class_weight, drawn, classes, random_state)
    if class_weight == "balanced":
        return balancing_weights(y, sample_weight)
    if class_weight == "group":
        if groups is None:
            raise ParameterError(
                "class_weight='group' needs a categorical sensitive attribute: give sensitive_features or "
                "sensitive_text, or use class_weight='balanced'"
            )
        cells = np.unique(np.column_stack([y, groups]), axis=0, return_inverse=True)[1]
        return balancing_weights(np.asarray(cells, dtype=np.int64).reshape(-1), sample_weight)
    if isinstance(class_weight, str) and class_weight.split(":")[0] == "subsample":
        share = _share(class_weight.partition(":")[2] or "1", class_weight)
        counts = np.bincount(drawn[drawn >= 0], minlength=len(classes))
        size = max(1, round(share * int(counts[counts > 0].min())))
        kept = {c: size for c in range(len(classes)) if counts[c]}
        return sample_weight * subsample(drawn, kept, random_state)
    raise ParameterError(
        "class_weight must be None, 'balanced', 'group', 'subsample', 'subsample:SHARE', a mapping "
        f"{{class: share kept}} or a share per class; got {class_weight!r}"
    )


def _kept_shares(
    shares: Mapping[Any, Any], y: Ints, classes: NDArray[Any], random_state: np.random.RandomState
) -> F64:
    place = {c: k for k, c in enumerate(classes.tolist())}
    unknown = [c for c in shares if c not in place]
    if unknown:
        raise ParameterError(f"class_weight names {unknown}, the classes are {classes.tolist()[:10]}")
    counts = np.bincount(y[y >= 0], minlength=len(classes))
    keep = {k: int(counts[k]) for k in range(len(classes))}
    for label, share in shares.items():
        k = place[label]
        keep[k] = max(1, round(_share(share, f"class_weight[{label!r}]") * int(counts[k])))
    return subsample(y, keep, random_state).astype(np.float64)


def _share(value: Any, what: str) -> float:
    try:
        share = float(value)
    except (TypeError, ValueError):
        share = -1.0
    if not 0 < share <= 1:
        raise ParameterError(f"{what}: the share kept must be a number in (0, 1]; got {value!r}")
    return share
