"""From what the user gives to a solvable problem: labels completed, rows weighted, features drawn."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.errors import (
    ConstantSensitiveWarning,
    LabelError,
    NoSensitiveWarning,
    ParameterError,
    PromptError,
    ShapeError,
    VanishedLabelWarning,
)
from fairerclip.features import FeatureMap, make_features
from fairerclip.inputs import Floats, prompt_groups, sensitive_prompts
from fairerclip.labels import (
    Encoded,
    SensitiveColumn,
    encode,
    intersect,
    row_weights,
    sensitive_columns,
    zero_shot,
)
from fairerclip.solver.problem import Problem, Prompts, choose_solver
from fairerclip.solver.rows import FeatureRows
from fairerclip.solver.terms import Attribute

F64 = NDArray[np.float64]
Ints = NDArray[np.int64]

CONTINUOUS_LANDMARKS = 20
"""Nyström landmarks of a continuous attribute: an RBF of one variable has few directions that matter."""
FEATURE_FIT_ROWS = 20_000
"""Rows that a feature map is fitted on (bandwidth, landmarks, scale): a seeded sample beyond this."""
EXACT_PROMPTS = 5000
"""The text kernel is exact up to so many prompts, Nyström beyond."""


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
class Target:
    """Class codes of every row, which of them are guesses, and the prompts of each class."""

    codes: Ints
    classes: NDArray[Any]
    prompts: list[Floats]
    guess: Guess | None


@dataclass(frozen=True)
class Sensitive:
    """Sensitive attributes, complete: one column per term of the objective."""

    columns: list[SensitiveColumn]
    guesses: dict[str, Guess]

    @property
    def groups(self) -> Ints | None:
        """(n,) joint code of all categorical attributes, or None."""
        codes = [c.codes for c in self.columns if c.codes is not None]
        if not codes:
            return None
        joint = np.unique(np.column_stack(codes), axis=0, return_inverse=True)[1]
        return np.asarray(joint, dtype=np.int64).reshape(-1)


def resolve_target(
    X: Any,
    y: Any,
    text: Any,
    sample_weight: F64,
    *,
    classes: Any = None,
    missing_label: Any = None,
) -> Target:
    """Complete the target: known labels stay, missing ones are read zero-shot from the prompts."""
    prompts = None if text is None else prompt_groups(text, X.shape[1], "text")
    origin: Any = 0.0
    encoded = _encode_target(X, y, prompts, classes, missing_label)
    missing = encoded.missing
    if prompts is None:
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
    if present.sum() < 2:
        source = "zero-shot predictions have" if guess is not None else "y has"
        raise LabelError(
            f"{source} one class only ({encoded.classes[present].tolist()}): there is nothing to tell apart. "
            "Check the prompts and that image and text embeddings come from the same model"
        )
    if not present.all():
        warnings.warn(
            f"classes {encoded.classes[~present].tolist()} have no rows; they are kept through their prompts alone",
            VanishedLabelWarning,
            stacklevel=3,
        )
    return Target(codes, encoded.classes, prompts, guess)


def _encode_target(X: Any, y: Any, prompts: list[Floats] | None, classes: Any, missing_label: Any) -> Encoded:
    n = int(X.shape[0])
    if y is None:
        if prompts is None:
            raise LabelError(
                "FairerCLIP requires y to be passed, but the target y is None and there are no prompts: give y, "
                "or text= (one embedding per class) to read pseudo-labels from"
            )
        return _unlabelled(n, len(prompts), classes)
    encoded = encode(y, missing_label=missing_label, classes=classes)
    if len(encoded.codes) != n:
        raise ShapeError(f"X has {n} rows but y has {len(encoded.codes)}")
    if prompts is not None and encoded.missing.all():
        return _unlabelled(n, len(prompts), classes)
    _refuse_regression(encoded)
    if prompts is None or len(encoded.classes) == len(prompts):
        return encoded
    # Whole floats too: NaN for a missing label makes floats of integers.
    indexes = encoded.classes.dtype.kind in "iuf" and len(encoded.classes) <= len(prompts)
    if classes is None and indexes and encoded.classes.min() >= 0 and encoded.classes.max() < len(prompts):
        return encode(y, missing_label=missing_label, classes=range(len(prompts)))
    raise PromptError(
        f"y has {len(encoded.classes)} classes {encoded.classes.tolist()[:10]} but text has {len(prompts)} entries; "
        "give one entry per class in the order of classes=, or integer labels that index the prompts"
    )


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
    for start in range(0, X.shape[0], 16384):
        block = slice(start, start + 16384)
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


def resolve_sensitive(
    X: Any, sensitive_features: Any, sensitive_text: Any, *, kind: str, terms: str, missing_label: Any
) -> Sensitive:
    """Complete the sensitive attributes: known values stay, missing ones are read zero-shot.

    Guessed values are never refined later: mitigation destroys what they would be read from.
    """
    prompts = sensitive_prompts(sensitive_text, X.shape[1])
    if sensitive_features is None:
        columns = [
            SensitiveColumn(
                name or "s", np.full(X.shape[0], -1, dtype=np.int64), np.arange(len(groups)), None
            )
            for name, groups in prompts.items()
        ]
        by_name = {name or "s": groups for name, groups in prompts.items()}
    else:
        columns = sensitive_columns(sensitive_features, kind=kind, missing_label=missing_label)
        by_name = _match_prompts(columns, prompts)
    if not columns:
        warnings.warn(
            "neither sensitive_features nor sensitive_text is given: there is no S term and nothing is mitigated",
            NoSensitiveWarning,
            stacklevel=3,
        )
        return Sensitive([], {})
    guesses: dict[str, Guess] = {}
    complete = [_complete(X, column, by_name, guesses) for column in columns]
    if terms == "intersection" and len(complete) > 1:
        complete = [intersect(complete)]
    return Sensitive(_without_constant(complete), guesses)


def _match_prompts(
    columns: Sequence[SensitiveColumn], prompts: Mapping[str | None, list[Floats]]
) -> dict[str, list[Floats]]:
    if None in prompts and len(columns) > 1:
        raise PromptError(
            f"sensitive_features has {len(columns)} columns {[c.name for c in columns]}; "
            "give sensitive_text as a mapping from column name to prompts"
        )
    if None in prompts:
        return {columns[0].name: prompts[None]}
    unknown = [name for name in prompts if name not in {c.name for c in columns}]
    if unknown:
        raise PromptError(
            f"sensitive_text names {unknown}, sensitive_features has {[c.name for c in columns]}"
        )
    return {str(name): groups for name, groups in prompts.items()}


def _complete(
    X: Any, column: SensitiveColumn, prompts: Mapping[str, list[Floats]], guesses: dict[str, Guess]
) -> SensitiveColumn:
    values = column.values if column.values is not None else column.codes
    if values is None or len(values) != X.shape[0]:
        raise ShapeError(
            f"X has {X.shape[0]} rows but sensitive attribute {column.name!r} has "
            f"{0 if values is None else len(values)}"
        )
    if column.codes is None or column.categories is None or not (column.codes < 0).any():
        return column
    missing = column.codes < 0
    if column.name not in prompts:
        raise LabelError(
            f"sensitive attribute {column.name!r} is missing in {int(missing.sum())} of {len(missing)} rows; "
            "give sensitive_text= to read it from, or drop those rows"
        )
    groups = prompts[column.name]
    codes, categories = column.codes, column.categories
    if not len(categories):  # nothing is known: the prompts say what the values are
        categories = np.arange(len(groups))
    elif len(categories) != len(groups):
        integers = categories.dtype.kind in "iuf" and bool(np.all(categories == np.floor(categories)))
        if not (integers and categories.min() >= 0 and categories.max() < len(groups)):
            raise PromptError(
                f"sensitive attribute {column.name!r} has {len(categories)} values {categories.tolist()[:10]} but its "
                f"prompts have {len(groups)} entries; give one entry per value, in sorted order"
            )
        codes = np.where(missing, -1, categories[codes])
        categories = np.arange(len(groups))
    guessed, margins = zero_shot(X, groups)
    guesses[column.name] = Guess(missing, margins)
    codes = np.where(missing, guessed, codes).astype(np.int64)
    gone = np.bincount(codes, minlength=len(categories)) == 0
    if 0 < gone.sum() < len(categories) - 1:  # one value left is reported as constant
        warnings.warn(
            f"sensitive attribute {column.name!r}: no row is read as {categories[gone].tolist()}; check the prompts",
            VanishedLabelWarning,
            stacklevel=5,
        )
    return SensitiveColumn(column.name, codes, categories, None)


def _without_constant(columns: Sequence[SensitiveColumn]) -> list[SensitiveColumn]:
    kept = []
    for column in columns:
        values = column.values if column.values is not None else column.codes
        if values is not None and len(np.unique(values)) > 1:
            kept.append(column)
            continue
        warnings.warn(
            f"sensitive attribute {column.name!r} has one value only: its term is zero and nothing is mitigated "
            "with respect to it. Check its labels or prompts",
            ConstantSensitiveWarning,
            stacklevel=4,
        )
    return kept


def attributes(
    columns: Sequence[SensitiveColumn], weight: F64, random_state: np.random.RandomState
) -> list[Attribute]:
    """ψ(s) of each attribute: one-hot for categories (delta kernel), RBF features for a quantity."""
    out = []
    for column in columns:
        if column.values is not None:
            values = column.values[:, None]
            phi = make_features(
                "nystroem",
                values,
                n_features=CONTINUOUS_LANDMARKS,
                bandwidth="median",
                sample_weight=weight,
                random_state=random_state,
            )
            out.append(Attribute(column.name, np.asarray(phi.transform(values), dtype=np.float64)))
        elif column.codes is not None:
            present, codes = np.unique(column.codes, return_inverse=True)
            out.append(Attribute(column.name, np.eye(len(present))[codes.reshape(-1)]))
    return out


def text_prompts(target: Target, kernel: str, bandwidth: float | str, seed: int) -> Prompts:
    """Features of the prompts: exact for up to 5000 of them, since there are so few distinct rows."""
    T = np.concatenate(target.prompts)
    class_of = np.repeat(np.arange(len(target.prompts)), [len(p) for p in target.prompts])
    if kernel != "linear":
        kernel = "exact" if len(T) <= EXACT_PROMPTS else "nystroem"
    features = make_features(
        kernel, T, n_features=min(len(T), EXACT_PROMPTS), bandwidth=bandwidth, random_state=seed
    )
    return Prompts(
        features, np.asarray(features.transform(T), dtype=np.float64), class_of, len(target.classes)
    )


def image_features(
    X: Any, weight: F64, kernel: str, n_features: int, bandwidth: float | str, seed: int
) -> FeatureMap:
    """Fit the image side's feature map on the rows with weight, or a seeded sample of them."""
    rows = np.flatnonzero(weight > 0)
    if len(rows) > FEATURE_FIT_ROWS:
        rows = np.sort(np.random.RandomState(seed).choice(rows, FEATURE_FIT_ROWS, replace=False))
    sample = X if len(rows) == len(weight) else X[rows]
    return make_features(
        kernel,
        np.asarray(sample),
        n_features=n_features,
        bandwidth=bandwidth,
        sample_weight=weight[rows],
        random_state=np.random.default_rng(seed),  # draws Ω three times faster than a RandomState
    )


