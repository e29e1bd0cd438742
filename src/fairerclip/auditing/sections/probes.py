"""Linear and kernel probes that predict a sensitive attribute from embeddings, out of fold.

A probe is a classifier of the attribute that is trained on some rows and tested on others. If it is no better than
chance, *this kind* of classifier found nothing; another kind may.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairerclip._util.checks import check_confidence
from fairerclip._util.types import Ints
from fairerclip.auditing.display_names import attribute_name
from fairerclip.auditing.group_results import Stage
from fairerclip.auditing.results import Probe, ProbeRow
from fairerclip.data import Split
from fairerclip.errors import LabelError, NonFiniteError, ParameterError, ShapeError
from fairerclip.experiment import Experiment
from fairerclip.features import make_features
from fairerclip.inputs.encode import encode
from fairerclip.metrics.intervals import mover

Floats = NDArray[np.float64]
Rng = np.random.Generator

KINDS: tuple[Probe, ...] = ("linear", "kernel")
ROWS = 4000
"""Limit of the number of rows; if there are more, rows of the most frequent values are left out first."""
LANDMARKS = 500
"""Number of Nyström landmarks of the kernel probe; with no more training rows than this the kernel is exact."""
PENALTIES = (1.0, 0.1, 0.01, 0.001)
"""L2 penalties per row; each fold chooses one of them on a quarter of its training rows."""
CROSSED = float(np.sqrt(1 + 2 / np.pi))
"""Factor by which the half-width of an interval is multiplied because folds share training rows.

