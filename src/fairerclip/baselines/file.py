"""Contents of the file of a fitted baseline; only classes in `BASELINES` can be loaded.

`fairerclip.model.archive` has the format that all models share.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fairerclip.baselines import BASELINES
from fairerclip.baselines.baseline import Baseline
from fairerclip.errors import ModelFileError
from fairerclip.model import archive
from fairerclip.model.contents import (
    OF_THE_RUN,
    TENSORS,
    Contents,
    Tensors,
    are_labels,
    check_state,
    class_array,
    compare_names,
    make,
    plain_value,
    refuse,
)
from fairerclip.model.parameters import check_offsets

STATE = ("normalize", "offsets")
PARAMETER = "parameter:"
"""Prefix of the names of arrays that are parameters and not fitted."""
B = TypeVar("B", bound=Baseline)


def save_baseline(model: Baseline, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a fitted baseline of a class in `BASELINES` to a folder, as its method ``save`` does."""
    return model.save(path, overwrite=overwrite)


def load_baseline(path: str | Path, cls: type[B] = Baseline) -> B:
    """Read and check a fitted baseline of class ``cls``, as its method ``load`` does."""
    model: B = archive.load_as(Path(path), cls)
    return model


def class_of(kind: str) -> Any:
    """Return the class of a name in `BASELINES`; raise a `ModelFileError` for any other."""
    if kind not in BASELINES:
        raise ModelFileError(f"{kind!r:.60} is no baseline; expected one of {', '.join(BASELINES)}").because(
            "kind"
        )
    return getattr(import_module(f"fairerclip.baselines.{BASELINES[kind]}"), kind)


def contents(model: Baseline) -> Contents:
    """Return what the folder of a fitted baseline holds."""
    name = type(model).__name__
    if name not in BASELINES or class_of(name) is not type(model):
        raise ModelFileError(f"{name} is none of the baselines that can be saved: {', '.join(BASELINES)}")
    check_is_fitted(model, model.fitted)
    parameters, arrays = _parameters(model)
    extra = [name for names in model.only_with.values() for name in names if hasattr(model, name)]
    for attribute in (*model.fitted, *extra):
        arrays[attribute] = np.ascontiguousarray(getattr(model, attribute))
    state = {"normalize": True, "offsets": model.offsets_.tolist(), **model._state()}
    return Contents.of(model, name, parameters, state, arrays)


# Parameters -----------------------------------------------------------------------------------------


def _parameters(model: Baseline) -> tuple[dict[str, Any], Tensors]:
    """Return the parameters for JSON, and those that are arrays, which JSON names as {"array": name}."""
    plain: dict[str, Any] = {}
    arrays: Tensors = {}
    given = model.get_params(deep=False)
    for name, value in ((name, given[name]) for name in given if name not in OF_THE_RUN):
        label = f"parameter {name}"
        if callable(value) or (name == "random_state" and not isinstance(value, (int, np.integer))):
            plain[name] = None  # neither a callback nor a generator's state is part of the model
        elif isinstance(value, Mapping):
            inner = {str(k): None if callable(v) else plain_value(v, label) for k, v in value.items()}
            plain[name] = {"mapping": inner}
        elif np.ndim(value) > 1:
            arrays[PARAMETER + name] = np.ascontiguousarray(value, dtype=np.float64)
            plain[name] = {"array": PARAMETER + name}
        elif np.ndim(value) == 1:
            plain[name] = [plain_value(v, label) for v in value]
        else:
            plain[name] = plain_value(value, label)
    return plain, arrays


def _given(value: Any, arrays: Tensors) -> Any:
    """Return a stored parameter as the constructor takes it; sequences become tuples."""
    if isinstance(value, list):
        return tuple(plain_value(v, "an entry of a parameter") for v in value)
    if isinstance(value, dict):
        ((kind, content),) = value.items()
        if kind == "mapping" and isinstance(content, dict):
            return {key: plain_value(v, "an entry of a parameter") for key, v in content.items()}
        if kind == "array" and str(content).startswith(PARAMETER):
            return arrays.pop(content)
        raise ModelFileError(f"a parameter is written as {kind!r:.60}")
    return value


# Reading --------------------------------------------------------------------------------------------


def check_names(path: Path, saved: Contents, names: Collection[str]) -> None:
    """Raise for missing or unknown tensors."""
    given = [value.get("array") for value in saved.parameters.values() if isinstance(value, dict)]
    needed = {*_shapes(class_of(saved.kind), saved), *(str(name) for name in given if name is not None)}
    compare_names(path, names, needed)


def _shapes(kind: type[Baseline], saved: Contents) -> dict[str, tuple[str, ...]]:
    """Return the names and expected shapes of the fitted arrays of a model with these parameters."""
    shapes = dict(kind.shapes)
    for parameter, arrays in kind.only_with.items():
        shapes |= arrays if saved.parameters.get(parameter) else {}
    return shapes


def build(cls: type[B], path: Path, saved: Contents) -> B:
    """Return the fitted baseline of a folder, after all checks."""
    state, arrays = saved.state, dict(saved.tensors)
    check_names(path, saved, arrays)
    check_state(path, state, (*STATE, *cls.state_keys))
    refuse(
        path,
        {
            "classes": are_labels(saved.classes, fewest=2),
            "normalize": state["normalize"] is True,
        },
    )
    given = {parameter: _given(value, arrays) for parameter, value in saved.parameters.items()}
    model = make(path, cls, given)
    model.classes_, model.n_features_in_ = class_array(saved.classes), saved.n_features_in
    sizes = {"p": model.n_features_in_, "c": len(model.classes_)}
    _check_shapes(path, arrays, _shapes(cls, saved), sizes)
    model.offsets_ = check_offsets(state["offsets"], len(model.classes_))
    for attribute, array in arrays.items():
        setattr(model, attribute, array if array.ndim else array.item())
    if saved.diagnostics is not None:
        model.diagnostics_ = saved.diagnostics
    model._restore({name: state[name] for name in cls.state_keys})
    scores = np.asarray(model.scores(np.eye(1, model.n_features_in_)))
    if scores.shape != (1, len(model.classes_)) or not np.isfinite(scores).all():
        raise ModelFileError(f"{path / TENSORS}: the arrays do not fit together")
    return model


def _check_shapes(
    path: Path, arrays: Tensors, shapes: Mapping[str, tuple[str, ...]], sizes: dict[str, int]
) -> None:
    for name, letters in shapes.items():
        shape = arrays[name].shape
        fits = len(shape) == len(letters) and all(
            sizes.setdefault(letter, size) == size for letter, size in zip(letters, shape, strict=True)
        )
        if not fits:
            known = ", ".join(f"{letter}={sizes[letter]}" for letter in letters if letter in sizes)
            raise ModelFileError(
                f"{path / TENSORS}: {name} has shape {shape}, expected ({', '.join(letters)}) with {known}"
            )
