"""Completion of the target: known labels, and zero-shot predictions for missing ones."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d

from fairerclip._util.types import CODES, F64, Floats, Ints
from fairerclip.data.coded_labels import CodedLabels
from fairerclip.data.row_pass import sum_rows
from fairerclip.errors import LabelError, PromptError, ShapeError, VanishedLabelWarning
from fairerclip.inputs.agreement import agreement, check_order
from fairerclip.inputs.encode import Encoded, as_labels, encode
from fairerclip.inputs.prompts import prompt_groups, zero_shot

MAX_CLASSES = 3000
"""Most classes: tables of classes by classes grow with the square, and larger ones would take gigabytes and hours."""


@dataclass(frozen=True)
class Guess:
    """Pseudo-labels: the rows that needed one, and their margins (largest minus second largest cosine)."""

    rows: NDArray[np.bool_]
    margins: Floats

    def summary(self, codes: Ints, names: NDArray[Any]) -> dict[str, Any]:
        """Return counts and margin quantiles in cosine units, ready for JSON."""
        chosen = self.margins[self.rows].astype(np.float64)
        counts = np.bincount(codes[self.rows], minlength=len(names))
        levels = (0.05, 0.25, 0.5, 0.75, 0.95)
        return {
            "rows": int(self.rows.sum()),
            "counts": {str(n): int(c) for n, c in zip(names.tolist(), counts, strict=True)},
            "margin_quantiles": dict(
                zip(map(str, levels), np.quantile(chosen, levels).round(6).tolist(), strict=True)
            ),
        }


@dataclass(frozen=True)
class ResolvedTarget:
    """Class codes of every row, which of them are pseudo-labels, and the prompts of each class."""

    codes: Ints
    classes: NDArray[Any]
    prompts: list[Floats]
    guess: Guess | None
    has_text: bool = True
    """Whether prompts were given; otherwise class means are used in their place."""

    @property
    def known(self) -> Ints:
        """Codes (n,) of the labels that were given, -1 for pseudo-labels."""
        return self.codes if self.guess is None else np.where(self.guess.rows, -1, self.codes)

    def of_rows(self, X: Any, rows: Ints, sample_weight: F64) -> ResolvedTarget:
        """Return the target as a fit on some rows of X alone has it; codes keep their length n.

        Guesses from prompts are those of each row. Without prompts, class means and what is guessed from them are
        computed anew from the labelled rows among ``rows``, with their sample weights.
        """
        if self.has_text:
            return self
        known = self.known
        inside = np.full(len(known), -1, dtype=CODES)
        inside[rows] = known[rows]
        prompts = _class_means(X, Encoded(inside, self.classes), sample_weight)
        if self.guess is None:
            return replace(self, prompts=prompts)
        predicted, margins = zero_shot(X, prompts, np.mean(np.concatenate(prompts), axis=0))
        codes = np.where(self.guess.rows, predicted, self.codes)
        return replace(self, prompts=prompts, codes=codes, guess=Guess(self.guess.rows, margins))

    def listed_prompts(self) -> tuple[F64 | None, Ints | None]:
        """Return all prompts (m, p) and the codes of their classes (m,), or None for both if there are none."""
        if not self.has_text:
            return None, None
        sizes = [len(group) for group in self.prompts]
        return np.concatenate(self.prompts), np.repeat(np.arange(len(sizes)), sizes)


def indexes_prompts(values: NDArray[Any], n_prompts: int) -> bool:
    """Return whether distinct labels are numbers in 0 … n_prompts − 1, which are then indices of the prompts.

    Booleans count, and whole floats, because integers with NaN for missing labels are floats.
    """
    if values.dtype.kind not in "biuf" or not len(values):
        return False
    numbers = values.astype(np.float64)
    return bool(np.all(numbers == np.floor(numbers)) and numbers.min() >= 0 and numbers.max() < n_prompts)


def mapping_to_write(name: str, values: Any) -> str:
    """Return the text of a mapping from labels to prompts that the user should write."""
    plain = (value.item() if isinstance(value, np.generic) else value for value in values)
    entries = [f"{value!r}: …" for value in list(plain)[:5]]
    return f"{name}={{{', '.join([*entries, '…'] if len(values) > 5 else entries)}}}"


def resolve_target(
    X: Any,
    y: Any,
    text: Any,
    sample_weight: F64,
    *,
    classes: Any = None,
    missing_label: Any = None,
    learns: bool = True,
) -> ResolvedTarget:
    """Complete the target: keep known labels and predict missing ones zero-shot from the prompts.

    ``text`` is a mapping from class to prompts, or the prompts in the order of ``classes``; without ``classes`` the
    labels must be the indices of the prompts. Raise or warn if the prompts contradict the known labels. If all rows
    have one class, raise if a model ``learns`` from them and warn otherwise.
    """
    by_position = not isinstance(text, Mapping)
    encoded, prompts = known_labels(y, text, X.shape, classes=classes, missing_label=missing_label)
    origin: Any = 0.0
    missing = encoded.missing
    if len(encoded.classes) > MAX_CLASSES:
        raise LabelError(
            f"expected at most {MAX_CLASSES:,} classes, got {len(encoded.classes):,}: fit on fewer of them (classes= "
            "or --classes)"
        )
    if prompts is not None:
        names = encoded.classes.tolist()
        check_order(
            agreement(X, prompts, encoded.codes), names, "the target", by_position=by_position, depth=4
        )
    else:
        if len(encoded.classes) < 2:
            raise LabelError(
                f"y must have at least 2 classes; got {len(encoded.classes)} class: {encoded.classes.tolist()}"
            )
        prompts = _class_means(X, encoded, sample_weight)
        # All class means contain the mean of all images, which has no information on the class.
        origin = np.mean(np.concatenate(prompts), axis=0)
    codes, guess = encoded.codes, None
    if missing.any():
        predicted, margins = zero_shot(X, prompts, origin)
        codes = np.where(missing, predicted, codes)
        guess = Guess(missing, margins)
    present = np.bincount(codes, weights=sample_weight, minlength=len(encoded.classes)) > 0
    _check_present(encoded.classes, present, learns=learns, guessed=guess is not None)
    return ResolvedTarget(codes, encoded.classes, prompts, guess, has_text=text is not None)


def _check_present(classes: NDArray[Any], present: NDArray[np.bool_], *, learns: bool, guessed: bool) -> None:
    """Warn of classes without rows; raise if a model should learn from rows of a single class."""
    if present.sum() < 2 and learns:
        source = "zero-shot predictions have" if guessed else "y has"
        raise LabelError(
            f"{source} one class only ({classes[present].tolist()}), and a fit needs at least two. "
            "Check the prompts and that image and text embeddings come from the same model"
        )
    if not present.all():
        constant = f"all rows have the class {classes[present].tolist()}: " if present.sum() < 2 else ""
        warnings.warn(
            f"{constant}classes {classes[~present].tolist()} have no rows; only their prompts are used",
            VanishedLabelWarning,
            stacklevel=5,
        )


def known_labels(
    y: Any, text: Any, shape: tuple[int, ...], *, classes: Any, missing_label: Any
) -> tuple[Encoded, list[Floats] | None]:
    """Return the labels of rows of shape (n, p) as codes of the classes of a fit, and the prompts of each class."""
    if isinstance(text, Mapping):
        if classes is not None and list(classes) != list(text):
            raise PromptError(
                f"text is a mapping from {list(text)[:10]}, which gives the order of the classes; leave out classes="
            )
        classes, text = list(text), list(text.values())
    prompts = None if text is None else prompt_groups(text, shape[1], "text")
    return _encode_target(y, shape[0], prompts, classes, missing_label), prompts


def _encode_target(y: Any, n: int, prompts: list[Floats] | None, classes: Any, missing_label: Any) -> Encoded:
    if y is None:
        if prompts is None:
            raise LabelError(
                "FairerCLIP requires y to be passed, but the target y is None and there are no prompts: give y, "
                "or text= (one embedding per class) to predict pseudo-labels from"
            )
        return _unlabelled(n, len(prompts), classes)
    y = as_labels(y)
    y = column_or_1d(y, warn=True) if y.ndim == 2 and y.shape[1] == 1 else y
    encoded = encode(y, missing_label=missing_label, classes=classes)
    if len(encoded.codes) != n:
        raise ShapeError(f"X has {n} rows but y has {len(encoded.codes)}")
    if prompts is not None and encoded.missing.all():
        return _unlabelled(n, len(prompts), classes)
    _check_categorical(encoded)
    if prompts is None:
        return encoded
    labels = encoded.classes.tolist()
    if classes is not None:
        if len(labels) != len(prompts):
            raise PromptError(
                f"expected one entry of text per class, got {len(labels)} classes and {len(prompts)} entries"
            )
        return encoded
    if not indexes_prompts(encoded.classes, len(prompts)):
        raise PromptError(
            f"text is an array of {len(prompts)} entries and y has the labels {labels[:10]}, so it is unknown which "
            f"prompt belongs to which label; write {mapping_to_write('text', labels)}, or give the order as classes=. "
            f"Without either, labels must be the numbers 0 to {len(prompts) - 1} of the entries"
        )
    if len(labels) == len(prompts):
        return encoded
    return encode(y, missing_label=missing_label, classes=range(len(prompts)))


def _unlabelled(n: int, n_prompts: int, classes: Any) -> Encoded:
    """Return n missing labels, all to be predicted from the prompts."""
    unknown = CodedLabels(np.full(n, -1, dtype=np.int8), ())
    encoded = encode(unknown, classes=range(n_prompts) if classes is None else classes)
    if len(encoded.classes) != n_prompts:
        raise PromptError(
            f"expected one entry of text per class, got {len(encoded.classes)} classes and {n_prompts} entries"
        )
    return encoded


def _check_categorical(encoded: Encoded) -> None:
    classes = encoded.classes
    if classes.dtype.kind == "f":
        if not np.all(np.isfinite(classes)):
            raise LabelError("Input y contains infinity; labels must be finite, None or NaN where unknown")
        if np.any(classes != np.floor(classes)):
            raise LabelError(
                f"Unknown label type: continuous. y has {len(classes)} distinct float values; the target must be "
                "categorical: bin it first"
            )


class _ClassSums:
    """Accumulator of the weighted sum (c, p) of the labelled rows of each class."""

    def __init__(self, n_classes: int) -> None:
        self._n_classes = n_classes
        self.sums: Any = 0.0

    def add(self, rows: Any, codes: Ints, weight: F64) -> None:
        onehot = np.zeros((self._n_classes, len(codes)))
        known = np.flatnonzero(codes >= 0)
        onehot[codes[known], known] = weight[known]
        self.sums = self.sums + onehot @ np.asarray(rows, dtype=np.float64)

    def merge(self, other: _ClassSums) -> None:
        self.sums = self.sums + other.sums


def _class_means(X: Any, encoded: Encoded, sample_weight: F64) -> list[Floats]:
    """Return the weighted mean (1, p) of the labelled rows of each class, to use in the place of prompts."""
    sums = sum_rows(X, partial(_ClassSums, len(encoded.classes)), [encoded.codes, sample_weight]).sums
    totals = np.bincount(
        encoded.codes[~encoded.missing],
        weights=sample_weight[~encoded.missing],
        minlength=len(encoded.classes),
    )
    if not np.all(totals > 0):
        raise LabelError(
            f"classes {encoded.classes[totals <= 0].tolist()} have neither labelled rows nor prompts; give text=, or "
            "leave them out of classes="
        )
    return [m[None, :] for m in sums / totals[:, None]]
