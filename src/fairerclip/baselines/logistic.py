"""Logistic regression as several baselines use it: standardised, weighted, and given back in the units of the rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairerclip._util.checks import LARGEST, as_number, check_choice, check_count, check_positive
from fairerclip._util.types import F64, Ints
from fairerclip.baselines.baseline import Baseline, Needs, Training, Validation
from fairerclip.baselines.softmax import softmax_path
from fairerclip.errors import NotConvergedWarning, ParameterError
from fairerclip.inputs.weights import weigh_classes
from fairerclip.metrics import cell_accuracies, shrunken_worst_group

STANDARDIZE = ("scalar", "column", None)
CLASS_WEIGHTS = (None, "balanced", "group")
SELECT = ("average", "worst_group")
_SMALLEST_SPREAD = 1e-10  # of a column, relative to its largest value: less is rounding, not spread


@dataclass(frozen=True)
class Scaling:
    """``(X - shift) * scale``; a column without spread is multiplied by zero."""

    shift: F64
    scale: F64

    @classmethod
    def of(cls, X: F64, weight: F64, how: str | None) -> Scaling:
        """Of the rows, each counted ``weight`` times: by one mean and spread of all entries, or by column."""
        p = X.shape[1]
        if how is None:
            return cls(np.zeros(p), np.ones(p))
        share = weight / weight.sum()
        shift = share @ X  # (p,)
        if how == "scalar":
            shift = np.full(p, shift.mean())
        variance = share @ (X - shift) ** 2  # (p,)
        largest = np.abs(X).max(axis=0, initial=0.0, where=weight[:, None] > 0)
        if how == "scalar":
            variance, largest = np.full(p, variance.mean()), np.full(p, largest.max())
        spread = np.sqrt(variance)
        alive = spread > _SMALLEST_SPREAD * largest
        return cls(shift, np.where(alive, 1 / np.where(alive, spread, 1.0), 0.0))

    def apply(self, X: F64) -> F64:
        """Rows as the regression sees them (n, p)."""
        return np.asarray((X - self.shift) * self.scale)

    def fold(self, coef: F64, intercept: F64) -> tuple[F64, F64]:
        """The same linear function of rows as they were given."""
        coef = coef * self.scale
        return coef, intercept - coef @ self.shift


@dataclass(kw_only=True, eq=False, repr=False)
class L2Probe(Baseline):
    """A baseline with an L2 logistic regression, whose parameters `LinearProbe` describes."""

    C: Any = 1.0
    class_weight: str | None = None
    standardize: str | None = "scalar"
    select: str = "average"
    max_iter: int = 100
    tol: float = 1e-4

    @property
    def requirements(self) -> Needs:
        """What `fit` must be given: sensitive values, too, for ``class_weight="group"``."""
        return self.needs._replace(
            sensitive=isinstance(self.class_weight, str) and self.class_weight == "group"
        )

    def _check_probe(self) -> None:
        """Refuse the first parameter that is out of range."""
        check_choice("class_weight", self.class_weight, CLASS_WEIGHTS)
        check_choice("standardize", self.standardize, STANDARDIZE)
        check_choice("select", self.select, SELECT)
        check_count("max_iter", self.max_iter)
        check_positive("tol", self.tol)
        strengths(self.C)

    def _row_weights(self, data: Training) -> F64:
        """Row weights (n,) that balance what ``class_weight`` names."""
        groups = np.zeros(len(data.X), dtype=np.int64) if data.s is None else data.s
        y = _labels(data)
        return weigh_classes(self.class_weight, y, groups, np.arange(data.n_classes), data.weight)

    def _fit_probe(
        self, data: Training, X: F64, validation: F64 | None = None
    ) -> tuple[F64, F64, dict[str, Any]]:
        """Coefficients (c, p), intercepts (c,) and diagnostics, on rows X (n, p) that stand for those of ``data``.

        A grid of C is run upwards, each started where the last ended, and chosen on ``validation``, which stands for
        the validation rows of ``data``. O(grid·steps·n·p·c) time.
        """
        grid = sorted(strengths(self.C))
        if len(grid) > 1 and (validation is None or data.validation is None):
            raise ParameterError(
                "C is a grid, and is chosen on validation rows: give validation=(X, y, s), or one C"
            )
        weight = self._row_weights(data)
        rows = np.flatnonzero(weight > 0)
        scaling = Scaling.of(X, data.weight, self.standardize)
        inputs, y = scaling.apply(X[rows]), _labels(data)[rows]
        path = softmax_path(
            inputs, y, weight[rows], data.n_classes, grid, tol=self.tol, max_iter=self.max_iter
        )
        fits = [
            (scaling.fold(found.coef, found.intercept), C, found) for C, found in zip(grid, path, strict=True)
        ]
        best = 0
        if len(grid) > 1 and validation is not None and data.validation is not None:
            merits = [
                merit(heads, validation, data.validation, data.n_classes, self.select) for heads, *_ in fits
            ]
            best = max(range(len(grid)), key=merits.__getitem__)  # the first of equals: the strongest penalty
        (coef, intercept), C, found = fits[best]
        if not found.converged:
            warn_unconverged(
                f"logistic regression with C={C:g} is not at its minimum after {found.steps} steps: its gradient is "
                f"{found.gradient:g} of its weights, above tol={self.tol:g}",
                "raise max_iter or tol, or lower C",
            )
        read = "none" if data.s is None else "given" if data.s_is_true else "read from prompts"
        sensitive = read if self.class_weight == "group" else "not used"
        return (
            coef,
            intercept,
            {
                "C": C,
                "n_iter": found.steps,
                "converged": found.converged,
                "gradient": found.gradient,
                "sensitive": sensitive,
            },
        )


def merit(
    heads: tuple[F64, F64], X: F64, validation: Validation, n_classes: int, select: str
) -> tuple[float, float]:
    """What heads are chosen by on validation rows, and the average accuracy to break ties.

    "average" accuracy, or "worst_group" accuracy over cells of class and group, without shrinkage.
    """
    coef, intercept = heads
    predicted = (X @ coef.T + intercept).argmax(axis=1)
    average = float(np.mean(predicted == validation.y))
    if select == "average":
        return average, average
    hits, counts = cell_accuracies(
        validation.y, predicted, validation.s, n_classes, int(validation.s.max()) + 1
    )
    return float(shrunken_worst_group(hits, counts, prior=0)[0]), average


def both_sides(coef: F64, intercept: F64) -> tuple[F64, F64]:
    """One row per class, where scikit-learn has a single row for two classes: half of it each way."""
    if len(coef) > 1:
        return np.array(coef, dtype=np.float64), np.array(intercept, dtype=np.float64)
    return np.concatenate([-coef, coef]) / 2, np.concatenate([-intercept, intercept]) / 2


def fit_quietly(model: Any, X: F64, y: Ints, weight: F64 | None) -> bool:
    """Fit a scikit-learn model; whether it converged, instead of its warning."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y, sample_weight=weight)
    converged = True
    for warning in caught:
        if issubclass(warning.category, ConvergenceWarning):
            converged = False
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return converged


def warn_unconverged(what: str, remedy: str) -> None:
    """Say what did not converge, and what to do."""
    warnings.warn(f"{what}; {remedy}", NotConvergedWarning, stacklevel=4)


def strengths(C: Any) -> list[float]:
    """C as a list of positive numbers: itself, or its entries."""
    try:
        found = [as_number(value) for value in ([C] if np.ndim(C) == 0 else C)]
    except (TypeError, ValueError):  # neither a number nor a sequence, or one of sequences of several lengths
        found = []
    if not found or not all(0 < value <= LARGEST for value in found):
        raise ParameterError(
            f"C must be a positive number of at most {LARGEST:g}, or a sequence of them to choose from; got {C!r:.200}"
        )
    return found


def _labels(data: Training) -> Ints:
    if data.y is None:  # `check_classes` has said so in the method's own name
        raise ParameterError("logistic regression learns from labels: give y")
    return data.y
