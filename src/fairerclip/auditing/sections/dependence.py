"""Dependence of predictions on a sensitive attribute, and of embeddings on target and attribute.

Predictions and attribute are categories, so that Dep, HSIC and KCC are functions of their table of counts and are exact
for any number of rows. Embeddings are measured as in the table of
Dehdashtian et al. 2024 (arXiv:2403.15593, appendix on comparing features): HSIC and KCC of (X, Y) and of (X, S).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairerclip._util.checks import check_confidence
from fairerclip._util.types import Ints
from fairerclip.auditing.display_names import attribute_name
from fairerclip.auditing.group_results import Stage
from fairerclip.auditing.results import DependenceRow, Measure, RepresentationRow, Tested
from fairerclip.data import Split
from fairerclip.errors import LabelError, ParameterError, ShapeError
from fairerclip.experiment import UNKNOWN, Experiment
from fairerclip.metrics import DependenceResult, dependence_test

Floats = NDArray[np.float64]

MEASURES: tuple[Measure, ...] = ("dep", "hsic", "kcc")
REGULARIZATION = 1e-2
"""κ of `fairerclip.metrics.kcc`."""
SPREAD = 1 - np.exp(-1.0)
"""1 minus the RBF kernel of two different one-hot rows at their median bandwidth, σ = 1: exp(−2/2)."""
DRAWS = 999
"""Number of tables drawn for an interval."""
JEFFREYS = 0.5
"""Added to each count before tables are drawn: a count of zero is not a probability of zero."""
MAX_ENTRIES = 1 << 20
"""Limit of the number of matrix entries that are processed at once."""
REPRESENTATION_ROWS = 1000
"""Limit of the number of rows, as the interval of a KCC takes twenty computations of O(n³) time."""
REPRESENTATION_MEASURES: tuple[Measure, ...] = ("hsic", "kcc")
SPACES: dict[Stage, str] = {"before": "image embeddings", "after": "mitigated embeddings"}
SAME = 1e-12
"""Shares that differ by less than this differ by rounding only."""
_TIE, _ROUNDING = 1e-9, 1e-15  # permuted values within rounding of the measured one count as equal


def prediction_dependence(
    predicted: Any,
    s: Any,
    *,
    measure: str = "dep",
    permutations: int = 199,
    random_state: int = 0,
    confidence: float = 0.95,
) -> DependenceResult:
    r"""Measure `dep`, `hsic` or `kcc` of one-hot predictions with an attribute; O(B·n) time for B permutations.

    Parameters
    ----------
    predicted, s : array of labels of shape (n,)
        Predicted classes and sensitive values.
    measure : {"dep", "hsic", "kcc"}
        As in `fairerclip.metrics`, for one-hot rows of ``predicted`` and the median bandwidth.
    permutations : int, default=199
        Number B of permutations; the smallest p-value is 1/(B + 1).
    random_state : int
        Seed of permutations and drawn tables.
    confidence : float, default=0.95
        Level of the interval.

    Returns
    -------
    DependenceResult
        The value is 0 with p = 1 if all predictions are the same.

    Notes
    -----
    With shares N/n and margins p, q the cross-covariance is C = N/n − pqᵀ; Dep is ‖C‖²_F. Different one-hot rows all
    have the same distance, so that their RBF kernel is a constant, which centring removes, plus 1 − 1/e times their
    linear kernel: HSIC is (1 − 1/e)·‖C‖²_F, and KCC the largest singular value of C whitened on both sides.

    Of tables C* drawn around C, the share ``confidence`` lies within some distance r of it. By the triangle inequality
    the norm of the true C then lies within r of the measured norm. The interval is conservative, more so for many
    classes and values, and its lower end is 0 if chance alone could explain the measured value.

    Examples
    --------
    >>> result = prediction_dependence(["a", "a", "b", "b"] * 20, ["x", "x", "y", "y"] * 20)
    >>> result.value, result.p_value
    (0.25, 0.005)
    """
    if measure not in MEASURES:
        raise ParameterError(f"measure must be one of {', '.join(MEASURES)}; got {measure!r}")
    if permutations < 1:
        raise ParameterError(f"permutations must be at least 1; got {permutations}")
    check_confidence(confidence)
    p, a, c, k = _coded(predicted, s)
    rng, measure_of = np.random.default_rng(random_state), _MEASURES[measure]
    table = _tables(p, [a], c, k)
    value = float(measure_of(table)[0])
    null = measure_of(_tables(p, (rng.permutation(a) for _ in range(permutations)), c, k))
    exceed = int((null >= value * (1 - _TIE) - _ROUNDING).sum())
    low, high = measure_of.interval(table, len(p), confidence, rng)
    return DependenceResult(
        measure, value, low, high, (1 + exceed) / (1 + permutations), permutations, len(p)
    )


def audit_dependence(
    experiment: Experiment,
    split: Split,
    predictions: Mapping[Stage, NDArray[Any]],
    *,
    permutations: int = 199,
    random_state: int = 0,
    confidence: float = 0.95,
) -> tuple[DependenceRow, ...] | None:
    """Measure the dependence of predictions on every attribute, over all rows and within each class.

    Parameters
    ----------
    experiment : Experiment
        Has the names of the classes and of the attributes, which are measured separately.
    split : Split
        Rows with sensitive labels. Without target labels nothing is measured within classes.
    predictions : mapping from stage to array of class names of shape (n,)
        ``{"before": experiment.zero_shot(split), "after": model.predict(split.X)}``, or one of them.
    permutations, random_state, confidence : int, int, float
        As in `prediction_dependence`. Within a class only its rows are permuted.

    Returns
    -------
    tuple of DependenceRow, or None
        One per stage, attribute, class and measure; None if no rows have two sensitive values.
    """
    results = []
    for stage, predicted in predictions.items():
        for attribute, given, rows in _parts(experiment, split):
            for measure in MEASURES:
                tested = prediction_dependence(
                    np.asarray(predicted)[rows],
                    split.s[attribute][rows],
                    measure=measure,
                    permutations=permutations,
                    random_state=random_state,
                    confidence=confidence,
                )
                about = {"stage": stage, "of": "predictions", "attribute": attribute_name(attribute)}
                results.append(DependenceRow.model_validate({**about, "given": given, **tested.as_dict()}))
    return tuple(results) or None


def _parts(experiment: Experiment, split: Split) -> Iterator[tuple[str, str | None, NDArray[np.bool_]]]:
    """Yield attribute, class (None for all) and rows, if the attribute has at least two values in these rows."""
    y = experiment.target(split)
    classes = [] if y is None else list(experiment.classes)
    for attribute in experiment.sensitive:
        if attribute not in split.s:
            continue
        known = split.s[attribute] >= 0
        if y is not None:
            known = known & (y != UNKNOWN)  # the same rows as those of all classes together
        for given in (None, *classes):
            rows = known if given is None else known & (y == given)
            if len(np.unique(split.s[attribute][rows])) > 1:
                yield attribute, given, rows


def _coded(predicted: Any, s: Any) -> tuple[Ints, Ints, int, int]:
    """Return codes of predictions (n,) and of sensitive values (n,), and the number of classes and of values."""
    (p, c), (a, k) = _codes(predicted, "predicted"), _codes(s, "s")
    if len(p) != len(a):
        raise ShapeError(f"expected a sensitive value for each of {len(p)} predictions; got {len(a)}")
    if k < 2:
        raise LabelError(f"dependence needs at least two sensitive values; got {len(a)} rows of one value")
    return p, a, max(c, 2), k  # another class could have been predicted


def _codes(labels: Any, name: str) -> tuple[Ints, int]:
    array = np.asarray(labels)
    if array.ndim != 1:
        raise ShapeError(f"{name} must have shape (n,); got {array.shape}")
    values, codes = np.unique(array, return_inverse=True)
    return codes.astype(np.int64), len(values)


def _tables(p: Ints, orders: Iterable[Ints], c: int, k: int) -> Floats:
    """Return shares (b, c, k) of predictions by sensitive value, for each of b orders of the sensitive values."""
    counts = [np.bincount(p * k + codes, minlength=c * k) for codes in orders]
    return np.stack(counts).reshape(-1, c, k) / len(p)


def _covariance(tables: Floats) -> Floats:
    """Return the cross-covariances C (b, c, k) of shares (b, c, k)."""
    return np.asarray(tables - tables.sum(axis=2, keepdims=True) * tables.sum(axis=1, keepdims=True))


def _whitened(tables: Floats) -> Floats:
    """Return (C_pp + κ)^(−1/2) C (C_ss + κ)^(−1/2) of each table; features are √(1 − 1/e)·one-hot predictions."""
    left, right = (_inverse_root(tables.sum(axis=axis), scale) for axis, scale in ((2, SPREAD), (1, 1.0)))
    return np.asarray(np.sqrt(SPREAD) * left @ _covariance(tables) @ right)


def _inverse_root(shares: Floats, scale: float) -> Floats:
    """Return (scale·(diag q − qqᵀ) + κI)^(−1/2) of shares q (b, k): (b, k, k), or (1, k, k) if all q are the same."""
    if np.ptp(shares, axis=0).max() < SAME:  # as for permutations of the same labels
        shares = shares[:1]
    C = scale * (shares[:, :, None] * np.eye(shares.shape[1]) - shares[:, :, None] * shares[:, None, :])
    values, vectors = np.linalg.eigh(C)
    roots = 1 / np.sqrt(np.maximum(values, 0.0) + REGULARIZATION)
    return np.asarray((vectors * roots[:, None, :]) @ vectors.transpose(0, 2, 1))


def _frobenius(M: Floats) -> Floats:
    return np.asarray(np.sqrt((M**2).sum(axis=(-2, -1))))


def _spectral(M: Floats) -> Floats:
    return np.asarray(np.linalg.norm(M, ord=2, axis=(-2, -1)))


@dataclass(frozen=True)
class _Measure:
    """A measure of dependence: a rising function of a norm of a matrix that is computed from a table."""

    matrix: Callable[[Floats], Floats]
    norm: Callable[[Floats], Floats]
    of_norm: Callable[[Floats], Floats]

    def __call__(self, tables: Floats) -> Floats:
        """Return the measure (b,) of each of the tables (b, c, k)."""
        return self.of_norm(self._norms(tables))

    def _norms(self, tables: Floats, centre: Floats | float = 0.0) -> Floats:
        """Return norms (b,) of the matrices minus a centre; the memory does not depend on b."""
        step = max(1, MAX_ENTRIES // max(tables.shape[1:]) ** 2)
        blocks = (tables[start : start + step] for start in range(0, len(tables), step))
        return np.concatenate([self.norm(self.matrix(block) - centre) for block in blocks])

    def interval(
        self, table: Floats, n: int, confidence: float, rng: np.random.Generator
    ) -> tuple[float, float]:
        """Return the interval of a table (1, c, k): its norm ± the distance within which drawn tables lie."""
        smooth = (table * n + JEFFREYS) / (n + JEFFREYS * table.size)
        drawn = rng.multinomial(n, smooth.ravel(), size=DRAWS).reshape(-1, *table.shape[1:]) / n
        distances = self._norms(drawn, self.matrix(smooth))
        reach = np.quantile(distances, confidence, method="higher")
        norm = self._norms(table)[0]
        low, high = self.of_norm(np.array([max(norm - reach, 0.0), norm + reach]))
        return float(low), float(high)


_MEASURES = {
    "dep": _Measure(_covariance, _frobenius, np.square),
    "hsic": _Measure(_covariance, _frobenius, lambda norm: SPREAD * np.square(norm)),
    "kcc": _Measure(_whitened, _spectral, lambda norm: np.minimum(norm, 1.0)),
}


def audit_representation(
    experiment: Experiment,
    split: Split,
    embeddings: Mapping[Stage, ArrayLike],
    *,
    permutations: int = 199,
    random_state: int = 0,
    confidence: float = 0.95,
    max_rows: int = REPRESENTATION_ROWS,
) -> tuple[RepresentationRow, ...] | None:
    """Measure HSIC and KCC of each stage's embeddings with the classes and with the sensitive values.

    O(n²·(p + B) + n³) time for B permutations over n ≤ ``max_rows`` rows, the same ones at every stage.

    Parameters
    ----------
    experiment : Experiment
        Has the names of classes and attributes; several attributes are crossed.
    split : Split
        Rows with sensitive labels and, if there are any, target labels; rows with unknown labels are left out.
    embeddings : mapping from stage to array of shape (n, p)
        ``{"before": split.X, "after": model.transform(split.X)}``, or one of them.
    permutations : int, default=199
        Number of permutations for p-values.
    random_state : int
        Seed of the drawn rows, bandwidths and permutations.
    confidence : float, default=0.95
        Level of the intervals.
    max_rows : int, default=1000
        Limit of the number of rows. Both measures are biased upward on few rows: compare figures on equally many rows.

    Returns
    -------
    tuple of RepresentationRow, or None
        One per stage; None without sensitive labels or with fewer than two labelled rows.
    """
    labels = {"y": experiment.target(split), "s": experiment.groups(split)}
    if labels["s"] is None:
        return None
    known_labels = {letter: values for letter, values in labels.items() if values is not None}
    rows = _rows(list(known_labels.values()), max_rows, random_state)
    if len(rows) < 2:
        return None
    draws = {"n_permutations": permutations, "random_state": random_state, "confidence": confidence}
    results = []
    for stage, stage_embeddings in embeddings.items():
        X = np.asarray(stage_embeddings)[rows]
        figures = {
            f"{measure}_{letter}": _tested(X, values[rows], measure=measure, **draws)
            for measure in REPRESENTATION_MEASURES
            for letter, values in known_labels.items()
        }
        space = f"{SPACES[stage]} ({X.shape[1]} wide)"
        results.append(RepresentationRow(stage=stage, space=space, **figures))
    return tuple(results)


def _tested(X: ArrayLike, labels: NDArray[np.str_], **options: Any) -> Tested:
    tested = dependence_test(X, labels, **options).as_dict()
    return Tested(**{name: tested[name] for name in Tested.model_fields})


def _rows(labels: list[NDArray[np.str_]], limit: int, random_state: int) -> NDArray[np.int64]:
    """Return the rows whose labels are all known, in order; if there are more than ``limit``, a random subset."""
    known = np.flatnonzero(np.all([values != UNKNOWN for values in labels], axis=0))
    if len(known) <= limit:
        return known
    return np.sort(np.random.default_rng(random_state).choice(known, size=limit, replace=False))
