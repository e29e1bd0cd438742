"""WiSE: interpolation between the zero-shot head and a linear probe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairerclip._util.checks import check_within
from fairerclip._util.types import F64
from fairerclip.baselines.heads import check_classes, class_prompts
from fairerclip.baselines.logistic import L2Probe
from fairerclip.baselines.shared_solutions import once
from fairerclip.baselines.training_data import Needs, Training
from fairerclip.data.embedding_rows import unit_rows

CONSTANT_HEAD = 1e-12
"""Largest spread of the scores, relative to their size, that counts as rounding."""


@dataclass(eq=False, repr=False)
class WiSE(L2Probe):
    """Linear head whose weights are interpolated between zero-shot and a linear probe, as in WiSE-FT.

    Needs class prompts and labels y, and with ``class_weight="group"`` sensitive values: true values, or prompts to
    predict them from. It uses no gradient.

    Parameters
    ----------
    alpha : float, default=0.5
        0 predicts as `ZeroShot`, 1 as `LinearProbe` on unit rows.
    C, class_weight, standardize, select, max_iter, tol
        Parameters of the probe, as in `LinearProbe`.

    Attributes
    ----------
    coef_, intercept_ : array of shape (c, p) and (c,)
        The interpolated head, for unit rows.
    scales_ : array of shape (2,)
        Divisors of the zero-shot head and of the probe.

    Notes
    -----
    Both heads act on unit rows. A constant added to all classes changes no prediction, so each head is centred over
    classes. Then it is divided by the standard deviation of its scores over training rows and classes, so that α
    interpolates between heads of equal scale.

    Differences from the paper: WiSE-FT interpolates a whole encoder between its weights before and after fine-tuning,
    where both heads have CLIP's logit scale; here the encoder is frozen, the probe is trained from zero, and its scale
    depends on C.

    Licence of the released code: MIT. This is a new implementation.

    References
    ----------
    Wortsman et al., "Robust fine-tuning of zero-shot models", 2022, arXiv:2109.01903.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, 0.2], [0.9, -0.1], [0.1, 1.0], [-0.2, 0.8]])
    >>> text = {"cat": [1.0, 0.0], "dog": [0.0, 1.0]}
    >>> model = WiSE(alpha=0.3).fit(X, ["cat", "cat", "dog", "dog"], text=text)
    >>> model.predict([[0.5, 0.1]]).tolist(), len(model.scales_)
    (['cat'], 2)
    """

    needs = Needs("target", True, False, False, "Wortsman et al. 2022, arXiv:2109.01903")
    fitted: ClassVar[tuple[str, ...]] = ("coef_", "intercept_", "scales_")
    shapes = {"coef_": ("c", "p"), "intercept_": ("c",), "scales_": ("two",)}  # noqa: RUF012

    alpha: float = 0.5

    @property
    def title(self) -> str:
        """Name of the method with its weights."""
        return f"{self._weighted()}WiSE"

    def _learn(self, data: Training) -> None:
        check_within("alpha", self.alpha, 0.0, 1.0)
        self._check_probe()
        check_classes(data, self.classes_, "WiSE")
        X = once(unit_rows, data.X)
        held = None if data.validation is None else unit_rows(data.validation.X)
        coef, intercept, self.diagnostics_ = self._fit_probe(data, X, held)
        zero, zero_scale = _rescaled(class_prompts(data, "WiSE"), np.zeros(data.n_classes), X, data.weight)
        learned, learned_scale = _rescaled(coef, intercept, X, data.weight)
        self.coef_, self.intercept_ = (
            (1 - self.alpha) * a + self.alpha * b for a, b in zip(zero, learned, strict=True)
        )
        self.scales_ = np.array([zero_scale, learned_scale])

    def _class_scores(self, embedded: F64) -> F64:
        """Return the interpolated class scores (b, c)."""
        return np.asarray(unit_rows(embedded) @ self.coef_.T + self.intercept_)


def _rescaled(coef: F64, intercept: F64, X: F64, weight: F64) -> tuple[tuple[F64, F64], float]:
    """Return a head centred over classes, divided by the spread of its scores over rows X, and that spread.

    A head whose scores do not vary over the rows, but for rounding, is not divided, and its spread is 1.
    """
    coef, intercept = coef - coef.mean(axis=0), intercept - intercept.mean()
    scores, share = X @ coef.T, weight / weight.sum()
    spread = float(np.sqrt(np.mean(share @ (scores - share @ scores) ** 2)))
    if spread <= CONSTANT_HEAD * max(1.0, float(np.abs(scores + intercept).max())):
        spread = 1.0
    return (coef / spread, intercept / spread), spread
