"""WiSE: between the zero-shot head and a linear probe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fairerclip._util.checks import check_within
from fairerclip._util.types import F64
from fairerclip.baselines.baseline import Needs, Training
from fairerclip.baselines.heads import check_classes, class_prompts
from fairerclip.baselines.logistic import L2Probe
from fairerclip.data.embedding_rows import unit_rows


@dataclass(eq=False, repr=False)
class WiSE(L2Probe):
    """A linear head between zero-shot and a linear probe, weights interpolated as WiSE-FT does.

    Needs class prompts and labels y; with ``class_weight="group"`` sensitive values as well, true ones or prompts.

    Parameters
    ----------
    alpha : float, default=0.5
        0 predicts as `ZeroShot`, 1 as `LinearProbe` on unit rows.
    C, class_weight, standardize, select, max_iter, tol
        Of the probe, as in `LinearProbe`.

    Attributes
    ----------
    coef_, intercept_ : (c, p), (c,) of unit rows.
    scales_ : (2,) what the zero-shot and the probe head were divided by.

    Notes
    -----
    Both heads act on rows of length one. Adding the same to all classes changes no prediction, so each head is
    centred over classes; then it is divided by the spread of its scores around their mean, over training rows and
    classes. So α is a share of two heads that speak equally loud. WiSE-FT interpolates a whole encoder between its
    weights before and after fine-tuning, where both heads have CLIP's logit scale; here the encoder is frozen, the
    probe starts from nothing, and its scale depends on C.

    References
    ----------
    Wortsman et al., "Robust fine-tuning of zero-shot models", 2022, arXiv:2109.01903.
    """

    needs = Needs("target", True, False, False, "Wortsman et al. 2022, arXiv:2109.01903")
    fitted: ClassVar[tuple[str, ...]] = ("coef_", "intercept_", "scales_")
    shapes = {"coef_": ("c", "p"), "intercept_": ("c",), "scales_": ("two",)}  # noqa: RUF012

    alpha: float = 0.5

    def _learn(self, data: Training) -> None:
        check_within("alpha", self.alpha, 0.0, 1.0)
        self._check_probe()
        check_classes(data, self.classes_, "WiSE")
        X = unit_rows(data.X)
        held = None if data.validation is None else unit_rows(data.validation.X)
        coef, intercept, self.diagnostics_ = self._fit_probe(data, X, held)
        zero, zero_scale = _evened(class_prompts(data, "WiSE"), np.zeros(data.n_classes), X, data.weight)
        learned, learned_scale = _evened(coef, intercept, X, data.weight)
        self.coef_, self.intercept_ = (
            (1 - self.alpha) * a + self.alpha * b for a, b in zip(zero, learned, strict=True)
        )
        self.scales_ = np.array([zero_scale, learned_scale])

    def scores(self, X: Any) -> F64:
        """Interpolated score of each class (n, c)."""
        return np.asarray(unit_rows(self._rows(X)) @ self.coef_.T + self.intercept_)


def _evened(coef: F64, intercept: F64, X: F64, weight: F64) -> tuple[tuple[F64, F64], float]:
    """A head centred over classes, its scores of spread one over rows X, and what it was divided by."""
    coef, intercept = coef - coef.mean(axis=0), intercept - intercept.mean()
    scores, share = X @ coef.T, weight / weight.sum()
    spread = float(np.sqrt(np.mean(share @ (scores - share @ scores) ** 2))) or 1.0  # a constant head stays
    return (coef / spread, intercept / spread), spread
