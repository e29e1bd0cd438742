"""Contents of the file of a fitted `EmbeddingMitigator`.

`fairerclip.model.archive` has the format that all models share. The files hold sums over all rows of the fit, and
nothing about a single row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fairerclip._util.types import Floats
from fairerclip.data.embedding_rows import RowSummary
from fairerclip.embedding.attributes import MitigatedAttribute, term_sizes
from fairerclip.embedding.collection_drift import CollectionSummary
from fairerclip.embedding.fitted_map import EmbeddingMap, FittedMap
from fairerclip.embedding.value_reader import ValueReader
from fairerclip.errors import ModelFileError
from fairerclip.model.contents import (
    Contents,
    Manifest,
    Tensors,
    are_labels,
    check_answers,
    check_dtypes,
    check_state,
    class_array,
    compare_names,
    make,
    plain_value,
    refuse,
)

if TYPE_CHECKING:
    from fairerclip.embedding.mitigator import EmbeddingMitigator

STATE = ("attributes", "strengths", "remaining", "n_rows")
NUMBERS = ("strengths", "remaining")
ARRAYS = ("mean", "right", "left", "row_lengths", "row_mean", "covariance", "shares")
ATTRIBUTE_KEYS = {"name", "values", "prompts", "reads", "record"}
MAX_ATTRIBUTES = 16
ROUNDING = 1e-6
"""By how much rounding may take a share or a variance out of its range."""
M = TypeVar("M", bound="EmbeddingMitigator")


def contents(model: EmbeddingMitigator) -> Contents:
    """Return what the folder of a fitted mitigator holds."""
    check_is_fitted(model)
    fitted = model.fitted_
    if len(fitted.attributes) > MAX_ATTRIBUTES:
        raise ModelFileError(
            f"a file holds at most {MAX_ATTRIBUTES} attributes; got {len(fitted.attributes)}"
        )
    summary = fitted.summary
    arrays: dict[str, Any] = {
        "mean": fitted.map.mean,
        "right": fitted.map.right,
        "left": fitted.map.left,
        "row_lengths": summary.rows.lengths,
        "row_mean": summary.rows.mean,
        "covariance": summary.covariance,
        "shares": summary.shares,
    }
    for place, attribute in enumerate(fitted.attributes):
        if attribute.reader is not None:
            arrays[f"reader{place}.weights"] = attribute.reader.weights
            arrays[f"reader{place}.intercepts"] = attribute.reader.intercepts
        if attribute.prompts is not None:
            arrays[f"prompts{place}"] = np.concatenate(attribute.prompts)
    tensors = {name: np.ascontiguousarray(array, dtype=np.float64) for name, array in arrays.items()}
    state = {
        "attributes": [_described(attribute) for attribute in fitted.attributes],
        "strengths": list(fitted.strengths),
        "remaining": list(fitted.remaining),
        "n_rows": summary.rows.rows,
    }
    return Contents.of(model, "EmbeddingMitigator", _parameters(model), state, tensors)


def _parameters(model: EmbeddingMitigator) -> Manifest:
    out: Manifest = {}
    for name, value in model.get_params(deep=False).items():
        if name == "strength" and isinstance(value, Mapping):
            out[name] = {str(k): plain_value(v, "strength") for k, v in value.items()}
        else:
            out[name] = plain_value(value, f"parameter {name}")
    return out


def _described(attribute: MitigatedAttribute) -> Manifest:
    values = (
        None if attribute.values is None else [plain_value(v, "a value") for v in attribute.values.tolist()]
    )
    prompts = None if attribute.prompts is None else [len(group) for group in attribute.prompts]
    return {
        "name": attribute.name,
        "values": values,
        "prompts": prompts,
        "reads": attribute.reader is not None,
        "record": attribute.record,
    }


def class_of(kind: str) -> type[EmbeddingMitigator]:
    """Return the class."""
    from fairerclip.embedding.mitigator import EmbeddingMitigator

    return EmbeddingMitigator


def _check_values(path: Path, saved: Contents) -> None:
    state = saved.state
    check_state(path, state, STATE)
    listed, n_rows = state["attributes"], state["n_rows"]
    valid = {
        "attributes": isinstance(listed, list)
        and len(listed) <= MAX_ATTRIBUTES
        and all(isinstance(entry, dict) and set(entry) == ATTRIBUTE_KEYS for entry in listed)
        and len({str(entry["name"]) for entry in listed}) == len(listed),
        "classes": saved.classes == [],
        "n_rows": type(n_rows) is int and n_rows > 0,
        "diagnostics": isinstance(saved.diagnostics, dict),
        **{
            name: isinstance(v, list) and all(type(x) is float and 0 <= x for x in v)
            for name, v in ((name, state[name]) for name in NUMBERS)
        },
    }
    refuse(path, valid)


def check_names(path: Path, saved: Contents, names: Collection[str]) -> None:
    """Raise for an impossible state, and for missing or unknown tensors."""
    _check_values(path, saved)
    needed = [*ARRAYS]
    for place, entry in enumerate(saved.state["attributes"]):
        needed += [f"reader{place}.weights", f"reader{place}.intercepts"] if entry["reads"] else []
        needed += [f"prompts{place}"] if entry["prompts"] is not None else []
    compare_names(path, names, needed)


def build(cls: type[M], path: Path, saved: Contents) -> M:
    """Return the fitted mitigator of a folder, after all checks."""
    state, tensors, p = saved.state, saved.tensors, saved.n_features_in
    check_names(path, saved, tensors)
    check_dtypes(path, tensors)
    rest = {name: array for name, array in tensors.items() if name not in ARRAYS}
    attributes = [_attribute(entry, place, p, rest) for place, entry in enumerate(state["attributes"])]
    model = make(path, cls, dict(saved.parameters))
    model._check_parameters()
    crossed = model.sensitive_terms == "intersection"
    sizes = term_sizes(attributes, crossed=crossed)
    refuse(path, {name: len(state[name]) == len(sizes) for name in NUMBERS})
    k = len(tensors["left"])
    shapes = {"mean": (p,), "right": (p, k), "left": (k, p), "row_lengths": (3,), "row_mean": (p,)}
    shapes |= {"covariance": (p, p), "shares": (sum(sizes),)}
    wrong = [name for name, shape in shapes.items() if tensors[name].shape != shape]
    if wrong:
        raise ModelFileError(f"{path}: the tensors do not fit together ({wrong})")
    _check_summary(path, tensors, attributes, sizes)
    rows = RowSummary(state["n_rows"], tensors["row_lengths"], tensors["row_mean"])
    summary = CollectionSummary(rows, tensors["mean"], tensors["covariance"], tensors["shares"])
    model.fitted_ = FittedMap(
        EmbeddingMap(tensors["mean"], tensors["right"], tensors["left"]),
        tuple(attributes),
        tuple(state["strengths"]),
        tuple(state["remaining"]),
        summary,
    )
    model.n_features_in_, model.diagnostics_ = p, saved.diagnostics or {}
    check_answers(path, lambda row: [model.fitted_.map.apply(row)], p)
    return model


def _check_summary(
    path: Path, tensors: Tensors, attributes: list[MitigatedAttribute], sizes: Sequence[int]
) -> None:
    """Raise for shares and variances that no rows have; means of a quantity may be any number."""
    labelled = [attribute.values is not None for attribute in attributes]
    bounded = labelled if len(labelled) == len(sizes) else [all(labelled)] * len(sizes)
    shares = tensors["shares"][np.repeat(np.array(bounded, dtype=bool), np.array(sizes, dtype=np.int64))]
    variances = np.diag(tensors["covariance"])
    if (np.abs(shares - 0.5) > 0.5 + ROUNDING).any():
        raise ModelFileError(f"{path}: expected shares of sensitive values in [0, 1]")
    if (variances < -ROUNDING).any():
        raise ModelFileError(f"{path}: expected variances of the collection that are not negative")


def _attribute(entry: Manifest, place: int, width: int, tensors: Tensors) -> MitigatedAttribute:
    """Return an attribute of a file, and take its arrays out of ``tensors``."""
    name, values, sizes = entry["name"], entry["values"], entry["prompts"]
    fine = isinstance(name, str) and isinstance(entry["record"], dict) and type(entry["reads"]) is bool
    if not fine or not (values is None or (are_labels(values, fewest=2))):
        raise ModelFileError(f"attribute {place} is not described as expected")
    array = None if values is None else class_array(values)
    reader = None
    if entry["reads"]:
        if array is None:
            raise ModelFileError(f"attribute {name!r:.60} is a quantity and has a reader")
        reader = ValueReader(
            name, array, tensors.pop(f"reader{place}.weights"), tensors.pop(f"reader{place}.intercepts")
        )
        if reader.weights.shape[0] != width:
            raise ModelFileError(
                f"the reader of {name!r:.60} is for rows {reader.weights.shape[0]} wide, not {width}"
            )
    prompts: list[Floats] | None = None
    if sizes is not None:
        rows = tensors.pop(f"prompts{place}")
        counts = isinstance(sizes, list) and all(type(size) is int and size > 0 for size in sizes)
        if not counts or array is None or len(sizes) != len(array) or rows.shape != (sum(sizes), width):
            raise ModelFileError(f"the prompts of {name!r:.60} do not match its values")
        prompts = list(np.split(rows, np.cumsum(sizes)[:-1]))
    return MitigatedAttribute(name, array, prompts, reader, entry["record"])
