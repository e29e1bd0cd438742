"""The target, complete: labels that are known, and guesses read from the prompts where they are not."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d

from fairerclip._util.types import F64, Floats, Ints
from fairerclip.data.embedding_rows import READ_ROWS
from fairerclip.errors import LabelError, PromptError, ShapeError, VanishedLabelWarning
from fairerclip.inputs.agreement import agreement, check_order
from fairerclip.inputs.encode import Encoded, as_labels, encode
from fairerclip.inputs.prompts import prompt_groups, zero_shot

LABELLED_SHARE, GUESSED_SHARE = 0.5, 0.75
"""Share of the zero-shot scores in the target where labels are known, and where all of them are guesses."""
MAX_CLASSES = 3000
"""Tables of classes by classes grow with the square: of more they would take gigabytes, and hours."""


@dataclass(frozen=True)
class Guess:
    """How far pseudo-labels can be trusted: where they were needed and by how much they won."""

    rows: NDArray[np.bool_]
    margins: F64

    def summary(self, codes: Ints, names: NDArray[Any]) -> dict[str, Any]:
        """Counts and margin quantiles in cosine units, ready for JSON."""
        chosen = self.margins[self.rows]
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
    """Class codes of every row, which of them are guesses, and the prompts of each class."""

    codes: Ints
    classes: NDArray[Any]
    prompts: list[Floats]
    guess: Guess | None
    has_text: bool = True
    """Whether the prompts are prompts, and not class means that stand in for them."""

    @property
    def known(self) -> Ints:
        """(n,) codes of the labels that were given, -1 for guesses."""
        return self.codes if self.guess is None else np.where(self.guess.rows, -1, self.codes)

    def listed_prompts(self) -> tuple[F64 | None, Ints | None]:
        """All prompts (m, p) with the codes of their classes (m,); None twice where there are none."""
        if not self.has_text:
            return None, None
        sizes = [len(group) for group in self.prompts]
        return np.concatenate(self.prompts), np.repeat(np.arange(len(sizes)), sizes)


def indexes_prompts(values: NDArray[Any], n_prompts: int) -> bool:
    """Whether distinct labels are numbers 0 … n_prompts − 1, so that they say which prompt is theirs.

    Whole floats too, since NaN for a missing label makes floats of integers; and booleans.
    """
    if values.dtype.kind not in "biuf" or not len(values):
        return False
    numbers = values.astype(np.float64)
    return bool(np.all(numbers == np.floor(numbers)) and numbers.min() >= 0 and numbers.max() < n_prompts)


def mapping_to_write(name: str, values: Any) -> str:
    """Show the mapping that says which prompt belongs to which label."""
    plain = (value.item() if isinstance(value, np.generic) else value for value in values)
    shown = [f"{value!r}: …" for value in list(plain)[:5]]
    return f"{name}={{{', '.join([*shown, '…'] if len(values) > 5 else shown)}}}"


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
    """Complete the target: known labels stay, missing ones are read zero-shot from the prompts.

    ``text`` is a mapping from class to prompts, or the prompts in the order of ``classes``; without ``classes`` the
    labels must be the numbers of the prompts. Prompts that contradict the known labels are an error or a warning.
    Rows of a single class are an error where something ``learns`` from them, and a warning where nothing does.
    """
    by_position = not isinstance(text, Mapping)
    encoded, prompts = known_labels(y, text, X.shape, classes=classes, missing_label=missing_label)
    origin: Any = 0.0
    missing = encoded.missing
    if len(encoded.classes) > MAX_CLASSES:
        raise LabelError(
            f"there are {len(encoded.classes):,} classes, more than the {MAX_CLASSES:,} that are told apart at a time: "
            "fit on fewer of them (classes= or --classes)"
        )
    if prompts is not None:
        names = encoded.classes.tolist()
        check_order(
            agreement(X, prompts, encoded.codes), names, "the target", by_position=by_position, depth=3
        )
    else:
        if len(encoded.classes) < 2:
            raise LabelError(
                f"y must have at least 2 classes; got {len(encoded.classes)} class: {encoded.classes.tolist()}"
            )
        prompts = _class_means(X, encoded, sample_weight)
        # Class means share the mean of all images, which says nothing of the class.
        origin = np.mean(np.concatenate(prompts), axis=0)
    codes, guess = encoded.codes, None
    if missing.any():
        guessed, margins = zero_shot(X, prompts, origin)
        codes = np.where(missing, guessed, codes)
        guess = Guess(missing, margins)
    present = np.bincount(codes, weights=sample_weight, minlength=len(encoded.classes)) > 0
    if present.sum() < 2 and learns:
        source = "zero-shot predictions have" if guess is not None else "y has"
        raise LabelError(
            f"{source} one class only ({encoded.classes[present].tolist()}): there is nothing to tell apart. "
            "Check the prompts and that image and text embeddings come from the same model"
        )
    if not present.all():
        constant = (
            f"every row is taken for {encoded.classes[present].tolist()}: " if present.sum() < 2 else ""
        )
        warnings.warn(
            f"{constant}classes {encoded.classes[~present].tolist()} have no rows; they are kept through their "
            "prompts alone",
            VanishedLabelWarning,
            stacklevel=3,
        )
    return ResolvedTarget(codes, encoded.classes, prompts, guess, has_text=text is not None)


def known_labels(
    y: Any, text: Any, shape: tuple[int, ...], *, classes: Any, missing_label: Any
) -> tuple[Encoded, list[Floats] | None]:
    """Labels of rows of a shape (n, p) as codes into the classes that a fit tells apart, and prompts of each class."""
    if isinstance(text, Mapping):
        if classes is not None and list(classes) != list(text):
            raise PromptError(
                f"text is a mapping from {list(text)[:10]}, which is the order of classes; drop classes="
            )
        classes, text = list(text), list(text.values())
    prompts = None if text is None else prompt_groups(text, shape[1], "text")
    return _encode_target(y, shape[0], prompts, classes, missing_label), prompts


def _encode_target(y: Any, n: int, prompts: list[Floats] | None, classes: Any, missing_label: Any) -> Encoded:
    if y is None:
        if prompts is None:
            raise LabelError(
                "FairerCLIP requires y to be passed, but the target y is None and there are no prompts: give y, "
                "or text= (one embedding per class) to read pseudo-labels from"
            )
        return _unlabelled(n, len(prompts), classes)
    y = as_labels(y)
    y = column_or_1d(y, warn=True) if y.ndim == 2 and y.shape[1] == 1 else y
    encoded = encode(y, missing_label=missing_label, classes=classes)
    if len(encoded.codes) != n:
        raise ShapeError(f"X has {n} rows but y has {len(encoded.codes)}")
    if prompts is not None and encoded.missing.all():
        return _unlabelled(n, len(prompts), classes)
    _refuse_regression(encoded)
    if prompts is None:
        return encoded
    found = encoded.classes.tolist()
    if classes is not None:
        if len(found) != len(prompts):
            raise PromptError(f"{len(found)} classes were named but text has {len(prompts)} entries")
        return encoded
    if not indexes_prompts(encoded.classes, len(prompts)):
        raise PromptError(
            f"text is an array of {len(prompts)} entries and y has the labels {found[:10]}, so that which prompt is "
            f"whose is not said; write {mapping_to_write('text', found)}, or give the order as classes=. Without "
            f"either, labels must be the numbers 0 to {len(prompts) - 1} of the entries"
        )
    if len(found) == len(prompts):
        return encoded
    return encode(y, missing_label=missing_label, classes=range(len(prompts)))


def _unlabelled(n: int, n_prompts: int, classes: Any) -> Encoded:
    """No label is known: every row is to be read from the prompts."""
    encoded = encode([None] * n, classes=range(n_prompts) if classes is None else classes)
    if len(encoded.classes) != n_prompts:
        raise PromptError(f"{len(encoded.classes)} classes were named but text has {n_prompts} entries")
    return encoded


def _refuse_regression(encoded: Encoded) -> None:
    classes = encoded.classes
    if classes.dtype.kind == "f":
        if not np.all(np.isfinite(classes)):
            raise LabelError("Input y contains infinity; labels must be finite, None or NaN where unknown")
        if np.any(classes != np.floor(classes)):
            raise LabelError(
                f"Unknown label type: continuous. y has {len(classes)} distinct float values; the target must be "
                "categorical: bin it first"
            )


def _class_means(X: Any, encoded: Encoded, sample_weight: F64) -> list[Floats]:
    """Class means stand in for prompts where there are none."""
    sums = np.zeros((len(encoded.classes), X.shape[1]))
    for start in range(0, X.shape[0], READ_ROWS):
        block = slice(start, start + READ_ROWS)
        codes = encoded.codes[block]
        onehot = np.zeros((len(encoded.classes), len(codes)))
        known = np.flatnonzero(codes >= 0)
        onehot[codes[known], known] = sample_weight[block][known]
        sums += onehot @ np.asarray(X[block], dtype=np.float64)
    totals = np.bincount(
        encoded.codes[~encoded.missing],
        weights=sample_weight[~encoded.missing],
        minlength=len(encoded.classes),
    )
    if not np.all(totals > 0):
        raise LabelError(
            f"classes {encoded.classes[totals <= 0].tolist()} have no labelled rows and there are no prompts to know "
            "them by; give text=, or leave them out of classes="
        )
    return [m[None, :] for m in sums / totals[:, None]]


def zero_shot_share(zero_shot: float | None, target: ResolvedTarget) -> float:
    """The share of zero-shot scores in the target: as given, or by what the labels are worth.

    Chosen on development tasks; docs/choosing.md says how. Without prompts there is nothing to share.
    """
    if not target.has_text:
        return 0.0
    if zero_shot is not None:
        return float(zero_shot)
    guessed = target.guess is not None and bool(target.guess.rows.all())
    return GUESSED_SHARE if guessed else LABELLED_SHARE
