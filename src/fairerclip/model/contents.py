"""`Contents`: what the folder of a saved model holds; every kind of model is turned into it, and made from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import F64
from fairerclip.errors import ModelFileError
from fairerclip.model.details import ModelDetails

FORMAT = "fairerclip"
"""Value of ``format`` in a manifest."""
TENSORS, MANIFEST, CARD = "model.safetensors", "fairerclip.json", "README.md"
"""Files of the folder of a saved model."""
TENSOR_FILES = (TENSORS, "model-b.safetensors")
"""Names of the file of tensors: a model that replaces another one has the name that the other did not use."""
TENSOR_FILE = "tensor_file"
"""Key of a manifest with the name of that file; without it, it is the first name."""
HOLD_ROWS = ("features.landmarks", "reference_")
"""Names of tensors that hold embeddings of training images, and not sums over them."""
OF_THE_RUN = ("encoder", "memory_budget")
"""Parameters about what is on the machine of a fit: files do not have them."""
Manifest = dict[str, Any]
Tensors = dict[str, NDArray[Any]]
M = TypeVar("M")


@dataclass(frozen=True)
class Contents:
    """A saved model, apart from how it is written.

    Attributes
    ----------
    kind : str
        Name of its class: ``FairerCLIP``, ``EmbeddingMitigator`` or a baseline.
    parameters : dict
        Parameters of the constructor as JSON values.
    classes : list
        Class labels; empty for a mitigator, which has none.
    n_features_in : int
        Width p of the rows.
    feature_names_in : list of str or None
        Names of the columns of a data frame.
    state : dict
        Fitted values of this kind of model that are no tensors, as JSON values.
    diagnostics : dict or None
        ``diagnostics_`` of the model, the record of a search among them.
    details : ModelDetails
        What the fit command, or its user, knows besides.
    tensors : dict of str to array
        Arrays by name.
    """

    kind: str
    parameters: Manifest
    classes: list[Any]
    n_features_in: int
    feature_names_in: list[str] | None
    state: Manifest
    diagnostics: Manifest | None
    details: ModelDetails
    tensors: Tensors

    @classmethod
    def of(cls, model: Any, kind: str, parameters: Manifest, state: Manifest, tensors: Tensors) -> Contents:
        """Collect what all kinds of fitted models have, and what this kind adds."""
        names = getattr(model, "feature_names_in_", None)
        labels = list(model.classes_.tolist()) if hasattr(model, "classes_") else []
        return cls(
            kind=kind,
            parameters={name: value for name, value in parameters.items() if name not in OF_THE_RUN},
            classes=[plain_value(label, "a class label") for label in labels],
            n_features_in=int(model.n_features_in_),
            feature_names_in=None if names is None else [str(name) for name in names],
            state=state,
            diagnostics=getattr(model, "diagnostics_", None),
            details=getattr(model, "details_", None) or ModelDetails(),
            tensors=tensors,
        )

    @property
    def held_rows(self) -> int:
        """Number of training images whose embeddings are in the file."""
        return sum(len(self.tensors[name]) for name in HOLD_ROWS if name in self.tensors)

    def check(self, path: Path) -> None:
        """Raise if an entry that all kinds share has an impossible value, or a tensor is not finite."""
        width, names = self.n_features_in, self.feature_names_in
        listed = isinstance(self.classes, list)
        valid = {
            "classes": listed and (self.classes == [] or are_labels(self.classes, fewest=2)),
            "n_features_in": type(width) is int and width > 0,
            "feature_names_in": names is None
            or (isinstance(names, list) and len(names) == width and all(isinstance(n, str) for n in names)),
            "parameters": isinstance(self.parameters, dict),
            "state": isinstance(self.state, dict),
            "diagnostics": self.diagnostics is None or isinstance(self.diagnostics, dict),
        }
        refuse(path, valid)
        for name, tensor in self.tensors.items():
            if not np.isfinite(tensor).all():
                raise ModelFileError(
                    f"{path / TENSORS}: expected finite numbers, tensor {name!r:.60} holds NaN or infinity"
                ).because("not-finite")


Check = Callable[[Contents, Collection[str]], None]
"""Function of contents without tensors, and of the names of these, that raises if they make no model."""


def refuse(path: Path, valid: Mapping[str, bool]) -> None:
    """Raise if some entries of a manifest are not valid."""
    wrong = [name for name, fine in valid.items() if not fine]
    if wrong:
        raise ModelFileError(f"{path}: {wrong} of the manifest do not describe a model").because("value")


def check_state(path: Path, state: Manifest, keys: tuple[str, ...]) -> None:
    """Raise if the state of a model has other keys."""
    odd = sorted(set(state) ^ set(keys))
    if odd:
        raise ModelFileError(
            f"{path / MANIFEST}: {odd[:5]!r:.200} of the state are missing or unknown"
        ).because("unknown-field")


def compare_names(
    path: Path, names: Collection[str], needed: Collection[str], other: Collection[str] = ()
) -> None:
    """Raise if tensors that a model needs are missing, or if there are any but these and ``other``."""
    missing, unknown = sorted({*needed} - {*names}), sorted({*names} - {*needed, *other})
    if missing:
        raise ModelFileError(f"{path / TENSORS} lacks {missing[:5]!r:.200}").because("missing-tensor")
    if unknown:
        raise ModelFileError(f"{path / TENSORS} has unknown tensors {unknown[:3]!r:.200}").because(
            "unknown-tensor"
        )


def check_dtypes(path: Path, tensors: Tensors, single: tuple[str, ...] = ()) -> None:
    """Raise for a tensor that is not of float64; those named in ``single`` may be of float32."""
    for name, tensor in tensors.items():
        allowed = ("float64", "float32") if name in single else ("float64",)
        if tensor.dtype.name not in allowed:
            raise ModelFileError(
                f"{path / TENSORS}: expected tensor {name!r:.60} in {' or '.join(allowed)}, got {tensor.dtype}"
            ).because("dtype")


def check_answers(path: Path, answer: Callable[[F64], list[Any]], width: int) -> None:
    """Raise if the answers for a row are not finite, because the tensors hold numbers that are too large."""
    with np.errstate(all="ignore"):
        found = answer(np.eye(1, width))
    if not all(np.isfinite(values).all() for values in found):
        raise ModelFileError(f"{path / TENSORS}: the numbers are too large: answers are NaN or infinity")


def make(path: Path, cls: type[M], parameters: Manifest) -> M:
    """Return an unfitted model with these parameters."""
    expected = set(cls._get_param_names()) - set(OF_THE_RUN)  # type: ignore[attr-defined]
    odd = sorted(set(parameters) ^ expected)
    if odd:
        raise ModelFileError(
            f"{path}: parameters do not match this version of fairerclip: {odd[:5]!r:.200} are missing or unknown"
        ).because("unknown-field")
    return cls(**parameters)


def plain_value(value: Any, what: str) -> Any:
    """Return a label or parameter as a JSON value; raise if JSON cannot represent it."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ModelFileError(
        f"{what} is {type(value).__name__} {value!r:.60}; a model file holds numbers, strings and booleans only: "
        "relabel before fitting"
    )


def class_array(classes: list[Any]) -> NDArray[Any]:
    """Return the class labels of a manifest as an array; objects where numpy would turn mixed types into one."""
    array = np.asarray(classes)
    same = array.tolist() == classes and [*map(type, array.tolist())] == [*map(type, classes)]
    return array if same else np.array(classes, dtype=object)


def are_labels(values: Any, *, fewest: int = 1) -> bool:
    """Return whether an entry of a manifest lists different labels."""
    return (
        isinstance(values, list)
        and all(isinstance(value, (bool, int, float, str)) for value in values)
        and len(set(values)) == len(values) >= fewest
    )
