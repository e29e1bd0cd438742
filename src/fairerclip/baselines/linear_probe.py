"""Linear probe: logistic regression on embeddings, unweighted or with balanced classes or groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from fairerclip._util.checks import check_choice
from fairerclip.baselines.heads import LinearHead, check_classes
from fairerclip.baselines.logistic import L2Probe
from fairerclip.baselines.training_data import Needs, Training
from fairerclip.errors import ParameterError

SOLVERS = ("newton", "sgd")
KUMAR_GRID = tuple(float(f"{10 ** (-7 + 9 * k / 99):.6g}") for k in range(100))
"""The grid of C of Kumar et al.: 100 values from 1e-7 to 100, evenly spaced on a logarithmic scale."""


@dataclass(eq=False, repr=False)
class LinearProbe(L2Probe, LinearHead):
    """Logistic regression on embeddings, with an L2 penalty.

    Needs labels y. With ``class_weight="group"`` it also needs sensitive values: true values, or prompts to predict
    them from; with ``solver="sgd"`` the extra ``torch`` for training by gradient. It uses no class prompts.

    With ``class_weight="group"`` it is the simplest mitigation to compare with, and often a strong one.

    Parameters
    ----------
    solver : {"newton", "sgd"}
        "newton" minimises ``½‖W‖² + C·Σ wᵢ·CEᵢ`` to convergence. "sgd" is the recipe of the tables of Zhang & Ré, by
        stochastic gradient descent; it uses only ``recipe`` and ``random_state``.
    C : float or sequence of float, default=1.0
        Inverse strength of the penalty. Values of a sequence are tried in rising order, each from the solution of
        the one before, and chosen on the validation rows; `KUMAR_GRID` is the published sequence.
    class_weight : {None, "balanced", "group"}
        What gets equal total weight: nothing, classes, or cells of class and sensitive value. Cells without rows are
        left out.
    standardize : {"scalar", "column", None}
        Rows are standardised to mean 0 and standard deviation 1: with one mean and deviation for all entries, as
        Kumar et al. do, which keeps the geometry of the embeddings; with those of each column; or not at all.
        Coefficients are returned for the unit rows.
    select : {"average", "worst_group"}
        Accuracy on validation rows by which C is chosen; the published recipe has "average". Ties go to the smallest
        C, which has the strongest penalty.
    max_iter : int
        Largest number of Newton steps.
    tol : float
        Largest norm of the gradient, relative to ‖W‖, that counts as converged. Because of the penalty it bounds the
        relative error of W for every C and number of rows.
    recipe : mapping, optional
        Keyword arguments of `fairerclip.baselines.gradient.sgd_probe.train_probe`.
    random_state : int, RandomState or None
        Used by "sgd"; "newton" is deterministic.

    Attributes
    ----------
    coef_, intercept_ : array of shape (c, p) and (c,)
        Logits are ``X @ coef_.T + intercept_``. For two classes each has half of scikit-learn's single row, with
        opposite signs.
    diagnostics_ : dict
        C, n_iter, converged, gradient (its final norm relative to ‖W‖) and sensitive.

    Notes
    -----
    Row weights always sum to n, so C has the same meaning for every ``class_weight``.

    Differences from the paper: Kumar et al. stop after 200 steps and use no weights; here the iteration runs to
    convergence, and classes or groups may be balanced. With "sgd", unit rows are multiplied by 10 in training, because
    the published step size is for rows that are not normalised.

    Licence of the released code: none, of both papers. This is a new implementation.

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

    @property
    def title(self) -> str:
        """Name of the method with its solver and weights."""
        if self.solver == "sgd":
            return "linear probe by gradient"
        return f"{self._weighted() or 'linear '}probe"

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
