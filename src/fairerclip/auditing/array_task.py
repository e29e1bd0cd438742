"""A task of one split made from arrays, so that arrays are audited exactly as a task is."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import Floats, Ints
from fairerclip.data import Split, Task
from fairerclip.data.embedding_rows import check_directions, check_rows
from fairerclip.data.stores import EmbeddingStore
from fairerclip.data.task import Sensitive
from fairerclip.errors import ConstantSensitiveWarning, LabelError, ShapeError
from fairerclip.inputs.agreement import agreement, check_order, check_swapped
from fairerclip.inputs.prompts import PromptValues, prototypes
from fairerclip.inputs.sensitive import known_values, match_prompts
from fairerclip.inputs.sensitive_columns import SensitiveColumn
from fairerclip.inputs.target import known_labels

NAME = "arrays"
"""Name of the task in titles and messages."""
SPLIT = "test"
"""Split of the rows: they are the rows to report on."""
CALLER = 4
"""Stack level, for a warning in `task_from_arrays`, of the line that calls `fairerclip.audit`."""


def task_from_arrays(
    X: Any,
    y: Any,
    *,
    text: Any,
    sensitive_features: Any,
    sensitive_text: Any = None,
    classes: Iterable[Any] | None = None,
    missing_label: Any = None,
) -> tuple[Task, dict[Any, str]]:
    """Make a task with one split, ``"test"``, from the arguments of a fit.

    Unknown labels stay unknown: nothing is predicted from prompts. Raise or warn, as a fit does, if prompts contradict
    the labels. O(n·p) time, and one copy of X in float32 unless it is in float32 already.

    Parameters
    ----------
    X, y, text, sensitive_features, sensitive_text, classes, missing_label
        As in `FairerCLIP.fit`; several prompts of a class are averaged as in zero-shot prediction.

    Returns
    -------
    task : Task
        The task; its classes and sensitive values are named by their labels as text.
    names : dict
        Label → name of the class.
    """
    rows = _rows(X)
    if sensitive_features is None:
        raise LabelError(
            "sensitive_features is None: an audit compares groups of known values, and predicts none from prompts"
        )
    if y is None and text is None:
        raise LabelError("y and text are both None: give y for accuracy by group, or text= for rankings")
    labels, prompts = known_labels(y, text, rows.shape, classes=classes, missing_label=missing_label)
    values = labels.classes.tolist()
    if prompts is not None:
        found = agreement(rows, prompts, labels.codes)
        check_order(found, values, "the target", by_position=not isinstance(text, Mapping), depth=CALLER)
    names = _names(values, "classes")
    columns, sensitive_prompts = known_values(
        sensitive_features, sensitive_text, rows.shape, kind="auto", missing_label=missing_label
    )
    sensitive, codes = dict[str, Sensitive](), dict[str, Ints]()
    for column in columns:
        sensitive[column.name], codes[column.name] = _attribute(
            rows, column, sensitive_prompts.get(column.name), prompts, labels.codes
        )
    split = Split(
        rows, None if y is None else labels.codes.astype(np.int64), codes
    )  # as task files have them
    task = Task(NAME, {SPLIT: split}, _text(prompts, "text"), names, names, sensitive)
    return task, dict(zip(values, names, strict=True))


def _rows(X: Any) -> NDArray[np.float32]:
    try:
        array = np.asarray(X[:] if isinstance(X, EmbeddingStore) else X)
    except ValueError:
        raise ShapeError("X must be numbers of shape (n, p); got rows of different lengths") from None
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "fiu":
        raise ShapeError(
            f"X must be a Task, or numbers of shape (n, p) with at least one row; got {type(X).__name__} of dtype "
            f"{array.dtype} and shape {array.shape}"
        )
    check_directions(array)
    return _float32(array, "X")


def _float32(array: NDArray[Any], name: str) -> NDArray[np.float32]:
    """Return rows in float32, as tasks hold them, or raise if one is zero or not finite."""
    with np.errstate(over="ignore"):  # values too large for float32 become infinite, and raise
        rows = np.ascontiguousarray(array, dtype=np.float32)
    check_rows(rows, name, zero_is_error=True)
    return rows


def _text(prompts: Sequence[Floats] | None, name: str) -> NDArray[np.float32] | None:
    """Return one embedding for each class or value: its prompt, or the mean direction of its prompts."""
    if prompts is None:
        return None
    text = [group[0] if len(group) == 1 else prototypes([group])[0] for group in prompts]
    return _float32(np.stack(text), name)


def _names(values: Sequence[Any], kind: str) -> tuple[str, ...]:
    """Return labels as text, or raise if a text is empty or stands for two labels."""
    names = tuple(map(str, values))
    if "" in names:
        raise LabelError(
            f"one of the {kind} is an empty text: name it, or give missing_label='' if it is unknown"
        )
    if len(set(names)) < len(names):
        alike = next(name for name in names if names.count(name) > 1)
        raise LabelError(f"several of the {kind} are {alike!r} as text: give labels whose texts differ")
    return names


def _attribute(
    rows: NDArray[np.float32],
    column: SensitiveColumn,
    prompts: PromptValues | None,
    class_prompts: Sequence[Floats] | None,
    target: Ints,
) -> tuple[Sensitive, Ints]:
    """Return a sensitive attribute and the codes (n,) of its values; compare its prompts with the known values."""
    name, codes, values = column.name, column.codes, column.categories
    if codes is None or values is None or column.soft is not None:
        given = "a quantity: bin it first" if column.continuous else "probabilities: give known values"
        raise LabelError(f"an audit needs categories; sensitive attribute {name!r} is {given}")
    if len(codes) != len(rows):
        raise ShapeError(f"X has {len(rows)} rows but sensitive attribute {name!r} has {len(codes)}")
    if prompts is not None:
        codes, values = match_prompts(name, codes, values, prompts)
        if class_prompts is not None:
            known = codes if (codes >= 0).any() else None
            check_swapped(rows, class_prompts, target, prompts.groups, known, depth=CALLER + 1)
        found, by_position = agreement(rows, prompts.groups, codes), prompts.values is None
        subject = f"sensitive attribute {name!r}"
        check_order(found, values.tolist(), subject, by_position=by_position, depth=CALLER + 1)
    if len(np.unique(codes[codes >= 0])) == 1:
        warnings.warn(
            f"sensitive attribute {name!r} has one value only: there are no groups to compare. Check its labels",
            ConstantSensitiveWarning,
            stacklevel=CALLER + 1,
        )
    names = _names(values.tolist(), f"values of sensitive attribute {name!r}")
    text = None if prompts is None else _text(prompts.groups, "sensitive_text")
    return Sensitive(name, names, names, text), codes.astype(np.int64)
