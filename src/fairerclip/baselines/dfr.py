"""Deep feature reweighting (DFR): the last layer is refitted on rows with groups of equal size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from fairerclip._util.checks import check_choice, check_count, check_positive
from fairerclip._util.types import F64, Ints
from fairerclip.baselines.heads import LinearHead, check_classes
from fairerclip.baselines.logistic import (
    Scaling,
    both_sides,
    fit_quietly,
    merit,
    strengths,
    warn_unconverged,
)
from fairerclip.baselines.training_data import Needs, Training, Validation
from fairerclip.errors import LabelError, ParameterError

VARIANTS = ("validation", "train", "subsample", "upsample")
VARIANT_NAMES = {
    "validation": "validation groups",
    "train": "training groups",
    "subsample": "subsampled pseudo-groups",
    "upsample": "upsampled pseudo-groups",
}
C_GRIDS = {
    "waterbirds": (1.0, 0.7, 0.3, 0.1, 0.07, 0.03, 0.01),
    "celeba": (3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003),
}
"""Published grids of C."""
CLASS_WEIGHTS = (1.0, 2.0, 3.0, 10.0, 100.0, 300.0, 1000.0)
"""Published weights of one class against the others, to tune DFR on training rows."""
REFITS = {"validation": 20, "train": 10}
"""Published numbers of refits, whose weights are averaged."""


class _Choice(NamedTuple):
    C: float
    class_weight: tuple[float, ...]


class _ScaledRows(NamedTuple):
    """Standardised rows (n, p), with class codes, cells of class and group, and weights (n,)."""

    X: F64
    y: Ints
    cell: Ints
    weight: F64

    def at(self, rows: Ints) -> _ScaledRows:
        return _ScaledRows(self.X[rows], self.y[rows], self.cell[rows], self.weight[rows])


@dataclass(eq=False, repr=False)
class DFR(LinearHead):
    """Logistic regression with an L1 penalty on rows with groups of equal size, averaged over random draws.

    Needs validation rows with class and sensitive labels: it learns from them (``variant="validation"``) or chooses C
    on them (``variant="train"``). The latter also needs sensitive values of the training rows: true values, or
    prompts to predict them from. The labels y of training rows give the classes. "subsample" and "upsample" need class
    prompts, labels y, and the extra ``torch`` for training by gradient.

    Parameters
    ----------
    variant : {"validation", "train", "subsample", "upsample"}
        Rows to learn from. "validation" and "train" are the original method. "subsample" and "upsample" are the
        method that the tables of Zhang & Ré call DFR: groups are predicted from class prompts, no sensitive label is
        used, and the probe is trained by gradient descent. These two use only ``recipe`` and ``random_state``.
    C : float or sequence of float
        Inverse strength of the penalty, or values to choose from by worst-group accuracy; ties go to the better
        average accuracy, then to the first value. `C_GRIDS` has the published grids; the default is that of
        Waterbirds.
    class_weights : sequence of float, default=(1.0,)
        Weights to try for each class, with weight 1 for the others; chosen together with C. `CLASS_WEIGHTS` has the
        published values. For balanced groups the default is the published choice.
    n_refits : int, optional
        Number of draws, whose weights are averaged; by default 20 for "validation" and 10 for "train".
    max_iter : int
        Largest number of iterations of liblinear.
    tol : float
        liblinear stops when the smallest subgradient is ``tol`` times that at the start.
    recipe : mapping, optional
        Keyword arguments of `fairerclip.baselines.gradient.sgd_probe.train_pseudo`.
    random_state : int, RandomState or None
        Draws the halves and the balanced rows.

    Attributes
    ----------
    coef_, intercept_ : array of shape (c, p) and (c,)
        Averaged weights, for unit rows.
    diagnostics_ : dict
        C, class_weight, rows_per_group, refits and sensitive.

    Notes
    -----
    A group is a cell of class and sensitive value that has rows. As published, columns are standardised by the training
    rows, and liblinear's penalty includes the intercept.

    Differences from the paper and its code: validation rows are halved within each group, so that a small group is in
    both halves; fits for the choice of C have as many iterations as the refits (published: 20 for "train"); more than
    two classes are fitted one against the rest, as in liblinear.

    Licence of the released code: BSD 2-Clause. This is a new implementation.

    References
    ----------
    Kirichenko, Izmailov & Wilson, "Last Layer Re-Training is Sufficient for Robustness to Spurious Correlations",
    2023, arXiv:2204.02937.

    Examples
    --------
    >>> import numpy as np
    >>> y, s = np.arange(40) % 2, np.arange(40) // 2 % 2
    >>> X = np.column_stack([2 * y - 1, s]) + 0.1 * np.random.default_rng(1).normal(size=(40, 2))
    >>> model = DFR(C=1.0, random_state=0).fit(X, y, validation=(X, y, s))
    >>> bool(np.all(model.predict(X) == y)), model.diagnostics_["rows_per_group"]
    (True, 10)
    """

    needs = Needs("target", False, False, True, "Kirichenko et al. 2023, arXiv:2204.02937")

    variant: str = "validation"
    _: KW_ONLY
    C: Any = C_GRIDS["waterbirds"]
    class_weights: Sequence[float] = (1.0,)
    n_refits: int | None = None
    max_iter: int = 1000
    tol: float = 1e-6
    recipe: Mapping[str, Any] | None = None
    random_state: Any = None

    @property
    def title(self) -> str:
        """Name of the method with its variant."""
        return f"DFR ({VARIANT_NAMES.get(str(self.variant), self.variant)})"

    @property
    def requirements(self) -> Needs:
        """Inputs that `fit` needs for this variant."""
        check_choice("variant", self.variant, VARIANTS)
        pseudo = self.variant in ("subsample", "upsample")
        prompts = pseudo and (self.recipe or {}).get("groups", "zero-shot") == "zero-shot"
        return self.needs._replace(
            text=prompts, sensitive=self.variant == "train", validation=not pseudo and self._chooses()
        )

    def _chooses(self) -> bool:
        """Return whether validation rows are needed, to learn from or to choose C."""
        return self.variant == "validation" or len(self._choices(2)) > 1

    def _learn(self, data: Training) -> None:
        if self.variant in ("subsample", "upsample"):
            check_classes(data, self.classes_, "DFR")
            self._by_gradient(data)
            return
        check_count("max_iter", self.max_iter)
        check_positive("tol", self.tol)
        refits = REFITS[self.variant] if self.n_refits is None else self.n_refits
        check_count("n_refits", refits)
        scaling = Scaling.of(data.X, data.weight, "column")
        try:
            rng = check_random_state(self.random_state)
        except ValueError as error:
            raise ParameterError(f"random_state: {error}") from None
        chosen, rows = self._choose(data, scaling, rng)
        draws = [balanced_rows(rows.cell, rng) for _ in range(refits)]
        fits = [self._fit(rows.at(draw), chosen, rng) for draw in draws]
        coef = np.mean([coef for coef, _, _ in fits], axis=0)
        intercept = np.mean([intercept for _, intercept, _ in fits], axis=0)
        if not all(converged for _, _, converged in fits):
            warn_unconverged(
                f"liblinear with C={chosen.C:g} still changed after max_iter={self.max_iter} steps",
                "raise max_iter, or lower C",
            )
        self.coef_, self.intercept_ = scaling.fold(coef, intercept)
        self.diagnostics_ = {
            "C": chosen.C,
            "class_weight": list(chosen.class_weight),
            "rows_per_group": len(draws[0]) // len(np.unique(rows.cell)),
            "refits": refits,
            "sensitive": "given" if self.variant == "validation" or data.s_is_true else "read from prompts",
        }

    def _by_gradient(self, data: Training) -> None:
        from fairerclip.baselines.gradient.sgd_probe import train_pseudo

        self.coef_, self.intercept_, self.diagnostics_ = train_pseudo(
            data, self.variant, random_state=self.random_state, **(self.recipe or {})
        )

    def _choices(self, n_classes: int) -> list[_Choice]:
        """Return all combinations of C and class weight, each once, in the given order."""
        is_class = np.eye(n_classes, dtype=bool)
        weights = [
            tuple(np.where(row, weight, 1.0).tolist())
            for weight, row in product(strengths(self.class_weights), is_class)
        ]
        return [_Choice(C, weight) for weight in dict.fromkeys(weights) for C in strengths(self.C)]

    def _choose(
        self, data: Training, scaling: Scaling, rng: np.random.RandomState
    ) -> tuple[_Choice, _ScaledRows]:
        """Return C and class weight with the best worst group, and the rows that the refits draw from."""
        choices, held = self._choices(data.n_classes), data.validation
        if held is not None:
            held = held._replace(X=scaling.apply(held.X))
        if self.variant == "train":
            rows = self._training_rows(data, scaling)
            if len(choices) == 1 or held is None:
                return choices[0], rows
            return self._best(choices, rows, held, data.n_classes, rng), rows
        if held is None:  # excluded by `requirements`
            raise LabelError("DFR learns from validation rows: give validation=(X, y, s)")
        rows = _ScaledRows(held.X, held.y, _cells(held.y, held.s), np.ones(len(held.y)))
        self._check_all_classes(rows.y, data.n_classes, "validation")
        if len(choices) == 1:
            return choices[0], rows
        first, second = halves(rows.cell, rng)
        other = Validation(held.X[second], held.y[second], held.s[second])
        if not len(second):
            raise LabelError("no group has two validation rows, so C cannot be chosen: give one C")
        return self._best(choices, rows.at(first), other, data.n_classes, rng), rows

    def _training_rows(self, data: Training, scaling: Scaling) -> _ScaledRows:
        check_classes(data, self.classes_, "DFR")
        used = np.flatnonzero(data.weight > 0)
        y = np.empty(0, dtype=np.int64) if data.y is None else data.y
        s = np.zeros(len(data.X), dtype=np.int64) if data.s is None else data.s
        return _ScaledRows(scaling.apply(data.X[used]), y[used], _cells(y[used], s[used]), data.weight[used])

    def _check_all_classes(self, y: Ints, n_classes: int, rows: str) -> None:
        absent = np.bincount(y, minlength=n_classes) == 0
        if absent.any():
            raise LabelError(
                f"DFR has no {rows} rows of classes {self.classes_[absent].tolist()[:10]}, which it could never "
                "predict; label some, or leave them out of classes= and text="
            )

    def _best(
        self,
        choices: list[_Choice],
        rows: _ScaledRows,
        held: Validation,
        n_classes: int,
        rng: np.random.RandomState,
    ) -> _Choice:
        """Return the choice with the best worst group on held-out rows, from one fit each on balanced rows."""
        drawn = rows.at(balanced_rows(rows.cell, rng))
        merits = []
        for choice in choices:
            coef, intercept, _ = self._fit(drawn, choice, rng)
            merits.append(merit((coef, intercept), held.X, held, n_classes, "worst_group"))
        return choices[max(range(len(choices)), key=merits.__getitem__)]

    def _fit(self, rows: _ScaledRows, choice: _Choice, rng: np.random.RandomState) -> tuple[F64, F64, bool]:
        """Fit an L1 logistic regression (c, p), (c,) by liblinear; more than two classes one against the rest."""
        model = _l1_regression(
            C=choice.C, max_iter=self.max_iter, tol=self.tol, random_state=rng.randint(2**31 - 1)
        )
        n_classes = len(choice.class_weight)
        weight = rows.weight * np.asarray(choice.class_weight)[rows.y]
        if n_classes == 2:
            converged = fit_quietly(model, rows.X, rows.y, weight)
            return *both_sides(model.coef_, model.intercept_), converged
        coef, intercept, converged = np.empty((n_classes, rows.X.shape[1])), np.empty(n_classes), True
        for k in range(n_classes):
            converged &= fit_quietly(model, rows.X, (rows.y == k).astype(np.int64), weight)
            coef[k], intercept[k] = model.coef_[0], model.intercept_[0]
        return coef, intercept, converged


def balanced_rows(cell: Ints, rng: np.random.RandomState) -> Ints:
    """Draw row numbers without replacement, from every cell that occurs as many as the smallest one has.

    Examples
    --------
    >>> cell = np.array([0, 0, 0, 2, 2])
    >>> rows = balanced_rows(cell, np.random.RandomState(0))
    >>> np.bincount(cell[rows]).tolist()
    [2, 0, 2]
    """
    present, counts = np.unique(cell, return_counts=True)
    draws = [rng.permutation(np.flatnonzero(cell == k))[: counts.min()] for k in present]
    return np.concatenate(draws)


def halves(cell: Ints, rng: np.random.RandomState) -> tuple[Ints, Ints]:
    """Split every cell at random into halves and return their row numbers; the first half gets the odd row."""
    first, second = [], []
    for k in np.unique(cell):
        rows = rng.permutation(np.flatnonzero(cell == k))
        middle = (len(rows) + 1) // 2
        first.append(rows[:middle])
        second.append(rows[middle:])
    return np.sort(np.concatenate(first)), np.sort(np.concatenate(second))


def _cells(y: Ints, s: Ints) -> Ints:
    return np.asarray(y * (int(s.max(initial=0)) + 1) + s, dtype=np.int64)


def _l1_regression(**parameters: Any) -> Any:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(solver="liblinear", **parameters)
    # scikit-learn 1.8 has l1_ratio in place of penalty, and warns if penalty is given.
    older = model.get_params().get("penalty") == "l2"
    return model.set_params(penalty="l1") if older else model.set_params(l1_ratio=1.0)
