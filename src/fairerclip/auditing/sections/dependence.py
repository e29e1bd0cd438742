"""Dependence of predictions on a sensitive attribute, and of embeddings on target and attribute.

Predictions and attribute are categories, so that a table of counts holds all there is to know: Dep, HSIC and KCC
are functions of it, as exact for a million rows as for a hundred. Embeddings are measured as in the table of
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
from fairerclip.auditing.findings import attribute_name
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
"""Tables drawn for an interval."""
JEFFREYS = 0.5
"""Added to each count before tables are drawn: a count of zero is not a probability of zero."""
MAX_ENTRIES = 1 << 20
"""Entries of the matrices that are worked on at once."""
REPRESENTATION_ROWS = 1000
"""More rows than this are subsampled: the interval of a KCC takes O(n³) time, twenty times over."""
REPRESENTATION_MEASURES: tuple[Measure, ...] = ("hsic", "kcc")
SPACES: dict[Stage, str] = {"before": "image embeddings", "after": "mitigated embeddings"}
SAME = 1e-12
"""Shares that differ by less differ by rounding alone."""
_TIE, _ROUNDING = 1e-9, 1e-15  # permuted values equal to the one found but for rounding count as such


def prediction_dependence(
    predicted: Any,
    s: Any,
    *,
    measure: str = "dep",
    permutations: int = 199,
    random_state: int = 0,
    confidence: float = 0.95,
) -> DependenceResult:
    r"""`dep`, `hsic` or `kcc` of one-hot predictions with an attribute; O(B·n) time for B permutations.

    Parameters
    ----------
    predicted, s : array of labels, shape (n,)
        Predicted classes and sensitive values.
    measure : {"dep", "hsic", "kcc"}
        As in `fairerclip.metrics`, for one-hot rows of ``predicted`` and, where there is one, a median bandwidth.
    permutations : int, default=199
        B; the smallest p-value is 1/(B + 1).
    random_state : int
        Draws permutations and tables.
    confidence : float, default=0.95
        Of the interval.

    Returns
    -------
    DependenceResult
        0 with p = 1 where all predictions are the same.

    Notes
    -----
    With shares N/n and margins p, q the cross-covariance is C = N/n − pqᵀ; Dep is ‖C‖²_F. One-hot rows are all
    equally far apart, so that their RBF kernel is a constant, which centring takes out, plus 1 − 1/e times their
    linear kernel: HSIC is (1 − 1/e)·‖C‖²_F, and KCC the largest singular value of C whitened on both sides.

    Of tables C* drawn around C, the share ``confidence`` lies within some distance r of it. The norm of the true C
    then lies within r of the norm that was found, by the triangle inequality: the interval is cautious, more so for
    many classes and values, and it reaches down to 0 where chance alone could have made what was found.

    Examples
    --------
    >>> found = prediction_dependence(["a", "a", "b", "b"] * 20, ["x", "x", "y", "y"] * 20)
    >>> found.value, found.p_value
    (0.25, 0.005)
    """
    if measure not in MEASURES:
        raise ParameterError(f"measure must be one of {', '.join(MEASURES)}; got {measure!r}")
    if permutations < 1:
        raise ParameterError(f"permutations must be at least 1; got {permutations}")
    check_confidence(confidence)
    (p, c), (a, k) = _codes(predicted, "predicted"), _codes(s, "s")
    if len(p) != len(a):
        raise ShapeError(f"expected a sensitive value for each of {len(p)} predictions; got {len(a)}")
    if k < 2:
        raise LabelError(f"dependence on one sensitive value says nothing; got {len(a)} rows of it")
    rng, size = np.random.default_rng(random_state), _MEASURES[measure]
    c = max(c, 2)  # a class that was never predicted might have been
    table = _tables(p, [a], c, k)
    value = float(size(table)[0])
    null = size(_tables(p, (rng.permutation(a) for _ in range(permutations)), c, k))
    exceed = int((null >= value * (1 - _TIE) - _ROUNDING).sum())
    low, high = size.interval(table, len(p), confidence, rng)
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
    """Every measure of every attribute at every stage, over all rows and within each class.

    Parameters
    ----------
    experiment : Experiment
        Names the attributes, each taken on its own, and the classes.
    split : Split
        Rows with sensitive labels. Without target labels there is nothing within classes.
    predictions : mapping from stage to array (n,) of class names
        ``{"before": experiment.zero_shot(split), "after": model.predict(split.X)}``, or one of them.
    permutations, random_state, confidence
        As in `prediction_dependence`. Within a class only its rows are permuted.

    Returns
    -------
    tuple of DependenceRow, or None
        Rows of one sensitive value only are left out, and None if nothing is left.
    """
    found = []
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
                found.append(DependenceRow.model_validate({**about, "given": given, **tested.as_dict()}))
    return tuple(found) or None


def _parts(experiment: Experiment, split: Split) -> Iterator[tuple[str, str | None, NDArray[np.bool_]]]:
    """Attribute, class (None for all) and rows in which the attribute has two values at least."""
    y = experiment.target(split)
    classes = [] if y is None else list(experiment.classes)
    for attribute in experiment.sensitive:
        if attribute not in split.s:
            continue
        known = split.s[attribute] >= 0
        if y is not None:
            known = known & (y != UNKNOWN)  # the same rows as in the classes together
        for given in (None, *classes):
            rows = known if given is None else known & (y == given)
            if len(np.unique(split.s[attribute][rows])) > 1:
                yield attribute, given, rows


def _codes(labels: Any, name: str) -> tuple[Ints, int]:
    array = np.asarray(labels)
    if array.ndim != 1:
        raise ShapeError(f"{name} must have shape (n,); got {array.shape}")
    values, codes = np.unique(array, return_inverse=True)
    return codes.astype(np.int64), len(values)


def _tables(p: Ints, orders: Iterable[Ints], c: int, k: int) -> Floats:
    """Shares (b, c, k) of predictions by value, for each of b orders of the values."""
    counts = [np.bincount(p * k + codes, minlength=c * k) for codes in orders]
    return np.stack(counts).reshape(-1, c, k) / len(p)


def _covariance(tables: Floats) -> Floats:
    """C (b, c, k) of shares (b, c, k)."""
    return np.asarray(tables - tables.sum(axis=2, keepdims=True) * tables.sum(axis=1, keepdims=True))


def _whitened(tables: Floats) -> Floats:
    """(C_pp + κ)^(−1/2) C (C_ss + κ)^(−1/2) of each table, with features √(1 − 1/e)·one-hot of the predictions."""
    left, right = (_inverse_root(tables.sum(axis=axis), scale) for axis, scale in ((2, SPREAD), (1, 1.0)))
    return np.asarray(np.sqrt(SPREAD) * left @ _covariance(tables) @ right)


def _inverse_root(shares: Floats, scale: float) -> Floats:
    """(scale·(diag q − qqᵀ) + κI)^(−1/2), (b, k, k), of shares q (b, k); (1, k, k) where all q are the same."""
    if np.ptp(shares, axis=0).max() < SAME:  # as of every order of the same labels
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
    """A matrix of each table, the norm it is measured in, and the measure as a rising function of that norm."""

    matrix: Callable[[Floats], Floats]
    norm: Callable[[Floats], Floats]
    of_norm: Callable[[Floats], Floats]

    def __call__(self, tables: Floats) -> Floats:
        """The measure of each of the tables (b, c, k)."""
        return self.of_norm(self._norms(tables))

    def _norms(self, tables: Floats, centre: Floats | float = 0.0) -> Floats:
        """Norms of the matrices less a centre, (b,); memory: a few matrices c × c, whatever b is."""
        step = max(1, MAX_ENTRIES // max(tables.shape[1:]) ** 2)
        blocks = (tables[start : start + step] for start in range(0, len(tables), step))
        return np.concatenate([self.norm(self.matrix(block) - centre) for block in blocks])

    def interval(
        self, table: Floats, n: int, confidence: float, rng: np.random.Generator
    ) -> tuple[float, float]:
        """The norm of one table (1, c, k), less and plus the distance within which drawn tables stay."""
        smooth = (table * n + JEFFREYS) / (n + JEFFREYS * table.size)
        drawn = rng.multinomial(n, smooth.ravel(), size=DRAWS).reshape(-1, *table.shape[1:]) / n
        distances = self._norms(drawn, self.matrix(smooth))
        reach = np.quantile(distances, confidence, method="higher")
        found = self._norms(table)[0]
        low, high = self.of_norm(np.array([max(found - reach, 0.0), found + reach]))
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
    """HSIC and KCC of each stage's embeddings with the classes and with the sensitive values.

    O(n²·(p + B) + n³) time for B permutations over n ≤ ``max_rows`` rows, the same ones at every stage.

    Parameters
    ----------
    experiment : Experiment
        Names classes and attributes; several attributes are crossed.
    split : Split
        Rows with sensitive labels, and target labels where there are any; unknown ones are left out.
    embeddings : mapping from stage to array (n, p)
        ``{"before": split.X, "after": model.transform(split.X)}``, or one of them.
    permutations : int, default=199
        For p-values.
    random_state : int
        Draws the rows, bandwidths and permutations.
    confidence : float, default=0.95
        Of the intervals.
    max_rows : int, default=1000
        Rows used at most. Both measures are biased upward on few rows: compare figures of one number of rows.

    Returns
    -------
    tuple of RepresentationRow, or None
        One per stage; None where there are no sensitive labels.
    """
    labels = {"y": experiment.target(split), "s": experiment.groups(split)}
    if labels["s"] is None:
        return None
    rows = _rows([given for given in labels.values() if given is not None], max_rows, random_state)
    if len(rows) < 2:
        return None
    found = []
    for stage, given in embeddings.items():
        X = np.asarray(given)[rows]
        figures: dict[str, Tested] = {}
        for measure in REPRESENTATION_MEASURES:
            for letter, values in labels.items():
                if values is not None:
                    tested = dependence_test(
                        X,
                        values[rows],
                        measure=measure,
                        n_permutations=permutations,
                        random_state=random_state,
                        confidence=confidence,
                    ).as_dict()
                    figures[f"{measure}_{letter}"] = Tested(
                        **{name: tested[name] for name in Tested.model_fields}
                    )
        space = f"{SPACES[stage]} ({X.shape[1]} wide)"
        found.append(RepresentationRow(stage=stage, space=space, **figures))
    return tuple(found)


def _rows(labels: list[NDArray[np.str_]], limit: int, random_state: int) -> NDArray[np.int64]:
    """Rows of which all labels are known, at most ``limit`` of them drawn at random, in order."""
    known = np.flatnonzero(np.all([given != UNKNOWN for given in labels], axis=0))
    if len(known) <= limit:
        return known
    return np.sort(np.random.default_rng(random_state).choice(known, size=limit, replace=False))
