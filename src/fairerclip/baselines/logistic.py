"""Logistic regression that several baselines share: standardised, weighted, with coefficients for the original rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairerclip._util.checks import LARGEST, as_number, check_choice, check_count, check_positive
from fairerclip._util.types import F64, Ints
from fairerclip.baselines.baseline import Baseline
from fairerclip.baselines.shared_solutions import once
from fairerclip.baselines.softmax import softmax_path
from fairerclip.baselines.training_data import Needs, Training, Validation
from fairerclip.errors import NotConvergedWarning, ParameterError
from fairerclip.inputs.weights import weigh_classes
from fairerclip.metrics import cell_accuracies, shrunken_worst_group

STANDARDIZE = ("scalar", "column", None)
CLASS_WEIGHTS = (None, "balanced", "group")
BALANCED = {"balanced": "class-balanced ", "group": "group-balanced "}
SELECT = ("average", "worst_group")
_SMALLEST_SPREAD = 1e-10  # of a column, relative to its largest value: less is rounding error


@dataclass(frozen=True)
class Scaling:
    """Standardisation ``(X - shift) * scale``; a constant column is multiplied by zero."""

    shift: F64
    scale: F64

    @classmethod
    def of(cls, X: F64, weight: F64, how: str | None) -> Scaling:
        """Compute the scaling of weighted rows: "scalar" for all entries together, "column" by column, or none."""
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
        varies = spread > _SMALLEST_SPREAD * largest
        return cls(shift, np.where(varies, 1 / np.where(varies, spread, 1.0), 0.0))

    def apply(self, X: F64) -> F64:
        """Return the standardised rows (n, p)."""
        return np.asarray((X - self.shift) * self.scale)

    def fold(self, coef: F64, intercept: F64) -> tuple[F64, F64]:
        """Return coefficients and intercepts of the same linear function for rows before standardisation."""
        coef = coef * self.scale
        return coef, intercept - coef @ self.shift


@dataclass(kw_only=True, eq=False, repr=False)
class L2Probe(Baseline):
    """Baseline with an L2 logistic regression; `LinearProbe` describes the parameters."""

    C: Any = 1.0
    class_weight: str | None = None
    standardize: str | None = "scalar"
    select: str = "average"
    max_iter: int = 100
    tol: float = 1e-4

    @property
    def requirements(self) -> Needs:
        """Inputs that `fit` needs; ``class_weight="group"`` adds sensitive values."""
        return self.needs._replace(
            sensitive=isinstance(self.class_weight, str) and self.class_weight == "group"
        )

    def _check_probe(self) -> None:
        """Raise for the first parameter that is out of range."""
        check_choice("class_weight", self.class_weight, CLASS_WEIGHTS)
        check_choice("standardize", self.standardize, STANDARDIZE)
        check_choice("select", self.select, SELECT)
        check_count("max_iter", self.max_iter)
        check_positive("tol", self.tol)
        strengths(self.C)

    def _weighted(self) -> str:
        """Return the beginning of the title, which says what ``class_weight`` balances."""
        return BALANCED.get(str(self.class_weight), "")

    def _row_weights(self, data: Training) -> F64:
        """Return row weights (n,) that balance what ``class_weight`` names."""
        groups = np.zeros(len(data.X), dtype=np.int64) if data.s is None else data.s
        y = _labels(data)
        return weigh_classes(self.class_weight, y, groups, np.arange(data.n_classes), data.weight)

    def _fit_probe(
        self, data: Training, X: F64, validation: F64 | None = None
    ) -> tuple[F64, F64, dict[str, Any]]:
        """Fit coefficients (c, p) and intercepts (c,) on rows X (n, p), and return them with diagnostics.

        X and ``validation`` replace the rows of ``data`` and of its validation set. The values of a grid of C are
        fitted in rising order, each from the solution of the one before. O(grid·steps·n·p·c) time.
        """
        grid = sorted(strengths(self.C))
        if len(grid) > 1 and (validation is None or data.validation is None):
            raise ParameterError(
                "several values of C are chosen on validation rows: give validation=(X, y, s), or one C"
            )
        weight = self._row_weights(data)
        rows = np.flatnonzero(weight > 0)
        scaling, inputs = once(_scaled, X, data.weight, self.standardize, rows)
        y = _labels(data)[rows]
        path = softmax_path(
            inputs, y, weight[rows], data.n_classes, grid, tol=self.tol, max_iter=self.max_iter
        )
        fits = [
            (scaling.fold(solution.coef, solution.intercept), C, solution)
            for C, solution in zip(grid, path, strict=True)
        ]
        best = 0
        if len(grid) > 1 and validation is not None and data.validation is not None:
            merits = [
                merit(heads, validation, data.validation, data.n_classes, self.select) for heads, *_ in fits
            ]
            best = max(
                range(len(grid)), key=merits.__getitem__
            )  # ties go to the first, which has the strongest penalty
        (coef, intercept), C, solution = fits[best]
        if not solution.converged:
            warn_unconverged(
                f"logistic regression with C={C:g} is not at its minimum after {solution.steps} steps: its gradient is "
                f"{solution.gradient:g} of its weights, above tol={self.tol:g}",
                "raise max_iter or tol, or lower C",
            )
        source = "none" if data.s is None else "given" if data.s_is_true else "read from prompts"
        sensitive = source if self.class_weight == "group" else "not used"
        return (
            coef,
            intercept,
            {
                "C": C,
                "n_iter": solution.steps,
                "converged": solution.converged,
                "gradient": solution.gradient,
                "sensitive": sensitive,
            },
        )


def _scaled(X: F64, weight: F64, how: str | None, rows: Ints) -> tuple[Scaling, F64]:
    scaling = Scaling.of(X, weight, how)
    return scaling, scaling.apply(X[rows])


def merit(
    heads: tuple[F64, F64], X: F64, validation: Validation, n_classes: int, select: str
) -> tuple[float, float]:
    """Return the accuracy on validation rows by which heads are chosen, and the average accuracy to break ties.

    ``select`` is "average", or "worst_group" over cells of class and group without shrinkage.
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
    """Return one row per class: for two classes half of scikit-learn's single row, with opposite signs."""
    if len(coef) > 1:
        return np.array(coef, dtype=np.float64), np.array(intercept, dtype=np.float64)
    return np.concatenate([-coef, coef]) / 2, np.concatenate([-intercept, intercept]) / 2


def fit_quietly(model: Any, X: F64, y: Ints, weight: F64 | None) -> bool:
    """Fit a scikit-learn model, and return whether it converged in place of its warning."""
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


def warn_unconverged(problem: str, remedy: str) -> None:
    """Warn of a fit that did not converge, with a remedy."""
    warnings.warn(f"{problem}; {remedy}", NotConvergedWarning, stacklevel=4)


def strengths(C: Any) -> list[float]:
    """Return C, a number or a sequence, as a list of positive numbers."""
    try:
        values = [as_number(value) for value in ([C] if np.ndim(C) == 0 else C)]
    except (TypeError, ValueError):  # neither a number nor a sequence, or one of sequences of several lengths
        values = []
    if not values or not all(0 < value <= LARGEST for value in values):
        raise ParameterError(
            f"C must be a positive number of at most {LARGEST:g}, or a sequence of them to choose from; got {C!r:.200}"
        )
    return values


def _labels(data: Training) -> Ints:
    if data.y is None:  # `check_classes` raises before, with the name of the method
        raise ParameterError("logistic regression learns from labels: give y")
    return data.y
