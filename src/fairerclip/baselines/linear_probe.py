"""A linear probe: logistic regression on embeddings, plain or with classes or groups balanced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from fairerclip._util.checks import check_choice
from fairerclip.baselines.baseline import Needs, Training
from fairerclip.baselines.heads import LinearHead, check_classes
from fairerclip.baselines.logistic import L2Probe
from fairerclip.errors import ParameterError

SOLVERS = ("newton", "sgd")
KUMAR_GRID = tuple(float(f"{10 ** (-7 + 9 * k / 99):.6g}") for k in range(100))
"""The grid of C of Kumar et al.: 100 values from 1e-7 to 100, evenly spaced on a logarithmic scale."""


@dataclass(eq=False, repr=False)
class LinearProbe(L2Probe, LinearHead):
    """Logistic regression on embeddings, with an L2 penalty.

    Needs labels y. With ``class_weight="group"`` it needs sensitive values as well, true ones or prompts to read
    them from; that is the simplest rival of every mitigation, and often a strong one.

    Parameters
    ----------
    solver : {"newton", "sgd"}
        "newton" minimises ``½‖W‖² + C·Σ wᵢ·CEᵢ`` to convergence. "sgd" is the recipe of the tables of Zhang & Ré, by
        stochastic gradient descent; of the other parameters it uses ``recipe`` and ``random_state`` alone.
    C : float or sequence of float, default=1.0
        Inverse strength of the penalty. A sequence is tried upwards, each started where the last ended, and chosen on
        the validation rows; `KUMAR_GRID` is the published one.
    class_weight : None, "balanced" or "group"
        Which parts of the data weigh alike: none, classes, or cells of class and sensitive value. Cells without rows
        are left out.
    standardize : "scalar", "column" or None
        Rows are brought to mean 0 and spread 1: all entries by one mean and one spread, as Kumar et al. do, which
        keeps the geometry of the embeddings; each column by its own; or not at all. What is learned is given for unit
        rows as they are.
    select : {"average", "worst_group"}
        Accuracy on validation rows by which C is chosen; the published recipe has "average". The first of equals,
        which has the strongest penalty, wins.
    max_iter, tol : int, float
        Most Newton steps, and the largest norm of the gradient relative to ‖W‖ that counts as converged. The penalty
        makes that a bound on the relative error of W, whatever C and the number of rows are.
    recipe : mapping, optional
        Keyword arguments of `fairerclip.baselines.gradient.sgd_probe.train_probe`.
    random_state : int, RandomState or None
        For "sgd"; "newton" draws nothing.

    Attributes
    ----------
    coef_, intercept_ : (c, p), (c,) logits are ``X @ coef_.T + intercept_``; two classes have half of scikit-learn's
        single row each, with opposite signs.
    diagnostics_ : dict with C, n_iter, converged, gradient (its norm relative to ‖W‖ where it stopped) and sensitive.

    Notes
    -----
    Kumar et al. stop after 200 steps; here it is iterated until it converges. Row weights sum to n whatever they
    balance, so that C means the same for all three.

    References
    ----------
    Kumar et al., "Fine-Tuning can Distort Pretrained Features and Underperform Out-of-Distribution", 2022,
    arXiv:2202.10054. Zhang & Ré, "Contrastive Adapters for Foundation Model Group Robustness", 2022, arXiv:2207.07180.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, 0.2], [0.9, -0.1], [0.1, 1.0], [-0.2, 0.8]])
    >>> LinearProbe().fit(X, ["cat", "cat", "dog", "dog"]).predict([[0.5, 0.1]]).tolist()
    ['cat']
    """

    needs = Needs("target", False, False, False, "Kumar et al. 2022, arXiv:2202.10054")

    solver: str = "newton"
    _: KW_ONLY
    recipe: Mapping[str, Any] | None = None
    random_state: Any = None

    def _learn(self, data: Training) -> None:
        check_choice("solver", self.solver, SOLVERS)
        self._check_probe()
        check_classes(data, self.classes_, type(self).__name__)
        if self.solver == "sgd":
            self._by_gradient(data)
            return
        validation = None if data.validation is None else data.validation.X
        self.coef_, self.intercept_, self.diagnostics_ = self._fit_probe(data, data.X, validation)

    def _by_gradient(self, data: Training) -> None:
        from fairerclip.baselines.gradient.sgd_probe import train_probe

        if self.class_weight is not None:
            raise ParameterError(
                f"class_weight={self.class_weight!r} needs solver='newton'; the recipe of solver='sgd' is unweighted"
            )
        self.coef_, self.intercept_, self.diagnostics_ = train_probe(
            data, random_state=self.random_state, **(self.recipe or {})
        )
