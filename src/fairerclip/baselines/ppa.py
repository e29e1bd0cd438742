"""Project-Probe-Aggregate (PPA): pseudo-groups from what the class prompts do not say, and a probe over groups."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np

from fairerclip._util.checks import check_choice, check_count, check_positive, check_within
from fairerclip._util.types import F64, Ints
from fairerclip.baselines.class_folds import class_folds
from fairerclip.baselines.heads import LinearHead, check_classes, class_prompts
from fairerclip.baselines.logistic import STANDARDIZE, L2Probe
from fairerclip.baselines.orth_proj import project, span
from fairerclip.baselines.shared_solutions import first_stage
from fairerclip.baselines.training_data import Needs, Training
from fairerclip.errors import LabelError

MOST_FOLDS = 100
MOST_TAU = 100.0
NO_ERRORS = (
    "the biased probe gets every row right: the groups are the classes, whose prior alone is corrected"
)


@dataclass(eq=False, repr=False)
class PPA(LinearHead):
    """Linear probe over pseudo-groups with their prior corrected, aggregated to classes.

    Needs labels y and class prompts. It uses no sensitive values and no gradient.

    Parameters
    ----------
    tau : float, default=1.0
        Strength τ of the correction of the group prior; 1 is optimal for the balanced error of the groups, and 0
        corrects nothing.
    C : float, default=1.0
        Inverse strength of the penalty of the probe over groups, as in `LinearProbe`.
    first_C : float, default=0.01
        Inverse strength of the penalty of the biased probe.
    folds : int, default=5
        Number of folds in which the biased probe predicts rows it was not fitted on; 1 predicts its own training rows.
    standardize, max_iter, tol
        As in `LinearProbe`, for both probes.
    random_state : int, RandomState or None
        Draws the folds.

    Attributes
    ----------
    coef_, intercept_ : array of shape (c, p) and (c,)
        The aggregated head, for unit rows.
    diagnostics_ : dict
        As in `LinearProbe` for the probe over groups, and ``groups``, the numbers of rows (c, 2) of each class that
        the biased probe gets right and wrong. If it gets all rows right, ``note`` says so.

    Notes
    -----
    1. Project: ``Π = I − Zᵀ(ZZᵀ)⁻¹Z`` removes the span of the class prompts Z from the rows. A biased probe is fitted
       on ``Πx``, with logits corrected by the class prior. It knows of a class only what the prompts do not say, such
       as a background.
    2. Probe: pseudo-groups are pairs of a class and whether the biased probe is right. A probe over groups minimises
       ``½‖W‖² + C·Σ CE(Wx + b + τ·ln β)``, with the shares β of the groups.
    3. Aggregate: the logit of a class is the mean of the logits ``w_g·x + b_g`` of its groups.

    The intercept is free, so that ``b + τ·ln β`` does not depend on τ, and the correction is exactly ``−τ·ln β`` added
    to the intercepts of the plain probe over groups. The same holds for the class prior of the biased probe.

    What is known of the paper is a public summary of it: the projection off the class texts, a biased probe,
    pseudo-groups, the adjustment of the logits by the group prior, and the aggregation to classes. The rest is our
    reading of it and was not compared with the paper or its code: free intercepts, probes that are fitted to
    convergence, C, and how τ is chosen.

    Differences from the paper, as far as the summary tells: two choices are deliberate. A converged probe may get all
    its training rows right, so its predictions are out of fold here. The mean has the place of a sum over groups; it
    predicts the same where every class has both groups, and it stays fair to a class that has one.

    Licence of the released code: not known. This is a new implementation.

    References
    ----------
    Zhu et al., "Project-Probe-Aggregate: Efficient Fine-Tuning for Group Robustness", 2025, arXiv:2503.09487.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(100) % 2
    >>> X = np.column_stack([2 * y - 1, np.ones(100), rng.normal(size=100)]) + 0.3 * rng.normal(size=(100, 3))
    >>> model = PPA(random_state=0).fit(X, y, text=[[-1, 1, 0], [1, 1, 0]])
    >>> sum(map(sum, model.diagnostics_["groups"])), float(np.mean(model.predict(X) == y)) > 0.9
    (100, True)
    """

    needs = Needs("target", True, False, False, "Zhu et al. 2025, arXiv:2503.09487")

    tau: float = 1.0
    _: KW_ONLY
    C: float = 1.0
    first_C: float = 1e-2
    folds: int = 5
    standardize: str | None = "scalar"
    max_iter: int = 100
    tol: float = 1e-4
    random_state: Any = None

    @property
    def title(self) -> str:
        """Name of the method."""
        return "PPA (project, probe, aggregate)"

    def _learn(self, data: Training) -> None:
        check_within("tau", self.tau, 0.0, MOST_TAU)
        check_positive("C", self.C)
        check_positive("first_C", self.first_C)
        check_count("folds", self.folds, MOST_FOLDS)
        check_choice("standardize", self.standardize, STANDARDIZE)
        check_count("max_iter", self.max_iter)
        check_positive("tol", self.tol)
        check_classes(data, self.classes_, "PPA")
        used = np.flatnonzero(data.weight > 0)
        data = replace(data, X=data.X[used], y=_labels(data)[used], s=None, weight=data.weight[used])
        y = _labels(data)
        wrong = (self._biased(data, span(class_prompts(data, "PPA"))) != y).astype(np.int64)
        cells, group = np.unique(2 * y + wrong, return_inverse=True)
        group = group.reshape(-1)
        coef, intercept, found = self._probe(float(self.C))._fit_probe(
            replace(data, y=group, n_classes=len(cells)), data.X
        )
        share = np.bincount(group, weights=data.weight) / data.weight.sum()
        intercept = intercept - float(self.tau) * np.log(share)
        mean = (cells // 2 == np.arange(data.n_classes)[:, None]).astype(np.float64)  # (c, groups)
        mean /= mean.sum(axis=1, keepdims=True)
        self.coef_, self.intercept_ = mean @ coef, mean @ intercept
        counts = np.bincount(2 * y + wrong, minlength=2 * data.n_classes).reshape(-1, 2)
        self.diagnostics_ = {
            **found,
            "groups": counts.tolist(),
            **({} if wrong.any() else {"note": NO_ERRORS}),
        }

    def _probe(self, C: float) -> L2Probe:
        return L2Probe(C=C, standardize=self.standardize, max_iter=self.max_iter, tol=self.tol)

    def _biased(self, data: Training, basis: F64) -> Ints:
        """Return the class codes (n,) that the biased probe predicts, out of fold."""
        y = _labels(data)
        fold = class_folds(y, self.folds, self.random_state)

        def predicted() -> Ints:
            X = project(data.X, basis)
            found = np.empty(len(y), dtype=np.int64)
            for k in range(self.folds):
                learned = fold != k if self.folds > 1 else np.ones(len(y), dtype=bool)
                found[fold == k] = self._predict_biased(data, X, learned, fold == k)
            return found

        settings = (self.first_C, self.folds, self.standardize, self.max_iter, self.tol)
        return first_stage(predicted, "PPA", data.X, y, data.weight, basis, fold, *settings)

    def _predict_biased(self, data: Training, X: F64, learned: Any, asked: Any) -> Ints:
        """Fit the biased probe on some projected rows and predict others; a class without rows is never predicted."""
        if not asked.any():
            return np.empty(0, dtype=np.int64)
        known, codes = np.unique(_labels(data)[learned], return_inverse=True)
        codes = codes.reshape(-1)
        if len(known) < 2:
            return np.full(int(asked.sum()), known[0] if len(known) else -1)
        weight = data.weight[learned]
        part = replace(data, X=X[learned], y=codes, weight=weight, n_classes=len(known))
        coef, intercept, _ = self._probe(float(self.first_C))._fit_probe(part, part.X)
        prior = np.bincount(codes, weights=weight) / weight.sum()
        return np.asarray(known[(X[asked] @ coef.T + intercept - np.log(prior)).argmax(axis=1)])


def _labels(data: Training) -> Ints:
    if data.y is None:  # `check_classes` raises before
        raise LabelError("PPA learns from labels: give y")
    return data.y
