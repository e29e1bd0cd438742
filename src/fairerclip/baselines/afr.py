"""Automatic feature reweighting (AFR): a head refitted on held-out rows, of which unlikely ones weigh more."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np

from fairerclip._util.checks import LARGEST, check_interval, check_within
from fairerclip._util.types import F64, Ints
from fairerclip.baselines.class_folds import class_folds
from fairerclip.baselines.heads import LinearHead, check_classes
from fairerclip.baselines.logistic import L2Probe, Scaling, warn_unconverged
from fairerclip.baselines.shared_solutions import first_stage
from fairerclip.baselines.softmax import softmax_path
from fairerclip.baselines.training_data import Needs, Training
from fairerclip.errors import LabelError

MOST_GAMMA = 500.0
"""Largest γ; beyond it the weights of likely rows are zero in double precision."""


SMALLEST_LAM = 1e-12
"""Smallest λ: a second stage with a weaker penalty has no minimum that double precision finds."""


@dataclass(eq=False, repr=False)
class AFR(L2Probe, LinearHead):
    """Linear probe, refitted close to itself on held-out rows that weigh more the less likely their label was.

    Needs labels y, and with ``class_weight="group"`` sensitive values: true values, or prompts to predict them from. It
    uses no class prompts and no gradient.

    Parameters
    ----------
    gamma : float, default=14.0
        γ of the weights ``exp(−γ·p̂)``, with the probability p̂ that the first head gives to the label of a row; 0
        weights all rows of a class alike. Published: 14 for Waterbirds, 1.8 for CelebA.
    lam : float, default=0.2
        λ of the penalty ``λ‖W − W₀‖²`` of the refitted head, with its intercepts. Published: 0.2 for Waterbirds, and
        none for CelebA, with an early stop in its place.
    share : float, default=0.2
        Share of the rows of each class that is held out for the second stage.
    C, class_weight, standardize, select, max_iter, tol
        Parameters of the first head, as in `LinearProbe`; standardize, max_iter and tol are those of the second stage,
        too.
    random_state : int, RandomState or None
        Draws the held-out rows.

    Attributes
    ----------
    coef_, intercept_ : array of shape (c, p) and (c,)
        The refitted head, for unit rows.
    diagnostics_ : dict
        As in `LinearProbe`, with n_iter, converged and gradient of the second stage; ``held_out``, its number of rows,
        and ``effective_rows``, the number of rows of equal weight with the same variance, ``1/Σμ²``.

    Notes
    -----
    The first head W₀, b₀ is a probe on the other rows. Over the held-out rows the second stage minimises
    ``Σ μᵢ·CEᵢ + λ(‖W − W₀‖² + ‖b − b₀‖²)``, with ``μᵢ ∝ exp(−γ·p̂ᵢ)/n_y``, where n_y is the number of held-out rows of
    the class, and ``Σ μᵢ = 1``. With ``W = W₀ + V`` this is a probe with the logits of W₀ as offsets, which is convex
    in V. W is in units of the standardised rows. A class with one row has it in both stages.

    Differences from the paper: it trains a whole network on the first part; here the encoder is frozen and the first
    head is a probe. The second stage is solved to convergence and not by 100 to 500 steps, so that λ must be positive.
    Rows are not augmented.

    Licence of the released code: none found in the listing of its repository. This is a new implementation from the
    paper.

    References
    ----------
    Qiu et al., "Simple and Fast Group Robustness by Automatic Feature Reweighting", 2023, arXiv:2306.11074.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(100) % 2
    >>> X = np.column_stack([2 * y - 1, np.ones(100)]) + 0.3 * rng.normal(size=(100, 2))
    >>> model = AFR(random_state=0).fit(X, y)
    >>> model.diagnostics_["held_out"], float(np.mean(model.predict(X) == y)) > 0.9
    (20, True)
    """

    needs = Needs("target", False, False, False, "Qiu et al. 2023, arXiv:2306.11074")

    gamma: float = 14.0
    _: KW_ONLY
    lam: float = 0.2
    share: float = 0.2
    random_state: Any = None

    @property
    def title(self) -> str:
        """Name of the method with the weights of its first head."""
        return f"{self._weighted()}AFR (automatic feature reweighting)"

    def _learn(self, data: Training) -> None:
        check_interval("gamma", self.gamma, 0, MOST_GAMMA, "[]")
        check_within("lam", self.lam, SMALLEST_LAM, LARGEST)
        check_interval("share", self.share, 0, 1, "()")
        self._check_probe()
        check_classes(data, self.classes_, "AFR")
        rest, held = self._parts(data)
        coef, intercept, found = self._first(data, rest)
        X, y = data.X[held], _labels(data)[held]
        logits = X @ coef.T + intercept
        weight = likelihood_weights(logits, y, float(self.gamma), data.weight[held])
        used = weight > 0  # a weight may be too small for a double
        scaling = Scaling.of(data.X, data.weight, self.standardize)
        # `softmax_path` halves C for two classes, where scikit-learn penalises a single vector.
        C = (2.0 if data.n_classes == 2 else 1.0) / (2 * float(self.lam))
        (solution,) = softmax_path(
            scaling.apply(X[used]),
            y[used],
            weight[used],
            data.n_classes,
            [C],
            tol=self.tol,
            max_iter=self.max_iter,
            offset=logits[used],
            free_intercept=False,
        )
        if not solution.converged:
            warn_unconverged(
                f"the second stage of AFR with lam={self.lam:g} is not at its minimum after {solution.steps} steps: "
                f"its gradient is {solution.gradient:g} of the change of the weights, above tol={self.tol:g}",
                "raise max_iter, tol or lam",
            )
        change, shift = scaling.fold(solution.coef, solution.intercept)
        self.coef_, self.intercept_ = coef + change, intercept + shift
        self.diagnostics_ = {
            **found,
            "n_iter": solution.steps,
            "converged": solution.converged,
            "gradient": solution.gradient,
            "held_out": len(held),
            "effective_rows": float(1 / np.sum(weight**2)),
        }

    def _parts(self, data: Training) -> tuple[Ints, Ints]:
        """Return the rows of the first head and the held-out rows; every class has rows in both."""
        rows = np.flatnonzero(data.weight > 0)
        y = _labels(data)[rows]
        rank = class_folds(y, len(rows), self.random_state)  # a random order of the rows, class after class
        first = np.concatenate([[0], np.cumsum(np.bincount(y, minlength=data.n_classes))])
        counts = np.diff(first)
        size = np.clip(np.round(float(self.share) * counts), 1, np.maximum(counts - 1, 1))
        held = rank - first[y] < size[y]
        alone = counts[y] == 1
        return rows[~held | alone], rows[held]

    def _first(self, data: Training, rows: Ints) -> tuple[F64, F64, dict[str, Any]]:
        """Fit the first head (c, p), (c,) on some of the rows."""
        part = replace(
            data,
            X=data.X[rows],
            y=_labels(data)[rows],
            s=None if data.s is None else data.s[rows],
            weight=data.weight[rows],
        )
        held = data.validation
        given = () if held is None else (held.X, held.y, held.s)
        return first_stage(
            lambda: self._fit_probe(part, part.X, None if held is None else held.X),
            *("AFR", part.X, part.y, part.s, part.weight, *given),
            *(self.C, self.class_weight, self.standardize, self.select, self.max_iter, self.tol),
        )


def likelihood_weights(logits: F64, y: Ints, gamma: float, weight: F64) -> F64:
    """Return row weights (n,) ∝ weight·exp(−γ·p̂)/n_y that sum to one; p̂ is the probability of the label.

    Examples
    --------
    >>> likelihood_weights(np.log([[0.5, 0.5], [0.9, 0.1]]), np.array([0, 0]), 0.0, np.ones(2)).tolist()
    [0.5, 0.5]
    """
    shifted = logits - logits.max(axis=1, keepdims=True)
    likely = np.exp(shifted[np.arange(len(y)), y]) / np.exp(shifted).sum(axis=1)
    totals = np.bincount(y, weights=weight)
    found = weight * np.exp(-gamma * (likely - likely.min())) / totals[y]
    return np.asarray(found / found.sum())


def _labels(data: Training) -> Ints:
    if data.y is None:  # `check_classes` raises before
        raise LabelError("AFR learns from labels: give y")
    return data.y
