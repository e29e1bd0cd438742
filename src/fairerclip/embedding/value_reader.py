"""Probabilities of sensitive values of any row, learned from prompts, from a few labelled rows, or from both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from fairerclip._util.arrays import beside, namespace, to_numpy
from fairerclip._util.types import F64, Floats, Ints
from fairerclip.errors import ModelFileError
from fairerclip.inputs.prompts import prototypes
from fairerclip.judging.group_doubt import prompt_mixture

PENALTY = 1.5
"""Penalty of the weights of the embeddings, for each value: with more values there are more noisy differences. It was
chosen on galleries of FairFace; docs/math.md#same-space."""
PROMPT_ROWS = 50
"""Number of labelled rows of each value that the prompts are worth: so many rows have the same weight as they have."""
WEAKER = (0.1, 0.3)
"""Factors of weaker penalties, one of which is used if it predicts held-out labels clearly better."""
CLEARLY = 2.0
"""Number of standard errors by which a weaker penalty must predict held-out labels better."""
FOLDS = 4
MAX_ROWS = 5_000
"""Number of labelled rows that a reader learns from at most."""
ROUNDS, TOLERANCE = 300, 1e-5
ROUGHLY = 1e-4
"""Tolerance of the fits that only compare penalties."""


@dataclass(frozen=True, eq=False)
class ValueReader:
    """Softmax of linear functions of unit rows: P(value | x) ∝ exp(x·weights + intercepts).

    Attributes
    ----------
    name : str
        Name of the attribute.
    values : array of shape (v,)
        Its values.
    weights, intercepts : array of shape (p, v) and (v,)
        Coefficients of the logits.
    """

    name: str
    values: NDArray[Any]
    weights: F64
    intercepts: F64

    def __post_init__(self) -> None:
        v = len(self.values)
        if self.weights.ndim != 2 or self.weights.shape[1] != v or self.intercepts.shape != (v,):
            raise ModelFileError(f"the reader of {self.name!r} has weights of shape {self.weights.shape}")

    def logits(self, X: Any) -> Any:
        """Return logits (n, v) of unit rows X (n, p). O(n·p·v) time."""
        return X @ beside(X, self.weights, X.dtype) + beside(X, self.intercepts, X.dtype)

    def probabilities(self, X: Any) -> Any:
        """Return probabilities (n, v) of unit rows X (n, p), a tensor if X is one."""
        return _softmax(self.logits(X))


class _Calibrated(NamedTuple):
    """Logits of the prompts: ``x·weights + intercepts`` has mean 0 and unit spread on the rows of the fit."""

    weights: F64
    intercepts: F64


def read_from_prompts(name: str, values: NDArray[Any], prompts: Sequence[Floats], X: Any) -> ValueReader:
    """Return a reader learned from prompts alone: softmax of the cosines of a row, multiplied by one number.

    The number follows from a mixture of normal distributions of the cosines of rows X (n, p): the distance of their
    centres divided by their variance. The most likely value is the zero-shot prediction. The shares of the mixture are
    not used: on FairFace, rankings had a higher skew with them.
    """
    T = prototypes(prompts)
    T = T - T.mean(axis=0)
    mixture = prompt_mixture(to_numpy(X @ beside(X, T.T, X.dtype)))
    scale = float(np.trace(mixture.slopes)) / len(T)
    return ValueReader(name, values, scale * T.T, np.zeros(len(T)))


def read_from_labels(
    name: str,
    values: NDArray[Any],
    prompts: Sequence[Floats] | None,
    X: Any,
    labelled: Floats,
    known: F64,
) -> tuple[ValueReader, float]:
    """Return a reader learned from labelled rows, and from prompts if there are any; also return its penalty.

    The logits are a·(cosines with the prompts) + b + x·W. The scale a and the intercepts b are free, W is penalised:
    few rows calibrate the prompts, and many rows replace them. The penalty is weaker than `PENALTY` only if held-out
    labels are predicted clearly better then. Where there are prompts, the result is averaged with `read_from_prompts`,
    which counts as much as `PROMPT_ROWS` labelled rows of each value: with few rows of each of many values W is noise.

    Parameters
    ----------
    name : str
        Name of the attribute.
    values : array of shape (v,)
        Its values.
    prompts : sequence of v arrays (m, p), or None
        Prompts of the values.
    X : array of shape (n, p)
        Unit rows that give the scale of the cosines.
    labelled : array of shape (m, p)
        Unit rows with known values.
    known : array of shape (m, v)
        Probabilities of their values: one-hot, or soft.
    """
    base = _prompt_scale(prompts, X, len(values))
    centre = labelled.mean(axis=0, dtype=np.float64)
    rows = np.asarray(labelled, dtype=np.float64) - centre
    cosines = np.asarray(labelled @ base.weights + base.intercepts)
    penalty = _choose(rows, cosines, known)
    scale, intercepts, W = _fit(rows, cosines, known, penalty)
    weights, constants = scale * base.weights + W, scale * base.intercepts + intercepts - centre @ W
    if prompts is not None:
        prior = read_from_prompts(name, values, prompts, X)
        share = 1 / (1 + (PROMPT_ROWS * len(values) / len(rows)) ** 2)  # prompts fade out where rows are many
        weights = share * weights + (1 - share) * prior.weights
        constants = share * constants + (1 - share) * prior.intercepts
    return ValueReader(name, values, weights, constants), penalty