If there is nothing to predict, row i helps to predict row j just as row j helps to predict row i, so that correct
predictions in different folds are correlated. A score that is linear in the training labels, Σ y_i y_j K_ij, then has
twice the variance of independent rows; its signs, which are the predictions, have 1 + 2/π times the variance. In
simulations at chance the 95 % interval covers in 91 to 97 % of the cases (without the factor: 84 to 91 %); far from
chance it is a little too wide.
"""
_HELD_OUT = 4
_STEPS = 2000
_SMALLEST_SPREAD = 1e-10  # of a column, relative to its largest value: less is rounding, not spread


@dataclass(frozen=True)
class AttributeProbe:
    """Accuracy of a probe, as `probe_sensitive` measures it.

    Attributes
    ----------
    kind : {"linear", "kernel"}
        Kind of the probe.
    value : float
        Balanced accuracy: the mean of the recalls of the attribute's values, out of fold. It may lie below chance if
        the embeddings were made from these same rows and labels.
    low, high : float
        Interval of the value: recalls are independent binomials (Wilson limits, half-widths added up in squares), and
        the half-width is multiplied by `CROSSED`.
    chance : float
        One over the number of values.
    n, folds : int
        Number of rows after subsampling, and of folds.
    recalls : tuple of (str, int, int)
        For each value of the attribute: its name, the number of rows predicted correctly, and the number of rows.
    """

    kind: Probe
    value: float
    low: float
    high: float
    chance: float
    n: int
    folds: int
    recalls: tuple[tuple[str, int, int], ...]


def probe_sensitive(
    X: ArrayLike,
    s: Any,
    *,
    kind: Probe = "linear",
    folds: int = 5,
    random_state: int = 0,
    confidence: float = 0.95,
    max_rows: int = ROWS,
) -> AttributeProbe:
    """Train a probe that predicts ``s`` from embeddings, and test it on rows it was not trained on.

    The probe is a logistic regression with balanced classes on standardised columns ("linear"), or on Nyström features
    of an RBF kernel over them ("kernel"). Its penalty is chosen within the training rows of each fold. Time
    O(folds·(n·D + D³)) times a few hundred steps, with D = p or 500 features; memory O(n·(p + D)).

    Parameters
    ----------
    X : array of shape (n, p)
        Embeddings, one column or more.
    s : array of labels of shape (n,)
        The attribute, at least two values with two rows each.
    kind : {"linear", "kernel"}
        Kind of the probe.
    folds : int, default=5
        Number of folds; fewer if a value has fewer rows.
    random_state : int
        Seed of the drawn rows, folds and landmarks.
    confidence : float, default=0.95
        Level of the interval.
    max_rows : int, default=4000
        Limit of the number of rows; values with many rows are cut to equal size.

    Returns
    -------
    AttributeProbe
        Balanced accuracy with its interval.

    Raises
    ------
    LabelError
        There are fewer than two values, or one has a single row.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> s = np.repeat(["day", "night"], 50)
    >>> X = rng.normal(size=(100, 3)) + 8.0 * (s == "day")[:, None]
    >>> probe = probe_sensitive(X, s)
    >>> probe.value, round(probe.low, 2), probe.chance
    (1.0, 0.94, 0.5)
    """
    _check(kind, folds, confidence, max_rows)
    rng = np.random.default_rng(random_state)
    rows, codes, names = _probed_rows(X, s, max_rows, rng)
    n = np.bincount(codes)
    folds = min(folds, int(n.min()))
    predicted = _out_of_fold(rows, codes, kind, folds, rng)
    correct = np.bincount(codes[predicted == codes], minlength=len(names))
    value = float((correct / n).mean())
    low, high = mover(np.full(len(names), 1 / len(names)), correct, n, confidence)
    return AttributeProbe(
        kind=kind,
        value=value,
        low=max(0.0, value - CROSSED * (value - float(low))),
        high=min(1.0, value + CROSSED * (float(high) - value)),
        chance=1 / len(names),
        n=len(rows),
        folds=folds,
        recalls=tuple(zip(names, correct.tolist(), n.tolist(), strict=True)),
    )


def audit_probes(
    experiment: Experiment,
    split: Split,
    embeddings: Mapping[Stage, ArrayLike],
    *,
    random_state: int = 0,
    confidence: float = 0.95,
) -> tuple[tuple[ProbeRow, ...] | None, list[str]]:
    """Train both probes of every attribute on the embeddings of every stage.

    Parameters
    ----------
    experiment : Experiment
        Has the names of the attributes; each is probed separately.
    split : Split
        Rows with sensitive labels; unknown ones are left out.
    embeddings : mapping from stage to array of shape (n, p)
        ``{"before": split.X, "after": model.transform(split.X)}``, or one of them.
    random_state, confidence : int, float
        As in `probe_sensitive`.

    Returns
    -------
    rows : tuple of ProbeRow, or None
        None if no attribute could be probed.
    notes : list of str
        A sentence for each attribute that was left out.
    """
    probes: list[ProbeRow] = []
    notes: list[str] = []
    for attribute in experiment.sensitive:
        if attribute not in split.s:
            notes.append(f"There are no labels of {attribute}, so no probe of it was trained.")
            continue
        known = split.s[attribute] >= 0
        values = np.array(experiment.task.sensitive[attribute].names)[split.s[attribute][known]]
        try:
            for stage, X in embeddings.items():
                for kind in KINDS:
                    probe = probe_sensitive(
                        np.asarray(X)[known],
                        values,
                        kind=kind,
                        random_state=random_state,
                        confidence=confidence,
                    )
                    probes.append(_row(attribute_name(attribute), stage, probe))
        except LabelError as error:
            notes.append(f"No probe of {attribute} was trained: {error}.")
    return tuple(probes) or None, notes


def _row(attribute: str, stage: Stage, probe: AttributeProbe) -> ProbeRow:
    figures = {name: getattr(probe, name) for name in ("value", "low", "high", "chance", "n", "folds")}
    return ProbeRow(attribute=attribute, stage=stage, probe=probe.kind, **figures)


def _check(kind: str, folds: int, confidence: float, max_rows: int) -> None:
    if kind not in KINDS:
        raise ParameterError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")
    if not folds >= 2:
        raise ParameterError(f"folds must be at least 2; got {folds}")
    check_confidence(confidence)
    if not max_rows >= 2:
        raise ParameterError(f"max_rows must be at least 2; got {max_rows}")


def _probed_rows(X: ArrayLike, s: Any, max_rows: int, rng: Rng) -> tuple[Floats, Ints, list[str]]:
    """Check and subsample embeddings and attribute: rows (m, p), codes (m,) and the names of the values."""
    rows = np.asarray(X)
    if rows.ndim != 2 or 0 in rows.shape or rows.dtype.kind not in "fiub":
        raise ShapeError(f"a probe needs numbers X of shape (n, p), got {rows.dtype} of shape {rows.shape}")
    codes, names = _values(s, len(rows))
    chosen = _subsample(codes, max_rows, rng)
    rows = rows[chosen].astype(np.float64)
    if not np.isfinite(rows).all():
        raise NonFiniteError("X holds NaN or infinity; a probe needs finite embeddings: remove those rows")
    return rows, codes[chosen], names


def _values(s: Any, n: int) -> tuple[Ints, list[str]]:
    """Return codes (n,) and the names of the values, or raise unless each has at least two rows."""
    if np.shape(s) != (n,):
        raise ShapeError(f"s must have one label for each of the {n} rows of X; got shape {np.shape(s)}")
    encoded = encode(np.asarray(s))
    names = [str(value) for value in encoded.classes.tolist()]
    if len(names) < 2:
        raise LabelError(f"a probe needs at least two values of the attribute, got only {', '.join(names)}")
    counts = np.bincount(encoded.codes)
    if counts.min() < 2:
        rare = names[int(counts.argmin())]
        raise LabelError(f"{rare!r} has a single row, and a probe needs one to train on and one to test on")
    return encoded.codes.astype(np.int64), names


def _subsample(codes: Ints, limit: int, rng: Rng) -> Ints:
    """Return about ``limit`` row numbers at most: values with many rows are cut to one size, at least two rows."""
    counts = np.bincount(codes)
    if len(codes) <= limit:
        return np.arange(len(codes))
    # The largest cap for which the values together fit into the limit: small values keep all rows.
    cap, left = 0, limit
    for place, count in enumerate(np.sort(counts)):
        cap = max(left // (len(counts) - place), 2)
        left -= min(int(count), cap)
    kept = [rng.permutation(np.flatnonzero(codes == value))[:cap] for value in range(len(counts))]
    return np.sort(np.concatenate(kept))


def _folds(codes: Ints, folds: int, rng: Rng) -> Iterator[tuple[Ints, Ints]]:
    """Yield training and test rows of each fold; every value is spread evenly over the folds."""
    fold = np.empty(len(codes), dtype=np.int64)
    # The count continues from value to value, so that the folds have the same size.
    order = np.concatenate([rng.permutation(np.flatnonzero(codes == v)) for v in range(int(codes.max()) + 1)])
    fold[order] = np.arange(len(codes)) % folds
    for k in range(folds):
        yield np.flatnonzero(fold != k), np.flatnonzero(fold == k)


def _out_of_fold(X: Floats, codes: Ints, kind: str, folds: int, rng: Rng) -> Ints:
    """Return predicted codes (n,), each row by the probe that was not trained on it."""
    from threadpoolctl import threadpool_limits

    predicted = np.empty(len(codes), dtype=np.int64)
    # Thousands of small products: if other work shares the cores, several threads take up to twenty times longer.
    with threadpool_limits(1, "blas"):
        for train, test in _folds(codes, folds, rng):
            penalty = _choose_penalty(X[train], codes[train], kind, rng)
            train_features, test_features = _features(X[train], X[test], kind, rng)
            (model,) = _fitted(train_features, codes[train], [penalty])
            predicted[test] = model.predict(test_features)
    return predicted


def _choose_penalty(X: Floats, codes: Ints, kind: str, rng: Rng) -> float:
    """Return the last penalty, from strong to weak, before the balanced log loss on a quarter of the rows rises.

    If a value has one row only, which cannot be in both parts, return the strongest penalty.
    """
    smallest = int(np.bincount(codes).min())
    if smallest < 2:
        return PENALTIES[0]
    train, test = next(_folds(codes, min(_HELD_OUT, smallest), rng))
    train_features, test_features = _features(X[train], X[test], kind, rng)
    best, lowest = PENALTIES[0], np.inf
    for penalty, model in zip(PENALTIES, _fitted(train_features, codes[train], PENALTIES), strict=True):
        loss = _balanced_loss(model.predict_log_proba(test_features), codes[test])
        if loss >= lowest:
            break  # weaker penalties overfit more and take longer
        best, lowest = penalty, loss
    return best


def _balanced_loss(log_probability: Floats, codes: Ints) -> float:
    loss = -log_probability[np.arange(len(codes)), codes]
    present = np.unique(codes)
    return float(np.mean([loss[codes == value].mean() for value in present]))


def _fitted(X: Floats, codes: Ints, penalties: Sequence[float]) -> Iterator[Any]:
    """Yield logistic regressions from strong to weak penalty, each started at the solution of the last one."""
    from sklearn.linear_model import LogisticRegression  # slow to import, and only probes need it

    model = LogisticRegression(class_weight="balanced", max_iter=_STEPS, warm_start=True)
    for penalty in penalties:
        yield model.set_params(C=1 / (penalty * len(X))).fit(X, codes)


def _features(train: Floats, test: Floats, kind: str, rng: Rng) -> tuple[Floats, Floats]:
    """Return the probe's features of training and test rows; their scales are those of the training rows."""
    train, test = _standardised(train, test)
    if kind == "linear":
        return train, test
    kernel = make_features(
        "nystroem", train, n_features=LANDMARKS, bandwidth="median", random_state=int(rng.integers(2**31))
    )
    train, test = kernel.transform(train), kernel.transform(test)
    train, test = train - train.mean(axis=0), test - train.mean(axis=0)
    # One scale for all features: directions of small variance stay small, and penalties keep their meaning.
    scale = float(np.sqrt(np.mean(train**2))) or 1.0
    return train / scale, test / scale


def _standardised(train: Floats, test: Floats) -> tuple[Floats, Floats]:
    """Scale columns to mean 0 and standard deviation 1 over the training rows; constant columns become 0."""
    mean, spread = train.mean(axis=0), train.std(axis=0)
    varies = spread > _SMALLEST_SPREAD * np.abs(train).max(axis=0)
    scale = np.where(varies, 1 / np.where(varies, spread, 1.0), 0.0)
    return (train - mean) * scale, (test - mean) * scale