@dataclass(frozen=True)
class Prepared:
    """A problem ready to be solved for any τ, τ_z and criterion."""

    problem: Problem
    rows: Ints
    """Row numbers that take part (weight above zero)."""
    y: Ints
    """(len(rows),) initial labels."""
    free: NDArray[np.bool_]
    """(len(rows),) labels that are guesses."""
    seed: int
    """Seed of the RBF alignment features."""
    target: Target
    sensitive: Sensitive


def check_weights(sample_weight: Any, n: int) -> F64:
    """Row weights (n,): ones, or the user's, checked."""
    if sample_weight is None:
        return np.ones(n)
    try:
        weight = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"sample_weight must hold numbers, one per row of X; {error}") from None
    if weight.ndim == 0:
        weight = np.full(n, float(weight))
    if weight.shape != (n,):
        raise ShapeError(f"sample_weight.shape == {weight.shape}, expected {(n,)}: one weight per row of X")
    if not np.all(np.isfinite(weight)) or np.any(weight < 0) or not np.any(weight > 0):
        raise ParameterError(
            "sample_weight must be finite and nowhere negative, and not zero for every row: no weight is left"
        )
    return weight


def prepare(
    X: Any, target: Target, sensitive: Sensitive, params: Mapping[str, Any], sample_weight: F64
) -> Prepared:
    """Weigh the rows, draw the features and factor C."""
    random_state = params["random_state"]
    feature_seed, alignment_seed = random_state.randint(np.iinfo(np.int32).max, size=2).tolist()
    weight = row_weights(
        params["class_weight"], target.codes, sensitive.groups, target.classes, sample_weight, random_state
    )
    features = image_features(
        X, weight, params["kernel"], params["n_features"], params["bandwidth"], feature_seed
    )
    chosen = np.flatnonzero(weight > 0)
    everything = len(chosen) == X.shape[0]
    rows = FeatureRows(features, X, rows=None if everything else chosen, dtype=params["dtype"])
    problem = Problem(
        rows,
        weight[chosen],
        tuple(Attribute(a.name, a.psi[chosen]) for a in attributes(sensitive.columns, weight, random_state)),
        text_prompts(target, params["kernel"], params["bandwidth"], feature_seed),
        target.codes[chosen],
        gamma=params["gamma"],
        gamma_text=params["gamma_text"],
        solver=choose_solver(params["solver"], rows.n_rows, features.n_features, rows.dtype.itemsize),
        random_state=random_state,
    )
    free = np.zeros(len(chosen), dtype=bool) if target.guess is None else target.guess.rows[chosen]
    return Prepared(problem, chosen, target.codes[chosen], free, alignment_seed, target, sensitive)


def pseudo_sensitive(sensitive: Sensitive) -> Any:
    """Sensitive values used (n,), or a mapping of them by name; None where nothing was guessed."""
    if not sensitive.guesses:
        return None
    values = {
        c.name: c.categories[c.codes]
        for c in sensitive.columns
        if c.codes is not None and c.categories is not None
    }
    return next(iter(values.values())) if len(values) == 1 else values