def _prompt_scale(prompts: Sequence[Floats] | None, X: Any, v: int) -> _Calibrated:
    if prompts is None:
        return _Calibrated(np.zeros((X.shape[1], v)), np.zeros(v))
    T = prototypes(prompts)
    T = T - T.mean(axis=0)
    cosines = to_numpy(X @ beside(X, T.T, X.dtype)).astype(np.float64, copy=False)
    spread = float(cosines.std()) or 1.0
    return _Calibrated(T.T / spread, -cosines.mean(axis=0) / spread)


def _folds(known: F64) -> Ints | None:
    """Return a fold (m,) of each labelled row, stratified by value in the given order; None with too few rows."""
    codes = known.argmax(axis=1)
    counts = np.bincount(codes, minlength=known.shape[1])
    if len(codes) < 2 * FOLDS or (counts > 0).sum() < 2:
        return None
    folds = np.empty(len(codes), dtype=np.int64)
    for value in np.flatnonzero(counts):
        rows = np.flatnonzero(codes == value)
        folds[rows] = np.arange(len(rows)) % FOLDS
    return folds


def _choose(rows: F64, cosines: F64, known: F64) -> float:
    """Return the penalty, or a weaker one whose held-out loss is smaller by `CLEARLY` standard errors."""
    strongest = PENALTY * known.shape[1]
    folds = _folds(known)
    if folds is None:
        return float(strongest)
    penalties = [strongest, *(factor * strongest for factor in sorted(WEAKER, reverse=True))]
    losses = np.empty((len(penalties), len(rows)))
    for fold in range(FOLDS):
        held, found = folds == fold, None
        for i, penalty in enumerate(penalties):  # from strong to weak, each starting from the one before
            found = _fit(rows[~held], cosines[~held], known[~held], penalty, start=found, tolerance=ROUGHLY)
            scale, intercepts, W = found
            P = _softmax(scale * cosines[held] + intercepts + rows[held] @ W)
            losses[i, held] = -(known[held] * np.log(np.maximum(P, 1e-12))).sum(axis=1)
    gains = losses[0] - losses  # (penalties, m)
    errors = gains.std(axis=1) / np.sqrt(len(rows))
    clear = np.flatnonzero(gains.mean(axis=1) > CLEARLY * errors)
    best = max(clear.tolist(), key=lambda i: float(gains[i].mean()), default=0)
    return float(penalties[best])


def _fit(
    rows: F64,
    cosines: F64,
    known: F64,
    penalty: float,
    *,
    start: tuple[float, F64, F64] | None = None,
    tolerance: float = TOLERANCE,
) -> tuple[float, F64, F64]:
    """Return scale, intercepts (v,) and W (p, v) of the penalised multinomial logistic regression, by L-BFGS.

    scikit-learn's regression has one penalty for all features and no shared scale of the cosines, so it is written out.
    """
    (n, p), v = rows.shape, known.shape[1]

    def loss(theta: F64) -> tuple[float, F64]:
        scale, b, W = theta[0], theta[1 : 1 + v], theta[1 + v :].reshape(p, v)
        logits = scale * cosines + b + rows @ W
        top = logits.max(axis=1, keepdims=True)
        log_sum = top + np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
        rest = np.exp(logits - log_sum) - known  # (n, v)
        value = -(known * (logits - log_sum)).sum() + 0.5 * (b @ b) + 0.5 * penalty * (W**2).sum()
        slope = np.concatenate(
            [[(rest * cosines).sum()], rest.sum(axis=0) + b, (rows.T @ rest + penalty * W).ravel()]
        )
        return float(value) / n, slope / n

    first = np.zeros(1 + v + p * v)
    first[0] = 1.0 if cosines.any() else 0.0
    if start is not None:
        first = np.concatenate([[start[0]], start[1], start[2].ravel()])
    options = {"maxiter": ROUNDS, "gtol": tolerance}
    theta = minimize(loss, first, jac=True, method="L-BFGS-B", options=options).x
    return float(theta[0]), theta[1 : 1 + v], theta[1 + v :].reshape(p, v)


def _softmax(logits: Any) -> Any:
    xp = namespace(logits)
    out = xp.exp(logits - xp.amax(logits, axis=1, keepdims=True))
    out /= out.sum(axis=1, keepdims=True)
    return out
